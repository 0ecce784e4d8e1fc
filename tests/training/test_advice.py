"""Warnings about answers: of labels that a model does not know, and of the same answer to everything."""

from collections import Counter

import pytest

from regard.data.example import Example
from regard.data.survey import take_survey
from regard.outputs.classify.output import Classify
from regard.outputs.output import Item
from regard.runs import settings
from regard.text.classes import Classes
from regard.training.advice import warnings_of, warnings_of_answers


def judged(expected: str, answers: str, labels: str = "ab") -> list[str]:
    output = Classify(Classes.learn(Counter(labels), " ", None))
    items = [Item(Example(f"text {i}", label, "file", i), [label]) for i, label in enumerate(expected)]
    return warnings_of_answers(output, items, list(answers))


@pytest.mark.parametrize(
    ("expected", "answers", "says"),
    [
        ("aab", "aaa", "every answer is 'a', which 66.7 % of the labels are"),
        ("xyx", "aba", "none of the data's 2 labels (x, y) is known to this model"),
        ("abx", "aba", "the data has 1 label (x) that this model does not know"),
    ],
)
def test_an_odd_evaluation_is_said(expected: str, answers: str, says: str) -> None:
    (warning,) = judged(expected, answers)
    assert says in warning


def test_nothing_is_said_of_a_good_one() -> None:
    assert judged("abab", "abba") == []
    assert judged("aaa", "aaa") == []  # there is nothing else


@pytest.mark.parametrize(("start", "says"), [(None, ["training.frozen=true trains the head alone"]), ("runs/a", [])])
def test_a_frozen_network_that_has_learned_nothing_is_said(start: str | None, says: list[str]) -> None:
    given = {"task": "classify", "data": {"train": ["f"]}, "training": {"frozen": True, "start": start}}
    examples = [Example(f"text {i}", "ab"[i % 2], "f", i) for i in range(4)]
    seen = take_survey(iter(examples), lambda target: (target,), "texts")
    found = warnings_of(settings.make(given, "here"), seen, [], [])
    assert [warning[: len(said)] for warning, said in zip(found, says, strict=True)] == says
