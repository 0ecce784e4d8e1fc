"""Validation: when, and on how many items, so that it takes at most a tenth of the time of a training."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.config import Training
from regard.data.batches import by_budget
from regard.inputs.input import Row
from regard.metrics import Score
from regard.training.position import Position

TIMES = 25  # validations of a run, at regular intervals
MOST = 1000  # items that a validation looks at: "all" below
FEW = 100  # items that the first one is tried on, and the fewest later
SHARE = 0.1  # of the time between two validations that one may take
CHEAP = 0.2  # seconds that a validation may take in any case: what depends on a clock is not decided by chance
SURE = 2  # validations in a row at the ceiling after which training stops: one may be luck, and
ENOUGH = 30  # items that were right in all of them together: three nodes are soon right by chance
LASTING = 3  # validations that a warning lasts before it is logged
FIRST = 10  # steps before the first validation
PATIENCE = 0.4  # of a training, without a better score, after which it stops
STEPS = 2500  # of a training, before their number is known


class Plan(NamedTuple):
    """Items of a validation, and every how many validations it is all of them; decided once for a run."""

    items: int
    whole: int


class Alarm:
    """Logs what has gone wrong with a training: once it has lasted for some validations, for beginnings are odd."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.lasting = say, 0

    def heard(self, step: int, warnings: Sequence[str]) -> None:
        """Take note of the warnings of a validation."""
        self.lasting = self.lasting + 1 if warnings else 0
        if self.lasting == LASTING:
            for warning in warnings:
                self.say(f"warning: step {step}: {warning}")


def planned(count: int, each: float, between: float) -> Plan:
    """Return the plan for `count` items of `each` seconds, with `between` seconds of steps between two validations.

    If all items take too long, half of the share is for some of them, and the other half is saved for all of them.
    """
    allowed = max(SHARE * between, CHEAP)
    if each * count <= allowed:
        return Plan(count, 1)
    items = min(count, max(FEW, int(allowed / 2 / each)))
    return Plan(items, math.ceil(each * count / (allowed / 2)))


def due(step: int, every: int, *, fixed: bool) -> bool:
    """Return True if a step is followed by a validation: each `every` steps, and unless their number is a user's own,
    also after 10, 20, 40 … steps, for easy data is learned by then."""
    if step % every == 0:
        return True
    times = step / FIRST
    return not fixed and step < every and times >= 1 and times == 2 ** round(math.log2(times))


class Plateau(NamedTuple):
    """The steps and seconds from the last better score to the last validation on all items."""

    steps: int
    seconds: float

    def too_long(self, at: Position, how: Training) -> bool:
        """Return True if that is more than the patience: minutes, or steps where the number of steps is given.

        Minutes are minutes of training, which the state holds: a pause between two commands does not count. A training
        of a given number of steps ends at the same one on any machine.
        """
        if how.steps is None and how.minutes is not None:
            return self.seconds >= 60 * (how.patience or PATIENCE * how.minutes)
        return self.steps >= (how.patience or PATIENCE * (at.steps or STEPS))

    @property
    def sentence(self) -> str:
        """The reason for stopping, as the log says it."""
        length = f"{self.seconds / 60:.1f} minutes and {self.steps:,} steps"
        return f"no better score for {length} (see training.patience)"


def plateau(at: Position, count: int) -> Plateau:
    """Return how long the score has been flat; `count` is the number of all items."""
    for entry in reversed(at.history):
        if entry["items"] == count and entry["step"] > at.better_step:
            return Plateau(entry["step"] - at.better_step, 60 * entry["minutes"] - at.better_seconds)
    return Plateau(0, 0.0)


def perfect(at: Position, count: int) -> int:
    """Return how many last validations on all items could not have been better; 0 where they are too few to be sure."""
    whole = (entry for entry in reversed(at.history) if entry.get("items") == count)
    last = [entry["perfect"] for entry in takewhile(lambda entry: entry.get("perfect"), whole)]
    return len(last) if len(last) >= SURE and sum(last) >= ENOUGH else 0


def early(at: Position, how: Training, count: int) -> str:
    """Return why a training ends before its time; "" if it does not."""
    if how.ceiling and (times := perfect(at, count)):
        return f"the score was perfect {times} times in a row"
    since = plateau(at, count)
    return since.sentence if since.too_long(at, how) else ""


@torch.no_grad()
def loss(
    rows: Sequence[Row],
    sums: Callable[[Sequence[Row]], Tensor],
    totals: Callable[[Any], Sequence[float]],
    budget: int,
) -> Score:
    """Return the training loss on validation rows: Σ over terms of sum / total.

    It moves with every weight, where the accuracy of a few hundred items stays the same or jumps.
    """
    lengths = np.array([[len(field) for field in row] for row in rows], dtype=np.int32)
    sizes = lengths.max(axis=1).tolist()
    parts = by_budget(sorted(range(len(rows)), key=sizes.__getitem__), sizes, budget)
    found: Any = sum(sums([rows[i] for i in part]).double().cpu() for part in parts)
    value = sum(each / (total or math.inf) for each, total in zip(found, totals(lengths), strict=True))
    return Score("validation_loss", float(value), "", None, None, len(rows), False, "terms:training")
