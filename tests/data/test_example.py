"""Examples: what counts as the same source, and that a source need not be a text."""

import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from regard.data.example import SIDES, TASKS, UNITS, Example
from regard.data.reading import recognise
from tests.data.test_check_pairs import check_pairs


def test_the_key_is_the_source_unless_given() -> None:
    assert Example("a", "b", "f", 1).key == "a"
    assert Example("a", "b", "f", 1, "A").key == "A"
    assert Example("", "", "f", 1).key == ""


def test_a_source_may_be_a_handle_that_refers_to_other_files(tmp_path: Path) -> None:
    example: Example[Path, int] = Example(tmp_path / "cat.png", 3, "f", 1, refers=(str(tmp_path / "cat.png"),))
    assert example.key == str(tmp_path / "cat.png")
    assert example.refers == (str(tmp_path / "cat.png"),)
    assert Example("a", "b", "f", 1).refers == ()


def test_an_example_is_a_value() -> None:
    example = Example("a", "b", "f", 1)
    assert pickle.loads(pickle.dumps(example)) == example == Example("a", "b", "f", 1, key="a")
    with pytest.raises(FrozenInstanceError):
        example.source = "c"  # type: ignore[misc]
    assert not hasattr(example, "__dict__")


def test_every_task_names_its_sides_and_its_unit() -> None:
    assert SIDES.keys() == UNITS.keys() == set(TASKS)


def test_texts_are_read_by_the_input_of_tokens(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("a\tb\nc\td\n")
    assert recognise([path]).input == "tokens"
    assert check_pairs([path]).format.input == "tokens"
