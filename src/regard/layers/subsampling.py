"""From frames to fewer vectors: frames stacked, or convolutions over time and frequency.

Padding changes nothing: beyond the end of a row everything is 0 before every convolution, as if the row ended there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

CHANNELS = 32
PIECE = 4096  # frames convolved at once


def halved(lengths: Tensor, times: int) -> Tensor:
    """Return ⌈n / 2^times⌉ of each length."""
    each = int(2**times)
    return torch.div(lengths + (each - 1), each, rounding_mode="floor")


class StackedFrames(nn.Module):
    """x_i = W [f_ki; …; f_(ki+k−1)] + b: k frames side by side, zeros behind the last."""

    reach = 0  # frames that a vector sees beyond its own, on either side

    def __init__(self, bins: int, width: int, reduction: int) -> None:
        super().__init__()
        self.reduction, self.map = reduction, nn.Linear(reduction * bins, width)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """Return vectors (batch, ⌈n/k⌉, width) of frames (batch, n, bins)."""
        del lengths
        frames = pad(frames, (0, 0, 0, -frames.shape[1] % self.reduction))
        x: Tensor = self.map(frames.unflatten(1, (-1, self.reduction)).flatten(2))
        return x


class ConvolvedFrames(nn.Module):
    """Two or more 3 × 3 convolutions with ReLU, each of which halves the frequencies, and so many of them the frames
    that k become one; then a linear map (Dong et al. 2018, 3.3). A long recording is convolved piece by piece: what
    comes between has some hundred numbers a frame, and would leave the caches and be mapped anew each time."""

    def __init__(self, bins: int, width: int, reduction: int, channels: int = CHANNELS) -> None:
        super().__init__()
        if reduction & (reduction - 1):
            raise ValueError(
                f"frames.reduction={reduction} is not a power of 2, which convolutions need: set it to 2 or 4, or "
                "frames.reduce=stack"
            )
        halvings = reduction.bit_length() - 1
        self.strides = [2] * halvings + [1] * max(0, 2 - halvings)
        self.layers = nn.ModuleList(
            nn.Conv2d(channels if i else 1, channels, 3, stride=(stride, 2), padding=1)
            for i, stride in enumerate(self.strides)
        )
        for _ in self.strides:
            bins = -(-bins // 2)
        self.map = nn.Linear(channels * bins, width)
        self.reach = sum(2 ** min(i, halvings) for i in range(len(self.strides)))
        self.reduction = reduction

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        count, k = frames.shape[1], self.reduction
        if count <= PIECE:
            return self._piece(frames, lengths)
        beside, size = -(-self.reach // k), -(-PIECE // k)  # in vectors
        found = []
        for start in range(0, -(-count // k), size):
            first = max(0, start - beside)
            some = frames[:, first * k : (start + size + beside) * k]
            found.append(self._piece(some, lengths - first * k)[:, start - first :][:, :size])
        return torch.cat(found, 1)

    def _piece(self, frames: Tensor, lengths: Tensor) -> Tensor:
        x = frames.unsqueeze(1)
        for layer, stride in zip(self.layers, self.strides, strict=True):
            x = layer(x).relu()
            lengths = halved(lengths, stride - 1)
            real = torch.arange(x.shape[2], device=x.device) < lengths[:, None]
            x = x * real[:, None, :, None]
        vectors: Tensor = self.map(x.transpose(1, 2).flatten(2))
        return vectors
