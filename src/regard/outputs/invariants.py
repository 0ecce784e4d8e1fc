"""What must hold for every network, measured: the largest difference between two answers that should be one."""

from __future__ import annotations

from torch import Tensor


def difference(one: Tensor, other: Tensor, where: Tensor) -> float:
    """Return the largest difference of (batch, n, width) where (batch, n) says it counts."""
    return float((one - other).abs().amax(-1)[where].max()) if bool(where.any()) else 0.0
