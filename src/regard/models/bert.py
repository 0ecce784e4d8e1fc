"""BERT: a Transformer encoder alone (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import positions
from regard.layers.dropout import Dropout
from regard.layers.first_weights import first_weights
from regard.layers.stem import Marks, Stem
from regard.models.encoder import encoder_over
from regard.models.mechanism import chosen
from regard.models.stack import stack
from regard.text.tokenizer import END, PAD


class BertEmbedding(nn.Module):
    """LayerNorm(E[id] + P[position] + S[segment]), then dropout. Segments tell the sentences of a pair apart: START A
    END is segment 0, B END segment 1 (Devlin et al. 2019, 3)."""

    def __init__(self, size: int, width: int, length: int, segments: int, dropout: float, epsilon: float) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width, padding_idx=PAD)
        self.places, self.segments = positions.LearnedTable(length, width), nn.Embedding(segments, width)
        self.norm, self.dropout = nn.LayerNorm(width, epsilon), Dropout(dropout)

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        segment = self.segments(self.segments_of(ids) if segments is None else segments)
        embedded: Tensor = self.dropout(self.norm(self.table(ids) + self.places(positions) + segment))
        return embedded

    def segments_of(self, ids: Tensor) -> Tensor:
        """Return the number of ENDs before each element, at most the last segment."""
        ends = (ids == END).long()
        return (ends.cumsum(-1) - ends).clamp(max=len(self.segments.weight) - 1)


def bert(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    length: int,
    dropout: float = 0.1,
    norm: str = "post",
    segments: int = 2,
    more: int = 0,
    activation: Callable[[Tensor], Tensor] = gelu,
    epsilon: float = 1e-12,
    **parts: Any,
) -> tuple[Stem, nn.Module]:
    """Build a network for rows of at most `length` elements. `more` rows of the table stand behind the alphabet;
    `parts` are more fields of AttentionParts and of Mechanism."""

    def embedding(size: int) -> BertEmbedding:
        made = BertEmbedding(size + more, width, length, segments, dropout, epsilon)
        first_weights(made)
        return made

    how, made = chosen(**parts)
    attentions = how.layers(layers, width, heads, made, length=length)
    blocks = stack(attentions, width, hidden, dropout, norm=norm, activation=activation, epsilon=epsilon)
    encoder = encoder_over(*blocks, how, width)
    if norm != "deep":
        first_weights(encoder)
    return Stem(width, None, dropout, whole=embedding, marks=Marks.BOTH), encoder
