"""Gradients against distance: how much of the last state an element still moves."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from regard.attention import Context
from regard.backbones import Backbone


def gradient_norms(backbone: Backbone, x: torch.Tensor) -> NDArray[np.float64]:
    """Return ‖∂h_T / ∂x_(T−τ)‖ for τ = 0, 1, … T − 1, a mean over the rows of x (batch, T, width).

    In an RNN, h_t = f(W x̄_t + U h_(t−1)), the gradient is a product of τ Jacobians, ∏ ∇f · U: its norm falls or grows
    by a factor for each step. An LSTM's cell adds, so that the product may stay near 1. Attention sums over all
    elements at once: there is no product along the distance. The norm of the whole Jacobian is estimated by its mean
    over random directions u of h_T: ‖∂(u · h_T)/∂x‖ with ‖u‖ = 1.
    """
    x = x.detach().clone().requires_grad_()
    last = backbone(Context(x)).values[:, -1]
    directions = torch.nn.functional.normalize(torch.randn(8, *last.shape, dtype=x.dtype), dim=-1)
    norms = []
    for u in directions:
        (gradient,) = torch.autograd.grad((last * u).sum(), x, retain_graph=True)
        norms.append(gradient.norm(dim=-1).mean(0))
    return np.asarray(torch.stack(norms).mean(0).flip(0).double())
