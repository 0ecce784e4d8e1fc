"""Batches hold every row once, keep the budget, waste little, and depend on the seed and the epoch alone."""

import hashlib
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import LEAST_FILL, Batches, BatchReader, by_budget, in_shares, pad, share
from regard.data.store import Field, Store, id_dtype, write_store
from regard.errors import UserError

tables = st.integers(1, 3).flatmap(
    lambda fields: st.lists(st.lists(st.integers(0, 40), min_size=fields, max_size=fields), min_size=1, max_size=120)
)


def cost(lengths: np.ndarray, batch: np.ndarray) -> int:
    """Written out: what `pad` of each field would hold."""
    return sum(pad([np.zeros(lengths[row, field]) for row in batch]).size for field in range(lengths.shape[1]))


def sentence_lengths(rows: int) -> np.ndarray:
    """Lengths like those of sentences and their translations."""
    generator = np.random.default_rng(0)
    source = np.clip(generator.lognormal(2.5, 0.4, rows), 2, 60)
    target = np.clip(source * generator.lognormal(0.05, 0.2, rows), 2, 80)
    return np.stack([source, target], axis=1).astype(np.int32)


@settings(max_examples=50, deadline=None)
@given(table=tables, budget=st.integers(1, 300), seed=st.integers(0, 2**40), epoch=st.integers(0, 9))
def test_every_row_once_and_the_budget_held(table: list[list[int]], budget: int, seed: int, epoch: int) -> None:
    lengths = np.array(table)
    batches = Batches(lengths, budget, seed)
    order = batches.order(epoch)
    assert sorted(np.concatenate(order).tolist()) == list(range(len(lengths)))
    costs = [cost(lengths, batch) for batch in order]
    assert all(len(batch) == 1 or padded <= budget for batch, padded in zip(order, costs, strict=True))
    assert batches.count(epoch) == len(order)
    assert batches.waste(epoch) == pytest.approx(1 - lengths.sum() / sum(costs) if sum(costs) else 0)
    assert cost(lengths, batches.largest()) == max(cost(lengths, batch) for batch in batches.order(0))


@settings(max_examples=30, deadline=None)
@given(table=tables, budget=st.integers(1, 300), seed=st.integers(0, 99), world=st.integers(1, 5))
def test_the_order_is_pure_and_processes_share_it(table: list[list[int]], budget: int, seed: int, world: int) -> None:
    lengths = np.array(table)
    used = Batches(lengths, budget, seed)
    for epoch in (0, 3, 1):
        used.order(epoch)  # what was asked before has no influence
    fresh = Batches(lengths, budget, seed)
    for position, batch in enumerate(fresh.order(3)):
        assert batch.tolist() == used.batch_at(3, position).tolist()
        parts = [share(batch, rank, world) for rank in range(world)]
        assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist())
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_known_order() -> None:
    """Pinned, so that a run can be resumed by a later version."""
    lengths = np.array([[3, 1], [1, 1], [2, 2], [9, 9], [1, 2], [2, 1]])
    order = Batches(lengths, 12, 7).order(2)
    assert [batch.tolist() for batch in order] == [[4, 2, 1], [3], [5, 0]]


# (fields, budget, seed, epoch, batches, SHA-256 of the order) as version 0.1 had them.
KNOWN = [
    (1, 300, 1, 0, 321, "322721cd4f743082"),
    (1, 4096, 7, 2, 30, "bdf8b471001d8272"),
    (2, 300, 1, 0, 723, "e592edf9cd99d302"),
    (2, 4096, 7, 2, 64, "65d5f39df3e641a1"),
    (3, 300, 1, 0, 1329, "dcc4827d2de4bf71"),
    (3, 4096, 7, 2, 115, "99aa99ca01a0d599"),
]


def lists(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize(("fields", "budget", "seed", "epoch", "count", "digest"), KNOWN)
@pytest.mark.parametrize("label", [False, True])
def test_orders_are_those_of_version_0_1(
    fields: int, budget: int, seed: int, epoch: int, count: int, digest: str, label: bool
) -> None:
    """Bit for bit, with or without costs of one, and with a label that costs nothing, first or last."""
    counts = np.random.default_rng(fields).integers(0, 60, (3000, fields)).astype(np.int32)
    costs: list[float] | None = None
    if label:
        free = np.random.default_rng(9).integers(0, 500, (3000, 1)).astype(np.int32)
        counts, costs = np.concatenate([free, counts, free], axis=1), [0, *[1.0] * fields, 0.0]
    order = Batches(counts, budget, seed, costs).order(epoch)
    assert len(order) == count
    assert hashlib.sha256(json.dumps(lists(order)).encode()).hexdigest().startswith(digest)


@settings(max_examples=50, deadline=None)
@given(
    table=st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=3), min_size=1, max_size=120),
    budget=st.integers(1, 900),
    costs=st.lists(st.sampled_from([0, 0.25, 0.3, 1, 2.5, 64]), min_size=3, max_size=3).filter(any),
)
def test_costs_weigh_the_counts(table: list[list[int]], budget: int, costs: list[float]) -> None:
    counts = np.array(table)
    batches = Batches(counts, budget, 1, costs)
    order = batches.order(0)
    assert sorted(np.concatenate(order).tolist()) == list(range(len(counts)))
    padded = [len(batch) * float((counts[batch].max(axis=0) * costs).sum()) for batch in order]
    assert all(len(batch) == 1 or cost <= budget + 1e-9 for batch, cost in zip(order, padded, strict=True))
    assert batches.waste(0) == pytest.approx(1 - (counts @ costs).sum() / sum(padded) if sum(padded) else 0)


def test_a_cost_for_all_is_a_smaller_budget_and_cheap_elements_fill_it() -> None:
    counts = sentence_lengths(2_000)
    plain = Batches(counts, 512, 3)
    assert lists(Batches(counts, 512 * 4, 3, [4, 4]).order(1)) == lists(plain.order(1))
    quarter = Batches(counts, 128, 3, [0.25, 0.25])
    assert quarter.count(0) == pytest.approx(plain.count(0), rel=0.1)
    pictures = np.ones((100, 2), dtype=np.int32)  # and a label for each
    assert {len(batch) for batch in Batches(pictures, 1280, 0, [64, 0]).order(0)} == {20}


@pytest.mark.parametrize("costs", [[1], [0, 0], [1, -1], [1, float("nan")], [1, float("inf")]])
def test_impossible_costs_are_refused(costs: list[float]) -> None:
    with pytest.raises(ValueError, match="costs are"):
        Batches(np.ones((3, 2)), 10, 0, costs)


def test_epochs_and_seeds_differ() -> None:
    lengths = sentence_lengths(2_000)

    def flat(seed: int, epoch: int) -> list[int]:
        return np.concatenate(Batches(lengths, 500, seed).order(epoch)).tolist()

    assert flat(0, 0) != flat(0, 1)
    assert flat(0, 0) != flat(1, 0)
    together = [{frozenset(batch.tolist()) for batch in Batches(lengths, 500, 0).order(epoch)} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < 0.2 * len(together[0])  # not the same batches in another order


def test_little_is_wasted_and_batches_are_alike() -> None:
    lengths = sentence_lengths(20_000)
    batches = Batches(lengths, 4_096, 0)
    assert batches.waste(0) < 0.05
    in_order = [np.arange(start, start + 100) for start in range(0, 20_000, 100)]
    assert batches.waste(0) < 0.1 * (1 - lengths.sum() / sum(cost(lengths, batch) for batch in in_order))
    costs = np.array([cost(lengths, batch) for batch in batches.order(0)])
    assert (costs < LEAST_FILL * 4_096).sum() <= 2
    assert costs.min() > 0.4 * 4_096


def test_a_million_rows_are_quick() -> None:
    batches = Batches(sentence_lengths(1_000_000), 4_096, 0)
    start = time.process_time()
    batches.order(0)
    assert time.process_time() - start < 3
    start = time.process_time()
    for position in range(1_000):
        batches.batch_at(0, position)
    assert time.process_time() - start < 0.1


def test_edges() -> None:
    nothing = Batches(np.empty((0, 2)), 10, 0)
    assert (nothing.order(0), nothing.waste(0), nothing.largest().tolist()) == ([], 0.0, [])
    assert [batch.tolist() for batch in Batches(np.array([[50, 50]]), 10, 0).order(0)] == [[0]]
    with pytest.raises(UserError, match="budget"):
        Batches(np.array([[1, 1]]), 0, 0)
    with pytest.raises(UserError, match="seed"):
        Batches(np.array([[1, 1]]), 10, -1)
    with pytest.raises(ValueError, match="shape"):
        Batches(np.array([1, 1]), 10, 0)
    with pytest.raises(ValueError, match="rank"):
        share(np.arange(3), 3, 3)


def test_pad() -> None:
    padded = pad([np.array([1, 2, 3], dtype=np.uint16), np.array([], dtype=np.uint16), np.array([4])], pad_id=9)
    assert (padded.tolist(), padded.dtype) == ([[1, 2, 3], [9, 9, 9], [4, 9, 9]], np.int64)
    assert pad([]).shape == (0, 0)


# ---- reading -------------------------------------------------------------------------------------------------------


def stored(folder: Path, rows: int = 60) -> Store:
    generator = np.random.default_rng(0)
    sides = [[generator.integers(1, 50, size=generator.integers(1, 9)).tolist() for _ in range(2)] for _ in range(rows)]
    return write_store(folder, sides, [Field(name, id_dtype(50)) for name in ("source", "target")])


def test_reading_ahead_gives_the_same_batches_from_any_place(tmp_path: Path) -> None:
    store = stored(tmp_path)
    batches = Batches(store.lengths, 60, seed=3)
    ahead, plain = BatchReader(store, batches, 1, 2, ahead=True), BatchReader(store, batches, 1, 2)
    places = [(epoch, number) for epoch in (0, 1) for number in range(batches.count(epoch))]
    assert len(places) > 20
    for place in [*places, *places[5:9], places[2], *places[-3:]]:  # in order, and as after a resume
        chosen, content = ahead.at(*place)
        assert chosen.tolist() == batches.batch_at(*place).tolist() == plain.at(*place)[0].tolist()
        own = share(chosen, 1, 2) if len(chosen) > 1 else chosen
        expected = [[field.tolist() for field in store[int(row)]] for row in own]
        assert [[field.tolist() for field in row] for row in content] == expected
        assert [[field.tolist() for field in row] for row in plain.at(*place)[1]] == expected


def test_the_next_batch_is_read_in_a_thread_and_copied_from_the_map(tmp_path: Path) -> None:
    store = stored(tmp_path)
    reader = BatchReader(store, Batches(store.lengths, 60, seed=3), ahead=True)
    readers: list[str] = []
    inner = reader.content
    reader.content = lambda rows: readers.append(threading.current_thread().name) or inner(rows)  # type: ignore[method-assign, func-returns-value]
    content = [reader.at(0, number)[1] for number in range(4)][-1]
    assert readers[0] == threading.current_thread().name
    assert all(name.startswith("reader") for name in readers[1:])
    assert all(type(field) is np.ndarray and field.base is None for row in content for field in row)


def test_lengths_of_32_bits_are_not_copied_and_give_the_same_order() -> None:
    lengths = sentence_lengths(500)
    batches = Batches(lengths, 300, seed=1)
    assert batches._lengths is lengths
    wide = Batches(lengths.astype(np.int64), 300, seed=1)
    assert [batch.tolist() for batch in batches.order(2)] == [batch.tolist() for batch in wide.order(2)]


def test_the_heaviest_batches_are_the_largest_and_the_one_with_the_longest_row() -> None:
    lengths = np.concatenate([sentence_lengths(200), np.array([[2, 300], [200, 1]], dtype=np.int32)])
    batches = Batches(lengths, 600, seed=1)
    found = batches.heaviest()
    assert found[0].tolist() == batches.largest().tolist()
    assert 200 in found[-1]  # the row with 300


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(1, 300), st.integers(1, 100), st.integers(1, 4)
)
def test_shares_are_all_texts_in_order_within_the_budget_and_even(
    lengths: list[int], most: int, fewest: int, workers: int
) -> None:
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    parts = in_shares(order, lengths, most, fewest, workers)
    assert [i for part in parts for i in part] == order
    sizes = [len(part) * max(lengths[i] for i in part) for part in parts]
    alone = [size for part, size in zip(parts, sizes, strict=True) if len(part) > 1]
    assert all(size <= max(most, fewest) for size in alone)
    least = len([*by_budget(order, lengths, max(most, fewest))])
    assert least <= len(parts) <= workers * -(-least // workers) or most < fewest


def test_shares_of_a_few_texts_are_not_torn_apart_and_of_many_are_as_many_for_each_worker() -> None:
    assert len(in_shares([*range(4)], [10] * 4, 1000, 50, 2)) == 1
    assert [len(part) for part in in_shares([*range(100)], [10] * 100, 350, 50, 2)] == [25] * 4
    assert [len(part) for part in in_shares([*range(100)], [10] * 100, 5000, 50, 2)] == [50, 50]
