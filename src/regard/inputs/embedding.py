"""Token ids to vectors: a table, scaled, with n-grams, positions and dropout."""

import math

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting

from regard.inputs.ngrams import Ngrams
from regard.text.tokenizer import PAD


def positions_of(ids: Tensor) -> Tensor:
    """0, 1, 2 … for tokens and −1 for padding, (batch, n); shared positions (n,) where there is no padding."""
    where = torch.arange(ids.shape[-1], device=ids.device)
    padded = ids == PAD
    return torch.where(padded, -1, where) if is_exporting() or bool(padded.any()) else where


class Embedding(nn.Module):
    """√width · E[id] + position (Vaswani et al. 2017, 3.4), then dropout. `place` brings positions in, or is None;
    `ngrams` gives vectors of the ids around each, which are added to its own."""

    def __init__(
        self,
        size: int,
        width: int,
        place: nn.Module | None,
        dropout: nn.Module,
        *,
        scale: bool = True,
        ngrams: Ngrams | None = None,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width, padding_idx=PAD)
        nn.init.normal_(self.table.weight, std=width**-0.5)
        with torch.no_grad():
            self.table.weight[PAD] = 0
        self.place, self.dropout, self.ngrams = place, dropout, ngrams
        self.scale = math.sqrt(width) if scale else 1.0

    def forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        x = self.table(ids)
        if self.ngrams is not None:
            x = x + self.ngrams(ids)
        x = x * self.scale
        if self.place is not None:
            x = self.place(x, positions)
        embedded: Tensor = self.dropout(x)
        return embedded
