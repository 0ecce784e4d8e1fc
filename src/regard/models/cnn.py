"""Convolutional networks for pictures: plain (LeCun et al. 1998, in today's form) and residual (He et al. 2016).

    plain       x ← ReLU(norm(conv(x)))                                 between stages: the largest of 2 × 2
    residual    x ← ReLU(x + norm(conv(ReLU(norm(conv(x))))))           first block of a stage: stride 2

The map of the last stage is a grid of vectors, as patches are.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.layers.dropout import Dropout
from regard.layers.stem import Shape, Stem


def normalised(kind: str, width: int) -> nn.Module:
    """Return GroupNorm with 8 groups (Wu and He 2018), or BatchNorm."""
    return nn.BatchNorm2d(width) if kind == "batch" else nn.GroupNorm(math.gcd(8, width), width)


class Convolution(nn.Module):
    """ReLU(norm(conv(x)))."""

    def __init__(self, before: int, width: int, norm: str) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(before, width, 3, padding=1, bias=False), normalised(norm, width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.norm(self.conv(x)))


class ResidualBlock(nn.Module):
    """ReLU(shortcut(x) + norm(conv(ReLU(norm(conv(x))))))."""

    def __init__(self, before: int, width: int, norm: str, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = normalised(norm, width), normalised(norm, width)
        same = before == width and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(before, width, 1, stride, bias=False)
        nn.init.zeros_(self.second_norm.get_parameter("weight"))  # the block begins as its shortcut

    def forward(self, x: Tensor) -> Tensor:
        y = self.second_norm(self.second(torch.relu(self.first_norm(self.first(x)))))
        return torch.relu(self.around(x) + y)


class ConvolutionalStages(nn.Module):
    """All stages: (batch, channels, rows, columns) to a Context with a vector for each place of the last map."""

    def __init__(
        self, channels: int, widths: list[int], layers: int, *, residual: bool, norm: str, dropout: float
    ) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for number, (before, width) in enumerate(pairwise([channels, *widths])):
            if residual:
                stride = 2 if number else 1
                blocks = [ResidualBlock(before, width, norm, stride)]
                blocks += [ResidualBlock(width, width, norm, 1) for _ in range(layers - 1)]
                stages.append(nn.Sequential(*blocks))
                continue
            convolutions = [Convolution(before if n == 0 else width, width, norm) for n in range(layers)]
            stages.append(nn.Sequential(*([nn.MaxPool2d(2)] if number else []), *convolutions))
        self.stages, self.dropout = nn.ModuleList(stages), Dropout(dropout)
        self.narrow = widths[0] % 16 != 0

    def forward(self, x: Tensor) -> Context:
        size = x.shape[2:]
        if self.narrow:  # with channels last, the gradient of torch's convolutions over 8 channels can end the process
            x = x.contiguous()
        for stage in self.stages:
            x = stage(x)
        rows, columns = x.shape[2:]
        values = self.dropout(x.flatten(2).mT)
        stride = (1, size[0] // rows, size[1] // columns)
        return Context(values, torch.arange(values.shape[1], device=x.device), grid=(1, rows, columns), stride=stride)


def cnn(
    *, layers: int, stages: int, width: int, residual: bool = False, norm: str = "group", dropout: float = 0.1
) -> tuple[Stem, nn.Module]:
    """Build a convolutional network: the stem is all of it, and the backbone does nothing."""
    widths = [max(8, width // 2 ** (stages - 1 - n)) for n in range(stages - 1)] + [width]

    def pixels(shape: Shape) -> ConvolutionalStages:
        if shape.marks:
            raise ValueError("a CNN has no class token: set output.pooling to mean or attention")
        if min(shape.rows, shape.columns) < 2 ** (stages - 1):
            raise ValueError(f"model.stages={stages} halves {shape.rows} pixels too often: reduce it")
        return ConvolutionalStages(shape.channels, widths, layers, residual=residual, norm=norm, dropout=dropout)

    return Stem(width, None, dropout, pixels=pixels), nn.Identity()
