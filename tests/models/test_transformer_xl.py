"""Transformer-XL against loops over the paper's equations, one long pass, and the caches of a decoder alone."""

import math
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from regard.attention import Context, Mask, Rolling, causal, masks
from regard.attention.positions import sinusoidal
from regard.backbones.segments import Segments
from regard.backbones.transformer import Causal, EncoderLayer
from regard.models.transformer_xl import transformer_xl
from tests.models.same import shake

SHAPE: dict[str, Any] = {"layers": 3, "width": 8, "hidden": 12, "heads": 2, "dropout": 0.0}


def make(memory: int, **more: Any) -> Segments:
    torch.manual_seed(0)
    backbone = transformer_xl(memory=memory, **SHAPE, **more)[1].double()
    shake(backbone)
    return backbone


def in_segments(backbone: Segments, x: Tensor, ends: list[int]) -> Tensor:
    """Segment by segment; each ends before one of `ends`."""
    state, found = None, []
    for first, end in pairwise([0, *ends]):
        y, state = backbone.steps(Context(x[:, first:end], torch.arange(first, end)), state)
        found.append(y.values)
    return torch.cat(found, 1)


def long_pass(backbone: Segments, x: Tensor, mask: Mask) -> Tensor:
    """The same layers over the whole text at once."""
    positions = torch.arange(x.shape[1])
    for layer in backbone.layers:
        x, _ = layer(x, None, positions, mask)
    return x if backbone.norm is None else backbone.norm(x)


def segment_mask(ends: list[int], memory: int) -> Mask:
    """s(q) − memory ≤ k ≤ q with s(q) the first position of q's segment."""
    first = torch.tensor([max(e for e in [0, *ends] if e <= p) for p in range(ends[-1])])
    return causal & Mask(lambda q, k: k >= first[q] - memory, "segment")


cuts = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(lambda sizes: torch.tensor(sizes).cumsum(0).tolist())


@settings(max_examples=30, deadline=None)
@given(ends=cuts, memory=st.integers(0, 8), norm=st.sampled_from(["pre", "post"]))
def test_segments_have_the_hidden_states_of_one_long_pass_with_the_segments_mask(
    ends: list[int], memory: int, norm: str
) -> None:
    """Exact for any memory and any cut, as each hidden state is made once, in its own segment."""
    backbone, x = make(memory, norm=norm), torch.randn(2, ends[-1], 8, dtype=torch.float64)
    with torch.no_grad():
        assert in_segments(backbone, x, ends).allclose(long_pass(backbone, x, segment_mask(ends, memory)), atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(ends=cuts, spare=st.integers(0, 3))
def test_a_memory_of_everything_is_one_long_causal_pass(ends: list[int], spare: int) -> None:
    backbone, x = make(ends[-1] + spare), torch.randn(2, ends[-1], 8, dtype=torch.float64)
    with torch.no_grad():
        assert in_segments(backbone, x, ends).allclose(long_pass(backbone, x, causal), atol=1e-10)


@settings(max_examples=20, deadline=None)
@given(ends=cuts, memory=st.integers(1, 8))
def test_with_the_same_length_for_all_the_cut_does_not_matter(ends: list[int], memory: int) -> None:
    """A window per layer: the identity of evaluation in segments of any length, also of one token."""
    backbone, x = make(memory, same_length=True), torch.randn(2, ends[-1], 8, dtype=torch.float64)
    with torch.no_grad():
        expected = long_pass(backbone, x, masks.window(memory, 0))
        assert in_segments(backbone, x, ends).allclose(expected, atol=1e-10)
        assert in_segments(backbone, x, list(range(1, ends[-1] + 1))).allclose(expected, atol=1e-10)


def test_without_the_same_length_a_short_memory_depends_on_the_cut() -> None:
    backbone, x = make(2), torch.randn(1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        assert not in_segments(backbone, x, [4, 8]).allclose(in_segments(backbone, x, [3, 8]), atol=1e-4)


def test_remembered_hidden_states_equal_cached_keys_and_values() -> None:
    """Without training, a rolling cache of projected keys is the same memory."""
    backbone, x = make(3, same_length=True), torch.randn(2, 7, 8, dtype=torch.float64)
    cached = Causal(list(backbone.layers), None, mask=masks.window(3, 0), start=partial(Rolling, 3))
    first, state = cached.steps(Context(x[:, :4], torch.arange(4)))
    second, _ = cached.steps(Context(x[:, 4:], torch.arange(4, 7)), state)
    assert torch.cat((first.values, second.values), 1).allclose(in_segments(backbone, x, [2, 3, 7]), atol=1e-10)


def by_loop(layers: list[EncoderLayer], segments: list[Tensor], memory: int) -> list[Tensor]:
    """Dai et al. 2019, 3.3, the summary: one head, one query and one key at a time. Segments are (n, width)."""
    kept: list[list[Tensor]] = [[] for _ in layers]
    found = []
    for segment in segments:
        h = list(segment)
        for number, layer in enumerate(layers):
            past = kept[number][max(0, len(kept[number]) - memory) :]
            seen = [*past, *h]
            kept[number] = [*past, *(state.detach() for state in h)]
            h = [one_position(layer, seen, len(past) + i) for i in range(len(h))]
        found.append(torch.stack(h))
    return found


def one_position(layer: EncoderLayer, seen: list[Tensor], i: int) -> Tensor:
    attention, bias = layer.attention, layer.attention.attention.bias
    width, heads = 8, attention.heads
    d = width // heads
    contexts = []
    for head in range(heads):
        rows = slice(head * d, (head + 1) * d)
        w_q, w_ke, w_v, w_kr = (
            m.weight[rows] for m in (attention.q_proj, attention.k_proj, attention.v_proj, bias.r_proj)
        )
        u, v = bias.u[head, 0], bias.v[head, 0]
        q, scores = w_q @ seen[i], []
        for j in range(i + 1):
            r = w_kr @ sinusoidal(torch.tensor([i - j]), width)[0].double()
            k = w_ke @ seen[j]
            scores.append((q @ k + q @ r + u @ k + v @ r) / math.sqrt(d))
        a = torch.stack(scores).softmax(0)
        contexts.append(sum(a[j] * (w_v @ seen[j]) for j in range(i + 1)))
    o, one, two = attention.output_proj, layer.around_attention.norm, layer.around_feed.norm
    y = layer_norm(o.weight @ torch.cat(contexts) + o.bias + seen[i], (width,), one.weight, one.bias)
    feed = layer.feed
    z = feed.outer.weight @ torch.relu(feed.inner.weight @ y + feed.inner.bias) + feed.outer.bias
    return layer_norm(z + y, (width,), two.weight, two.bias)


def test_equals_a_loop_over_the_papers_equations_values_and_gradients() -> None:
    """Gradients too: W_k and W_v learn from the memory, the memory itself learns nothing."""
    backbone = make(5)
    x = torch.randn(1, 8, 8, dtype=torch.float64, requires_grad=True)
    ours = in_segments(backbone, x, [3, 5, 8])
    theirs = torch.cat(by_loop(list(backbone.layers), list(x[0].split([3, 2, 3])), 5))
    assert ours[0].allclose(theirs, atol=1e-10)
    up = torch.randn(8, 8, dtype=torch.float64)
    inputs = [x, *backbone.parameters()]
    for a, b in zip(
        torch.autograd.grad((ours[0] * up).sum(), inputs), torch.autograd.grad((theirs * up).sum(), inputs), strict=True
    ):
        assert a.allclose(b, atol=1e-9)


def test_no_gradient_flows_into_the_memory() -> None:
    backbone = make(4)
    x = torch.randn(2, 6, 8, dtype=torch.float64, requires_grad=True)
    _, state = backbone.steps(Context(x[:, :3], torch.arange(3)))
    assert not any(hidden.requires_grad for hidden in state.hidden)
    y, _ = backbone.steps(Context(x[:, 3:], torch.arange(3, 6)), state)
    y.values.pow(2).sum().backward()
    assert x.grad is not None
    assert x.grad[:, :3].eq(0).all()
    assert x.grad[:, 3:].ne(0).any()


def test_the_memory_is_no_longer_than_asked_and_holds_the_last_positions() -> None:
    backbone = make(4)
    state = None
    for first, end in pairwise([0, 3, 5, 12]):
        segment = torch.randn(2, end - first, 8, dtype=torch.float64)
        _, state = backbone.steps(Context(segment, torch.arange(first, end)), state)
        assert state.positions.tolist() == list(range(max(0, end - 4), end))
        assert {hidden.shape for hidden in state.hidden} == {(2, min(4, end), 8)}
    assert len(state.hidden) == 3


def test_u_and_v_are_shared_by_the_layers_and_distances_are_not() -> None:
    names = [name for name, _ in make(4).named_parameters()]
    assert [n for n in names if n.endswith((".u", ".v"))] == [
        "layers.0.attention.attention.bias.u",
        "layers.0.attention.attention.bias.v",
    ]
    assert len([n for n in names if n.endswith("r_proj.weight")]) == 3


def test_refusals() -> None:
    with pytest.raises(ValueError, match="keeps 0 or more positions, found -1"):
        Segments([], None, -1)
    with pytest.raises(ValueError, match="'padding' lets a position look ahead"):
        Segments([], nn.LayerNorm(4), 2, mask=masks.padding)
