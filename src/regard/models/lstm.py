"""Recurrent networks alone: a language model that reads forward, and a reader both ways with self-attention or without.

The baselines of GPT and BERT, and still the better choice for small models on little data.
"""

from __future__ import annotations

from regard.attention import MultiHead
from regard.backbones.recurrent import Attentive, BidirectionalRNN, CausalRNN
from regard.layers.residual import PostNorm
from regard.layers.stem import Stem


def lstm(*, layers: int, width: int, dropout: float = 0.1, cell: str = "lstm") -> tuple[Stem, CausalRNN]:
    """Build a network for features of what stands there and before (Zaremba et al. 2014)."""
    return Stem(width, None, dropout, scale=False), CausalRNN(cell, width, width, layers, dropout)


def bilstm(
    *, layers: int, width: int, heads: int = 0, dropout: float = 0.1, cell: str = "lstm", both_ways: bool = True
) -> tuple[Stem, BidirectionalRNN | CausalRNN | Attentive]:
    """Build a network for features that know the whole row, or, unless it reads `both_ways`, what stands there and
    before; `heads` of self-attention over them, if any."""
    stem = Stem(width, None, dropout, scale=False)
    reader = (BidirectionalRNN if both_ways else CausalRNN)(cell, width, width, layers, dropout)
    if heads == 0:
        return stem, reader
    return stem, Attentive(reader, MultiHead(width, heads), PostNorm(width, dropout))
