"""Places of a picture: tables over a grid of rows and columns, and how they fit grids of other sizes."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from regard.attention.positions import sinusoidal
from regard.layers.roles import GRID, Role


class GridTable(nn.Module):
    """A learned vector for each place of a grid (Dosovitskiy et al. 2021, 3.1)."""

    roles: ClassVar[dict[str, Role]] = {"table": GRID}

    def __init__(self, rows: int, columns: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(rows, columns, width))
        nn.init.normal_(self.table, std=0.02)

    def forward(self, rows: int, columns: int) -> Tensor:
        """Return the vectors of a grid, (rows · columns, width); those of another size are interpolated."""
        return resized(self.table, rows, columns).flatten(0, 1)


class GridSinusoids(nn.Module):
    """p_(r, c) = [sinusoidal(r); sinusoidal(c)]: half of the width for the row and half for the column."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % 4:
            raise ValueError(f"sinusoids of rows and columns need a width that 4 divides, found {width}")
        self.width = width

    def forward(self, rows: int, columns: int) -> Tensor:
        down, along = (sinusoidal(torch.arange(side), self.width // 2) for side in (rows, columns))
        both = (down[:, None].expand(-1, columns, -1), along[None].expand(rows, -1, -1))
        return torch.cat(both, -1).flatten(0, 1)


def resized(table: Tensor, rows: int, columns: int) -> Tensor:
    """Return a table (rows, columns, width) for another grid, by bicubic interpolation."""
    if table.shape[:2] == (rows, columns):
        return table
    moved = table.movedim(-1, 0)[None]
    found = interpolate(moved, size=(rows, columns), mode="bicubic", align_corners=False)
    return found[0].movedim(0, -1)
