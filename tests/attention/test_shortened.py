"""Linformer against its formula by loops, rows shorter than the trained length, padding, and what it refuses."""

import math

import pytest
import torch
from torch import Tensor

from regard.attention import Cache, Context, causal, masks, padding
from regard.attention.shortened import LengthProjection, Shortened
from tests.attention.parts import gradients
from tests.attention.test_linear import padded


def by_loops(layer: Shortened, x: Tensor, context: Tensor) -> Tensor:
    """Equation 7 for one row (n, width) without padding, head by head and query by query."""
    width = x.shape[-1] // layer.heads
    q, k, v = layer.q_proj(x), layer.k_proj(context), layer.v_proj(context)
    e, f = (part.weight[:, : len(context)] for part in (layer.attention.keys, layer.attention.values))
    heads = []
    for h in range(layer.heads):
        part = slice(h * width, (h + 1) * width)
        keys = [sum(e[c, i] * k[i, part] for i in range(len(k))) for c in range(len(e))]
        values = [sum(f[c, i] * v[i, part] for i in range(len(v))) for c in range(len(f))]
        rows = []
        for query in q[:, part]:
            weights = torch.stack([query @ key / math.sqrt(width) for key in keys]).softmax(0)
            rows.append(sum(w * value for w, value in zip(weights, values, strict=True)))
        heads.append(torch.stack(rows))
    return layer.output_proj(torch.cat(heads, -1))


def made(columns: int = 3, length: int = 12, *, shared: bool = False) -> Shortened:
    keys = LengthProjection(length, columns)
    return Shortened(8, 2, keys, keys if shared else LengthProjection(length, columns)).double()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("length", [1, 7, 12])
def test_the_layer_is_the_formula(length: int, *, shared: bool) -> None:
    torch.manual_seed(0)
    layer = made(shared=shared)
    x = torch.randn(2, length, 8, dtype=torch.float64, requires_grad=True)
    ours, _ = layer(x, None, None, padding)
    theirs = torch.stack([by_loops(layer, row, row) for row in x])
    assert ours.allclose(theirs, rtol=0, atol=1e-9)
    up, inside = torch.randn_like(ours), [x, *layer.parameters()]
    for mine, other in zip(gradients(ours, inside, up), gradients(theirs, inside, up), strict=True):
        assert mine.allclose(other, rtol=0, atol=1e-9)
    assert len(list(layer.parameters())) == 8 + (1 if shared else 2)


def test_padding_changes_nothing_and_no_position_is_no_fault() -> None:
    torch.manual_seed(0)
    layer = made()
    x, where = torch.randn(3, 10, 8, dtype=torch.float64), padded(3, 10)
    y, _ = layer(x, None, where, padding.at(where))
    assert bool(y.isfinite().all())
    for row in (1, 2):
        real = where[row] >= 0
        assert y[row, real].allclose(by_loops(layer, x[row, real], x[row, real]), atol=1e-9)
    left = torch.tensor([-1, -1, *range(8)]).expand(1, -1)  # padding in front
    assert layer(x[:1], None, left, padding)[0][0, 2:].allclose(by_loops(layer, x[0, 2:], x[0, 2:]), atol=1e-9)
    assert layer(x[:, :0], None, None, padding)[0].shape == (3, 0, 8)


def test_a_context_and_its_weights() -> None:
    torch.manual_seed(0)
    layer = made()
    x, c = torch.randn(1, 4, 8, dtype=torch.float64), torch.randn(1, 9, 8, dtype=torch.float64)
    assert layer(x, Context(c), None, padding)[0][0].allclose(by_loops(layer, x[0], c[0]), atol=1e-9)
    q, k = torch.randn(1, 2, 4, 4, dtype=torch.float64), torch.randn(1, 2, 9, 4, dtype=torch.float64)
    weights = layer.attention.weights(q, k, padding, torch.arange(4), torch.arange(9), [1])
    assert weights.shape == (1, 1, 4, 3)
    assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64))
    whole = layer.attention(q, k, k, None, torch.arange(4), torch.arange(9))
    assert (weights @ layer.attention.values(k, torch.arange(9))[:, 1:]).allclose(whole[:, 1:], atol=1e-9)


def test_masks_states_and_longer_rows_are_refused_in_a_sentence() -> None:
    layer, x = made(), torch.randn(1, 5, 8, dtype=torch.float64)
    for mask in (causal, masks.window(2, 2), torch.ones(5, 5, dtype=torch.bool)):
        with pytest.raises(ValueError, match="mixes all positions into each of its keys"):
            layer(x, None, None, mask)
    with pytest.raises(ValueError, match="no state"):
        layer(x, None, None, padding, Cache())
    with pytest.raises(ValueError, match="positions 0 to 11, found position 12"):
        layer(torch.randn(1, 13, 8, dtype=torch.float64), None, None, padding)
    with pytest.raises(ValueError, match="1 or more columns"):
        LengthProjection(4, 0)
