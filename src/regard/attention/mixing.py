"""Mixes: from weights and values to the answer.  `mix(weights, v, q_pos, k_pos)` gives y_j."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.positions import clipped_distance
from regard.layers.roles import TABLE, Role

Mix = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def weighted_sum(weights: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG001
    """y_j = Σ_i a_ji v_i."""
    return weights @ v


class ShawValues(nn.Module):
    """y_j = Σ_i a_ji (v_i + r^V_clip(i−j)): values carry a learned vector for their distance (Shaw 2018, eq. 3)."""

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}

    def __init__(self, distance: int, v_width: int) -> None:
        super().__init__()
        self.distance = distance
        self.table = nn.Parameter(torch.empty(2 * distance + 1, v_width))
        nn.init.xavier_uniform_(self.table)

    def forward(self, weights: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        # The weights of equal distances are added up first: (..., m, 2K+1) @ table, never an (m, n, d) tensor.
        index = clipped_distance(q_pos, k_pos, self.distance).expand(weights.shape)
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.table)).scatter_add(-1, index, weights)
        return weights @ v + by_distance @ self.table
