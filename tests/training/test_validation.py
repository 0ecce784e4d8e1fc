"""Validation takes at most a tenth of the time, and training ends when nothing could be better."""

import json
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.config import Training
from regard.metrics import Score
from regard.task import Task
from regard.training import loop, validation
from regard.training.loop import Interrupted, Trainer
from regard.training.position import Position
from regard.training.progress import Progress
from regard.training.validation import Plan, Plateau, due, early, planned
from tests.training.toys import toy, trainer, two_terms


def test_items_are_as_many_as_the_time_allows() -> None:
    assert planned(1000, 0.001, 100.0) == Plan(1000, 1)
    assert planned(1000, 0.1, 100.0) == Plan(100, 20)  # 100 s for all, 10 s allowed
    assert planned(1000, 0.0002, 0.1) == Plan(1000, 1)  # so little time that it is always taken
    assert planned(60, 5.0, 10.0).items == 60


@pytest.mark.parametrize(("each", "between"), [(0.05, 100.0), (0.02, 60.0), (0.3, 1000.0), (0.004, 30.0)])
def test_all_validations_together_take_a_tenth(each: float, between: float) -> None:
    items, whole = planned(1000, each, between)
    mean = each * (items + 1000 / whole if whole > 1 else 1000)
    assert mean <= 0.1 * between + 1e-9 or items == validation.FEW


def test_easy_data_is_validated_early() -> None:
    assert [step for step in range(1, 400) if due(step, 100, fixed=False)] == [10, 20, 40, 80, 100, 200, 300]
    assert [step for step in range(1, 400) if due(step, 100, fixed=True)] == [100, 200, 300]


@pytest.mark.parametrize(("items", "stops"), [(3, 10), (10, 3), (15, 2), (500, 2)])
def test_the_fewer_items_are_right_the_more_often_they_must_be(items: int, stops: int) -> None:
    at = Position(history=[{"items": 1, "step": 0, "perfect": items}, {"items": 1, "step": 0}])
    for times in range(1, stops):
        at.history.append({"items": 1, "step": 0, "perfect": items})
        assert early(at, Training(), 1) == "", times
    at.history += [
        {"items": 0, "step": 0},
        {"items": 1, "step": 0, "perfect": items},
    ]  # one that looked at fewer items does not count
    assert early(at, Training(), 1) == f"the score was perfect {stops} times in a row"
    assert early(at, Training(ceiling=False), 1) == ""
    at.history.append({"items": 1, "step": 0})
    assert early(at, Training(), 1) == ""


def easy(path: Path, count: int = 100) -> Path:
    """Texts whose label is one of their words."""
    draw = random.Random(0)
    words = {"good": ["great", "lovely", "fine"], "bad": ["awful", "dull", "poor"]}
    lines = []
    for number in range(count):
        label = ("good", "bad")[number % 2]
        lines.append(
            f"the {draw.choice(['plot', 'song', 'meal'])} was {draw.choice(words[label])} number {number}\t{label}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_hundred_easy_texts_are_learned_in_seconds_and_that_is_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.process_time()
    regard.train(easy(tmp_path / "easy.tsv"), tmp_path / "run")
    said = capsys.readouterr().err
    history = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum(entry["perfect"] for entry in history[-3:]) >= validation.ENOUGH
    assert all(entry["perfect"] == entry["items"] for entry in history[-3:])
    assert history[-1]["minutes"] < 1
    assert time.process_time() - began < 40
    assert said.count("steps fit into") <= 1


def test_slow_validations_look_at_fewer_items_and_the_last_at_all(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validation, "FEW", 4)
    monkeypatch.setattr(validation, "CHEAP", 0.0)
    score = Task.evaluate

    def slow(self: Task, held: object, **how: object) -> tuple[list[Score], list[str]]:
        time.sleep(0.005 * len(held.items))  # type: ignore[attr-defined]
        return score(self, held, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Task, "evaluate", slow)
    settings = {"model.kind": "recurrent", "model.width": 8, "model.layers": 1, "training.every": 3}
    regard.train(pairs, tmp_path / "run", steps=14, set=settings)
    history = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    counts = [entry["items"] for entry in history]
    assert counts[0] < counts[-1]
    assert f"of {counts[-1]} items" in capsys.readouterr().err
    state = sorted((tmp_path / "run" / "state").glob("[0-9]*"))[-1]
    facts = json.loads((state / "facts.json").read_text())
    assert facts["items"] == counts[0]
    assert facts["best_step"] in [entry["step"] for entry in history if entry["items"] == counts[-1]]


def test_flat_is_measured_in_minutes_of_training_or_in_the_given_steps() -> None:
    at = Position(steps=1000)
    for how in (Training(minutes=20), Training(steps=1000), Training(steps=1000, patience=400), Training(patience=8)):
        assert [Plateau(*each).too_long(at, how) for each in ((390, 470.0), (400, 480.0))] == [False, True], how
    assert not Plateau(400, 480.0).too_long(at, Training(minutes=60))


def flat_from(one: Trainer, step: int, seconds: float = 10.0) -> Trainer:
    """Let the score be the same from a step on, and let a clock tell that each step takes `seconds`."""
    inner, evaluate = one._step, one._evaluated

    def stepping() -> tuple[float, int]:
        one.clock += seconds  # type: ignore[attr-defined]
        return inner()

    def evaluated(held: object) -> tuple[list[Score], list[str]]:
        (score,), answers = evaluate(held)  # type: ignore[arg-type]
        return [replace(score, value=100.0 - min(one.at.step, step))], answers

    one.clock = 0.0  # type: ignore[attr-defined]
    one._step, one._evaluated = stepping, evaluated  # type: ignore[method-assign]
    return one


def test_a_flat_score_ends_the_training_at_the_same_minute_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of an hour between two commands does not count, and a training that has ended stays so."""
    now: dict[str, Any] = {"run": None}
    said: list[str] = []
    monkeypatch.setattr(loop.time, "monotonic", lambda: now["run"].clock if now["run"] else 0.0)

    def run(name: str, interrupt: int = 0) -> Trainer:
        how = {"every": 2, "steps": None, "minutes": 10.0, "patience": 1.5, "average": 1}
        now["run"] = one = flat_from(trainer(toy(two_terms()), tmp_path / name, **how), 6)
        one.progress.say = said.append  # type: ignore[method-assign]
        one.resume(said.append)
        inner = one._step

        def stepping() -> tuple[float, int]:
            one.stop = one.at.step + 1 == interrupt
            return inner()

        one._step = stepping  # type: ignore[method-assign]
        one.clock += 3600.0  # type: ignore[attr-defined]
        one.train()
        return one

    whole = run("whole")
    assert (whole.at.step, whole.at.better_step, round(validation.plateau(whole.at, 3).seconds)) == (
        16,
        6,
        100,
    )  # 90 s are in between
    assert "stopped early: no better score for 1.7 minutes and 10 steps" in said[-1]
    with pytest.raises(Interrupted):
        run("parts", interrupt=11)
    parts = run("parts")
    assert (parts.at.step, parts.at.best_step, round(validation.plateau(parts.at, 3).seconds)) == (16, 6, 100)
    assert run("parts").at.step == 16


def test_the_line_of_a_validation_names_the_metric_that_made_it_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    at, progress = Position(), Progress()
    for step, (exact, wrong) in enumerate([(0.0, 90.0), (0.0, 80.0), (5.0, 70.0)], start=1):
        scores = [
            Score("exact_match", exact, "%", None, None, 9, True, ""),
            Score("error", wrong, "%", None, None, 9, False, ""),
        ]
        entry = {"step": step, "minutes": 0.1, "loss": 1.0, "items": 9, "exact_match": exact, "error": wrong}
        at.step = at.best_step = step
        at.history.append(entry)
        progress.validated(at, entry, scores, None, 9)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("loss 1.000  ")[2] for line in lines] == [
        "exact_match 0.00 %  ← best",
        "exact_match 0.00 %, error 80.00 %  ← best",
        "exact_match 5.00 %  ← best",
    ]
