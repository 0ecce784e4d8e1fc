"""Normalisers: from scores to weights.  `normalise(scores, mask)` gives a_ji, with 0 wherever the mask is False.

The mask is boolean, broadcasts to the scores (..., m, n), and True means "may attend"; None allows everything. A row
with nothing to attend to gets zeros, never NaN, and passes finite gradients.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

Normaliser = Callable[[Tensor, Tensor | None], Tensor]


def softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = exp(s_ji) / Σ_i' exp(s_ji') over the allowed i'; softmax(2, 2, −∞) = (½, ½, 0)."""
    if mask is None:
        return scores.softmax(-1)
    # The lowest finite number in place of −∞ keeps an empty row free of NaN, forward and backward; the second fill
    # then makes its weights zero. In any other row exp(lowest − max) is exactly 0 already.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0)


def sigmoid(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = σ(s_ji): a gate for each key alone. Nothing makes the gates compete, so they may all open."""
    return _allowed(scores.sigmoid(), mask)


def relu(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = max(0, s_ji): ReLU in place of softmax."""
    return _allowed(scores.relu(), mask)


def exponential(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = exp(s_ji): softmax without its division; with a bias of (t − i) log γ these are the weights γ^(t−i)."""
    return _allowed(scores.exp(), mask)


def divide(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = s_ji / Σ_i' s_ji' over the allowed i': for scores that are never negative (kernels.py)."""
    allowed = _allowed(scores, mask)
    total = allowed.sum(-1, keepdim=True)
    return allowed / total.masked_fill(total == 0, 1.0)


def none(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = s_ji: the scores are the weights, values are plainly summed."""
    return _allowed(scores, mask)


def mean(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = 1/N over the N allowed keys, whatever the scores. Slides may leave the 1/N of c = (1/N) Σ h_i out."""
    allowed = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp(min=1)


def symmetric(scores: Tensor, mask: Tensor | None) -> Tensor:
    """a_ji = 1/√(d_j d_i), d being the number of allowed keys of each: GCN's weights (Kipf and Welling 2017, eq. 2).

    Queries and keys are the same elements.
    """
    allowed = torch.ones_like(scores) if mask is None else mask.expand_as(scores).to(scores.dtype)
    degree = allowed.sum(-1)
    root = degree.clamp(min=1).rsqrt() * (degree > 0)  # who looks at nobody is looked at by nobody
    return root.unsqueeze(-1) * allowed * root.unsqueeze(-2)


class WeightDropout(nn.Module):
    """Another normaliser, its weights dropped with probability p in training (Srivastava et al. 2014)."""

    def __init__(self, normalise: Normaliser, p: float) -> None:
        super().__init__()
        self.normalise = normalise
        self.p = p

    def forward(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        return nn.functional.dropout(self.normalise(scores, mask), self.p, self.training)


def _allowed(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)
