"""The one error class for faults a user can cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ARGUMENTS = {"from": "start", "with": "others", "output": "out"}  # options whose argument in Python has another name
COMMAND = re.compile(r"(`regard [^`]*`)")  # is meant for a shell
PAIR = r"[a-z_]+\.\w+=[^\s,;:]*[^\s,;:.]"
SETTINGS = re.compile(rf"--set ({PAIR}(?: {PAIR})*)")
VALUED = re.compile(r"--(valid|test|from|task|engine|device|format) (?!is\b|or\b|and\b)([^\s:;,]*[^\s:;,.])")
COLUMNS = re.compile(r"--columns (\w+=[^\s;:]*[^\s;:,.])")
OPTION = re.compile(r"--([a-z][a-z-]*)")

_in_shell: ContextVar[bool] = ContextVar("in_shell", default=False)


class UserError(ValueError):
    """One clear sentence: what is wrong and where, what was expected, what was found, what to do.

    The command line prints it without a traceback and exits with 1; in Python it is an ordinary ValueError. It is
    written with the options of the command line; in Python it names the arguments instead: `out=`, not `-o`.
    """

    def __str__(self) -> str:
        sentence = super().__str__()
        return sentence if _in_shell.get() else _in_python(sentence)


@contextmanager
def shell() -> Iterator[None]:
    """Let errors name options of the command line."""
    token = _in_shell.set(True)
    try:
        yield
    finally:
        _in_shell.reset(token)


def _in_python(sentence: str) -> str:
    """Return a sentence with arguments in place of options."""
    parts = COMMAND.split(sentence)
    return "".join(part if COMMAND.fullmatch(part) else _with_arguments(part) for part in parts)


def _with_arguments(text: str) -> str:
    text = SETTINGS.sub(lambda found: f"set={{{_dictionary(found[1])}}}", text)
    text = VALUED.sub(lambda found: f"{_name(found[1])}={_literal(found[2])}", text)
    text = COLUMNS.sub(lambda found: f'columns="{found[1]}"', text)
    text = re.sub(r"(?<![\w-])-o(?![\w-])", "out=", text)
    return OPTION.sub(lambda found: _name(found[1]), text)


def _dictionary(settings: str) -> str:
    pairs = (setting.split("=", 1) for setting in settings.split(" "))
    return ", ".join(f'"{key}": {_literal(value)}' for key, value in pairs)


def _name(option: str) -> str:
    return ARGUMENTS.get(option, option.replace("-", "_"))


def _literal(value: str) -> str:
    value = {"true": "True", "false": "False"}.get(value, value)
    return value if re.fullmatch(r"[\d.+-]+(e[+-]?\d+)?|[A-Z]+|True|False|…", value) else f'"{value}"'
