"""BERT: a Transformer encoder alone (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import MultiHead, positions
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Encoder
from regard.inputs.tokens import PAD
from regard.models.stack import first_weights, stack


class BertEmbedding(nn.Module):
    """LayerNorm(E[id] + P[position] + S[segment]), then dropout. Segments tell the sentences of a pair apart."""

    def __init__(self, size: int, width: int, length: int, segments: int, dropout: float, epsilon: float) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width, padding_idx=PAD)
        self.places, self.segments = positions.Learned(length, width), nn.Embedding(segments, width)
        self.norm, self.dropout = nn.LayerNorm(width, epsilon), Dropout(dropout)

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        embedded: Tensor = self.dropout(self.norm(self.table(ids) + self.places(positions) + segment))
        return embedded


def bert(
    size: int,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    length: int,
    dropout: float = 0.1,
    norm: str = "post",
    segments: int = 2,
    activation: Callable[[Tensor], Tensor] = gelu,
    epsilon: float = 1e-12,
) -> tuple[BertEmbedding, Encoder]:
    """Ids of a vocabulary, at most `length` in a row, to features that know the whole row."""
    embedding = BertEmbedding(size, width, length, segments, dropout, epsilon)
    attentions = [MultiHead(width, heads) for _ in range(layers)]
    encoder = Encoder(*stack(attentions, width, hidden, dropout, norm=norm, activation=activation, epsilon=epsilon))
    first_weights(embedding, encoder)
    return embedding, encoder
