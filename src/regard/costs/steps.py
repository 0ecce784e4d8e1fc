"""The cost of a step of training, averaged over batches from all over an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.costs.trace import Component, Trace, traced
from regard.data.batches import Batches, Content, Rows
from regard.task import Task

SAMPLE = 6  # batches that are traced: fractions of a second each


@dataclass(frozen=True)
class StepCost:
    """Floating-point operations of a mean step: of each part, in all, and what attention itself takes of them."""

    parts: Counter[Component]
    looking: float

    @property
    def flops(self) -> float:
        return self.parts.total()


def step_cost(
    task: Task, batches: Batches, content: Callable[[Rows], Content], accumulate: int = 1, sample: int = SAMPLE
) -> StepCost:
    """Return the cost of a mean step of training: of all processes together, as they share each batch."""
    known: dict[tuple[int, float], list[Trace]] = {}
    found: list[Trace] = []
    for rows in spread(batches, sample):
        size = len(rows), batches.padded(rows)
        if size not in known:
            known[size] = traces(task, task.batch(content(rows)))
        found += known[size]
    steps = len(found) / len(task.turns) / accumulate
    total: Counter[Component] = Counter()
    for each in found:
        total += each.forward + each.backward
    mean = Counter({part: round(count / steps) for part, count in total.items()})
    return StepCost(mean, sum(each.looking for each in found) / steps)


def traces(task: Task, batch: Any) -> list[Trace]:
    """Return what each turn of a step costs."""
    return [traced(task.network, batch, turn) for turn in task.turns]


def spread(batches: Batches, sample: int) -> list[Rows]:
    """Return so many batches of the first epoch, or all: evenly over their sizes, so that few stand for all."""
    order = sorted(batches.order(0), key=batches.padded)
    if len(order) <= sample:
        return order
    return [order[int(place)] for place in (np.arange(sample) + 0.5) * len(order) / sample]
