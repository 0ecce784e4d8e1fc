"""Links that work on GitHub also work in the site: a file outside docs/ becomes a page `source/…` of its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from itertools import zip_longest

from docs.atlas import pages
from docs.atlas.pages import ROOT

TARGET = re.compile(r"""(\]\(<?|^\s{0,3}\[[^\]]+\]:\s+|(?:href|src)=")([^)\s>"]+)""")
ELSEWHERE = re.compile(r"[a-z]+:|#")
ITEM = re.compile(r"([-*+]|\d+\.) ")


def prose(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and True if it is prose, not within a fenced block."""
    for line, bare in zip_longest(markdown.splitlines(), pages.prose(markdown).splitlines(), fillvalue=""):
        yield line, bool(line) and line == bare


def changed(markdown: str, change: Callable[[str], str]) -> str:
    """Return the page with every link's target changed, except those in code."""
    lines = []
    for line, is_prose in prose(markdown):
        parts = re.split(r"(`+[^`]*`+)", line) if is_prose else [line]
        for i in range(0, len(parts) if is_prose else 0, 2):
            parts[i] = TARGET.sub(lambda found: found[1] + change(found[2]), parts[i])
        lines.append("".join(parts))
    return "\n".join(lines) + "\n"


def outside(markdown: str, origin: str) -> set[str]:
    """Return the files outside docs/ that a page links to; `origin` is the page's own path in the repository."""
    found: list[str] = []
    changed(markdown, lambda target: found.append(resolved(target, origin)) or target)  # type: ignore[func-returns-value]
    return {path for path in found if path and not path.startswith("docs/") and (ROOT / path).exists()}


def resolved(target: str, origin: str) -> str:
    """Return the path in the repository of a link's target, or nothing if it leads elsewhere."""
    if ELSEWHERE.match(target):
        return ""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), target.partition("#")[0]))


def place(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def in_site(markdown: str, origin: str) -> str:
    """Return a page of the repository as the site has it: targets lead to the site's own pages."""

    def change(target: str) -> str:
        path = resolved(target, origin)
        if not path:
            return target
        anchor = re.sub(r"^L(\d+).*", r"__codelineno-0-\1", target.partition("#")[2])
        return posixpath.relpath(place(path), posixpath.dirname(place(origin)) or ".") + (anchor and f"#{anchor}")

    return spaced(changed(markdown, change))


def spaced(markdown: str) -> str:
    """Return the page with a blank line before each list, which GitHub does not need and the site does."""
    lines: list[str] = []
    for line, is_prose in prose(markdown):
        before = lines[-1] if lines else ""
        if is_prose and ITEM.match(line) and before and not ITEM.match(before) and not before.startswith(" "):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def included(path: str) -> str:
    """Return the page `source/…` of a file or folder outside docs/, as Markdown with the links of the repository."""
    file = ROOT / path
    hidden = "---\nsearch:\n  exclude: true\n---\n"  # who searches wants the pages, not every line of code
    if file.is_dir():
        inside = sorted(f.name for f in file.iterdir() if f.suffix in (".md", ".py", ".yaml"))
        return f"{hidden}# {path}\n\n" + "".join(f"- [{name}]({file.name}/{name})\n" for name in inside)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    kind = {".py": "python", ".yaml": "yaml", ".toml": "toml"}.get(file.suffix, "text")
    return f'{hidden}# {file.name}\n\n`{path}`\n\n~~~~~~ {{ .{kind} linenums="1" }}\n{text}\n~~~~~~\n'
