"""Masks, first states and layers are arguments of a backbone: each setting against the equation, written out again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Context, Mask, MultiHead, Rolling, attend, causal, masks, padding, scores, window
from regard.backbones.recurrent import (
    Attentive,
    BidirectionalRNN,
    FirstHidden,
    Glimpse,
    RecurrentDecoder,
    RecurrentEncoder,
)
from regard.backbones.segments import Segments
from regard.backbones.streams import TwoStream
from regard.backbones.transformer import Causal, Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward
from regard.layers.residual import PostNorm, PreNorm

WIDTH, HEADS = 16, 2


def feed() -> FeedForward:
    return FeedForward(WIDTH, 24, 0.0)


def encoder_layers(count: int = 2) -> list[EncoderLayer]:
    return [EncoderLayer(MultiHead(WIDTH, HEADS), feed(), partial(PreNorm, WIDTH, 0.0)) for _ in range(count)]


def decoder_layers(count: int = 2) -> list[DecoderLayer]:
    residual = partial(PostNorm, WIDTH, 0.0)
    return [DecoderLayer(MultiHead(WIDTH, HEADS), MultiHead(WIDTH, HEADS), feed(), residual) for _ in range(count)]


def look(layer: MultiHead, x: Tensor, seen: Tensor, allowed: Tensor) -> Tensor:
    """One layer by `attend` and a boolean matrix, without positions, rules or states."""
    q, k, v = (
        project(y).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for project, y in ((layer.q_proj, x), (layer.k_proj, seen), (layer.v_proj, seen))
    )
    return layer.output_proj(attend(q, k, v, mask=allowed)[0].transpose(1, 2).flatten(2))


def encoded(backbone: Encoder | Causal | TwoStream, x: Tensor, allowed: Tensor) -> Tensor:
    for layer in backbone.layers:
        inside = layer.around_attention.norm(x)
        x = x + look(layer.attention, inside, inside, allowed)
        x = x + layer.feed(layer.around_feed.norm(x))
    return x if backbone.norm is None else backbone.norm(x)


def decoded(backbone: Decoder, x: Tensor, memory: Tensor, own: Tensor, across: Tensor) -> Tensor:
    for layer in backbone.layers:
        x = layer.around_own.norm(x + look(layer.own, x, x, own))
        x = layer.around_cross.norm(x + look(layer.cross, x, memory, across))
        x = layer.around_feed.norm(x + layer.feed(x))
    return x


def rows(n: int, rule: Callable[[int, int], bool], keys: int | None = None) -> Tensor:
    return torch.tensor([[rule(q, k) for k in range(keys or n)] for q in range(n)])


def same(ours: Tensor, theirs: Tensor, inputs: list[Tensor]) -> None:
    """Values and gradients."""
    assert ours.allclose(theirs, atol=1e-10)
    up = torch.randn_like(ours)
    grads = (torch.autograd.grad((y * up).sum(), inputs, retain_graph=True) for y in (ours, theirs))
    for a, b in zip(*grads, strict=True):
        assert a.allclose(b, atol=1e-9)


def test_a_truncated_encoder_is_an_encoder_with_a_window() -> None:
    torch.manual_seed(0)
    backbone = Encoder(encoder_layers(), nn.LayerNorm(WIDTH), mask=window(2, 1)).double()
    x = torch.randn(2, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    ours = backbone(Context(x)).values
    same(ours, encoded(backbone, x, rows(7, lambda q, k: q - 2 <= k <= q + 1)), [x, *backbone.parameters()])


@pytest.mark.parametrize("kind", [Encoder, Causal])
def test_a_context_may_bring_a_mask_of_its_own(kind: type[Encoder] | type[Causal]) -> None:
    """Packed documents: the rule of the batch and that of the backbone hold both."""
    torch.manual_seed(0)
    backbone = kind(encoder_layers(), nn.LayerNorm(WIDTH)).double()
    x = torch.randn(2, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    allowed = rows(7, lambda q, k: bool(ids[q] == ids[k]) and (k <= q or kind is Encoder))
    ours = backbone(Context(x, mask=masks.document(ids))).values
    same(ours, encoded(backbone, x, allowed), [x, *backbone.parameters()])


def test_a_decoder_with_a_rolling_state_equals_its_window_all_at_once() -> None:
    torch.manual_seed(0)
    backbone = Decoder(decoder_layers(), None, mask=window(2, 0), start=partial(Rolling, 2)).double()
    x, memory = (torch.randn(2, n, WIDTH, dtype=torch.float64) for n in (8, 5))
    where = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    across = (where >= 0)[:, None, None].expand(-1, 1, 8, -1)
    full, nothing = backbone(Context(x), Context(memory, where))
    assert nothing is None
    assert full.allclose(decoded(backbone, x, memory, rows(8, lambda q, k: q - 2 <= k <= q), across), atol=1e-10)
    state, order, seen = None, torch.arange(2), Context(memory, where)
    for some in torch.arange(8).split([3, 1, 1, 3]):
        step = Context(x[order][:, some], some)
        y, state = backbone(step, seen if state is None else None, state, keep=True)
        assert y.allclose(full[order][:, some], atol=1e-10)
        order, state = order.flip(0), state.reorder(torch.tensor([1, 0]))
    assert all(own.kept.k.shape[-2] == 2 for own in state.own)


def test_a_decoder_without_a_causal_mask_answers_all_queries_at_once() -> None:
    """DETR: learned queries see each other and the memory (Carion et al. 2020, 3.2)."""
    torch.manual_seed(0)
    backbone = Decoder(decoder_layers(), None, mask=padding).double()
    queries = torch.randn(6, WIDTH, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(2, 9, WIDTH, dtype=torch.float64, requires_grad=True)
    x = queries.expand(2, -1, -1)
    ours, state = backbone(Context(x), Context(memory))
    assert state is None
    everything = torch.ones(6, 6, dtype=torch.bool), torch.ones(6, 9, dtype=torch.bool)
    same(ours, decoded(backbone, x, memory, *everything), [queries, memory, *backbone.parameters()])
    order = torch.randperm(6)
    moved, _ = backbone(Context(x[:, order]), Context(memory))
    assert moved.allclose(ours[:, order], atol=1e-10)
    with pytest.raises(ValueError, match="'padding' lets a position look ahead"):
        backbone(Context(x), Context(memory), keep=True)


def test_a_decoder_may_see_a_part_of_the_memory() -> None:
    torch.manual_seed(0)
    near = Mask(lambda q, k: (k - 2 * q).abs() <= 1, "monotone")
    backbone = Decoder(decoder_layers(), None, across=near).double()
    x, memory = (torch.randn(2, n, WIDTH, dtype=torch.float64) for n in (4, 9))
    allowed = rows(4, lambda q, k: k <= q), rows(4, lambda q, k: abs(k - 2 * q) <= 1, keys=9)
    assert backbone(Context(x), Context(memory))[0].allclose(decoded(backbone, x, memory, *allowed), atol=1e-10)


@dataclass(frozen=True)
class Sum:
    """The running mean of what a layer has read: a state without keys, values or positions."""

    total: Tensor | None = None
    count: int = 0

    def reorder(self, index: Tensor) -> Sum:
        return self if self.total is None else Sum(self.total[index], self.count)


class Averaging(nn.Module):
    """A layer that is no attention: y_t is W times the mean of x_1 … x_t. It keeps the interface, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(
        self, x: Tensor, context: object, positions: object, mask: object, state: Sum | None = None
    ) -> tuple[Tensor, Sum]:
        state = state or Sum()
        count, sums = state.count, x.cumsum(1) if state.total is None else state.total + x.cumsum(1)
        counts = torch.arange(count + 1, count + 1 + x.shape[1])[:, None]
        return self.proj(sums / counts), Sum(sums[:, -1:], count + x.shape[1])

    def branch_weights(self) -> list[Tensor]:
        return [self.proj.weight]


def test_a_layer_that_is_no_attention_brings_a_state_of_its_own_kind() -> None:
    torch.manual_seed(0)
    layers = [EncoderLayer(Averaging(), feed(), partial(PreNorm, WIDTH, 0.0)) for _ in range(3)]
    backbone = Causal(layers, None, start=Sum).double()
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64)
    full, state, order = backbone(Context(x)).values, None, torch.arange(3)
    for some in torch.arange(6).split([2, 1, 3]):
        y, state = backbone.steps(Context(x[order][:, some], some), state)
        assert y.values.allclose(full[order][:, some], atol=1e-10)
        index = torch.tensor([2, 0, 2])
        order, state = order[index], state.reorder(index)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_memory_without_hidden_states_starts_a_recurrent_decoder_by_its_mean(kind: str) -> None:
    torch.manual_seed(0)
    first = FirstHidden(kind, 6, 8, 2)
    memory = Context(torch.randn(2, 4, 6), torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]]))
    hidden = first(memory)
    assert len(hidden) == (2 if kind == "lstm" else 1)
    for part, h in enumerate(hidden):
        for layer in range(2):
            w = slice(8 * (2 * part + layer), 8 * (2 * part + layer + 1))
            for row, real in ((0, 4), (1, 2)):
                mean = sum(memory.values[row, i] for i in range(real)) / real
                assert h[layer, row].allclose(torch.tanh(first.proj.weight[w] @ mean + first.proj.bias[w]), atol=1e-6)
    decoder = RecurrentDecoder(kind, 8, 2, None, 0.0, feeding=True, first=first)
    x = torch.randn(2, 3, 8)
    given = memory._replace(hidden=hidden)
    assert decoder(Context(x), memory)[0].equal(decoder(Context(x), given)[0])
    decoder(Context(x), memory)[0].sum().backward()
    assert first.proj.weight.grad is not None
    plain = RecurrentDecoder(kind, 8, 2, None, 0.0, feeding=True)
    assert not [name for name, _ in plain.named_parameters() if name.startswith("first")]
    with pytest.raises(ValueError, match="brings no first hidden states"):
        plain(Context(x), memory)
    with pytest.raises(ValueError, match="a decoder needs a memory"):
        plain(Context(x), None)


def test_a_recurrent_encoder_hands_over_a_context_that_can_be_reordered() -> None:
    torch.manual_seed(0)
    encoder = RecurrentEncoder("lstm", 8, 2, 0.0, seen=True)
    decoder = RecurrentDecoder("lstm", 8, 2, Glimpse(scores.dot), 0.0, feeding=True)
    source = Context(
        torch.randn(2, 4, 8), torch.tensor([[0, 1, 2, 3], [0, 1, -1, -1]]), units=torch.tensor([[0, 2], [1, -1]])
    )
    memory, order = encoder(source), torch.tensor([1, 0, 1])
    assert memory.units is source.units
    moved, x = memory.reorder(order), torch.randn(2, 3, 8)
    assert moved.units.equal(source.units[order])
    assert decoder(Context(x[order]), moved)[0].allclose(decoder(Context(x), memory)[0][order], atol=1e-6)


@pytest.mark.parametrize("backbone", [
    Encoder(encoder_layers(), None), Causal(encoder_layers(), None), Segments(encoder_layers(), None, 4),
    RecurrentEncoder("gru", WIDTH, 1, 0.0, seen=True),
])  # fmt: skip
def test_what_a_backbone_does_not_change_is_carried_over(backbone: nn.Module) -> None:
    given = Context(
        torch.randn(2, 4, WIDTH), torch.arange(4), causal, torch.tensor([[0, 3], [1, -1]]), (1, 2, 2), (1, 16, 16)
    )
    after = backbone(given)
    assert after.values.shape == given.values.shape
    assert not after.values.equal(given.values)
    assert (after.positions, after.mask, after.units, after.grid, after.stride) == given[1:6]


def test_self_attention_over_an_rnn_may_have_a_window() -> None:
    torch.manual_seed(0)
    reader = BidirectionalRNN("gru", WIDTH, WIDTH, 1, 0.0)
    backbone = Attentive(reader, MultiHead(WIDTH, HEADS), PostNorm(WIDTH, 0.0), mask=window(1, 2)).double()
    x = torch.randn(2, 6, WIDTH, dtype=torch.float64, requires_grad=True)
    states = reader(Context(x)).values
    looked = look(backbone.attention, states, states, rows(6, lambda q, k: q - 1 <= k <= q + 2))
    same(backbone(Context(x)).values, backbone.around.norm(states + looked), [x, *backbone.parameters()])


def test_two_streams_may_look_no_further_than_a_mask_allows() -> None:
    torch.manual_seed(0)
    backbone = TwoStream(encoder_layers(1), None, WIDTH, mask=window(2, 2)).double()
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    order, target = torch.tensor([3, 0, 5, 1, 6, 2, 4]), 4
    h, g = backbone.streams(Context(x), order, torch.tensor([target]))
    for where in range(7):
        other = x.clone()
        other[:, where] += torch.randn(WIDTH)  # no constant: a norm would take it out again
        changed, predicted = backbone.streams(Context(other), order, torch.tensor([target]))
        near, before = abs(where - target) <= 2, bool(order[where] < order[target])
        assert predicted.allclose(g, atol=1e-10) == (not (near and before))
        seen = changed.values[0].sub(h.values[0]).abs().amax(-1) > 1e-10
        assert seen.tolist() == [abs(q - where) <= 2 and bool(order[where] <= order[q]) for q in range(7)]
    read = backbone(Context(x)).values
    assert read.allclose(encoded(backbone, x, rows(7, lambda q, k: abs(q - k) <= 2)), atol=1e-10)


@pytest.mark.parametrize("feeding", [True, False])
def test_a_recurrent_decoder_may_see_a_part_of_the_memory(feeding: bool) -> None:
    torch.manual_seed(0)
    near = Mask(lambda q, k: (k - 2 * q).abs() <= 1, "monotone")
    decoder = RecurrentDecoder("gru", 8, 1, Glimpse(scores.dot), 0.0, feeding=feeding, across=near).double()
    memory = Context(torch.randn(1, 9, 8, dtype=torch.float64), hidden=(torch.randn(1, 1, 8, dtype=torch.float64),))
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    outputs, _ = decoder(Context(x), memory)
    for where in range(9):
        other = memory.values.clone()
        other[:, where] += 1
        changed = (decoder(Context(x), memory._replace(values=other))[0] - outputs)[0].abs().amax(-1) > 1e-12
        direct = [abs(where - 2 * q) <= 1 for q in range(4)]
        first = direct.index(True) if True in direct else 4
        # What was fed back goes on being remembered; otherwise each step sees its own part alone.
        assert changed.tolist() == ([q >= first for q in range(4)] if feeding else direct)
