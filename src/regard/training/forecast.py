"""The forecast of a training, and what it took in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from regard.config import Training
from regard.costs import memory
from regard.training.position import Position

FIRST = 8  # steps whose time tells how long the training will take


@dataclass
class Forecast:
    """Bytes at the peak, and seconds of training; 0: unknown."""

    size: int = 0
    seconds: float = 0.0

    def took(self, at: Position, window: Sequence[tuple[float, int, float]], how: Training) -> None:
        """Plan the time of the whole training from that of its first steps, the very first of which are slow."""
        if at.step != FIRST or len(window) != FIRST:
            return
        each = sum(took for _, _, took in window[2:]) / (FIRST - 2)
        steps = math.inf if at.steps is None else at.seconds + each * (at.steps - at.step)
        self.seconds = min(steps, math.inf if how.minutes is None else 60 * how.minutes)

    def account(self, at: Position, device: torch.device) -> list[str]:
        """Say what was planned, and what it took."""
        peak, planned, actual = memory.gigabytes(memory.peak(device)), [], []
        if self.size:
            planned, actual = [memory.gigabytes(self.size)], [peak]
        if 0 < self.seconds < math.inf:
            planned.append(f"{self.seconds / 60:.3g} minutes" + (f" for {at.steps:,} steps" if at.steps else ""))
            actual.append(f"{at.seconds / 60:.3g} minutes for {at.step:,} steps, validations included")
        both = [f"planned: {' and '.join(planned)}; actual: {' and '.join(actual)}"] if planned else []
        return [f"peak memory: {peak}", *both]
