"""Augmentation of pictures: moved, scaled and mirrored, recoloured, with a part erased, and mixed with another one.

Every choice is a pure function of (seed, epoch, row); see `regard.data.draws`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from regard.data.draws import Draws

MOVES, MIRRORS, COLOURS, HOLES, MIXES = range(5)  # streams of random numbers
LEAST_HOLE, LARGEST_HOLE = 0.02, 0.2  # of the area that is erased


class Variations(NamedTuple):
    """The limits of random changes of pictures in training; 0 or False: no change."""

    shift: float = 0.0  # of a side
    scale: float = 0.0
    flip: bool = False
    colour: float = 0.0
    erase: float = 0.0  # probability
    mixup: float = 0.0  # α of the beta distribution


def varied(pixels: Tensor, how: Variations, draws: Draws) -> tuple[Tensor, Tensor | None]:
    """Return pixels (batch, rows, columns, channels) changed at random, and the affine map (batch, 2, 3) from places in
    the new picture to places in the old one, both from −1 to 1 (x, y); None if nothing was moved."""
    x = pixels.float().permute(0, 3, 1, 2)
    change = affine(how, draws)
    if change is not None:
        places = affine_grid(change, list(x.shape), align_corners=False)
        x = grid_sample(x, places, padding_mode="border", align_corners=False)
    if how.colour:
        x = recoloured(x, how.colour, draws)
    if how.erase:
        x = erased(x, how.erase, draws)
    return x.permute(0, 2, 3, 1), change


def affine(how: Variations, draws: Draws) -> Tensor | None:
    """Return [[s m, 0, t_x], [0, s, t_y]] for each picture: scale s, mirror m = ±1, shift t."""
    if not (how.shift or how.scale or how.flip):
        return None
    numbers = torch.from_numpy(2 * draws.uniform(MOVES, 4) - 1)
    mirror = torch.from_numpy(draws.uniform(MIRRORS)[:, 0]) < 0.5
    scale = torch.exp(how.scale * numbers[:, :2])
    change = torch.zeros(len(numbers), 2, 3)
    change[:, 0, 0] = torch.where(mirror & how.flip, -scale[:, 0], scale[:, 0])
    change[:, 1, 1] = scale[:, 0]
    change[:, :, 2] = 2 * how.shift * numbers[:, 2:]
    return change


def recoloured(x: Tensor, strength: float, draws: Draws) -> Tensor:
    """Change brightness, contrast and saturation, each by a factor from 1 − strength to 1 + strength."""
    numbers = torch.from_numpy(1 + strength * (2 * draws.uniform(COLOURS, 3) - 1))
    bright, contrast, saturation = (numbers[:, i, None, None, None] for i in range(3))
    x = x * bright
    x = (x - x.mean((1, 2, 3), keepdim=True)) * contrast + x.mean((1, 2, 3), keepdim=True)
    if x.shape[1] == 3:
        grey = x.mean(1, keepdim=True)
        x = (x - grey) * saturation + grey
    return x.clamp(0, 255)


def erased(x: Tensor, share: float, draws: Draws) -> Tensor:
    """Erase a rectangle of some pictures: it becomes the mean colour (Zhong et al. 2020)."""
    rows, columns = x.shape[2:]
    numbers = draws.uniform(HOLES, 5)
    area = LEAST_HOLE + (LARGEST_HOLE - LEAST_HOLE) * numbers[:, 1]
    ratio = np.exp((2 * numbers[:, 2] - 1) * np.log(3.0))
    height = np.minimum(np.sqrt(area * ratio), 1.0) * rows
    width = np.minimum(np.sqrt(area / ratio), 1.0) * columns
    top, left = numbers[:, 3] * (rows - height), numbers[:, 4] * (columns - width)
    down, along = torch.arange(rows), torch.arange(columns)
    inside = _between(down, top, height)[:, :, None] & _between(along, left, width)[:, None, :]
    inside &= torch.from_numpy(numbers[:, 0] < share)[:, None, None]
    return torch.where(inside[:, None], x.mean((2, 3), keepdim=True), x)


def _between(places: Tensor, start: np.ndarray, length: np.ndarray) -> Tensor:
    first = torch.from_numpy(start.astype(np.float32))[:, None]
    return (places >= first) & (places < first + torch.from_numpy(length.astype(np.float32))[:, None])


def shares(alpha: float, draws: Draws) -> Tensor:
    """Return λ = max(u, 1 − u), u of a beta distribution B(α, α), for each row (Zhang et al. 2018)."""
    from scipy.special import betaincinv

    found = betaincinv(alpha, alpha, draws.uniform(MIXES)[:, 0].astype(np.float64).clip(1e-6, 1 - 1e-6))
    return torch.from_numpy(np.maximum(found, 1 - found).astype(np.float32))
