"""The forecast of a training and what it took, said at its end."""

import re

import torch

from regard.config import Training
from regard.training.forecast import FIRST, Forecast
from regard.training.position import Position
from tests.conftest import TRANSFORMER, Regard, write_numbers


def test_the_time_follows_from_the_first_steps_but_the_very_first() -> None:
    forecast, at = Forecast(), Position(steps=108, seconds=20.0)
    window = [(0.0, 0, 7.0)] * 2 + [(0.0, 0, 0.5)] * (FIRST - 2)
    for at.step in range(1, FIRST + 2):
        forecast.took(at, window[: at.step], Training())
        assert (forecast.seconds > 0) == (at.step >= FIRST)
    assert forecast.seconds == 20 + 0.5 * 100
    limited = Forecast()
    at.step = FIRST
    limited.took(at, window, Training(minutes=1))
    assert limited.seconds == 60


def test_planned_and_actual_are_said_side_by_side() -> None:
    at = Position(step=100, steps=108, seconds=66.0)
    peak, both = Forecast(2 * 10**9, 60.0).account(at, torch.device("cpu"))
    assert peak.startswith("peak memory: ")
    assert re.fullmatch(
        r"planned: 2.00 GB and 1 minutes for 108 steps; "
        r"actual: [\d.]+ GB and 1.1 minutes for 100 steps, validations included",
        both,
    )
    assert len(Forecast().account(at, torch.device("cpu"))) == 1  # nothing was planned


def test_a_training_ends_with_it(cli: Regard) -> None:
    write_numbers(cli.folder / "data.tsv", 100)
    changes = [*TRANSFORMER, "data.held_out=10"]
    cli.run("train", "data.tsv", "-o", "run", "--steps", "10", *[part for each in changes for part in ("--set", each)])
    assert re.search(
        r"planned: [\d.]+ GB and \S+ minutes for 10 steps; actual: [\d.]+ GB and \S+ minutes for 10", cli.said
    )
