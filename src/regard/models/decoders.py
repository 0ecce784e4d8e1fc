"""Decoders: from a code z to a thing of one shape (…places, channels), along one axis of places or two.

    dense           x̂ = W_2 ReLU(W_1 z + b_1) + b_2, all components at once
    convolution     W z as a small map, then twice as many places and half the channels from stage to stage

Nothing here knows what the places are: pixels are rows and columns, a series is steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d]] = {1: nn.Conv1d, 2: nn.Conv2d}
SMALLEST = 4  # places along an axis of the smallest map, at least
MOST_STAGES = 5


def halvings(places: Sequence[int]) -> int:
    """Return how often the places of each axis are halved on the way to the smallest map, at least once."""
    return min(MOST_STAGES, max(1, int(math.log2(max(1.0, min(places) / SMALLEST)))))


def convolution(axes: int, before: int, after: int, size: int = 3) -> nn.Module:
    """Return a convolution along one axis or two that keeps the number of places."""
    if axes not in CONVOLUTIONS:
        raise ValueError(f"expected things with one axis of places (series) or two (pictures), found {axes}")
    return CONVOLUTIONS[axes](before, after, size, padding=size // 2)


def doubled(x: Tensor) -> Tensor:
    """Return a map (batch, channels, …places) with each place twice along each axis."""
    return interpolate(x, scale_factor=2, mode="nearest")


def halved(x: Tensor) -> Tensor:
    """Return the mean of neighbouring places of a map; the last one of an odd number counts twice."""
    places = x.shape[2:]
    odd = [part for size in reversed(places) for part in (0, size % 2)]
    padded = nn.functional.pad(x, odd, mode="replicate") if any(odd) else x
    pool = nn.functional.avg_pool1d if len(places) == 1 else nn.functional.avg_pool2d
    return pool(padded, 2)


def channels_last(x: Tensor, places: Sequence[int]) -> Tensor:
    """Return a map (batch, channels, …) as values (batch, …places, channels); what is too much is cut off."""
    for axis, size in enumerate(places, 2):
        x = x.narrow(axis, 0, size)
    return x.movedim(1, -1)


class DenseDecoder(nn.Module):
    """All components at once from the code, through one hidden layer."""

    def __init__(self, latent: int, shape: Sequence[int], width: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.layers = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, math.prod(shape)))

    def forward(self, z: Tensor) -> Tensor:
        x: Tensor = self.layers(z)
        return x.view(-1, *self.shape)


class ConvolutionalDecoder(nn.Module):
    """A small map from the code, then stages: twice the places, a convolution to half the channels, norm, ReLU."""

    def __init__(self, latent: int, shape: Sequence[int], width: int) -> None:
        super().__init__()
        *places, channels = shape
        axes, stages = len(places), halvings(places)
        self.places = tuple(places)
        self.first = tuple(-(-size // 2**stages) for size in places)
        widths = [width * 2 ** (stages - number) for number in range(stages + 1)]
        self.map = nn.Linear(latent, widths[0] * math.prod(self.first))
        self.stages = nn.ModuleList(
            nn.Sequential(convolution(axes, before, after), nn.GroupNorm(math.gcd(8, after), after), nn.ReLU())
            for before, after in itertools.pairwise(widths)
        )
        self.last = convolution(axes, widths[-1], channels)

    def forward(self, z: Tensor) -> Tensor:
        x = torch.relu(self.map(z)).unflatten(-1, (-1, *self.first))
        for stage in self.stages:
            x = stage(doubled(x))
        return channels_last(self.last(x), self.places)


def decoder(kind: str, latent: int, shape: Sequence[int], width: int) -> nn.Module:
    """Return the decoder of this name."""
    return (DenseDecoder if kind == "dense" else ConvolutionalDecoder)(latent, shape, width)
