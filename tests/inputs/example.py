"""The input that CONTRIBUTING.md writes in one file, registered for tests."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from regard.inputs import INPUTS
from regard.inputs.input import Input

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def source() -> str:
    """The code of the section "Add an input in one file"."""
    section = PAGE.read_text(encoding="utf-8").split("## Add an input in one file")[1]
    found = re.search(r"```python[^\n]*\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def register() -> type[Input[Any]]:
    """Put the line of the new input into the dictionary of inputs, before that of text."""
    if "series" not in INPUTS:
        module = ModuleType("series")
        sys.modules["series"] = module
        exec(compile(source(), "series.py", "exec"), module.__dict__)
        others = dict(INPUTS)
        INPUTS.clear()
        text = others.pop("tokens")  # the last: everything can be read as text
        INPUTS.update({**others, "series": module.Series, "tokens": text})
    return INPUTS["series"]
