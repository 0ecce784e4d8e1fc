"""Which inputs an answer depends on, for models whose attention does not say it: by the gradient."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def influence(scores: Tensor, x: Tensor) -> NDArray[np.float32]:
    """a_ij = |∂ s_i / ∂ x_j| ÷ Σ_j' |∂ s_i / ∂ x_j'| for scores (m,) computed from vectors x (1, n, width): (m, n).

    How much the score of an answer would move if an element moved a little (Simonyan et al. 2014), rows adding to 1.
    """
    rows = []
    for score in scores:
        (slope,) = torch.autograd.grad(score, x, retain_graph=True)
        size = slope[0].norm(dim=-1)
        rows.append((size / size.sum().clamp(min=1e-30)).numpy())
    return np.stack(rows)
