"""`data.most` trains on some of the examples and holds out the same ones; `training.validated` fixes the validations."""

from pathlib import Path

import pytest

import regard
from regard.errors import UserError
from regard.runs import settings
from regard.training.choose import choose
from regard.training.prepare import Prepared, prepare
from tests.conftest import write_pairs


def prepared(folder: Path, most: int | None, seed: int = 1) -> Prepared:
    folder.mkdir()
    config, _, seen = choose([str(write_pairs(folder / "pairs.tsv"))])
    more = [f"training.seed={seed}", *([] if most is None else [f"data.most={most}"])]
    return prepare(settings.override(config, more), folder, seen, lambda _: None)


def test_so_many_examples_are_trained_on_and_the_same_are_held_out(tmp_path: Path) -> None:
    whole, some, again, other = (
        prepared(tmp_path / name, most, seed)
        for name, most, seed in (("whole", None, 1), ("some", 40, 1), ("again", 40, 1), ("other", 40, 2))
    )
    assert len(whole.store) > 100
    assert [len(each.store) for each in (some, again, other)] == [40, 40, 40]
    keys = [[item.example.key for item in each.valid.items] for each in (whole, some)]
    assert keys[0] == keys[1]

    def rows(one: Prepared) -> list[list[int]]:
        return [one.store[i][0].tolist() for i in range(len(one.store))]

    assert rows(some) == rows(again)
    assert rows(some) != rows(other)
    held = {item.example.source for item in some.valid.items}
    assert not held & {some.task.input.alphabet.decode(row) for row in rows(some)}  # type: ignore[union-attr]


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.most=5,000: expected at most the \d+ pairs"):
        prepared(tmp_path / "all", 5000)


def test_validations_look_at_as_many_items_as_are_asked_for(tmp_path: Path) -> None:
    import json

    write_pairs(tmp_path / "pairs.tsv")
    small = {"model.width": 8, "training.validated": 7, "training.every": 2}
    regard.train(tmp_path / "pairs.tsv", tmp_path / "run", steps=4, set=small, quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["items"] for entry in entries] == [7, 7]
    assert all(0 < entry["step_seconds"] < 60 for entry in entries)
