"""The layer: against torch.nn.MultiheadAttention with the same weights, both kinds of heads, groups, and invariances."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention import Context, MultiHead, causal, padding, pieces, scores, window
from regard.attention.masks import Mask
from regard.attention.positions import Rotary
from tests.attention.parts import INSIDE, gradients


def same_weights(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([getattr(ours, f"{x}_proj").weight for x in "qkv"]))
        theirs.in_proj_bias.copy_(torch.cat([getattr(ours, f"{x}_proj").bias.normal_() for x in "qkv"]))
        theirs.out_proj.weight.copy_(ours.output_proj.weight)
        theirs.out_proj.bias.copy_(ours.output_proj.bias.normal_())


@pytest.mark.parametrize("case", ["self", "causal", "padded", "cross"])
def test_equals_torch_with_the_same_weights(case: str) -> None:
    torch.manual_seed(0)
    ours, theirs = MultiHead(16, 4).double(), nn.MultiheadAttention(16, 4, batch_first=True).double()
    same_weights(ours, theirs)
    x = torch.randn(2, 6, 16, dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 9, 16, dtype=torch.float64, requires_grad=True)
    where = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, -1, -1]])
    if case == "self":
        mine, other = ours(x)[0], theirs(x, x, x, need_weights=False)[0]
    elif case == "causal":
        later = torch.ones(6, 6, dtype=torch.bool).triu(1)
        mine, other = ours(x, mask=causal)[0], theirs(x, x, x, attn_mask=later, need_weights=False)[0]
    elif case == "padded":
        mine, other = ours(x, positions=where, mask=padding)[0], theirs(x, x, x, key_padding_mask=where < 0)[0]
    else:
        mine, other = ours(x, Context(y))[0], theirs(x, y, y)[0]
    assert mine.allclose(other, atol=1e-10)
    up = torch.randn_like(mine)
    projections = [ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]
    got = gradients(mine, (x, y, ours.output_proj.weight, *projections), up)
    expected = gradients(other, (x, y, theirs.out_proj.weight, theirs.in_proj_weight), up)
    for a, b in zip([*got[:3], torch.cat(got[3:])], expected, strict=True):
        assert a.allclose(b, atol=1e-10)


def test_the_number_of_parameters_does_not_depend_on_the_number_of_heads() -> None:
    assert len({sum(p.numel() for p in MultiHead(24, heads).parameters()) for heads in (1, 2, 3, 8, 24)}) == 1


def test_pieces_let_a_head_see_only_its_piece() -> None:
    torch.manual_seed(0)
    layer = MultiHead(12, 3, project=pieces(3))
    layer.output_proj = nn.Identity()
    x = torch.randn(2, 5, 12)
    y = layer(x)[0]
    for h in range(3):  # each head alone, from its piece of x, by its own small matrices
        piece = x[..., 4 * h : 4 * h + 4]
        q, k, v = (piece @ p.weight[h] + p.bias[4 * h : 4 * h + 4] for p in (layer.q_proj, layer.k_proj, layer.v_proj))
        assert y[..., 4 * h : 4 * h + 4].allclose((q @ k.mT / 2).softmax(-1) @ v, atol=1e-6)
    changed = x.clone()
    changed[..., :4] = 0
    assert layer(changed)[0][..., 4:].equal(y[..., 4:])
    whole, cut = (
        sum(p.numel() for p in MultiHead(12, 3, project=p).q_proj.parameters()) for p in (nn.Linear, pieces(3))
    )
    assert (whole - 12) == 3 * (cut - 12)


def test_grouped_heads_equal_repeated_ones() -> None:
    torch.manual_seed(0)
    grouped, full = MultiHead(16, 4, groups=2), MultiHead(16, 4)
    state = grouped.state_dict()
    for name in ("k_proj.weight", "k_proj.bias", "v_proj.weight", "v_proj.bias"):
        state[name] = state[name].unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(2, 7, 16)
    assert grouped(x, mask=causal)[0].allclose(full(x, mask=causal)[0], atol=1e-6)


@pytest.mark.parametrize("score", [scores.dot, scores.Bilinear(4, 4), scores.Additive(4, 4, 5), scores.MLP(4, 4, 5)])
def test_every_score_works_inside_heads(score: object) -> None:
    layer = MultiHead(16, 4, score=score)  # type: ignore[arg-type]
    x = torch.randn(2, 5, 16)
    y, _ = layer(x, mask=causal)
    y.sum().backward()
    assert all(p.grad is not None for name, p in layer.named_parameters() if "k_proj.bias" not in name)
    changed = x.clone()
    changed[:, 3:] = 0
    assert layer(changed, mask=causal)[0][:, :3].allclose(y[:, :3], atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(list(INSIDE)), pad=st.integers(0, 5), seed=st.integers(0, 2**31))
def test_padding_and_batch_order_change_nothing(name: str, pad: int, seed: int) -> None:
    torch.manual_seed(seed)
    layer = MultiHead(16, 2, **INSIDE[name](2)).double()
    x = torch.randn(3, 6, 16, dtype=torch.float64)
    alone, _ = layer(x)
    garbage = torch.cat((x, 100 * torch.randn(3, pad, 16, dtype=torch.float64)), 1)
    where = torch.cat((torch.arange(6).expand(3, -1), torch.full((3, pad), -1)), 1)
    assert layer(garbage, positions=where, mask=padding)[0][:, :6].allclose(alone, atol=1e-10)
    order = torch.randperm(3)
    assert layer(x[order])[0].allclose(alone[order], atol=1e-10)


@pytest.mark.parametrize(("make", "sentence"), [
    (lambda: MultiHead(10, 3), "width 10 with 3 heads; the nearest number that fits is 2"),
    (lambda: MultiHead(12, 4, groups=3), "found 4 heads and 3 groups"),
    (lambda: MultiHead(12, 0), "the heads must divide the width"),
    (lambda: pieces(4)(10, 12), "the pieces must divide the width: found 10 and 12 for 4 pieces"),
])  # fmt: skip
def test_refusals(make: object, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()  # type: ignore[operator]


# ---- what is refused, and export -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: MultiHead(64, 4)(torch.randn(10, 64)), ValueError, r"expected a tensor \(batch, length, 64\), found \(10, 64\)"),
        (lambda: MultiHead(64, 4)(torch.randn(2, 10, 32)), ValueError, r"found \(2, 10, 32\)"),
        (lambda: MultiHead(64, 4)([1.0]), TypeError, "found list"),
        (lambda: MultiHead(64, 4)(torch.randn(2, 3, 64), torch.randn(2, 3, 32)), ValueError, "context: expected"),
        (lambda: MultiHead(64, 4)(torch.randn(2, 3, 64), mask="causal"), TypeError, "mask: expected a rule"),
        (lambda: MultiHead(64, 1, rotate=Rotary(32))(torch.randn(2, 3, 64)), ValueError, r"Try Rotary\(64\)"),
    ],
)  # fmt: skip
def test_wrong_shapes_widths_and_types_are_named(
    call: Callable[[], object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call()


class Exported(nn.Module):
    """A layer with a mask, for export: a mask is no tensor."""

    def __init__(self, mask: Mask | None, **parts: Any) -> None:
        super().__init__()
        self.layer, self.mask = MultiHead(32, 4, **parts), mask

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        y: Tensor = self.layer(x, positions=positions, mask=self.mask)[0]
        return y


@pytest.mark.parametrize(
    ("mask", "parts"), [(None, {}), (causal, {"groups": 2}), (window(2, 0), {}), (causal, {"rotate": Rotary(8)})]
)
def test_a_layer_can_be_exported_for_any_batch(mask: Mask | None, parts: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = Exported(mask, **parts).eval()
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    shapes = {"x": {0: batch, 1: length}, "positions": {0: batch, 1: length}}
    first = torch.randn(2, 6, 32), torch.arange(6).expand(2, 6).contiguous()
    graph = torch.export.export(layer, first, dynamic_shapes=shapes).module()
    positions = torch.arange(300).repeat(3, 1)
    positions[1, 200:] = -1
    x = torch.randn(3, 300, 32)
    assert graph(x, positions).allclose(layer(x, positions), atol=1e-5)
