"""Windows over a grid of places (Liu et al. 2021, 3.2): each place attends to its own window. In every other layer the
windows are shifted by half their side, so that neighbours meet.

    attention(q, k, v) = softmax(q k^T / √d + B) v      within windows of w × w places, B a learned number for each
                                                         head and each relative place (rows and columns from −w to w)

`windows` is a mask that states its layout, so `WindowAttention` computes window by window, in linear time. For `attend`
the same mask is a rule like any other, and `WindowBias` a bias over all places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.attention.equation import AnyMask, attend, check, rule_of
from regard.attention.layer import Watchable
from regard.attention.masks import Mask
from regard.layers.roles import TABLE, Role


@dataclass(frozen=True, eq=False)
class Windows(Mask):
    """Windows of `side` × `side` places of a grid, moved down and to the right by `shift`. A grid that windows do not
    divide has smaller ones at its edges."""

    grid: tuple[int, int] = (1, 1)
    side: int = 1
    shift: int = 0

    @property
    def padded(self) -> tuple[int, int]:
        """Rows and columns, padded to whole windows."""
        rows, columns = (-(-length // self.side) * self.side for length in self.grid)
        return rows, columns

    @cached_property
    def allowed(self) -> Tensor | None:
        """Pairs that may look at each other in each window, (windows, side², side²): not places that the shift has
        brought together from opposite edges, and nobody looks at padding. None where everything is allowed."""
        rows, columns = self.padded
        down, along = (_block(torch.arange(length), self.side, self.shift) for length in (rows, columns))
        region = down[:, None] * (columns + 2) + along[None]
        real = (torch.arange(rows)[:, None] < self.grid[0]) & (torch.arange(columns)[None] < self.grid[1])
        region, real = (self.cut(each[None, :, :, None])[..., 0] for each in (region, real))
        allowed = (region[:, :, None] == region[:, None]) & real[:, None]
        return None if bool(allowed.all()) else allowed

    def cut(self, x: Tensor) -> Tensor:
        """Cut (batch, rows, columns, d) into (batch · windows, side², d)."""
        if self.shift:
            x = x.roll((-self.shift, -self.shift), (1, 2))
        x = x.unflatten(2, (-1, self.side)).unflatten(1, (-1, self.side))  # (batch, down, side, along, side, d)
        return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def joined(self, x: Tensor) -> Tensor:
        """Undo `cut`, and take the padding off: (batch, places, d)."""
        (rows, columns), side = self.padded, self.side
        x = x.reshape(-1, rows // side, columns // side, side, side, x.shape[-1])
        x = x.transpose(2, 3).reshape(x.shape[0], rows, columns, -1)
        if self.shift:
            x = x.roll((self.shift, self.shift), (1, 2))
        return x[:, : self.grid[0], : self.grid[1]].flatten(1, 2)

    def of_heads(self, x: Tensor) -> Tensor:
        """Return (batch, heads, places, d) as (batch · windows, heads, side², d)."""
        batch, heads, _, d = x.shape
        x = x.transpose(1, 2).reshape(batch, *self.grid, heads * d)
        rows, columns = self.padded
        if (rows, columns) != self.grid:
            x = pad(x, (0, 0, 0, columns - self.grid[1], 0, rows - self.grid[0]))
        cut: Tensor = self.cut(x).unflatten(-1, (heads, d))
        return cut.transpose(1, 2)


@lru_cache(maxsize=256)
def windows(rows: int, columns: int, side: int, shift: int = 0) -> Windows:
    """Return the windows of a grid whose places are counted row by row. One window around all is not shifted."""
    if side < 1 or not 0 <= shift < side:
        raise ValueError(f"windows of {side} places are shifted by 0 to {side - 1}, found {shift}")
    shift = 0 if max(rows, columns) <= side else shift

    def same(q: Tensor, k: Tensor) -> Tensor:
        down, along = (
            _block(q_place, side, shift) == _block(k_place, side, shift)
            for q_place, k_place in ((q // columns, k // columns), (q % columns, k % columns))
        )
        return down & along

    return Windows(same, f"windows({side}, shift {shift})", grid=(rows, columns), side=side, shift=shift)


def _block(place: Tensor, side: int, shift: int) -> Tensor:
    """Return the number of the window that a row or column is in, −1 before the first whole one."""
    return torch.div(place - shift, side, rounding_mode="floor")


class WindowAttention(Watchable):
    """Attention under the mask of `windows`, whose side is `side`, with a learned bias for each relative place."""

    roles: ClassVar[dict[str, Role]] = {"table": TABLE}
    index: Tensor

    def __init__(self, heads: int, side: int) -> None:
        super().__init__()
        self.side = side
        self.table = nn.Parameter(torch.empty((2 * side - 1) ** 2, heads))
        nn.init.normal_(self.table, std=0.02)
        place = torch.arange(side**2)
        self.register_buffer("index", relative(place, place, side, side), persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        layout = rule_of(mask)
        if not isinstance(layout, Windows) or layout.side != self.side:
            raise ValueError(
                f"attention within windows of {self.side} places needs the mask windows(…) alone, "
                f"found {layout.name if isinstance(layout, Mask) else layout}"
            )
        check(q, k, v)
        batch, heads, _, d = q.shape
        q, k, v = (layout.of_heads(x) for x in (q, k, v))
        scores = (q / math.sqrt(d)) @ k.mT + self.table[self.index].movedim(-1, 0)
        if layout.allowed is not None:
            apart = ~layout.allowed.to(q.device)[:, None]
            scores = scores.unflatten(0, (batch, -1)).masked_fill(apart, -1e30).flatten(0, 1)
        y = scores.softmax(-1) @ v
        joined: Tensor = layout.joined(y.transpose(1, 2).flatten(2)).unflatten(-1, (heads, d))
        return joined.transpose(1, 2)

    @torch.no_grad()
    def weights(
        self, q: Tensor, k: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        q_pos, k_pos = (where if where.dim() == 1 else where[0] for where in (q_pos, k_pos))
        layout = rule_of(mask)
        assert isinstance(layout, Windows)
        bias = WindowBias(self, layout.grid[1])
        found = attend(q, k, k, mask=layout, bias=bias, q_pos=q_pos, k_pos=k_pos)[1]
        return found if heads is None else found[:, list(heads)]


class WindowBias:
    """The bias of windows for all pairs of places of a grid with so many columns, (heads, m, n); pairs that share no
    window have that of the edge."""

    def __init__(self, attention: WindowAttention, columns: int) -> None:
        self.attention, self.columns = attention, columns

    def __call__(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        return self.attention.table[relative(q_pos, k_pos, self.columns, self.attention.side)].movedim(-1, 0)


def relative(q_pos: Tensor, k_pos: Tensor, columns: int, side: int) -> Tensor:
    """Return the row of a table of (2 side − 1)² relative places for each pair of places, (m, n)."""
    down = (q_pos[:, None] // columns - k_pos[None] // columns).clamp(1 - side, side - 1) + side - 1
    along = (q_pos[:, None] % columns - k_pos[None] % columns).clamp(1 - side, side - 1) + side - 1
    return down * (2 * side - 1) + along
