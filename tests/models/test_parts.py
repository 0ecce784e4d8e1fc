"""Scores, normalisers, heads and positions by name, against loops over the formulas: values and gradients."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Context, MultiHead
from regard.attention.multihead import Pieces, unfused
from regard.attention.scores import Additive
from regard.models.bert import bert
from regard.models.encoder import encoder
from regard.models.gpt import gpt
from regard.models.parts import NORMALISERS, SCORES, WITHIN_HEADS, AttentionParts
from regard.models.speech import conformer
from regard.models.transformer import transformer
from regard.models.vit import vit
from regard.outputs.classify.head import pool
from tests.models.networks import embedded

FORMULAS: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "dot": lambda _, q, k: q @ k,
    "scaled_dot": lambda _, q, k: q @ k / math.sqrt(len(k)),
    "bilinear": lambda s, q, k: q @ s.weight @ k,
    "additive": lambda s, q, k: s.output.weight[0] @ torch.tanh(s.q_proj.weight @ q + s.k_proj.weight @ k),
    "mlp": lambda s, q, k: s.output(torch.relu(s.k_proj(k) + s.q_proj(q)))[0],
}
WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda s: s.exp() / s.exp().sum(),
    "sigmoid": lambda s: 1 / (1 + (-s).exp()),
    "relu": lambda s: s.clamp(min=0),
    "exponential": lambda s: s.exp(),
    "none": lambda s: s,
    "mean": lambda s: torch.full_like(s, 1 / len(s)),
}


def by_loop(layer: MultiHead, x: Tensor, how: AttentionParts, p: Tensor | None) -> Tensor:
    """One row x (n, width), one head, one query and one key at a time; p (n, head width) is added to q, k and v."""
    answers = []
    for h in range(layer.heads):

        def project(proj: Any, h: int = h) -> Tensor:
            if how.heads_see == "piece":
                size = x.shape[-1] // layer.heads
                out = proj.weight.shape[-1]
                return x[:, h * size : (h + 1) * size] @ proj.weight[h] + proj.bias[h * out : (h + 1) * out]
            out = len(proj.weight) // layer.heads
            return x @ proj.weight[h * out : (h + 1) * out].T + proj.bias[h * out : (h + 1) * out]

        where = 0 if p is None else p
        q, k = (project(proj) + where for proj in (layer.q_proj, layer.k_proj))
        v = project(layer.v_proj) + (0 if how.position_way == "queries_keys" else where)
        rows = []
        for one in q:
            scores = torch.stack([FORMULAS[how.score](layer.attention.score, one, key) for key in k])
            rows.append(WEIGHTS[how.normaliser](scores) @ v)
        answers.append(torch.stack(rows))
    return layer.output_proj(torch.cat(answers, -1))


CASES = [
    *({"score": score} for score in SCORES),
    *({"normaliser": normaliser} for normaliser in NORMALISERS),
    {"score": "additive", "normaliser": "sigmoid", "heads_see": "piece", "key_width": 3, "value_width": 5},
    {"key_width": 6, "value_width": 2},
    {"position": "sinusoidal", "position_way": "heads"},
    {"position": "learned", "position_way": "heads", "score": "dot", "heads_see": "piece"},
    {"position": "learned", "position_way": "queries_keys"},
    {"position": "sinusoidal", "position_way": "queries_keys", "value_width": 3},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_part_equals_its_formula_in_values_and_gradients(case: dict[str, Any]) -> None:
    torch.manual_seed(0)
    how = AttentionParts(**case)
    layer = how.own(8, 2, 0, 9, both=True).double()
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    found, p = layer(x)[0], None
    if how.position_way in WITHIN_HEADS:
        table: Any = layer.rotate
        p = table.table(torch.arange(5)).double()
        assert layer.rotate_values is (layer.rotate if how.position_way == "heads" else None)
    expected = torch.stack([by_loop(layer, row, how, p) for row in x])
    assert found.allclose(expected, atol=1e-10)
    upstream, learned = torch.randn_like(found), [x, *layer.parameters()]
    ours, theirs = (
        torch.autograd.grad((y * upstream).sum(), learned, allow_unused=True, materialize_grads=True)
        for y in (found, expected)
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.allclose(other, atol=1e-9)


def test_keys_and_values_of_other_widths_have_tables_of_their_own() -> None:
    how = AttentionParts(position="learned", position_way="heads", key_width=4, value_width=6)
    layer = how.own(8, 2, 0, 9, both=True)
    assert (layer.rotate.table.table.shape, layer.rotate_values.table.table.shape) == ((9, 4), (9, 6))
    assert layer(torch.randn(1, 5, 8))[0].shape == (1, 5, 8)


@pytest.mark.parametrize("way", ["added", "concatenated", "heads"])
@pytest.mark.parametrize("layers", ["first", "every"])
def test_positions_come_in_at_the_first_layer_or_at_every_layer(way: str, layers: str) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"layers": 3, "width": 8, "hidden": 8, "heads": 2, "dropout": 0.0}
    how = {"position": "sinusoidal", "position_way": way, "position_layers": layers}
    stem, backbone = encoder(**sizes, length=9, **how)
    inside = [layer.attention.rotate is not None for layer in backbone.layers]
    before = [stem.place is not None, *(layer.place is not None for layer in backbone.layers[1:])]
    expected = [True, layers == "every", layers == "every"]
    assert (inside if way == "heads" else before) == expected
    assert not any(before if way == "heads" else inside)
    x, where = torch.randn(1, 5, 8, dtype=torch.float64, requires_grad=True), torch.arange(5)
    first, backbone = stem.place and stem.place.double(), backbone.double()
    found = backbone(Context(x if first is None else first(x, where), where)).values
    waves = [f(t / 10000 ** (2 * i / 8)) for t in where.double() for i in range(4) for f in (torch.sin, torch.cos)]
    p, shown = torch.stack(waves).view(5, 8), x
    for number, layer in enumerate(backbone.layers):  # by hand
        place = layer.place if number else first
        if place is not None:
            shown = shown + p if way == "added" else place.join(torch.cat((shown, p.unsqueeze(0)), -1))
        inner = layer.around_attention.enter(shown)
        added = None
        if layer.attention.rotate is not None:  # half as wide: the sinusoids of a head
            waves = [
                f(t / 10000 ** (2 * i / 4)) for t in where.double() for i in range(2) for f in (torch.sin, torch.cos)
            ]
            added = torch.stack(waves).view(5, 4)
        shown = shown + by_loop(layer.attention, inner[0], AttentionParts(), added)
        shown = shown + layer.feed(layer.around_feed.enter(shown))
    expected = backbone.norm(shown)
    assert found.allclose(expected, atol=1e-6)  # positions are 32 bits
    same_gradients(found, expected, [x, *backbone.parameters(), *(first.parameters() if first else ())])


def same_gradients(found: Tensor, expected: Tensor, learned: list[Tensor], atol: float = 1e-5) -> None:
    upstream = torch.randn_like(found)
    ours, theirs = (
        torch.autograd.grad((y * upstream).sum(), learned, allow_unused=True, materialize_grads=True, retain_graph=True)
        for y in (found, expected)
    )
    assert any(float(mine.abs().max()) > 0.1 for mine in ours)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.allclose(other, atol=atol)


STACKS: dict[str, Callable[..., Any]] = {
    "encoder": partial(encoder, length=9),
    "gpt": partial(gpt, context=9),
    "bert": partial(bert, length=9),
    "conformer": partial(conformer, length=9, kernel=3),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("way", ["added", "concatenated", "heads", "queries_keys"])
@pytest.mark.parametrize("layers", ["first", "every"])
def test_every_stack_takes_a_table_at_its_first_layer_or_at_every_one(name: str, way: str, layers: str) -> None:
    """p_t, from the table itself, is brought into what each layer reads by hand; each layer is then called without."""
    torch.manual_seed(0)
    how = {"position": "learned", "position_way": way, "position_layers": layers, "dropout": 0.0}
    stem, backbone = STACKS[name](layers=3, width=8, hidden=8, heads=2, **how)
    network, backbone = embedded((stem, backbone), 12)[0].double(), backbone.double()
    ids, where = torch.tensor([[5, 6, 7, 8]]), torch.arange(4)
    x = network(ids, where)
    found = backbone(Context(x, where)).values
    inside = [layer.attention.rotate is not None for layer in backbone.layers]
    assert inside == [way in WITHIN_HEADS, *[way in WITHIN_HEADS and layers == "every"] * 2]
    given = [*network.parameters(), *backbone.parameters()]
    shown, mask = x, backbone.mask.at(where)
    for number, layer in enumerate(backbone.layers):
        place, layer.place = layer.place, None
        assert (place is not None) == (way not in WITHIN_HEADS and layers == "every" and number > 0)
        if place is not None:
            p = place.table.table[:4].unsqueeze(0)
            shown = shown + p if way == "added" else place.join(torch.cat((shown, p), -1))
        shown = layer(shown, None, where, mask)[0]
    same_gradients(found, backbone.ended(shown), given, atol=1e-9)
    assert found.allclose(backbone.ended(shown), atol=1e-10)


@pytest.mark.parametrize("way", ["added", "concatenated", "heads"])
def test_the_embedding_of_bert_has_positions_as_they_come_in(way: str) -> None:
    """LayerNorm(E + P + S), LayerNorm(g([E + S; P])), or LayerNorm(E + S)."""
    torch.manual_seed(0)
    stem, _ = bert(layers=1, width=8, hidden=8, heads=2, length=9, dropout=0.0, position="sinusoidal", position_way=way)
    embedding, ids, where = stem.whole(12), torch.tensor([[2, 5, 3, 6, 3]]), torch.arange(5)
    e, s = embedding.table.weight[ids], embedding.segments.weight[torch.tensor([[0, 0, 0, 1, 1]])]
    waves = [f(t / 10000 ** (2 * i / 8)) for t in where for i in range(4) for f in (torch.sin, torch.cos)]
    p = torch.stack(waves).view(1, 5, 8)
    x = {"added": lambda: e + s + p, "heads": lambda: e + s}.get(
        way, lambda: embedding.joined.join(torch.cat((e + s, p), -1))
    )()
    found, expected = embedding(ids, where), embedding.norm(x)
    assert found.allclose(expected, atol=1e-5)
    same_gradients(found, expected, [*embedding.parameters()])


@pytest.mark.parametrize("name", [*STACKS, "transformer", "vit"])
def test_every_builder_takes_the_parts(name: str) -> None:
    build = {**STACKS, "transformer": transformer, "vit": vit}[name]
    how = {"score": "additive", "normaliser": "relu", "heads_see": "piece", "key_width": 3, "value_width": 5}
    position = {} if name == "vit" else {"position": "learned"}
    made = build(layers=2, width=8, hidden=8, heads=2, **how, **position)
    found = [m for part in made if isinstance(part, nn.Module) for m in part.modules() if isinstance(m, MultiHead)]
    assert len(found) == (6 if name == "transformer" else 2)
    assert all(isinstance(m.attention.score, Additive) and isinstance(m.q_proj, Pieces) for m in found)
    assert all(m.output_proj.in_features == 10 and m.attention.normalise is NORMALISERS["relu"] for m in found)


def test_what_has_no_fused_kernel_is_told_once_with_its_reason() -> None:
    sizes: dict[str, Any] = {"layers": 3, "width": 8, "hidden": 8, "heads": 2, "length": 9}
    assert unfused(encoder(**sizes)[1]) == []
    (line,) = unfused(encoder(**sizes, score="additive")[1])
    assert line.startswith("3 of 3 attentions take the plain form: the score Additive is not a dot product")
    assert "normaliser relu is not softmax" in unfused(encoder(**sizes, normaliser="relu")[1])[0]


def test_a_gate_and_a_fading_memory_pool_as_lectured() -> None:
    """h = Σ σ(θ_λᵀ x̄_i) x_i and h = Σ γ^(T−i) x_i, over the real elements of each row."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    where = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, -1, -1]])
    gate: Any = pool("gate", 4).double()
    fading = pool("forgetting", 4, 0.7)
    theta = torch.cat((gate.glimpse.score.theta.weight[0], gate.glimpse.score.theta.bias))
    for row, length in ((0, 5), (1, 3)):
        gated = sum(torch.sigmoid(theta @ torch.cat((h, torch.ones(1).double()))) * h for h in x[row, :length])
        faded = sum(0.7 ** (length - 1 - i) * h for i, h in enumerate(x[row, :length]))
        for module, expected in ((gate, gated), (fading, faded)):
            found = module(Context(x, where))[row]
            assert found.allclose(expected, atol=1e-10)
            a, b = (torch.autograd.grad(y.pow(2).sum(), x, retain_graph=True)[0] for y in (found, expected))
            assert a.allclose(b, atol=1e-10)
    assert [p.requires_grad for p in gate.parameters()] == [True, True]
    assert not list(fading.parameters())
