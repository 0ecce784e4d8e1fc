"""The time of a step on this machine: a few seconds of training with the run's own network and batches."""

from __future__ import annotations

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
MOST = 2e10  # operations of one measurement: of a larger batch a part is measured
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
    """Measure the pace of a training on this machine. Weights are made, and forgotten."""
    keep_memory()
    cpu = torch.device("cpu")
    task, how = build(sample.config, sample.parts), sample.config.training
    network, turn = task.network.train(), task.turns[0]
    steps = optimiser(network, how, fused=True)
    spent = operations = update = 0.0
    measured, began = 0, time.perf_counter()
    chosen = spread(sample.batches, BATCHES)
    for number, rows in enumerate([chosen[0], *chosen[::2], *chosen[1::2]]):  # the first is only to warm up
        flops = _flops(sample, rows)
        some = rows[: max(1, int(len(rows) * min(1.0, MOST / max(flops, 1))))]
        counted = flops if len(some) == len(rows) else _flops(sample, some)
        started = time.perf_counter()
        draws = Draws(how.seed, 0, some, len(sample.rows), sample.content)
        batch = task.batch(sample.content(some), draws)
        with device.rounded(how, cpu):
            loss = network(batch, turn).sum()
        loss.backward()
        middle = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(network.parameters(), how.clip)
        steps.step()
        steps.zero_grad(set_to_none=True)
        if number:
            spent, operations = spent + middle - started, operations + counted
            update, measured = update + time.perf_counter() - middle, measured + 1
        if measured and time.perf_counter() - began > SECONDS:
            break
    return Timing(spent / max(operations, 1), update / measured)


def _flops(sample: Rehearsal, rows: Rows) -> int:
    return sum(each.flops for each in traces(sample.task, sample.batch(rows)))
