"""Linear attention: features by loops, the chunked and the recurrent form against the dense one, and exact causality."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor, nn

from regard.attention import Context, MultiHead, Sums, attend, causal, fast, linear, masks, padding
from regard.attention.kernels import (
    EluFeatures,
    FavorFeatures,
    FeatureMap,
    Kernel,
    ReluFeatures,
    independent_directions,
    orthogonal_directions,
)
from regard.attention.normalisers import divide
from tests.attention.parts import gradients

MAPS: dict[str, Callable[[int], FeatureMap]] = {
    "elu": lambda width: EluFeatures(),
    "relu": lambda width: ReluFeatures(),
    "favor": lambda width: FavorFeatures(width, 11),
}


def tensors(batch: int, heads: int, groups: int, length: int, width: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    q = torch.randn(batch, heads, length, width, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(batch, groups, length, width, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return q, k, v


def padded(batch: int, length: int) -> Tensor:
    """Positions of rows of different lengths, the first of them empty."""
    lengths = torch.tensor([row * length // max(1, batch - 1) for row in range(batch)])
    line = torch.arange(length).expand(batch, -1)
    return line.masked_fill(line >= lengths.unsqueeze(-1), -1)


@given(
    st=some.data(),
    name=some.sampled_from(list(MAPS)),
    batch=some.integers(1, 3),
    groups=some.sampled_from([1, 2, 4]),
    length=some.sampled_from([0, 1, 2, 5, 7, 8, 9, 16, 23, 40]),
    ahead=some.booleans(),
    with_padding=some.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_linear_forms_equal_attend_in_values_and_gradients(
    st: some.DataObject, name: str, batch: int, groups: int, length: int, *, ahead: bool, with_padding: bool
) -> None:
    torch.manual_seed(st.draw(some.integers(0, 10**6)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "CHUNK", st.draw(some.sampled_from([1, 3, 8, 64])))
        patch.setattr(linear, "PIECE", st.draw(some.sampled_from([1, 500, 2**21])))
        q, k, v = tensors(batch, 4, groups, length)
        where = padded(batch, length) if with_padding else torch.arange(length)
        parts = {"score": Kernel(MAPS[name](6).double()), "normalise": divide}
        laid = (padding if ahead else causal).on(where, where)
        ours, reference = fast(q, k, v, mask=laid, **parts), attend(q, k, v, mask=laid, **parts)[0]
        assert ours.shape == reference.shape
        assert ours.allclose(reference, rtol=0, atol=1e-9)
        up = torch.randn_like(ours)
        for mine, other in zip(gradients(ours, (q, k, v), up), gradients(reference, (q, k, v), up), strict=True):
            assert mine.allclose(other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_other_masks_are_dense_and_right(name: str) -> None:
    torch.manual_seed(0)
    q, k, v = tensors(2, 2, 2, 300)
    parts = {"score": Kernel(MAPS[name](6).double()), "normalise": divide}
    for mask in (causal & masks.document(torch.arange(300) // 40), masks.window(30, 0), masks.prefix(3) | causal):
        assert fast(q, k, v, mask=mask, **parts).allclose(attend(q, k, v, mask=mask, **parts)[0], atol=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_step_by_step_equals_all_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(linear, "CHUNK", 4)
    layer = MultiHead(24, 4, groups=2, score=Kernel(MAPS[name](6)), normalise=divide).double()
    x = torch.randn(3, 14, 24, dtype=torch.float64, requires_grad=True)
    whole, _ = layer(x, mask=causal)
    up = torch.randn_like(whole)
    state, parts, start = Sums(), [], 0
    for size in (1, 5, 1, 0, 7):
        y, state = layer(x[:, start : start + size], None, torch.arange(start, start + size), causal, state)
        parts.append(y)
        start += size
    steps = torch.cat(parts, 1)
    assert steps.allclose(whole, rtol=0, atol=1e-9)
    for mine, other in zip(gradients(steps, [x], up), gradients(whole, [x], up), strict=True):
        assert mine.allclose(other, rtol=0, atol=1e-9)
    assert sum(part.numel() for part in state.summed if part is not None) <= 3 * 4 * (11 * 7 + 1)


def test_a_state_skips_padding_and_is_reordered() -> None:
    torch.manual_seed(0)
    layer = MultiHead(12, 2, score=Kernel(FavorFeatures(6, 9)), normalise=divide).double()
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    where = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, -1, -1, -1, -1]])
    _, state = layer(x, None, where, causal, Sums())
    turned = state.reorder(torch.tensor([1, 0, 1]))
    new = torch.randn(1, 1, 12, dtype=torch.float64).expand(3, -1, -1)
    y, _ = layer(new, None, torch.tensor([[2], [6], [2]]), causal, turned)
    alone, _ = layer(torch.cat((x[1, :2], new[0])).unsqueeze(0), mask=causal)
    assert y[0].allclose(alone[0, -1:], atol=1e-9)
    assert y[2].equal(y[0])
    longer, _ = layer(torch.cat((x[0], new[0])).unsqueeze(0), mask=causal)
    assert y[1].allclose(longer[0, -1:], atol=1e-9)


def test_a_state_that_has_no_keys_refuses_other_masks_and_scores() -> None:
    layer = MultiHead(8, 2, score=Kernel(EluFeatures()), normalise=divide)
    x = torch.randn(1, 3, 8)
    with pytest.raises(ValueError, match="use Cache"):
        layer(x, None, None, masks.window(2, 0), Sums())
    with pytest.raises(ValueError, match="expected a Kernel"):
        MultiHead(8, 2)(x, None, None, causal, Sums())


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("factor", [1.0, 4.0, 40.0])
def test_later_tokens_change_earlier_answers_by_exactly_zero(name: str, factor: float) -> None:
    """A stabiliser that is a maximum over all positions fails here, if only by a rounding."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 200, 16) for _ in range(3))
    parts = {"score": Kernel(MAPS[name](16)), "normalise": divide, "mask": causal}
    before = fast(q, k, v, **parts)
    for place in (63, 64, 100, 199):
        other = [x.clone() for x in (q, k, v)]
        for x in other:
            x[:, :, place:] = factor * torch.randn_like(x[:, :, place:])
        after = fast(*other, **parts)
        assert bool(after.isfinite().all())
        assert after[:, :, :place].equal(before[:, :, :place])
        assert not after[:, :, place:].equal(before[:, :, place:])


def test_large_keys_neither_overflow_nor_vanish_in_float32() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 300, 16, requires_grad=True) for _ in range(3))
    kernel = Kernel(FavorFeatures(16, 32))
    for size in (1e-3, 3.0, 60.0):
        y = fast(q * size, k * size, v, score=kernel, normalise=divide, mask=causal)
        exact = attend(
            (q * size).double(), (k * size).double(), v.double(), score=kernel.double(), normalise=divide, mask=causal
        )
        assert bool(torch.stack(gradients(y, (q, k, v), torch.ones_like(y))).isfinite().all())
        if size <= 3:
            assert y.allclose(exact[0].float(), atol=2e-3)
        kernel.float()


def test_favor_is_the_formula_of_the_paper_by_loops() -> None:
    """Choromanski et al. 2021: lemma 1 and equation 5, for one query after another."""
    torch.manual_seed(0)
    width, count, length = 5, 7, 6
    favor = FavorFeatures(width, count).double()
    q, k, v = (torch.randn(length, width, dtype=torch.float64) for _ in range(3))

    def phi(x: Tensor) -> list[float]:
        x = x / width**0.25
        return [math.exp(float(w @ x) - float(x @ x) / 2) / math.sqrt(count) for w in favor.directions]

    answers = []
    for t in range(length):
        weights = [sum(a * b for a, b in zip(phi(q[t]), phi(k[i]), strict=True)) for i in range(t + 1)]
        answers.append(sum(w * v[i] for i, w in enumerate(weights)) / sum(weights))
    ours = fast(q[None, None], k[None, None], v[None, None], score=Kernel(favor), normalise=divide, mask=causal)
    assert ours[0, 0].allclose(torch.stack(answers), rtol=0, atol=1e-9)
    features, scale = favor(k)
    assert scale is not None
    assert (features * scale.exp().unsqueeze(-1)).allclose(torch.tensor([phi(x) for x in k], dtype=torch.float64))


def test_favor_estimates_softmax_and_orthogonal_directions_better() -> None:
    torch.manual_seed(0)
    width, count = 16, 16
    q, k = (0.5 * torch.randn(64, width, dtype=torch.float64) for _ in range(2))
    exact = (q @ k.mT / math.sqrt(width)).exp()
    errors, means = [], []
    for draw in (orthogonal_directions, independent_directions):
        kernel, estimates = Kernel(FavorFeatures(width, count).double()), []
        for seed in range(300):
            kernel.features.directions.copy_(draw(count, width, torch.Generator().manual_seed(seed)))
            (fq, hq), (fk, hk) = kernel.features(q), kernel.features(k)
            estimates.append((fq * hq.exp().unsqueeze(-1)) @ (fk * hk.exp().unsqueeze(-1)).mT)
        all_ = torch.stack(estimates)
        errors.append(float((all_ - exact).square().mean()))
        means.append(float((all_.mean(0) - exact).abs().mean() / exact.mean()))
    assert max(means) < 0.05
    assert errors[0] < 0.95 * errors[1]


def test_orthogonal_directions_are_orthogonal_and_as_long_as_normal_vectors() -> None:
    drawn = orthogonal_directions(20, 8, torch.Generator().manual_seed(0))
    for block in drawn.split(8):
        products = block @ block.mT
        assert products.allclose(products.diagonal().diag_embed(), atol=1e-9)
    lengths = orthogonal_directions(4000, 8, torch.Generator().manual_seed(0)).square().sum(-1)
    assert abs(float(lengths.mean()) - 8) < 0.3
    assert abs(float(lengths.var()) - 16) < 3


def test_redrawing_is_a_function_of_seed_and_step_and_is_state() -> None:
    torch.manual_seed(0)
    favor = FavorFeatures(4, 6, redraw=3)
    drawn = []
    for _ in range(7):
        favor.renew()
        drawn.append(favor.directions.clone())
    assert drawn[0].equal(drawn[1])
    assert not drawn[1].equal(drawn[2])
    assert drawn[2].equal(drawn[4])
    assert not drawn[4].equal(drawn[5])
    other = FavorFeatures(4, 6, redraw=3)
    assert not other.directions.equal(favor.directions)
    other.load_state_dict(favor.state_dict())
    for _ in range(4):
        favor.renew(), other.renew()
        assert other.directions.equal(favor.directions)
    fixed = FavorFeatures(4, 6)
    first = fixed.directions.clone()
    fixed.renew()
    assert fixed.directions.equal(first)


def test_half_precision_sums_in_float32() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 500, 8) for _ in range(3))
    parts = {"score": Kernel(EluFeatures()), "normalise": divide, "mask": causal}
    low = fast(*(x.bfloat16() for x in (q, k, v)), **parts)
    assert low.dtype == torch.bfloat16
    exact = fast(*(x.bfloat16().float() for x in (q, k, v)), **parts)
    assert low.float().allclose(exact, atol=0.02)


def test_cross_attention_and_watching() -> None:
    torch.manual_seed(0)
    layer = MultiHead(8, 2, score=Kernel(FavorFeatures(4, 6)), normalise=divide).double()
    x, c = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    where = torch.tensor([[0, 1, 2, 3, 4], [0, 1, -1, -1, -1]])
    y, state = layer(x, Context(c, where), None, padding)
    short, _ = layer(x[1:], Context(c[1:, :2]), None, padding)
    assert y[1:].allclose(short, atol=1e-9)
    again, _ = layer(x, None, torch.arange(3), padding, state)
    assert again.allclose(y, atol=1e-9)
    q, k = torch.randn(2, 2, 3, 4, dtype=torch.float64), torch.randn(2, 2, 3, 4, dtype=torch.float64)
    line = torch.arange(3)
    weights = layer.attention.weights(q, k, causal, line, line)
    assert weights.sum(-1).allclose(torch.ones((), dtype=torch.float64))
    assert weights.triu(1).eq(0).all()
    assert isinstance(layer, nn.Module)
