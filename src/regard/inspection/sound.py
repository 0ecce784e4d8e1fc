"""Recordings as people see and hear them: the spectrogram, the sound, and where in time each vector is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LONGEST = 60.0  # seconds that a page or picture holds


class Heard(NamedTuple):
    """The log-mel spectrogram (frames, bins) of a recording, its samples, and their rate."""

    spectrogram: NDArray[np.float32]
    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True)
class SoundView:
    """A recording that begins at `start` seconds, of whose vectors each stands for `step` seconds; `load` reads it."""

    start: float
    step: float
    load: Callable[[], Heard]

    @cached_property
    def heard(self) -> Heard:
        return self.load()

    @property
    def seconds(self) -> float:
        return len(self.heard.samples) / self.heard.rate

    def times(self, weights: ArrayLike) -> list[tuple[float, float]]:
        """Return start and end in seconds of each row of weights (m, vectors), one after the other."""
        found = monotonic(np.asarray(weights, dtype=np.float64))
        end = self.start + self.seconds
        return [(self.start + a * self.step, min(end, self.start + b * self.step)) for a, b in found]


def monotonic(weights: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the first column of each row, and the one behind its last, on the way through (m, n) that gathers most.

    The way begins at the first row and column and ends at the last of both. Each step goes on by a column, in the same
    row or in the next, so that each row has a column at least; where there are fewer columns than rows, rows share
    them. This is dynamic time warping over attention weights.
    """
    m, n = weights.shape
    if n < m:
        return [(i * n // m, max(i * n // m + 1, (i + 1) * n // m)) for i in range(m)]
    best = np.full((m, n), -np.inf)
    best[0] = np.cumsum(weights[0])
    came = np.zeros((m, n), dtype=bool)  # True: from the row before
    for row in range(1, m):
        for column in range(row, n):
            stay, move = best[row, column - 1], best[row - 1, column - 1]
            came[row, column] = move >= stay
            best[row, column] = weights[row, column] + max(stay, move)
    ends, column = [n], n - 1
    for row in range(m - 1, 0, -1):
        while not came[row, column]:
            column -= 1
        ends.append(column)
        column -= 1
    starts = [0, *ends[:0:-1]]
    return list(zip(starts, [*starts[1:], n], strict=True))


def runs(names: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return first, behind-last and name of each run of equal names."""
    found: list[tuple[int, int, str]] = []
    for place, name in enumerate(names):
        if found and found[-1][2] == name:
            found[-1] = (found[-1][0], place + 1, name)
        else:
            found.append((place, place + 1, name))
    return found
