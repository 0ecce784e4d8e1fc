"""Lines of the source in a page: included when the page is built, never copied into it.

A page says `<!-- source: src/regard/attention/scores.py Additive, MLP.forward -->` on a line of its own; `expand`
puts the code of these names there, each with a link to its lines.
"""

import ast
import re
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).resolve().parents[2]
MARKER = re.compile(r"^<!-- source: (\S+) (.+?) -->$", re.MULTILINE)


def expand(markdown: str) -> str:
    """Return a page of docs/atlas with the code in the place of each marker."""
    return MARKER.sub(lambda found: "\n\n".join(fenced(found[1], name) for name in names_of(found[2])), markdown)


def names_of(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",")]


def fenced(file: str, name: str) -> str:
    """Return the fenced code of a name, below a link to it."""
    first, last = lines_of(file, name)
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()[first - 1 : last]
    code = dedent("\n".join(lines))
    return f"[`{name}` in {Path(file).name}](../../{file}#L{first}-L{last}):\n\n```python\n{code}\n```"


def lines_of(file: str, name: str) -> tuple[int, int]:
    """Return the first and the last line of a function, class, `Class.method` or constant of a file."""
    if not (ROOT / file).is_file():
        raise ValueError(f"{file}: there is no such file")
    body = _statements(file)
    for part in name.split("."):
        found = next((node for node in body if part in _names(node)), None)
        if found is None:
            raise ValueError(f"{file}: there is no '{name}' in it")
        body = found.body if isinstance(found, ast.ClassDef) else []
    decorators = getattr(found, "decorator_list", [])
    assert found is not None
    return min([found.lineno, *(node.lineno for node in decorators)]), found.end_lineno or found.lineno


@cache
def _statements(file: str) -> list[ast.stmt]:
    return ast.parse((ROOT / file).read_text(encoding="utf-8")).body


def _names(node: ast.stmt) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]
