"""Batches by token budget over length buckets.

A batch of n rows whose longest source has s tokens and longest target t is padded to n · (s + t) tokens: that is what
it costs, and what the budget bounds. Rows of like lengths go together, so that little of it is padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Store
from regard.errors import UserError

Rows = NDArray[np.int64]
Place = tuple[int, int]  # an epoch, and the number of a batch in it
Content = list[tuple[NDArray[Any], ...]]  # rows, an array for each field
LEAST_FILL = 0.75  # of the budget; lower wastes less on padding, but makes more and less equal batches
BLOCK = 1 << 20  # rows looked at together where a whole column more would cost memory


class Batches:
    """The batches of each epoch: a pure function of the lengths, the budget, the seed and the epoch.

    It does not know how many processes there are: `order` gives global batches, and `share` cuts one of them up.
    Lengths of int32 are not copied; an epoch's order takes 8 bytes a row, and about 45 while it is made.
    """

    def __init__(self, lengths: NDArray[Any], budget: int, seed: int, *, shuffle: bool = True) -> None:
        if budget < 1:
            raise UserError(f"The token budget of a batch is {budget}, expected at least 1.")
        if seed < 0:
            raise UserError(f"The seed is {seed}, expected 0 or more.")
        lengths = np.asarray(lengths)
        self._lengths = lengths if lengths.dtype == np.int32 else lengths.astype(np.int64)
        if self._lengths.ndim != 2 or self._lengths.shape[1] < 1:
            raise ValueError(f"lengths have the shape {self._lengths.shape}, expected (rows, fields)")
        self._budget = budget
        self._seed = seed
        self._shuffle = shuffle
        self._cached: tuple[int, list[Rows]] | None = None

    @property
    def rows(self) -> int:
        return len(self._lengths)

    def order(self, epoch: int) -> list[Rows]:
        """The batches of an epoch, each an array of row numbers; every row is in exactly one."""
        if not self._shuffle:
            epoch = 0  # every epoch is the same
        if self._cached is None or self._cached[0] != epoch:
            self._cached = epoch, self._make(epoch)
        return self._cached[1]

    def batch_at(self, epoch: int, position: int) -> Rows:
        """One batch, at once when the epoch's order is known."""
        return self.order(epoch)[position]

    def count(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return len(self.order(epoch))

    def waste(self, epoch: int) -> float:
        """The share of padding among all tokens of an epoch."""
        padded = sum(self._padded(batch) for batch in self.order(epoch))
        return 1 - int(self._lengths.sum()) / padded if padded else 0.0

    def largest(self) -> Rows:
        """The batch of the first epoch with the most padded tokens; among equals the one with the longest rows.

        What it needs of memory is what training needs, so a trainer tries it first.
        """
        batches = self.order(0)
        if not batches:
            return np.empty(0, dtype=np.int64)
        return max(batches, key=lambda batch: (self._padded(batch), -len(batch)))

    def heaviest(self) -> list[tuple[Rows, int]]:
        """The batches that may need the most memory: the largest, and the one with the longest row, whose attention has
        the most to look at. Each with its longest rows in front, one for each field, and how many those are."""
        batches = self.order(0)
        if not batches:
            return []
        longest = max(batches, key=lambda batch: int(self._lengths[batch].max()))
        largest = self.largest()
        return [self._widest_first(batch) for batch in ([largest] if longest is largest else [largest, longest])]

    def _widest_first(self, batch: Rows) -> tuple[Rows, int]:
        first = np.unique(self._lengths[batch].argmax(axis=0))
        return np.concatenate((batch[first], np.delete(batch, first))), len(first)

    def _padded(self, batch: Rows) -> int:
        return len(batch) * int(self._lengths[batch].max(axis=0).sum())

    def _make(self, epoch: int) -> list[Rows]:
        rows = len(self._lengths)
        generator = np.random.default_rng([self._seed, epoch])
        ordered = generator.permutation(rows) if self._shuffle else np.arange(rows)
        # Sorting is stable, so rows of equal lengths stay in their shuffled order.
        # The width of the bands and the direction vary, or rows of rare lengths would meet in the same batch each time.
        wide, backwards = (generator.uniform(1, 3), generator.random() < 0.5) if self._shuffle else (2.0, False)
        ordered = ordered[_by_length(self._lengths[ordered], wide * self._budget)]
        ordered = ordered[::-1] if backwards else ordered
        batches = _cut(ordered, self._lengths[ordered], self._budget)
        if self._shuffle:
            batches = [batches[index] for index in generator.permutation(len(batches))]
        return batches


def _by_length(lengths: NDArray[Any], enough: float) -> Rows:
    """An order in which neighbours are alike in every field.

    Sorted by one field alone, the rows of a batch would differ in the other. So rows go by bands of the first field,
    and inside a band by the other fields, up in one band and down in the next: where a batch reaches over the border
    of two bands, its rows are still alike. A band is one length, or as many as it takes to hold `enough` tokens.
    """
    if lengths.shape[1] == 1:
        return np.argsort(lengths[:, 0], kind="stable").astype(np.int64, copy=False)
    band = _bands(lengths, enough)
    others = lengths[:, 1].copy() if lengths.shape[1] == 2 else lengths[:, 1:].sum(axis=1)
    np.negative(others, out=others, where=band % 2 == 1)
    return np.lexsort((others, band)).astype(np.int64, copy=False)


def _bands(lengths: NDArray[Any], enough: float) -> NDArray[np.int32]:
    """The band of each row, numbered from the shortest."""
    first = lengths[:, 0]
    rows, tokens = (np.zeros(1 + int(first.max(initial=0)), dtype=np.int64) for _ in range(2))  # of each length
    for start in range(0, len(lengths), BLOCK):
        block = lengths[start : start + BLOCK]
        rows += np.bincount(block[:, 0], minlength=len(rows))
        tokens += np.bincount(block[:, 0], block.sum(axis=1), len(rows)).astype(np.int64)
    band_of = np.zeros(len(rows), dtype=np.int32)
    band, filled = 0, 0
    for length in np.flatnonzero(rows):
        band_of[length] = band
        filled += int(tokens[length])
        if filled >= enough:
            band, filled = band + 1, 0
    found: NDArray[np.int32] = band_of[first]
    return found


def _cut(ordered: Rows, lengths: NDArray[Any], budget: int) -> list[Rows]:
    """Cut rows in order into batches; a row beyond the budget stands alone."""
    ends = [0]
    while ends[-1] < len(ordered):
        ends.append(ends[-1] + _fitting(lengths[ends[-1] :], budget))
    _level_last(ends, lengths, budget)
    return [ordered[start:end] for start, end in pairwise(ends)]


def _fitting(lengths: NDArray[Any], budget: int) -> int:
    """How many of the first rows make the next batch.

    Its cost n · Σ_fields max(first n) rises with n. Among the n that fill the budget between LEAST_FILL and 1, the one
    with the least share of padding is taken: often it pays to stop just before a longer row.
    """
    most = max(1, budget // max(1, int(lengths[0].sum())))
    rows = lengths[:most]
    costs = np.maximum.accumulate(rows, axis=0).sum(axis=1) * np.arange(1, len(rows) + 1)
    full = max(1, int(np.searchsorted(costs, budget, side="right")))
    least = int(np.searchsorted(costs[:full], LEAST_FILL * budget))
    if full == len(lengths) or least >= full:
        return full
    density = rows[:full].sum(axis=1).cumsum()[least:] / costs[least:full]
    return full - int(np.argmax(density[::-1]))


def _level_last(ends: list[int], lengths: NDArray[Any], budget: int) -> None:
    """What is left for the last batch may be tiny; then it and the one before are cut in the middle instead."""
    if len(ends) < 3 or 2 * (ends[-1] - ends[-2]) > ends[-2] - ends[-3]:
        return
    middle = (ends[-3] + ends[-1] + 1) // 2
    halves = (slice(ends[-3], middle), slice(middle, ends[-1]))
    if all((half.stop - half.start) * int(lengths[half].max(axis=0).sum()) <= budget for half in halves):
        ends[-2] = middle


def share(batch: Rows, rank: int, world: int) -> Rows:
    """The rows of a global batch that process `rank` of `world` takes: every world-th, so that lengths are alike.

    The global batch is the same for any number of processes; a small one may leave some of them without rows.
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is outside 0 … {world - 1}")
    return batch[rank::world]


class Reader:
    """The batches of one process, with what their rows hold. Which and in what order depends on `batches` alone.

    With `ahead`, the next batch is read in a thread while the last one is in use. Reading is a pure function of the
    place: what was read and never asked for is forgotten, and nothing about it need be saved.
    """

    def __init__(self, store: Store, batches: Batches, rank: int = 0, world: int = 1, *, ahead: bool = False) -> None:
        self._store, self._batches, self._rank, self._world = store, batches, rank, world
        self._thread = ThreadPoolExecutor(1, "reader") if ahead else None
        self._coming: dict[Place, Future[tuple[Rows, Content]]] = {}

    def at(self, epoch: int, number: int) -> tuple[Rows, Content]:
        """The rows of a global batch, and the content of this process's share; of one row where it has none."""
        coming = self._coming.pop((epoch, number), None)
        found = coming.result() if coming else self._read((epoch, number))
        following = epoch, number + 1
        # The order of another epoch is not asked for in a thread: only one is kept.
        if self._thread is not None and following[1] < self._batches.count(epoch):
            self._coming = {following: self._thread.submit(self._read, following)}
        return found

    def _read(self, place: Place) -> tuple[Rows, Content]:
        chosen = self._batches.batch_at(*place)
        own = share(chosen, self._rank, self._world)
        return chosen, self.content(own if len(own) else chosen[:1])

    def content(self, rows: Rows) -> Content:
        """Copies, as what is mapped is read from the disk only when it is looked at."""
        return [tuple(np.array(field) for field in self._store[int(row)]) for row in rows]


def pad(rows: Sequence[NDArray[Any]], pad_id: int = 0) -> NDArray[np.int64]:
    """Rows of different lengths as one (rows, longest) array, filled up at their ends."""
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), width), pad_id, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def by_budget(order: list[int], lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Consecutive texts of an `order`, shortest first, whose padded tokens fit the budget."""
    chosen: list[int] = []
    for i in order:
        if chosen and (len(chosen) + 1) * lengths[i] > budget:
            yield chosen
            chosen = []
        chosen.append(i)
    if chosen:
        yield chosen


def in_shares(order: list[int], lengths: list[int], most: int, fewest: int, workers: int) -> list[list[int]]:
    """Consecutive texts of an `order`, shortest first: as few parts as the budget `most` allows, but as many for each
    worker, of as equal sizes as can be; not more than with a budget of `fewest`."""
    count = workers * -(-len([*by_budget(order, lengths, most)]) // workers)
    too_small, enough = fewest - 1, max(most, fewest)
    while enough - too_small > 1:
        budget = (too_small + enough) // 2
        if len([*by_budget(order, lengths, budget)]) <= count:
            enough = budget
        else:
            too_small = budget
    return [*by_budget(order, lengths, enough)]
