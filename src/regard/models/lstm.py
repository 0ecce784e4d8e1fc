"""Recurrent networks alone: a language model that reads forward, and a reader both ways with self-attention or without.

The baselines of GPT and BERT, and still the better choice for small models on little data.
"""

from __future__ import annotations

from regard.attention import MultiHead
from regard.backbones.dropout import Dropout
from regard.backbones.recurrent import Attentive, Causal, Reader
from regard.backbones.transformer import Residual
from regard.inputs.embedding import Embedding


def lstm(size: int, *, layers: int, width: int, dropout: float = 0.1, cell: str = "lstm") -> tuple[Embedding, Causal]:
    """Ids of a vocabulary to features of what stands there and before (Zaremba et al. 2014)."""
    embedding = Embedding(size, width, None, Dropout(dropout), scale=False)
    return embedding, Causal(cell, width, width, layers, dropout)


def bilstm(
    size: int, *, layers: int, width: int, heads: int = 0, dropout: float = 0.1, cell: str = "lstm"
) -> tuple[Embedding, Reader | Attentive]:
    """Ids of a vocabulary to features that know the whole row; `heads` of self-attention over them, if any."""
    embedding = Embedding(size, width, None, Dropout(dropout), scale=False)
    reader = Reader(cell, width, width, layers, dropout)
    if heads == 0:
        return embedding, reader
    return embedding, Attentive(reader, MultiHead(width, heads), Residual(width, dropout, pre=False))
