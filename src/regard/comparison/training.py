"""One cell: an ordinary training, then its measures."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from regard.comparison.cells import Cell
from regard.comparison.measuring import measured
from regard.comparison.workers import wait_until_free
from regard.runs import folder
from regard.training.progress import Progress
from regard.training.train import run_training


def trained_and_measured(cell: Cell, threads: int, lengths: Sequence[int]) -> None:
    """Train or resume the run of a cell, measure it, and write its measures."""
    torch.set_num_threads(threads)
    wait_until_free(cell.run)
    model = run_training(cell.config, {}, cell.run, Progress(), None, torch.device("cpu"))
    with folder.locked(cell.run):
        began = time.monotonic()
        found = measured(model, lengths, guess=True)
        cell.write(found | {"threads": threads, "measuring_minutes": (time.monotonic() - began) / 60})
