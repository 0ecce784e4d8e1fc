"""Measures of one run: for outputs whose answers are sequences, labels of units, or likelihoods."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard import metrics
from regard.comparison.measuring import _quality, measured
from regard.runs.model import SAME

LINES = ["abab cab", "bacab", "cabba", "aabbc cab", "abcabc", "bca"] * 12


def text_run(folder: Path, position: str) -> Path:
    path = folder / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    small = {
        "model.width": 8, "model.hidden": 16, "model.heads": 2, "model.layers": 1, "model.position": position,
        "output.context": 16, "training.budget": 200, "training.every": 2,
    }  # fmt: skip
    regard.train(path, folder / position, steps=4, set=small, task="continue", quiet=True)
    return folder / position


def test_a_language_model_reads_farther_than_it_was_trained_unless_its_table_ends(tmp_path: Path) -> None:
    alibi = measured(regard.load(text_run(tmp_path, "alibi")), (16, 32), guess=True)
    assert alibi["lengths"]["16"] == pytest.approx(alibi["quality"])
    assert alibi["lengths"]["32"] > 1
    assert len(alibi["draws"]) == 1000
    assert all(difference < SAME for _, difference in alibi["checks"])
    assert {name.split(":")[0] for name, _ in alibi["checks"]} >= {"causality", "padding", "batch"}
    learned = measured(regard.load(text_run(tmp_path, "learned")), (16, 32), guess=False)
    assert learned["lengths"]["16"] > 1
    assert learned["lengths"]["32"] is None
    assert learned["simple"] is None


def test_unigrams_are_characters_by_their_frequency(tmp_path: Path) -> None:
    model = regard.load(text_run(tmp_path, "alibi"))
    found = measured(model, (), guess=True)
    assert found["simple"]["name"] == "unigram"
    held = round(len(LINES) - model.config.data.held_out)
    known, asked = ("".join(f"{line}\n" for line in some) for some in (LINES[:held], LINES[held:]))
    alphabet = model.task.input.alphabet
    assert alphabet is not None
    counts = Counter(known)
    total = len(known) + 1 + alphabet.size  # END stands before the first line too
    nats = [-math.log((counts[c] + 1 + (c == "\n")) / total) for c in asked]
    assert found["simple"]["quality"] == pytest.approx(math.exp(sum(nats) / len(nats)), rel=0.01)


def test_conversions_are_split_by_the_length_of_their_sources(letters: Path) -> None:
    model = regard.load(letters / "run")
    found = measured(model, (3, 6), guess=True)
    items = [item for item in model.task.held_items(_held(model)).items if len(item.example.source) <= 3]
    answers = model.predict([item.example.source for item in items])
    right = [answer in item.expected for answer, item in zip(answers, items, strict=True)]
    assert found["quality"] == pytest.approx(100 * sum(right) / len(right))
    assert found["lengths"]["3"] == pytest.approx(found["quality"])
    assert found["lengths"]["6"] is not None
    assert found["seconds_per_answer"] > 0
    assert found["simple"]["name"] == "majority"


def test_an_answer_is_timed_on_one_core(letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, threads = regard.load(letters / "run"), torch.get_num_threads()
    whole, seen = type(model.task).answers, list[int]()

    def answers(*arguments: Any, **options: Any) -> Any:
        seen.append(torch.get_num_threads())
        return whole(*arguments, **options)

    monkeypatch.setattr(type(model.task), "answers", answers)
    torch.set_num_threads(2)
    try:
        measured(model, (), guess=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seen == [1] * 9


def test_a_score_without_resamples_has_a_quality() -> None:
    plain = metrics.Score("distance", 2.5, "", None, None, 7, False, "")
    assert _quality(plain) == {"quality": 2.5, "draws": []}
    assert _quality(None) == {"quality": None, "draws": []}


def _held(model: regard.Model) -> list[object]:  # type: ignore[name-defined]
    from regard.training.split import held_out

    return held_out(model.config, model.task.output)  # type: ignore[return-value]
