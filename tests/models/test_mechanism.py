"""Every kind of self-attention in every Transformer: steps equal all at once, padding and later tokens change nothing."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from regard.attention import Context
from regard.backbones.landmarks import Landmarks
from regard.backbones.transformer import Encoder, Stack
from regard.layers.dropout import Dropout
from regard.layers.residual import deep_alone, deep_pair
from regard.layers.stem import Shape
from regard.models.bert import bert
from regard.models.encoder import encoder
from regard.models.gpt import gpt
from regard.models.mechanism import Mechanism, endless
from regard.models.parts import AttentionParts
from regard.models.settings import BertKind, GptKind, TransformerEncoderKind, TransformerPair
from regard.models.speech import conformer
from regard.models.transformer import transformer
from regard.models.vit import vit
from regard.network import Network

SIZES: dict[str, dict[str, Any]] = {
    "full": {},
    "local": {"reach": 3},
    "linear": {},
    "performer": {"features": 9},
    "linformer": {"columns": 5},
    "bigbird": {"block": 2, "random": 1},
}
POSITIONS = ["rotary", "alibi", "t5", "shaw", "none", "learned"]
CAUSAL = [kind for kind in SIZES if kind != "linformer"]
SMALL = {"layers": 2, "width": 16, "hidden": 24, "heads": 2, "dropout": 0.0}
LENGTH = 24


def values(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, 16, dtype=torch.float64)


def two_lengths(batch: int = 2) -> Tensor:
    """Positions of rows of which the first is shorter."""
    line = torch.arange(LENGTH).expand(batch, -1)
    return line.masked_fill((line >= 15) & (torch.arange(batch) == 0).unsqueeze(-1), -1)


@pytest.mark.parametrize("kind", CAUSAL)
@pytest.mark.parametrize("position", ["none", "sinusoidal"])
def test_a_gpt_step_by_step_is_the_gpt_all_at_once(kind: str, position: str) -> None:
    torch.manual_seed(0)
    _, backbone = gpt(context=64, position=position, attention=kind, **SIZES[kind], **SMALL)
    backbone = backbone.double().eval()
    x = values()
    whole, state, steps, start = backbone(Context(x)).values, None, [], 0
    for size in (5, 1, 1, 9, 1, 7):
        where = torch.arange(start, start + size)
        features, state = backbone.steps(Context(x[:, where], where), state)
        steps.append(features.values)
        start += size
    assert torch.cat(steps, 1).allclose(whole, rtol=0, atol=1e-9)
    changed = x.clone()
    changed[:, 13:] = 3 * torch.randn_like(changed[:, 13:])
    assert backbone(Context(changed)).values[:, :13].equal(whole[:, :13])  # exactly


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("builder", ["encoder", "bert", "conformer", "landmarks"])
def test_padding_and_other_rows_change_nothing(kind: str, builder: str) -> None:
    torch.manual_seed(0)
    parts = {**SMALL, **SIZES[kind]} | ({"extra": 1} if builder == "landmarks" else {})
    build: Any = {"bert": bert, "conformer": conformer}.get(builder, encoder)
    if builder == "conformer":
        parts |= {"kernel": 3, "position": "sinusoidal"}
    backbone = build(length=40, attention=kind, **parts)[1].double().eval()
    assert isinstance(backbone, Landmarks if builder == "landmarks" and kind == "bigbird" else Encoder)
    x, where = values(), two_lengths()
    both = backbone(Context(x, where)).values
    assert both.shape == x.shape
    assert both[:1, :15].allclose(backbone(Context(x[:1, :15])).values, rtol=0, atol=1e-9)
    assert both[1:].allclose(backbone(Context(x[1:])).values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", [*SIZES, "landmarks"])
def test_a_vision_transformer_has_it(kind: str) -> None:
    torch.manual_seed(0)
    how = {"attention": kind, **SIZES[kind]} if kind in SIZES else {"attention": "bigbird", "block": 2, "extra": 1}
    stem, backbone = vit(**SMALL, length=17, **how)
    assert stem.pixels is not None
    read = stem.pixels(Shape(8, 8, 1, 2, 1))  # 16 patches and a class token
    found = backbone(read(torch.randn(2, 1, 8, 8)))
    assert found.values.shape == (2, 17, 16)
    assert found.grid == (1, 4, 4)
    found.values.square().sum().backward()
    weights = [*read.parameters(), *backbone.parameters()]
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in weights)


@pytest.mark.parametrize("kind", SIZES)
def test_an_encoder_and_a_decoder_have_it(kind: str) -> None:
    torch.manual_seed(0)
    pair = transformer(attention=kind, length=40, **SIZES[kind], **SMALL)
    reading, writing = pair.encoder.double().eval(), pair.decoder.double().eval()
    memory, x = reading(Context(values(), two_lengths())), values()[:, :9]
    whole, _ = writing(Context(x), memory)
    state, steps = None, []
    for t in range(9):
        y, state = writing(Context(x[:, t : t + 1], torch.tensor([t])), memory, state, keep=True)
        steps.append(y)
    assert torch.cat(steps, 1).allclose(whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", SIZES)
def test_a_gradient_reaches_every_weight(kind: str) -> None:
    torch.manual_seed(0)
    _, backbone = encoder(length=40, attention=kind, **SIZES[kind], **SMALL)
    backbone(Context(values().float())).values.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in backbone.parameters())


@pytest.mark.parametrize(("kind", "position"), [*itertools.product(SIZES, POSITIONS)])
def test_settings_and_builders_refuse_the_same(kind: str, position: str) -> None:
    refused = kind in ("linear", "performer", "linformer") and position in ("rotary", "alibi", "t5", "shaw")
    refused = refused and (kind, position) != ("performer", "rotary")
    if refused:
        with pytest.raises(ValidationError, match=f"model.attention={kind} does not go with model.position={position}"):
            TransformerEncoderKind(attention=kind, position=position)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="does not go with"):
            Mechanism(kind).layers(1, 8, 2, AttentionParts(position=position), length=9)
    else:
        TransformerEncoderKind(attention=kind, position=position)  # type: ignore[arg-type]
        assert len(Mechanism(kind).layers(3, 8, 2, AttentionParts(position=position), length=9)) == 3


def test_what_cannot_be_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValidationError, match="cannot look back only"):
        GptKind(attention="linformer")
    with pytest.raises(ValidationError, match="odd number of blocks, found 2"):
        BertKind(attention="bigbird", near=2)
    with pytest.raises(ValidationError, match="this model looks back only"):
        GptKind(attention="bigbird", extra=1)
    with pytest.raises(ValidationError, match=r"linear does not go with model.score=additive: .* leave model.score"):
        GptKind(attention="linear", score="additive")
    with pytest.raises(ValidationError, match=r"local does not go with model.window=\(2, 2\)"):
        TransformerEncoderKind(attention="local", window=(2, 2))
    TransformerPair(attention="linformer")


def test_a_constant_state_needs_relative_positions() -> None:
    assert endless("linear", "none")
    assert endless("local", "alibi")
    assert not endless("linear", "learned")
    assert not endless("bigbird", "none")


def branches(layer: nn.Module) -> list[Tensor]:
    return [weight for branch in layer.branch_weights() for weight in branch]  # type: ignore[operator]


def test_deepnorm_has_the_published_alpha_and_beta() -> None:
    """Wang et al. 2022, figure 2; weights have β of the deviation of Xavier's."""
    assert deep_alone(100) == pytest.approx((200**0.25, 800**-0.25))
    (alpha, beta), (a, b) = deep_pair(100, 100)
    assert (alpha, beta) == pytest.approx((0.81 * (100**5) ** (1 / 16), 0.87 * (100**5) ** (-1 / 16)))
    assert (a, b) == pytest.approx((300**0.25, 1200**-0.25))
    sizes = {"layers": 8, "width": 64, "hidden": 64, "heads": 4, "norm": "deep"}
    pair = transformer(**sizes)
    ways: list[tuple[Any, float, float]] = [
        (gpt(context=9, **sizes)[1], *deep_alone(8)),
        (bert(length=9, **sizes)[1], *deep_alone(8)),
        (encoder(length=9, **sizes)[1], *deep_alone(8)),
        (pair.encoder, *deep_pair(8, 8)[0]),
        (pair.decoder, *deep_pair(8, 8)[1]),
    ]
    for backbone, wanted_alpha, wanted_beta in ways:
        assert isinstance(backbone, Stack)
        assert backbone.norm is None
        for layer in backbone.layers:
            paths = [part for name, part in layer.named_children() if name.startswith("around")]
            assert all(part.alpha == pytest.approx(wanted_alpha) for part in paths)  # type: ignore[union-attr]
            assert all(
                float(w.detach().std()) == pytest.approx(wanted_beta * (2 / 128) ** 0.5, rel=0.1)
                for w in branches(layer)
            )
            query = next(p for name, p in layer.named_parameters() if name.endswith("q_proj.weight"))
            assert float(query.detach().std()) == pytest.approx((2 / 128) ** 0.5, rel=0.1)


@pytest.mark.parametrize("kind", CAUSAL)
def test_checkpointing_changes_no_gradient_but_the_memory(kind: str) -> None:
    torch.manual_seed(0)
    _, plain = gpt(
        context=64, attention=kind, position="none", **SIZES[kind], **(SMALL | {"layers": 3, "dropout": 0.2})
    )
    again = copy.deepcopy(plain)
    again.checkpointing = True
    found, held = [], []
    for backbone in (plain, again):
        torch.manual_seed(7)
        x = torch.ones(2, LENGTH, 16, requires_grad=True)
        kept = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = backbone(Context(x)).values.square().sum()
        held.append(kept)
        loss.backward()
        found.append((loss.detach(), x.grad, *(p.grad for p in backbone.parameters())))
    assert any(isinstance(part, Dropout) and part.p for part in plain.modules())
    assert all(one.equal(other) for one, other in zip(*found, strict=True))
    assert held[1] < held[0] / 3


def test_a_projected_length_is_the_longest_that_a_network_reads() -> None:
    """So that a text beyond it is read in parts, as one beyond a learned table is."""
    _, projected = encoder(length=40, attention="linformer", columns=5, **SMALL)
    _, whole = encoder(length=40, **SMALL)
    assert Network(nn.Identity(), projected, nn.Identity()).longest == 40
    assert Network(nn.Identity(), whole, nn.Identity()).longest is None
