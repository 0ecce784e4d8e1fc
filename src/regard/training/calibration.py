"""The time of a step on this machine: a few seconds of training with the run's own network and batches."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from regard.costs.steps import spread, traces
from regard.data.batches import Rows
from regard.data.draws import Draws
from regard.runs.build import build
from regard.training import device
from regard.training.allocator import keep_memory
from regard.training.optimiser import optimiser
from regard.training.rehearsal import Rehearsal

SECONDS = 5.0  # that a calibration takes, about
LONG = 1.0  # seconds of one measurement: of a batch that would take longer a part is measured
FIRST = 2e10  # operations of the first pass, when nothing is known of the pace
WARM = 3  # passes before the first that counts
BATCHES = 9  # that are measured, if there is time


@dataclass(frozen=True)
class Timing:
    """Seconds for each operation of a pass, and those of a step of the optimiser."""

    operation: float
    update: float

    def step(self, flops: float) -> float:
        """Return the seconds of a step of so many operations."""
        return self.update + flops * self.operation


def calibrated(sample: Rehearsal) -> Timing:
    """Measure the pace of a training on this machine. Weights are made, and forgotten.

    The first passes do not count: the system hands out memory page by page when a process uses it for the first time,
    and the optimiser makes its moments, which is a fifth of a Transformer's step. The largest batch comes first, as a
    trainer tries it first, so that no later one needs new memory.
    """
    steps, chosen = _Steps(sample), spread(sample.batches, BATCHES)
    most = FIRST
    for _ in range(WARM):
        operations, seconds, _ = steps.take(chosen[-1], most)
        most = LONG * operations / seconds
    found, began = [], time.perf_counter()
    for rows in [*chosen[::2], *chosen[1::2]]:
        found.append(steps.take(rows, most))
        if time.perf_counter() - began > SECONDS:
            break
    operations, seconds, update = map(math.fsum, zip(*found, strict=True))
    return Timing(seconds / max(operations, 1), update / len(found))


class _Steps:
    """Steps of a training, as the trainer makes them."""

    def __init__(self, sample: Rehearsal) -> None:
        keep_memory()
        self.sample, self.how = sample, sample.config.training
        self.task = build(sample.config, sample.parts)
        self.network = self.task.network.train()
        self.optimiser = optimiser(self.network, self.how, fused=True)

    def take(self, rows: Rows, most: float) -> tuple[float, float, float]:
        """Take a step on a batch, or on the part of it that has at most so many operations.

        Returns the operations, the seconds of the passes, and those of the update.
        """
        operations = self._operations(rows)
        if operations > most:
            rows = rows[: max(1, int(len(rows) * most / operations))]
            operations = self._operations(rows)
        began = time.perf_counter()
        draws = Draws(self.how.seed, 0, rows, len(self.sample.rows), self.sample.content)
        batch = self.task.batch(self.sample.content(rows), draws)
        for turn in self.task.turns:
            with device.rounded(self.how, torch.device("cpu")):
                loss = self.network(batch, turn).sum()
            loss.backward()
        middle = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.how.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return operations, middle - began, time.perf_counter() - middle

    def _operations(self, rows: Rows) -> int:
        return sum(each.flops for each in traces(self.sample.task, self.sample.batch(rows)))
