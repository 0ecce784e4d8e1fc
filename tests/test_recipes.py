"""Every recipe is a valid config, says its command, and fits its file name."""

from pathlib import Path

import pytest

from regard.runs import settings

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe(path: Path) -> None:
    found = settings.load(path)
    assert found.data.valid or "held_out:" in path.read_text(), "nothing is held out of the training data by accident"
    head = path.read_text().split("task:")[0]
    assert found.data.test or "no test set" in " ".join(head.replace("#", " ").split())
    assert f"regard train recipes/{path.name} -o runs/{path.stem}" in head
    assert "Two CPU cores:" in head
    assert all(name.startswith("data/") for name in found.data.train + found.data.valid + found.data.test)
