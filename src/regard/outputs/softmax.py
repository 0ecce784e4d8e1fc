"""The loss of a softmax over a vocabulary, the largest layer of most small models.

    L = Σ_i [ (1 − ε) · −log p_i(y_i) + ε/V · Σ_v −log p_i(v) ],   p_i = softmax(W x_i + b)

(label smoothing ε: Szegedy et al. 2016). Its gradient is known without a second look at the logits,

    ∂L/∂logit_iv = p_i(v) − (1 − ε) · [v = y_i] − ε/V,

so `token_loss` makes it at once, for a few rows at a time and in the memory of their logits: the logits of a whole
batch never exist. `plain` says the same with torch's own functions, and keeps the graph.

Two passes with other dropout say p and q; R-Drop (Liang et al. 2021, 2.2) wants them to be right and to agree:

    L = ½ (L_p + L_q) + α/2 · J,   J = ½ Σ_i [ KL(p_i ‖ q_i) + KL(q_i ‖ p_i) ] = ½ Σ_iv (p_i(v) − q_i(v)) d_i(v),

half of the paper's, so that it weighs as much as the loss of one pass. With d = log p − log q the gradient is

    ∂J/∂logit of p = ½ [ p (d − Σ_v p d) + p − q ].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy, kl_div, linear

CHUNK = 1 << 23  # logits made at once: 32 MB; with much fewer the products get small and slow
LINE = 16  # numbers in a line of the processor's cache


def token_loss(
    x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, smoothing: float, agreement: float = 0.0
) -> Tensor:
    """L of features x and the tokens that should have come (n,): chunked where that gives the same.

    x is (n, width); with an `agreement` α it is (2n, width), the rows of a second pass behind those of the first.
    """
    learning = torch.is_grad_enabled() and x.requires_grad
    if not learning or torch.is_autocast_enabled(x.device.type) or not weight.requires_grad:
        return plain(x, weight, bias, wanted, smoothing, agreement)
    loss: Tensor = _Chunked.apply(x, weight, bias, wanted, smoothing, agreement)  # type: ignore[no-untyped-call]
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
    """What a head says of features x (n, width), aligned where nobody asks for a gradient."""
    if torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type):
        said: Tensor = head(x)
        return said
    return aligned(x, head.weight, head.bias)[:, : len(head.weight)]


def plain(
    x: Tensor, weight: Tensor, bias: Tensor | None, wanted: Tensor, smoothing: float, agreement: float = 0.0
) -> Tensor:
    logits = linear(x, weight, bias)
    if not agreement:
        return cross_entropy(logits, wanted, reduction="sum", label_smoothing=smoothing)
    right = cross_entropy(logits, wanted.repeat(2), reduction="sum", label_smoothing=smoothing)
    p, q = logits.log_softmax(-1).chunk(2)
    apart = kl_div(p, q, reduction="sum", log_target=True) + kl_div(q, p, reduction="sum", log_target=True)
    return right / 2 + agreement / 4 * apart


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        smoothing: float,
        agreement: float,
    ) -> Tensor:
        size, passes = len(weight), 2 if agreement else 1
        loss, to_x, to_weight = x.new_zeros(()), torch.empty_like(x), torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        rows = max(1, CHUNK // (passes * size))
        said, to_said = (of.unflatten(0, (passes, len(wanted))) for of in (x, to_x))
        for start in range(0, len(wanted), rows):
            some, right = said[:, start : start + rows].flatten(0, 1), wanted[start : start + rows].repeat(passes)
            logits, chances, total = _chances(some, weight, bias)
            apart = _agree(logits, chances, total, agreement / 2) if agreement else None
            lost = total - (1 - smoothing) * logits.gather(1, right[:, None]).squeeze(1)
            gradient = chances
            if smoothing:
                lost -= smoothing * logits.mean(-1)
                gradient -= smoothing / size
            gradient.scatter_add_(1, right[:, None], gradient.new_full((), smoothing - 1).expand(len(right), 1))
            loss += lost.sum() / passes
            if apart is not None:
                loss += apart[0]
                gradient.div_(passes).add_(apart[1])
            to_said[:, start : start + rows] = torch.mm(gradient, weight).unflatten(0, (passes, -1))
            to_weight.addmm_(gradient.t(), some)
            if to_bias is not None:
                to_bias += gradient.sum(0)
        ctx.save_for_backward(to_x, to_weight, to_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        to_x, to_weight, to_bias = ctx.saved_tensors
        to_bias = None if to_bias is None else upstream * to_bias
        return upstream * to_x, upstream * to_weight, to_bias, None, None, None


def _chances(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Logits and their softmax, (n, V) each, and log Σ exp of each row's logits, (n,)."""
    room = aligned(x, weight, bias)
    chances = room.softmax(-1)
    # Without exponentials of its own: the largest p is at least 1/V, so its logarithm is exact.
    total = room.amax(-1) - chances.amax(-1).log()
    return room[:, : len(weight)], chances[:, : len(weight)], total


def _agree(logits: Tensor, chances: Tensor, total: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """weight · J of two passes, one behind the other, and its gradient by the logits."""
    p, q = chances.chunk(2)
    one, two = (logits - total[:, None]).chunk(2)
    d, apart = one - two, p - q
    to_p = p * (d - (p * d).sum(-1, keepdim=True)) + apart
    to_q = q * ((q * d).sum(-1, keepdim=True) - d) - apart
    return weight / 2 * (apart * d).sum(), torch.cat((to_p, to_q)).mul_(weight / 2)
