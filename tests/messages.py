"""`python -m tests.messages` lists every sentence that the program can say: errors, refusals, log lines, help.

A sentence stands in a call that says it, in a `raise`, in a `yield`, or in a variable that one of those puts in.
"""

import ast
import re
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
    "Field",
}
SAID_BY = {"help", "description"}  # keywords
TEMPLATES = {"PydanticCustomError"}  # which put values into {names} themselves


def messages(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of each message of a file; what is put into it is shown as {…}."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    templates = {
        part
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _name(call.func) in TEMPLATES
        for part in call.args
    }
    said = list(_said(tree))
    names = {name.id for part in said for name in ast.walk(part) if isinstance(name, ast.Name)}
    said += [part for part, target in _assigned(tree) if target in names]
    found = {
        (part.lineno, re.sub(r"{\w+}", "{…}", text) if part in templates else text)
        for part in said
        for text in _texts(part)
    }
    return sorted((line, text) for line, text in found if " " in text.strip())


def _said(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that are said."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) in CALLS:
            yield from node.args
            yield from (keyword.value for keyword in node.keywords if keyword.arg in SAID_BY)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from node.exc.args
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.BinOp):
            yield node.value


def _assigned(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    """Yield each value that is given to a variable and the variable's name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from ((node.value, name.id) for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) and isinstance(node.target, ast.Name):
            yield node.value, node.target.id


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may become."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "{…}" for part in node.values)  # type: ignore[misc]
        for part in node.values:
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.IfExp):
                yield from _texts(part.value)
    elif isinstance(node, ast.BinOp):
        left, right = list(_texts(node.left)), list(_texts(node.right))
        yield from (one + other for one in left or [""] for other in right or [""])
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body)
        yield from _texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _texts(value)


def main() -> None:
    for path in sorted(ROOT.rglob("*.py")):
        for line, text in messages(path):
            sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {text}\n")


if __name__ == "__main__":
    main()
