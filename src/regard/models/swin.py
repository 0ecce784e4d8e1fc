"""Swin (Liu et al. 2021): attention within windows, shifted in every other layer, and patch merging between stages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import Context, MultiHead
from regard.attention.windows import WindowAttention, windows
from regard.backbones.transformer import EncoderLayer, FeedForward
from regard.layers.dropout import Dropout
from regard.layers.first_weights import first_weights
from regard.layers.residual import PreNorm
from regard.layers.stem import Shape, Stem
from regard.models.vit import LinearPatches


class Merging(nn.Module):
    """W LayerNorm([x_(2i, 2j); x_(2i+1, 2j); x_(2i, 2j+1); x_(2i+1, 2j+1)]): 2 × 2 vectors become one, twice as
    wide (3.1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.map = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor, rows: int, columns: int) -> Tensor:
        x = x.view(x.shape[0], rows, columns, -1)
        if rows % 2 or columns % 2:
            x = nn.functional.pad(x, (0, 0, 0, columns % 2, 0, rows % 2))
        joined = torch.cat((x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]), -1)
        merged: Tensor = self.map(self.norm(joined.flatten(1, 2)))
        return merged


class SwinStage(nn.Module):
    """Layers over one grid, after merging the vectors of the stage before. Every other layer has shifted windows."""

    def __init__(self, layers: Sequence[EncoderLayer], merge: Merging | None, window: int) -> None:
        super().__init__()
        self.merge, self.layers, self.window = merge, nn.ModuleList(layers), window

    def forward(self, context: Context) -> Context:
        assert context.grid is not None
        assert context.stride is not None
        x, (_, rows, columns), (_, tall, wide) = context.values, context.grid, context.stride
        if self.merge is not None:
            x = self.merge(x, rows, columns)
            rows, columns, tall, wide = -(-rows // 2), -(-columns // 2), 2 * tall, 2 * wide
        where = torch.arange(rows * columns, device=x.device)
        for number, layer in enumerate(self.layers):
            shift = self.window // 2 if number % 2 else 0
            x, _ = layer(x, None, where, windows(rows, columns, self.window, shift))
        return context._replace(values=x, positions=where, grid=(1, rows, columns), stride=(1, tall, wide))


class SwinStages(nn.Module):
    """All stages, and the norm that ends them."""

    def __init__(self, stages: Sequence[SwinStage], width: int) -> None:
        super().__init__()
        self.stages, self.norm = nn.ModuleList(stages), nn.LayerNorm(width)

    def forward(self, context: Context) -> Context:
        for stage in self.stages:
            context = stage(context)
        return context._replace(values=self.norm(context.values))


class SwinStem(nn.Module):
    """LayerNorm of linear patches, without places: the bias of each window has them."""

    def __init__(self, shape: Shape, width: int, dropout: float) -> None:
        super().__init__()
        if shape.marks:
            raise ValueError("Swin has no class token: set output.pooling to mean or attention")
        if shape.rows % shape.patch or shape.columns % shape.patch:
            raise ValueError(f"patches of {shape.patch} pixels must divide the sides {shape.rows} and {shape.columns}")
        self.patches = LinearPatches(shape.channels, shape.patch, width)
        self.norm, self.dropout = nn.LayerNorm(width), Dropout(dropout)

    def forward(self, x: Tensor) -> Context:
        patch = self.patches.patch
        rows, columns = (side // patch for side in x.shape[2:])
        values = self.dropout(self.norm(self.patches(x)))
        where = torch.arange(values.shape[1], device=x.device)
        return Context(values, where, grid=(1, rows, columns), stride=(1, patch, patch))


def swin(
    *,
    layers: int,
    stages: int,
    width: int,
    hidden: int,
    heads: int,
    window: int,
    depths: Sequence[int] = (),
    dropout: float = 0.1,
) -> tuple[Stem, SwinStages]:
    """Build a network whose last stage has `width`, `hidden` and `heads`; each stage before has half as much."""
    counts = list(depths) or [layers] * stages
    least = 2 ** (len(counts) - 1)
    for name, value in (("width", width), ("hidden", hidden)):
        if value % least:
            raise ValueError(f"{len(counts)} stages halve model.{name}: {least} must divide it, found {value}")
    built = []
    for number, count in enumerate(counts):
        share = 2 ** (len(counts) - 1 - number)
        own, few = width // share, max(1, heads // share)
        residual = partial(PreNorm, own, dropout)
        blocks = [
            EncoderLayer(
                MultiHead(own, few, attention=WindowAttention(few, window)),
                FeedForward(own, hidden // share, 0.0, gelu),
                residual,
            )
            for _ in range(count)
        ]
        built.append(SwinStage(blocks, Merging(own // 2) if number else None, window))
    backbone = SwinStages(built, width)
    first_weights(backbone)

    def pixels(shape: Shape) -> SwinStem:
        return SwinStem(shape, width // least, dropout)

    return Stem(width, None, dropout, pixels=pixels), backbone
