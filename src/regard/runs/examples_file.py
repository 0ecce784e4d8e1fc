"""The file of a run that holds examples for its page; a server reads it without loading the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = "examples.json"
COUNT = 6


def examples_in(folder: Path) -> list[dict[str, Any]]:
    """Return the examples of a run, none if it has none."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [one for one in found if isinstance(one, dict)][:COUNT] if isinstance(found, list) else []
