"""The Vision Transformer (Dosovitskiy et al. 2021): patches as a sequence for a Transformer encoder.

    z_0 = [x_class; E x_1; …; E x_n] + P        z_l = Transformer layer(z_(l−1))        y = LayerNorm(z_L)

E is a linear map of each patch, or a few strided convolutions (Xiao et al. 2021: training is faster
and steadier).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import Context
from regard.attention.grid import GridSinusoids, GridTable
from regard.layers.dropout import Dropout
from regard.layers.first_weights import first_weights
from regard.layers.stem import Shape, Stem
from regard.models.encoder import encoder_over
from regard.models.mechanism import chosen
from regard.models.stack import stack

EPSILON = 1e-12  # of layer normalisation, as in the published models


class LinearPatches(nn.Module):
    """E x + b of each patch: (batch, channels, rows, columns) to (batch, patches, width)."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.patch, self.map = patch, nn.Linear(channels * patch**2, width)

    def forward(self, x: Tensor) -> Tensor:
        p = self.patch
        cut = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # (batch, channels, down, p, along, p)
        patches: Tensor = self.map(cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))
        return patches


def _convolved(channels: int, wide: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(channels, wide, 3, stride, 1, bias=False),
        nn.GroupNorm(math.gcd(8, wide), wide),
        nn.ReLU(),
    ]


class ConvolutionalPatches(nn.Module):
    """3 × 3 convolutions, each of stride 2 and twice as wide, until a vector stands for a patch; then a linear map.

    In `pairs` another one of stride 1 follows each of them, and the last are as wide as the vectors.
    """

    def __init__(self, channels: int, patch: int, width: int, *, pairs: bool = False) -> None:
        super().__init__()
        steps = int(math.log2(patch))
        if 2**steps != patch:
            raise ValueError(
                f"a convolutional stem halves the sides: patches.patch must be a power of 2, found {patch}"
            )
        parts: list[nn.Module] = []
        for step in range(max(1, steps)):
            wide = max(16, width // 2 ** max(0, steps - step - pairs))
            parts += _convolved(channels, wide, 2 if steps else 1)
            parts += _convolved(wide, wide, 1) if pairs else []
            channels = wide
        self.parts = nn.Sequential(*parts, nn.Conv2d(channels, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.parts(x)
        return found.flatten(2).mT


PATCHES: dict[str, Callable[[int, int, int], nn.Module]] = {
    "linear": LinearPatches,
    "convolutional": ConvolutionalPatches,
    "pairs": partial(ConvolutionalPatches, pairs=True),
}


class PatchStem(nn.Module):
    """Patches with their places, and the class token before them if one is wanted."""

    def __init__(self, patches: nn.Module, place: nn.Module | None, shape: Shape, width: int, dropout: float) -> None:
        super().__init__()
        rows, columns, _, patch, marks = shape
        if rows % patch or columns % patch:
            raise ValueError(f"patches of {patch} pixels must divide the sides {rows} and {columns}")
        self.patches, self.place, self.patch, self.dropout = patches, place, patch, Dropout(dropout)
        self.mark = nn.Parameter(torch.empty(marks, width)) if marks else None
        if self.mark is not None:
            nn.init.normal_(self.mark, std=0.02)

    def forward(self, x: Tensor) -> Context:
        rows, columns = (side // self.patch for side in x.shape[2:])
        z: Tensor = self.patches(x)
        if self.place is not None:
            z = z + self.place(rows, columns).to(z)
        if self.mark is not None:
            z = torch.cat((self.mark.expand(z.shape[0], -1, -1), z), 1)
        where = torch.arange(z.shape[1], device=z.device)
        return Context(self.dropout(z), where, grid=(1, rows, columns), stride=(1, self.patch, self.patch))


def vit(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "pre",
    position: str = "learned",
    stem: str = "linear",
    length: int = 256,
    **parts: Any,
) -> tuple[Stem, nn.Module]:
    """Build a network for features of each patch, and of the class token where the shape of the input has one.

    `parts` are fields of AttentionParts and of Mechanism; a projection of the length (Linformer) ends at `length`.
    """

    def pixels(shape: Shape) -> PatchStem:
        patches = PATCHES[stem](shape.channels, shape.patch, width)
        first_weights(patches)
        grid = shape.rows // shape.patch, shape.columns // shape.patch
        place: nn.Module | None = GridTable(*grid, width) if position == "learned" else None
        if position == "sinusoidal":
            place = GridSinusoids(width)
        return PatchStem(patches, place, shape, width, dropout)

    how, made = chosen(**parts)
    attentions = how.layers(layers, width, heads, made, length=length)
    blocks = stack(attentions, width, hidden, dropout, norm=norm, activation=gelu, epsilon=EPSILON)
    encoder = encoder_over(*blocks, how, width)
    if norm != "deep":
        first_weights(encoder)
    return Stem(width, None, dropout, pixels=pixels), encoder
