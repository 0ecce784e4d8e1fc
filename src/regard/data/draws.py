"""Random numbers that are a pure function of (seed, epoch, row): augmentation needs no state, and is the same for any
number of processes and after any interruption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTNERS = 1000  # the stream of random numbers that chooses other rows
Content = list[tuple[NDArray[Any], ...]]


@dataclass(frozen=True)
class Draws:
    """The random numbers of some rows in an epoch. `others(numbers)` are stored rows by their numbers, of `count`."""

    seed: int
    epoch: int
    rows: NDArray[np.int64]
    count: int
    others: Callable[[NDArray[np.int64]], Content]

    def uniform(self, stream: int, columns: int = 1) -> NDArray[np.float32]:
        """Return numbers from 0 to below 1, (rows, columns); another `stream` has others."""
        keys = _mixed(np.uint64(self.seed) ^ _mixed(np.array([self.epoch, stream], np.uint64))[0])
        keys = _mixed(keys ^ _mixed(np.array([stream], np.uint64) + np.uint64(0x9E37)))
        by_row = _mixed(self.rows.astype(np.uint64)[:, None] ^ keys)
        words = _mixed(by_row + np.arange(1, columns + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
        return ((words >> np.uint64(40)).astype(np.float32) / np.float32(2**24)).astype(np.float32)

    def partners(self, stream: int) -> NDArray[np.int64]:
        """Return the number of another stored row for each row."""
        return (self.uniform(stream)[:, 0].astype(np.float64) * self.count).astype(np.int64)


def _mixed(words: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Return splitmix64 of each word (Steele et al. 2014): every bit of the result depends on every bit of the word."""
    with np.errstate(over="ignore"):
        z = np.atleast_1d(words) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
