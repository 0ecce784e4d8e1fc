"""Dropout whose random numbers do not cost more than the layers around it."""

import numpy as np
import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """y = x · b / (1 − p) with b ~ Bernoulli(1 − p) in training (Srivastava et al. 2014); y = x otherwise.

    torch draws about 0.1 G random numbers a second on a CPU, which can take longer than the matrix products. Here 16
    bits of a fast generator decide about each element, so p is exact to 1/65536. Its seed comes from torch's own
    generator: torch.manual_seed governs the masks, and whoever saves torch's random state saves everything.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout is a probability from 0 to below 1, found {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.p)
        # Bytes become numbers by vector instructions, truth values do not.
        return x * keep_mask(x.shape, self.p).view(torch.uint8).to(x.dtype).mul_(1 / (1 - self.p))


def keep_mask(shape: torch.Size, p: float) -> Tensor:
    """Return a mask that is True with probability 1 − p, rounded to 1/65536."""
    count = shape.numel()
    seed = int(torch.randint(2**62, ()))
    words: np.ndarray = np.random.SFC64(seed).random_raw(-(-count // 4))
    return torch.from_numpy(words.view(np.uint16)[:count] >= round(p * 65536)).view(shape)
