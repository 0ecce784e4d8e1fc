"""Saliency: the vectors that an answer depends on, for models whose attention does not say it: by the gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import Context


def saliency(vectors: Context, scores: Callable[[Context], Tensor]) -> NDArray[np.float32]:
    """Return a_ij = |∂ s_i / ∂ x_j| ÷ Σ_j' |∂ s_i / ∂ x_j'| for scores (m,) of the first row's n vectors x: (m, n).

    How much the score of an answer would move if a vector moved a little (Simonyan et al. 2014), rows adding to 1.
    """
    with torch.enable_grad():
        x = vectors.values.detach().requires_grad_()
        rows = []
        for score in scores(vectors._replace(values=x)):
            (slope,) = torch.autograd.grad(score, x, retain_graph=True)
            size = slope[0].norm(dim=-1)
            rows.append((size / size.sum().clamp(min=1e-30)).cpu().numpy())
    return np.stack(rows)
