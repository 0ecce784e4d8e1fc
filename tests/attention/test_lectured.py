"""Small exact things, as they are lectured."""

import pytest
import torch
from torch import nn

from regard.attention import MultiHead, attend, normalisers, positions, scores


def test_softmax_of_three_ones_and_minus_infinity() -> None:
    """softmax(1, 1, 1, −∞) = (⅓, ⅓, ⅓, 0): as a score of −∞, and as a mask."""
    given, third = torch.tensor([1.0, 1.0, 1.0, -torch.inf]), torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0])
    assert normalisers.softmax(given, None).allclose(third)
    masked = normalisers.softmax(torch.ones(4), torch.tensor([True, True, True, False]))
    assert masked.allclose(third)
    assert masked[3] == 0


def test_heads_of_a_head_equal_whole_heads() -> None:
    """q^h = W^(q,h) (W^q a): first one query for all heads, then each head's own; the same as W^(q,h) W^q at once."""
    torch.manual_seed(0)
    width, heads, d = 8, 2, 4
    layer = MultiHead(width, heads).double()
    x, *first = (torch.randn(n, width, dtype=torch.float64, requires_grad=True) for n in (3, width, width, width))
    second = [torch.randn(heads, d, width, dtype=torch.float64, requires_grad=True) for _ in "qkv"]
    found = []
    for h in range(heads):
        q, k, v = ([own[h] @ (shared @ a) for a in x] for own, shared in zip(second, first, strict=True))
        rows = []
        for asked in q:
            weights = torch.stack([asked @ key for key in k]) / d**0.5
            rows.append(sum(a * value for a, value in zip(weights.softmax(0), v, strict=True)))
        found.append(torch.stack(rows))
    by_loop = layer.output_proj(torch.cat(found, -1))
    products = zip("qkv", second, first, strict=True)
    matrices = {f"{name}_proj.weight": (own @ shared).flatten(0, 1) for name, own, shared in products}
    whole = torch.func.functional_call(layer, matrices, (x.unsqueeze(0),))[0][0]
    assert whole.allclose(by_loop, atol=1e-12)
    up, given = torch.randn_like(whole), [x, *first, *second]
    ours, theirs = (torch.autograd.grad((y * up).sum(), given, retain_graph=True) for y in (whole, by_loop))
    assert all(mine.allclose(other, atol=1e-10) for mine, other in zip(ours, theirs, strict=True))


def test_a_one_hot_input_picks_a_row_of_the_table() -> None:
    """W x with x one-hot is a column of W: an embedding is a linear map of one-hot vectors, its gradient too."""
    table, ids = nn.Embedding(7, 4), torch.tensor([3, 0, 3, 6])
    onehot = nn.functional.one_hot(ids, 7).float()
    by_map, by_table = onehot @ table.weight, table(ids)
    assert by_map.equal(by_table)
    up = torch.randn_like(by_map)
    one, other = (torch.autograd.grad((y * up).sum(), table.weight)[0] for y in (by_map, by_table))
    assert one.allclose(other)


@pytest.mark.parametrize(("width", "count"), [(2, 1000), (8, 3000), (128, 3000)])
def test_all_positions_have_different_vectors(width: int, count: int) -> None:
    p = positions.sinusoidal(torch.arange(count), width).double()
    distances = torch.cdist(p, p, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    assert distances.min() > 1e-6


def test_remembered_weights_are_no_shares() -> None:
    """Remembered weights 1.0 .1 .1 .5 .1: a gate for each guest alone; they need not add up to 1."""
    weights, guests = torch.tensor([1.0, 0.1, 0.1, 0.5, 0.1]), torch.eye(5)
    answer, seen = attend(
        torch.logit(weights, eps=1e-7).view(1, 5), guests, guests, score=scores.dot, normalise=normalisers.sigmoid
    )
    assert seen[0].allclose(weights, atol=1e-6)
    assert answer[0].allclose(weights, atol=1e-6)
    assert float(seen.sum()) == pytest.approx(1.8, abs=1e-5)


def test_five_keys_and_two_queries() -> None:
    """Keys musician, lawyer, shopkeeper, chef, scientist. "help on my exam" asks for the scientist, "have fun" for the
    musician; the query "musician" scores 5.6 with the musician's key and "mathematician" −4.5."""
    #       music  study  food
    keys = torch.tensor([[2.0, -0.5, 0.0], [0.1, 1.0, 0.0], [0.0, 0.2, 0.6], [0.4, 0.0, 2.0], [-0.3, 2.5, 0.0]])
    asked = torch.tensor([[-0.6, 3.0, 0.0], [3.0, -1.0, 1.0]])  # help on my exam, have fun
    guests = torch.eye(5)
    answer, weights = attend(asked, keys, guests, score=scores.dot)
    assert weights.argmax(-1).tolist() == [4, 0]
    assert weights.sum(-1).allclose(torch.ones(2))
    assert answer.equal(weights)  # the values are the guests themselves
    musician, mathematician = torch.tensor([[2.6, -0.8, 0.0]]), torch.tensor([[-1.5, 3.0, 0.0]])
    said = [float(scores.dot(q, keys[:1])) for q in (musician, mathematician)]
    assert said == pytest.approx([5.6, -4.5])
