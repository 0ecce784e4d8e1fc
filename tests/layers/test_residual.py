"""Paths around a sub-layer against their formulas, one number at a time."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard.attention import MultiHead
from regard.backbones.transformer import EncoderLayer, FeedForward
from regard.layers.residual import DeepNorm, PostNorm, PreNorm, deep_alone, deep_pair, scale


@torch.no_grad()
def normalised(row: list[float], norm: nn.LayerNorm) -> list[float]:
    """LayerNorm by its formula: (x − mean) / √(variance + ε) · g + b."""
    mean = sum(row) / len(row)
    variance = sum((x - mean) ** 2 for x in row) / len(row)
    shares = [(x - mean) / math.sqrt(variance + norm.eps) for x in row]
    return [x * float(g) + float(b) for x, g, b in zip(shares, norm.weight, norm.bias, strict=True)]


@torch.no_grad()
def by_loop(kind: str, around: nn.Module, f: nn.Linear, x: Tensor, alpha: float) -> Tensor:
    def inner(row: list[float]) -> list[float]:
        return [
            sum(float(w) * v for w, v in zip(ws, row, strict=True)) + float(b)
            for ws, b in zip(f.weight, f.bias, strict=True)
        ]

    rows = []
    for row in x.tolist():
        if kind == "pre":
            rows.append([a + b for a, b in zip(row, inner(normalised(row, around.norm)), strict=True)])
        else:
            rows.append(normalised([alpha * a + b for a, b in zip(row, inner(row), strict=True)], around.norm))
    return torch.tensor(rows, dtype=torch.float64)


PATHS = {
    "pre": (PreNorm(5, 0.0, epsilon=0.1), 1.0),
    "post": (PostNorm(5, 0.0, epsilon=0.1), 1.0),
    "deep": (DeepNorm(5, 0.0, alpha=1.7, epsilon=0.1), 1.7),
}


@pytest.mark.parametrize("kind", PATHS)
def test_equals_its_formula_by_loops(kind: str) -> None:
    torch.manual_seed(0)
    around, alpha = PATHS[kind]
    around, f, x = around.double(), nn.Linear(5, 5).double(), torch.randn(3, 5, dtype=torch.float64)
    nn.init.normal_(around.norm.weight)
    nn.init.normal_(around.norm.bias)
    assert {name for name, _ in around.named_parameters()} == {"norm.weight", "norm.bias"}
    assert around.leave(x, f(around.enter(x))).allclose(by_loop(kind, around, f, x, alpha), atol=1e-12)


def test_deepnorm_has_the_gradients_of_its_formula() -> None:
    around = DeepNorm(4, 0.0, alpha=2.5).double()
    x, y = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(around.leave, (x, y))
    z = 2.5 * x + y
    theirs = (z - z.mean(-1, keepdim=True)) / (z.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    up = torch.randn(3, 4, dtype=torch.float64)
    for ours, expected in zip(
        torch.autograd.grad((around.leave(x, y) * up).sum(), (x, y)),
        torch.autograd.grad((theirs * up).sum(), (x, y)),
        strict=True,
    ):
        assert ours.allclose(expected, atol=1e-10)


def test_the_constants_are_those_published() -> None:
    """Wang et al. 2022, figure 2 (right)."""
    assert deep_alone(8) == (pytest.approx(2.0), pytest.approx(64**-0.25))
    (encoder_alpha, encoder_beta), (decoder_alpha, decoder_beta) = deep_pair(6, 12)
    assert encoder_alpha == pytest.approx(0.81 * (6**4 * 12) ** (1 / 16))
    assert encoder_beta == pytest.approx(0.87 * (6**4 * 12) ** (-1 / 16))
    assert (decoder_alpha, decoder_beta) == (pytest.approx(36**0.25), pytest.approx(144**-0.25))


def test_first_weights_are_scaled_where_the_paper_scales_them() -> None:
    """Values, outputs and feed-forward by β; queries and keys not."""
    layer = EncoderLayer(MultiHead(8, 2), FeedForward(8, 12, 0.0), lambda: DeepNorm(8, 0.0, alpha=2.0))
    before = {name: p.clone() for name, p in layer.named_parameters()}
    for weights in layer.branch_weights():
        scale(weights, 0.5)
    scaled = {name for name, p in layer.named_parameters() if not p.equal(before[name])}
    assert scaled == {
        "attention.v_proj.weight",
        "attention.output_proj.weight",
        "feed.inner.weight",
        "feed.outer.weight",
    }
    assert all(layer.get_parameter(name).equal(before[name] * 0.5) for name in scaled)


def test_a_deep_stack_starts_calm_and_a_post_ln_stack_does_not() -> None:
    """The reason for α and β: the first update of 60 layers moves the output less (Wang et al. 2022, figure 1)."""

    def moved(deep: bool) -> float:
        torch.manual_seed(0)
        alpha, beta = deep_alone(60)
        layers = [
            EncoderLayer(MultiHead(16, 2), FeedForward(16, 32, 0.0), lambda: DeepNorm(16, 0.0, alpha=alpha) if deep else PostNorm(16, 0.0))
            for _ in range(60)
        ]  # fmt: skip
        for weights in (w for layer in layers for w in layer.branch_weights() if deep):
            scale(weights, beta)
        x, up = torch.randn(4, 6, 16), torch.randn(4, 6, 16)

        def run() -> Tensor:
            y = x
            for layer in layers:
                y, _ = layer(y)
            return y

        before = run()
        (before * up).sum().backward()
        with torch.no_grad():
            for p in (p for layer in layers for p in layer.parameters() if p.grad is not None):
                p.add_(p.grad.sign(), alpha=-1e-3)  # the first step of Adam
            return float((run() - before).norm())

    assert moved(deep=True) < 0.5 * moved(deep=False)
