"""The pace of a training: from steps as the trainer makes them, of which the first do not count."""

from pathlib import Path

import pytest

from regard.data.batches import Rows
from regard.training import calibration, rehearsal
from regard.training.calibration import WARM, _Steps, calibrated
from regard.training.rehearsal import Rehearsal
from regard.training.train import settle
from tests import test_matrix as matrix
from tests.conftest import write_numbers

SMALL = ["model.kind=transformer", "model.layers=1", "model.width=16", "model.hidden=32", "model.heads=2"]


@pytest.fixture
def sample(tmp_path: Path) -> Rehearsal:
    changes = [*SMALL, "training.budget=300", "data.held_out=10"]
    config, _, _ = settle([str(write_numbers(tmp_path / "data.tsv", 200))], [], [], "convert", changes)
    return rehearsal.of_files(config)


def test_the_first_passes_are_of_the_largest_batches_and_do_not_count(
    sample: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def take(_: _Steps, rows: Rows, __: float) -> tuple[float, float, float]:
        taken.append(sample.batches.padded(rows))
        return (1000, 1000, 1000) if len(taken) <= WARM else (1000, 2, 3)

    monkeypatch.setattr(_Steps, "take", take)
    pace = calibrated(sample)
    assert (pace.operation, pace.update) == (0.002, 3)
    assert pace.step(500) == 4
    assert {*taken[:WARM]} == {max(taken)}
    assert len({*taken}) > 2


def test_a_batch_that_would_take_too_long_is_measured_in_part(sample: Rehearsal) -> None:
    steps, rows = _Steps(sample), sample.batches.largest()
    whole = steps.take(rows, 1e30)[0]
    assert whole == steps.take(rows, whole)[0]
    part = steps.take(rows, whole / 2)[0]
    assert whole / 4 < part <= whole / 2
    assert steps.take(rows, 1)[0] > 0  # one row at least


def test_all_turns_of_a_step_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A critic and a generator: the operations are those of both."""
    path = matrix.toy(tmp_path, "patches", "imagine")
    config, _, _ = settle([str(path)], [], [], "imagine", ["training.budget=300", "data.held_out=10", *matrix.PLAYERS])
    sample = rehearsal.of_files(config)
    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    steps, seen = _Steps(sample), []
    steps.network.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[1]))
    steps.take(sample.batches.largest(), 1e30)
    assert len(sample.task.turns) == 2
    assert tuple(seen) == tuple(sample.task.turns)
