"""Batches by token budget over length buckets.

A batch of n rows whose longest source has s tokens and longest target t is padded to n · (s + t) tokens: that is its
cost, which the budget bounds. An element of another field may cost more or less than a token: a picture as much as its
patches, a label nothing. Rows of similar lengths share a batch, so that little of it is padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.store import Store
from regard.errors import UserError

Rows = NDArray[np.int64]
BatchIndex = tuple[int, int]  # an epoch, and the number of a batch in it
Content = list[tuple[NDArray[Any], ...]]  # rows, an array for each field
LEAST_FILL = 0.75  # of the budget; lower wastes less on padding, but makes more and less equal batches
BLOCK = 1 << 20  # rows looked at together where a whole column more would cost memory


class Batches:
    """The batches of each epoch: a pure function of the counts, their costs, the budget, the seed and the epoch.

    `counts` (rows, fields) are the elements of each row; `costs` is the cost of an element of each field, by default 1.
    A field that costs nothing takes no part in the order.

    The number of processes changes nothing: `order` gives global batches, and `share` cuts one of them up. Counts of
    int32 are not copied if every field costs 1; an epoch's order takes 8 bytes a row, and about 45 while it is made.
    """

    def __init__(
        self,
        counts: NDArray[Any],
        budget: int,
        seed: int,
        costs: Sequence[float] | None = None,
    ) -> None:
        if budget < 1:
            raise UserError(f"The token budget of a batch is {budget}, expected at least 1.")
        if seed < 0:
            raise UserError(f"The seed is {seed}, expected 0 or more.")
        counts = np.asarray(counts)
        if counts.ndim != 2 or counts.shape[1] < 1:
            raise ValueError(f"counts have the shape {counts.shape}, expected (rows, fields)")
        # The cost of each row in each field that costs something.
        self._lengths = _weighted(counts if counts.dtype == np.int32 else counts.astype(np.int64), costs)
        self._budget = budget
        self._seed = seed
        self._cached: tuple[int, list[Rows]] | None = None

    @property
    def rows(self) -> int:
        return len(self._lengths)

    def order(self, epoch: int) -> list[Rows]:
        """Return the batches of an epoch, each an array of row numbers; every row is in exactly one."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = epoch, self._make(epoch)
        return self._cached[1]

    def batch_at(self, epoch: int, position: int) -> Rows:
        """Return one batch, at once when the epoch's order is known."""
        return self.order(epoch)[position]

    def count(self, epoch: int) -> int:
        """Return the number of batches of an epoch."""
        return len(self.order(epoch))

    def waste(self, epoch: int) -> float:
        """Return the share of padding among all tokens of an epoch."""
        padded = sum(self.padded(batch) for batch in self.order(epoch))
        return 1 - float(self._lengths.sum()) / padded if padded else 0.0

    def largest(self) -> Rows:
        """Return the batch of the first epoch with the most padded tokens; among equals the one with the longest rows.

        Its need of memory is that of the training, so a trainer tries it first.
        """
        batches = self.order(0)
        if not batches:
            return np.empty(0, dtype=np.int64)
        return max(batches, key=lambda batch: (self.padded(batch), -len(batch)))

    def heaviest(self) -> list[Rows]:
        """Return the batches that may need the most memory: the largest, and the one with the longest row, as attention
        grows with its square."""
        batches = self.order(0)
        if not batches:
            return []
        longest = max(batches, key=lambda batch: float(self._lengths[batch].max()))
        largest = self.largest()
        return [largest] if longest is largest else [largest, longest]

    def padded(self, batch: Rows) -> float:
        """Return the tokens of a batch, padding included."""
        return len(batch) * float(self._lengths[batch].max(axis=0).sum())

    def _make(self, epoch: int) -> list[Rows]:
        rows = len(self._lengths)
        generator = np.random.default_rng([self._seed, epoch])
        ordered = generator.permutation(rows)
        # Sorting is stable, so rows of equal lengths stay in their shuffled order.
        # The width of the bands and the direction vary, or rows of rare lengths would meet in the same batch each time.
        wide, backwards = generator.uniform(1, 3), generator.random() < 0.5
        ordered = ordered[_by_length(self._lengths[ordered], wide * self._budget)]
        ordered = ordered[::-1] if backwards else ordered
        batches = _cut(ordered, self._lengths[ordered], self._budget)
        return [batches[index] for index in generator.permutation(len(batches))]


def _weighted(counts: NDArray[Any], costs: Sequence[float] | None) -> NDArray[Any]:
    """Return the counts times their costs, without the fields that cost nothing; whole costs stay whole numbers."""
    if costs is None:
        return counts
    if len(costs) != counts.shape[1] or not all(0 <= cost < math.inf for cost in costs) or not any(costs):
        raise ValueError(f"costs are {[*costs]}, expected one for each of {counts.shape[1]} fields, not all of them 0")
    kept = [field for field, cost in enumerate(costs) if cost]
    if len(kept) < len(costs):
        counts = counts[:, kept]
    weights = np.array([costs[field] for field in kept])
    if (weights == 1).all():
        return counts
    if (weights == np.floor(weights)).all():
        weights = weights.astype(np.int64)
    weighted: NDArray[Any] = counts * weights
    return weighted


def _by_length(lengths: NDArray[Any], enough: float) -> Rows:
    """Return an order in which neighbours are alike in every field.

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
    """Return the band of each row, numbered from the shortest; costs below one share a band with the next whole one."""
    first = lengths[:, 0] if lengths.dtype.kind == "i" else np.ceil(lengths[:, 0]).astype(np.int64)
    rows = np.zeros(1 + int(first.max(initial=0)), dtype=np.int64)  # of each length
    tokens = np.zeros(len(rows))
    for start in range(0, len(lengths), BLOCK):
        block, of_block = lengths[start : start + BLOCK], first[start : start + BLOCK]
        rows += np.bincount(of_block, minlength=len(rows))
        tokens += np.bincount(of_block, block.sum(axis=1), len(rows))
    band_of = np.zeros(len(rows), dtype=np.int32)
    band, filled = 0, 0.0
    for length in np.flatnonzero(rows):
        band_of[length] = band
        filled += float(tokens[length])
        if filled >= enough:
            band, filled = band + 1, 0.0
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
    """Return how many of the first rows make the next batch.

    Its cost n · Σ_fields max(first n) rises with n. Among the n that fill the budget between LEAST_FILL and 1, the one
    with the least share of padding is taken: often it pays to stop just before a longer row.
    """
    most = max(1, int(budget // (float(lengths[0].sum()) or 1)))
    rows = lengths[:most]
    costs = np.maximum.accumulate(rows, axis=0).sum(axis=1) * np.arange(1, len(rows) + 1)
    full = max(1, int(np.searchsorted(costs, budget, side="right")))
    least = int(np.searchsorted(costs[:full], LEAST_FILL * budget))
    if full == len(lengths) or least >= full:
        return full
    density = rows[:full].sum(axis=1).cumsum()[least:] / costs[least:full]
    return full - int(np.argmax(density[::-1]))


def _level_last(ends: list[int], lengths: NDArray[Any], budget: int) -> None:
    """Cut the last two batches in the middle where the last would be tiny."""
    if len(ends) < 3 or 2 * (ends[-1] - ends[-2]) > ends[-2] - ends[-3]:
        return
    middle = (ends[-3] + ends[-1] + 1) // 2
    halves = (slice(ends[-3], middle), slice(middle, ends[-1]))
    if all((half.stop - half.start) * float(lengths[half].max(axis=0).sum()) <= budget for half in halves):
        ends[-2] = middle


def share(batch: Rows, rank: int, world: int) -> Rows:
    """Return the rows of a global batch for process `rank` of `world`: every world-th, so that lengths are alike.

    The global batch is the same for any number of processes; a small one may leave some of them without rows.
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} is outside 0 … {world - 1}")
    return batch[rank::world]


class BatchReader:
    """The batches of one process with the content of their rows, in the order of `batches`.

    With `ahead`, the next batch is read in a thread while the last one is in use. Reading is a pure function of the
    epoch and the number of the batch: a batch that was read and never asked for is dropped, and nothing is saved.
    """

    def __init__(self, store: Store, batches: Batches, rank: int = 0, world: int = 1, *, ahead: bool = False) -> None:
        self._store, self._batches, self._rank, self._world = store, batches, rank, world
        self._thread = ThreadPoolExecutor(1, "reader") if ahead else None
        self._coming: dict[BatchIndex, Future[tuple[Rows, Content]]] = {}

    def at(self, epoch: int, number: int) -> tuple[Rows, Content]:
        """Return the rows of a global batch and the content of this process's share; of one row where it has none."""
        coming = self._coming.pop((epoch, number), None)
        found = coming.result() if coming else self._read((epoch, number))
        following = epoch, number + 1
        # The order of another epoch is not asked for in a thread: only one is kept.
        if self._thread is not None and following[1] < self._batches.count(epoch):
            self._coming = {following: self._thread.submit(self._read, following)}
        return found

    def _read(self, index: BatchIndex) -> tuple[Rows, Content]:
        chosen = self._batches.batch_at(*index)
        return chosen, self.content(self.own(chosen))

    def own(self, batch: Rows) -> Rows:
        """Return the numbers of the rows of a global batch that this process has the content of."""
        found = share(batch, self._rank, self._world)
        return found if len(found) else batch[:1]

    def content(self, rows: Rows) -> Content:
        """Return copies of rows, for a mapped row is read from the disk only when it is used."""
        return [tuple(np.array(field) for field in self._store[int(row)]) for row in rows]


def pad(rows: Sequence[NDArray[Any]], pad_id: int = 0) -> NDArray[np.int64]:
    """Return rows of different lengths as one (rows, longest) array, padded at their ends."""
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), width), pad_id, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def by_budget(order: list[int], lengths: list[int], budget: int) -> Iterator[list[int]]:
    """Yield consecutive texts of an `order`, shortest first, whose padded tokens fit the budget."""
    chosen: list[int] = []
    for i in order:
        if chosen and (len(chosen) + 1) * lengths[i] > budget:
            yield chosen
            chosen = []
        chosen.append(i)
    if chosen:
        yield chosen


def in_shares(order: list[int], lengths: list[int], most: int, fewest: int, workers: int) -> list[list[int]]:
    """Cut an `order` of texts, shortest first, into as few parts as the budget `most` allows, as many for each worker.

    The parts are as equal as can be, and no more than with a budget of `fewest`.
    """
    count = workers * -(-len([*by_budget(order, lengths, most)]) // workers)
    too_small, enough = fewest - 1, max(most, fewest)
    while enough - too_small > 1:
        budget = (too_small + enough) // 2
        if len([*by_budget(order, lengths, budget)]) <= count:
            enough = budget
        else:
            too_small = budget
    return [*by_budget(order, lengths, enough)]
