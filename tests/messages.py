"""`python -m tests.messages` lists every sentence that the program can say: errors, refusals, log lines, help."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import regard

ROOT = Path(regard.__file__).parent
CALLS = {
    "UserError",
    "ValueError",
    "Fault",
    "Refused",
    "say",
    "PydanticCustomError",
    "BadParameter",
    "Option",
    "Argument",
}


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each message of a file; what is put into it is shown as {…}."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in CALLS:
            continue
        for argument in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "help")]:
            text = _text(argument)
            if " " in text:
                yield node.lineno, text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values)  # type: ignore[misc]
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return ""


def main() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        for line, text in messages(path):
            sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {text}\n")


if __name__ == "__main__":
    main()
