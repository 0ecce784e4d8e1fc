"""Convolutions over translations and rotations by 90° (Cohen and Welling 2016, 4.3 and 6): the group p4.

A map has four orientations at each place. Turning the picture turns the map and moves the orientations on by one:

    f(R x)(r, p) = f(x)(r − 1, R⁻¹ p)

Filters are kept in one orientation and turned into four: four times the outputs of a convolution, no more weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad


class P4Lift(nn.Module):
    """From a picture (batch, in, rows, columns) to a map (batch, out, 4, rows, columns)."""

    def __init__(self, given: int, made: int, side: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(made, given, side, side))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        filters = torch.stack([torch.rot90(self.weight, r, (-2, -1)) for r in range(4)], 1)  # (out, 4, in, k, k)
        found: Tensor = _around(x, filters.flatten(0, 1)).unflatten(1, (-1, 4))
        return found


class P4Convolution(nn.Module):
    """From a map over p4 to another one: a filter sees all four orientations, and turning it turns them too."""

    def __init__(self, given: int, made: int, side: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(made, given, 4, side, side))
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        turned = [torch.rot90(self.weight, r, (-2, -1)).roll(r, 2) for r in range(4)]
        filters = torch.stack(turned, 1).flatten(2, 3)  # (out, 4, in · 4, k, k)
        found: Tensor = _around(x.flatten(1, 2), filters.flatten(0, 1)).unflatten(1, (-1, 4))
        return found


def _around(x: Tensor, filters: Tensor) -> Tensor:
    """Return the convolution of pictures that go on at the other side: it commutes with every translation."""
    reach = filters.shape[-1] // 2
    return conv2d(pad(x, (reach,) * 4, mode="circular"), filters)


def turned(x: Tensor) -> Tensor:
    """Return a map over p4 as that of the picture turned by 90°: places turn, and orientations move on by one."""
    return torch.rot90(x, 1, (-2, -1)).roll(1, -3)
