"""Masks as rules about positions: each against a double loop, their algebra, padding, and laying once per batch."""

import math

import pytest
import torch

from regard.attention import masks
from tests.attention.parts import some_masks

DOCUMENTS = torch.tensor([0, 0, 1, 1, 1, 2])
ORDER = torch.tensor([3, 0, 5, 1, 4, 2])
GRAPH = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) < 0.5

RULES = {
    "causal": (masks.causal, lambda q, k: k <= q),
    "padding": (masks.padding, lambda q, k: True),
    "window": (masks.window(2, 1), lambda q, k: q - 2 <= k <= q + 1),
    "block": (masks.block(4), lambda q, k: q // 4 == k // 4),
    "prefix": (masks.prefix(2), lambda q, k: k < 2),
    "document": (masks.document(DOCUMENTS), lambda q, k: bool(DOCUMENTS[q] == DOCUMENTS[k])),
    "ordering": (masks.ordering(GRAPH), lambda q, k: bool(GRAPH[q, k])),
    "permutation": (masks.permutation(ORDER), lambda q, k: bool(ORDER[k] <= ORDER[q])),
    "query stream": (masks.permutation(ORDER, itself=False), lambda q, k: bool(ORDER[k] < ORDER[q])),
    "and": (masks.causal & masks.block(4), lambda q, k: k <= q and q // 4 == k // 4),
    "or": (masks.causal | masks.prefix(3), lambda q, k: k <= q or k < 3),
    "not": (~masks.causal, lambda q, k: k > q),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_against_a_double_loop(name: str) -> None:
    mask, rule = RULES[name]
    expected = torch.tensor([[rule(q, k) for k in range(6)] for q in range(6)])
    laid = mask.on(torch.arange(6), torch.arange(6))
    assert laid.rows(torch.arange(6)).expand(6, 6).equal(expected)
    assert (laid.dense is None) == bool(expected.all())


@pytest.mark.parametrize("name", RULES)
def test_padding_is_never_attended_whatever_the_rule(name: str) -> None:
    positions = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, -1, -1, -1]])
    dense = RULES[name][0].on(positions, positions).dense
    assert dense is not None
    assert not dense.expand(2, 1, 6, 6)[1, 0, :, 3:].any()
    alone = RULES[name][0].on(torch.arange(6), torch.arange(6)).rows(torch.arange(6)).expand(6, 6)
    assert dense.expand(2, 1, 6, 6)[0, 0].equal(alone)


def test_rules_with_a_row_per_batch() -> None:
    ids = torch.stack((DOCUMENTS, DOCUMENTS.flip(0)))
    graphs = torch.stack((GRAPH, GRAPH.T))
    positions = torch.arange(6).expand(2, -1)
    for many, single in ((masks.document(ids), masks.document), (masks.ordering(graphs), masks.ordering)):
        table = ids if single is masks.document else graphs
        for where in (positions, torch.arange(6)):
            laid = many.on(where, where).rows(where)
            assert laid.shape == (2, 1, 6, 6)
            for b in range(2):
                assert laid[b, 0].equal(single(table[b]).on(torch.arange(6), torch.arange(6)).rows(torch.arange(6)))


def test_how_far_a_mask_reaches() -> None:
    assert (masks.causal.back, masks.causal.ahead) == (math.inf, 0)
    assert (masks.causal & masks.window(5, 7)).ahead == 0
    assert (masks.causal & masks.window(5, 7)).back == 5
    assert (masks.window(1, 2) | masks.window(3, 0)).back == 3
    assert (~masks.causal).ahead == math.inf
    for length in (1, 9):  # the stated reach is true: nothing is allowed beyond it
        for mask in some_masks(length).values():
            q, k = torch.arange(length)[:, None], torch.arange(length)
            allowed = mask(q, k)
            assert not (allowed & ((k - q > mask.ahead) | (q - k > mask.back))).any()


def test_a_laid_mask_is_computed_once() -> None:
    calls = []
    rule = masks.Mask(lambda q, k: calls.append(1) or k <= q)
    laid = rule.on(torch.arange(4), torch.arange(4))
    assert laid.dense is laid.dense
    assert len(calls) == 1


def test_which_positions_are_aligned() -> None:
    for positions, expected in (
        (torch.arange(5), True),
        (torch.arange(3, 8), True),
        (torch.tensor([[0, 1, 2], [0, 1, -1]]), True),
        (torch.tensor([[-1, -1, 0], [4, 5, 6]]), True),
        (torch.tensor([0, 2, 3]), False),
        (torch.tensor([0, 1, 0]), False),
        (torch.tensor([[-1, -1]]), True),
    ):
        assert masks.causal.on(positions, positions).aligned is expected
    assert not masks.causal.on(torch.arange(4), torch.arange(5)).aligned


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: masks.window(-1, 2), "found left=-1, right=2"),
    (lambda: masks.ordering(torch.ones(2, 3)), r"square 0/1 matrix, .* found shape \(2, 3\)"),
    (lambda: masks.ordering(torch.ones(3, 3)).on(torch.arange(4), torch.arange(4)).dense, "covers positions 0 to 2, found 3"),
])  # fmt: skip
def test_refusals(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()  # type: ignore[operator]


def test_layers_with_equal_keys_share_one_laid_mask() -> None:
    asked = masks.causal.at(torch.tensor([3, 4]))
    keys = torch.arange(5)
    laid = asked.on(keys)
    assert asked.on(keys) is laid
    assert asked.on(keys.clone()) is laid
    assert asked.on(torch.arange(1, 6)) is not laid
    assert laid.rows(laid.q_pos).tolist() == [[True, True, True, True, False], [True] * 5]
    past = torch.arange(3)
    assert asked.after(past).tolist() == [0, 1, 2, 3, 4]
    assert asked.after(past) is asked.after(past)
    by_row = torch.tensor([[0, 1], [-1, 0]])
    assert asked.after(by_row).tolist() == [[0, 1, 3, 4], [-1, 0, 3, 4]]
