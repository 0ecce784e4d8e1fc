"""Each score against a loop over pairs written from its formula, in values and gradients."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.attention import scores


def additive(s: scores.Additive, q: Tensor, k: Tensor) -> Tensor:
    return s.output.weight[0] @ torch.tanh(s.q_proj.weight @ q + s.k_proj.weight @ k)


def additive_joined(s: scores.Additive, q: Tensor, k: Tensor) -> Tensor:
    """vᵀ tanh(W [k; q]): the other way the same score is written."""
    joined = torch.cat((s.k_proj.weight, s.q_proj.weight), 1)
    return s.output.weight[0] @ torch.tanh(joined @ torch.cat((k, q)))


def mlp(s: scores.MLP, q: Tensor, k: Tensor) -> Tensor:
    first = torch.cat((s.k_proj.weight, s.q_proj.weight), 1)
    hidden = torch.relu(first @ torch.cat((k, q)) + s.k_proj.bias)
    return s.output.weight[0] @ hidden + s.output.bias[0]


CASES: list[tuple[str, Callable[[], object], Callable[[object, Tensor, Tensor], Tensor], int]] = [
    ("dot", lambda: scores.dot, lambda _, q, k: sum(a * b for a, b in zip(q, k, strict=True)), 4),
    ("scaled", lambda: scores.scaled_dot, lambda _, q, k: sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(4), 4),
    ("uniform", lambda: scores.uniform, lambda _, q, k: (q[0] + k[0]) * 0, 5),
    ("bilinear", lambda: scores.Bilinear(4, 5), lambda s, q, k: sum(q[a] * s.weight[a, b] * k[b] for a in range(4) for b in range(5)), 5),
    ("additive", lambda: scores.Additive(4, 5, 6), additive, 5),
    ("additive joined", lambda: scores.Additive(4, 5, 6), additive_joined, 5),
    ("mlp", lambda: scores.MLP(4, 5, 6), mlp, 5),
]  # fmt: skip


@pytest.mark.parametrize(("make", "formula", "k_width"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_score_equals_its_formula_pair_by_pair(make: Callable[[], object], formula: object, k_width: int) -> None:
    torch.manual_seed(0)
    score = make()
    if isinstance(score, torch.nn.Module):
        score.double()
    q = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 6, k_width, dtype=torch.float64, requires_grad=True)
    ours = score(q, k)
    theirs = torch.stack([
        torch.stack([torch.stack([formula(score, q[b, j], k[b, i]) for i in range(6)]) for j in range(3)])
        for b in range(2)
    ])  # fmt: skip
    assert ours.allclose(theirs, atol=1e-12)
    upstream = torch.randn_like(ours)
    inputs = [q, k, *(score.parameters() if isinstance(score, torch.nn.Module) else [])]
    got = (
        torch.autograd.grad((ours * upstream).sum(), inputs, allow_unused=True, materialize_grads=True)
        if ours.requires_grad
        else []
    )
    for mine, other in zip(
        got,
        torch.autograd.grad((theirs * upstream).sum(), inputs, allow_unused=True, materialize_grads=True),
        strict=bool(got),
    ):
        assert mine.allclose(other, atol=1e-10)


def test_scores_broadcast_over_heads() -> None:
    q, k = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)
    for score in (scores.Additive(8, 8, 7), scores.MLP(8, 8, 7), scores.Bilinear(8, 8), scores.dot):
        together = score(q, k)
        assert together.shape == (2, 3, 4, 5)
        assert together[1, 2].allclose(score(q[1, 2], k[1, 2]), atol=1e-5)


def test_scaling_keeps_the_variance_at_one() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(500, 256), torch.randn(500, 256)
    assert scores.scaled_dot(q, k).var().item() == pytest.approx(1.0, abs=0.05)
    assert scores.dot(q, k).var().item() == pytest.approx(256, rel=0.05)
