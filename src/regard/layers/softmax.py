"""The loss of a softmax over a vocabulary, the largest layer of most small models.

    L = Σ_i [ (1 − ε) · −log p_i(y_i) + ε/V · Σ_v −log p_i(v) ],   p_i = softmax(W x_i + b)

(label smoothing ε: Szegedy et al. 2016). Its gradient is known without a second look at the logits,

    ∂L/∂logit_iv = p_i(v) − (1 − ε) · [v = y_i] − ε/V,

so `chunked` makes it at once, for a few rows at a time and in the memory of their logits: the logits of a whole batch
never exist. `plain` says the same with torch's own functions, and keeps the graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy, linear

from regard.layers.products import is_rounded

CHUNK = 1 << 23  # logits made at once: 32 MB; with much fewer the products get small and slow
LINE = 16  # numbers in a line of the processor's cache


def token_loss(x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, smoothing: float) -> Tensor:
    """L of features x (n, width) and the tokens that should have come (n,): chunked where that gives the same."""
    learning = torch.is_grad_enabled() and x.requires_grad
    if not learning or is_rounded(x) or not weight.requires_grad:
        return plain(x, weight, bias, wanted, smoothing)
    loss: Tensor = _Chunked.apply(x, weight, bias, wanted, smoothing)  # type: ignore[no-untyped-call]
    return loss


def aligned(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W x + b without a graph, in rows that begin at multiples of 64 bytes: behind the logits are up to 15 of −∞.

    A product is up to 1.5 times as slow where they do not, as with a vocabulary of 8,001.
    """
    size = len(weight)
    room = x.new_empty(len(x), -(-size // LINE) * LINE)
    room[:, size:] = -torch.inf
    logits = room[:, :size]
    if bias is None:
        torch.mm(x, weight.t(), out=logits)
    else:
        torch.addmm(bias, x, weight.t(), out=logits)
    return room


def logits_of(x: Tensor, head: Linear) -> Tensor:
    """Return the logits of features x (n, width), aligned where nobody asks for a gradient."""
    if torch.is_grad_enabled() or is_rounded(x):
        said: Tensor = head(x)
        return said
    return aligned(x, head.weight, head.bias)[:, : len(head.weight)]


def plain(x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, smoothing: float) -> Tensor:
    return cross_entropy(linear(x, weight, bias), wanted, reduction="sum", label_smoothing=smoothing)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, smoothing: float) -> Tensor:
        size = len(weight)
        loss, to_x, to_weight = x.new_zeros(()), torch.empty_like(x), torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        rows = max(1, CHUNK // size)
        for start in range(0, len(x), rows):
            some, right = x[start : start + rows], wanted[start : start + rows, None]
            room = aligned(some, weight, bias)
            chances = room.softmax(-1)
            # log Σ exp without exponentials of its own: the largest p is at least 1/V, so its logarithm is exact.
            total = room.amax(-1) - chances.amax(-1).log()
            logits, gradient = room[:, :size], chances[:, :size]
            lost = total - (1 - smoothing) * logits.gather(1, right).squeeze(1)
            if smoothing:
                lost -= smoothing * logits.mean(-1)
                gradient -= smoothing / size
            loss += lost.sum()
            gradient.scatter_add_(1, right, gradient.new_full((), smoothing - 1).expand_as(right))
            torch.mm(gradient, weight, out=to_x[start : start + rows])
            to_weight.addmm_(gradient.t(), some)
            if to_bias is not None:
                to_bias += gradient.sum(0)
        ctx.save_for_backward(to_x, to_weight, to_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_x, to_weight, to_bias = ctx.saved_tensors
        return upstream * to_x, upstream * to_weight, None if to_bias is None else upstream * to_bias, None, None
