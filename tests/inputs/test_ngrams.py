"""Vectors of n-grams against a loop over runs of tokens; that padding says nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.config import Training
from regard.inputs.ngrams import Ngrams, codes
from regard.models.recurrent import recurrent
from regard.models.transformer import transformer
from regard.training.optimiser import optimiser
from tests.inputs.test_words import padded
from tests.models.networks import Converter

ROWS = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=8), min_size=1, max_size=5)


def run(row: list[int], place: int, size: int) -> tuple[int, ...]:
    """The n-gram around a place, by indices."""
    around = range(place - size // 2, place - size // 2 + size)
    return tuple(row[i] if 0 <= i < len(row) else 0 for i in around)


def filled(longest: int, buckets: int, width: int) -> Ngrams:
    """One that has learned something, and forgets nothing."""
    ngrams = Ngrams(longest, buckets, width).eval()
    with torch.no_grad():
        ngrams.table.weight[1:].normal_()
    return ngrams


@settings(max_examples=100, deadline=None)
@given(ROWS, st.integers(1, 6))
def test_equal_runs_have_equal_codes_and_others_have_others(rows: list[list[int]], size: int) -> None:
    found = codes(padded(rows), size)
    pairs = [(run(row, i, size), int(found[b, i])) for b, row in enumerate(rows) for i in range(len(row))]
    assert len({run for run, _ in pairs}) == len({code for _, code in pairs}) == len(set(pairs))


def test_the_sum_of_the_rows_of_all_runs() -> None:
    torch.manual_seed(0)
    ngrams, rows = filled(4, 50, 6), [[3, 1, 4, 1, 5], [9], [2, 6]]
    found = ngrams(padded(rows))
    for b, row in enumerate(rows):
        for i in range(len(row)):
            expected = torch.zeros(6)
            for size in (2, 3, 4):
                code = size
                for token in run(row, i, size):
                    code = (code * 1_000_003 + token + 1) % (2**31 - 1)
                expected = expected + ngrams.table.weight[1 + code % 50]
            torch.testing.assert_close(found[b, i], expected)
        assert not found[b, len(row) :].any()
    found.sum().backward()
    assert ngrams.table.weight.grad is not None
    assert ngrams.table.weight.grad.sum().item() == 6 * 3 * sum(map(len, rows))  # padding gives none


@settings(max_examples=50, deadline=None)
@given(ROWS, st.integers(0, 3))
def test_a_row_is_the_same_alone_and_however_far_it_is_padded(rows: list[list[int]], more: int) -> None:
    ngrams = filled(5, 97, 4)
    together = ngrams(padded(rows, more))
    for b, row in enumerate(rows):
        assert together[b, : len(row)].equal(ngrams(torch.tensor([row]))[0])


def test_in_training_some_are_forgotten_and_none_is_known_at_first() -> None:
    torch.manual_seed(0)
    ids = torch.randint(1, 99, (50, 20))
    assert not Ngrams(3, 1000, 4)(ids).any()
    ngrams = Ngrams(3, 1000, 4, forget=0.3).train()
    with torch.no_grad():
        ngrams.table.weight[1:] = 1.0
    assert ngrams(ids).mean().item() == pytest.approx(2 * 0.7, abs=0.05)
    assert ngrams.eval()(ids).mean().item() == 2


def test_only_what_was_seen_often_enough_is_learned() -> None:
    texts = [np.array([1, 2, 3])] * 3 + [np.array([1, 2])] * 2 + [np.array([7])]
    ngrams = Ngrams(2, 2**20, 4, forget=0.0).train()
    ngrams.know(texts, least=4)  # "beyond, 1" 5 times, "1, 2" 5 times, "2, 3" 3 times, "beyond, 7" once
    ngrams(torch.tensor([[1, 2, 3], [7, 0, 0]])).sum().backward()
    assert ngrams.table.weight.grad is not None
    learned = ngrams.table.weight.grad.any(1)
    expected = {1 + int(code) % 2**20 for code in codes(torch.tensor([[1, 2]]), 2)[0]}
    assert set(learned.nonzero().flatten().tolist()) == expected
    ngrams.know(texts, least=1)
    assert int(ngrams.known[1:].sum()) == 4


def test_its_table_is_stepped_like_other_tables() -> None:
    for pair in (
        transformer(layers=1, width=8, hidden=8, heads=2, ngrams=3, buckets=11),
        recurrent(width=8, ngrams=3, buckets=11),
    ):
        network = Converter(pair, 9, 9)
        groups = optimiser(network, Training(optimiser="muon", decay=0.1), fused=False).param_groups
        table = network.stem.embedding.ngrams.table.weight
        (own,) = [group for group in groups if any(weight is table for weight in group["params"])]
        assert (own["orthogonal"], own["weight_decay"]) == (False, 0.0)
