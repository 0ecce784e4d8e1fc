"""Every recipe is a valid config, says its command, fits its file name, and describes a network that can be built."""

import gzip
import json
import random
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from regard.runs import settings
from regard.training import rehearsal
from tests import test_matrix as matrix

RECIPES = sorted((Path(__file__).parent.parent / "recipes").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe(path: Path) -> None:
    found = settings.load(path)
    assert found.data.valid or "held_out:" in path.read_text(), "nothing is held out of the training data by accident"
    head = path.read_text().split("task:")[0]
    assert found.data.test or "no test set" in " ".join(head.replace("#", " ").split())
    assert f"regard train recipes/{path.name} -o runs/{path.stem}" in head
    assert re.search(r"^# (Two CPU cores|One thread): \S", head, re.MULTILINE), "what it takes, and on what"
    assert all(name.startswith("data/") for name in found.data.train + found.data.valid + found.data.test)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_its_settings_make_a_network(path: Path, toys: Callable[[str, str], Path]) -> None:
    """On a toy file of its kind; settings that do not go together are refused only where the network is built."""
    config = settings.load(path)
    data = {"train": [str(toys(config.input, config.task))], "valid": [], "test": [], "format": "", "columns": ""}
    made = rehearsal.of_files(config.model_copy(update={"data": config.data.model_copy(update=data)}))
    assert len(made.rows)
    assert sum(parameter.numel() for parameter in made.task.network.parameters()) > 100


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder = tmp_path_factory.mktemp("toys")
    return lambda source, task: matrix.toy(folder, source, task)


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


def test_understanding_keeps_test_texts_out_of_pre_training_and_averages_over_tasks(tmp_path: Path) -> None:
    recipe = runpy.run_path(str(Path(__file__).parent.parent / "recipes/understanding.py"))
    for split in ("train", "trial", "test"):
        rows = ["id\tA\tB\tscore\tlabel", f"1\tone {split}\tother {split}\t3.5\tNEUTRAL"]
        write_zipped(tmp_path / f"nlu_sick/SICK_{split}.txt.gz", rows)
    for split in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
        write_zipped(tmp_path / f"cls_cola/{split}.tsv.gz", [f"x\t1\t\tsaid {split}"])
    for split in ("train", "dev", "test"):
        write_zipped(tmp_path / f"cls_sst/stsa.binary.{split}.gz", [f"0 dull {split}"])
    recipe["prepare"](tmp_path, tmp_path / "out")
    plain = (tmp_path / "out/plain.txt").read_text().split("\n\n")
    wanted = {"one train\nother train", "other train\none train", "said in_domain_train", "dull train"}
    assert {text.strip() for text in plain} == wanted
    assert (tmp_path / "out/sick_number.train.tsv").read_text().count("\t3.5\n") == 2  # in both orders
    assert (tmp_path / "out/sick_label.test.tsv").read_text() == "one test ||| other test\tNEUTRAL\n"
    scores = {task: [10.0 * number, 20.0 * number] for number, task in enumerate(recipe["TASKS"], 1)}
    last = recipe["table"]({"full": scores}).splitlines()[-1]
    assert last == "| full | 37.5 | 15.0 ± 7.1 | 30.0 ± 14.1 | 45.0 ± 21.2 | 60.0 ± 28.3 |"


def test_the_comparisons_of_the_page_are_those_that_are_kept() -> None:
    """Path lengths and symmetries, which the page has too, are measured when it is written."""
    made = runpy.run_path(str(Path(__file__).parent.parent / "recipes/comparisons.py"))
    written = made["PAGE"].read_text(encoding="utf-8")
    kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in made["RESULTS"].glob("*.json")}
    assert kept.keys() <= made["ALL"].keys()
    for name, asked in made["ALL"].items():
        if name in kept:
            assert made["_section"](name, asked, kept[name]) in written, f"{name}: python recipes/comparisons.py page"
        assert (f"\n## {asked.heading}\n" in written) == (name in kept), f"{name} has no result: … page"
        assert (f"\n- {asked.heading}. " in written) == (name not in kept), f"{name} has a result: … page"


def write_zipped(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
