"""Every recipe is a valid config, says its command, and fits its file name."""

import random
import runpy
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


@pytest.mark.parametrize("name", ["languages", "answers", "summaries", "dialogue", "proteins", "conditioned"])
def test_applications_make_data_that_is_the_same_for_the_same_seed(name: str) -> None:
    made = runpy.run_path(str(Path(__file__).parent.parent / "recipes/applications.py"))[name]
    one, other, new = (made(random.Random(seed), 40) for seed in (1, 1, 2))
    assert one == other != new
    assert all(source.strip() and target.strip() for source, target in one)
    if name == "proteins":
        assert all(len(source.split()) == len(target.split()) for source, target in one)
    if name == "answers":
        assert all(target in source.split() for source, target in one)
    if name == "conditioned":
        assert not any(source.startswith("upper reverse:") for source, _ in made(random.Random(3), 2000))
