"""Augmentation of stored frames: SpecAugment's masks (Park et al. 2019), and another speed by stretching time.

Every choice is a pure function of (seed, epoch, row); see `regard.data.draws`.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import interpolate
from torch.nn.utils.rnn import pad_sequence

from regard.data.draws import Draws
from regard.inputs.input import Source, positions_from

SPEEDS, BINS, TIMES = range(3)  # streams of random numbers
SHARE = 5  # a mask covers at most this fraction of the frames, 1 / SHARE


class Variation(NamedTuple):
    """The random changes of recordings in training."""

    speed: float = 0.0  # up to this share faster or slower
    masks: int = 0  # of each kind
    bins: int = 0  # of the widest mask of frequencies
    frames: int = 0  # of the widest mask of time


def stretched(source: Source, how: Variation, draws: Draws) -> Source:
    """Return frames (batch, n, bins) at other speeds, with masks of 0, which is the mean of normalised frames."""
    (frames,) = source.values
    real = (source.positions >= 0).expand(len(frames), -1).sum(-1).tolist()
    rows = [frames[i, :length] for i, length in enumerate(real)]
    if how.speed:
        factors = 1 + how.speed * (2 * draws.uniform(SPEEDS)[:, 0] - 1)
        rows = [at_speed(row, float(factor)) for row, factor in zip(rows, factors, strict=True)]
    else:
        rows = [row.clone() for row in rows]
    for number in range(how.masks):
        wide, long = (draws.uniform(stream + 2 * number, 2) for stream in (BINS, TIMES))
        for i, row in enumerate(rows):
            mask(row, 1, how.bins, *wide[i].tolist())
            mask(row, 0, min(how.frames, len(row) // SHARE), *long[i].tolist())
    values = pad_sequence(rows, batch_first=True)
    return source._replace(values=(values,), positions=positions_from([len(row) for row in rows], values.shape[1]))


def at_speed(row: Tensor, factor: float) -> Tensor:
    """Return frames (n, bins) so many times as fast: n / factor of them, each between two of the old ones."""
    length = max(1, round(len(row) / factor))
    return interpolate(row.T.unsqueeze(0), size=length, mode="linear", align_corners=False)[0].T.contiguous()


def mask(row: Tensor, dim: int, most: int, size: float, place: float) -> None:
    """Set a stretch of 0 to `most` bins or frames to 0: its size and place are shares from 0 to 1."""
    size = int(size * (most + 1))
    start = int(place * (row.shape[dim] - size + 1)) if size <= row.shape[dim] else 0
    row.narrow(dim, start, min(size, row.shape[dim])).zero_()
