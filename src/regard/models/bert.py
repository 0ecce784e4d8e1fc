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
    END is segment 0, B END segment 1 (Devlin et al. 2019, 3).

    `place` is what brings positions in: P added, as published, or joined as g([E[id] + S[segment]; P[position]]), or
    nothing, where they come in inside the layers.
    """

    def __init__(
        self, size: int, width: int, place: nn.Module | None, segments: int, dropout: float, epsilon: float
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width, padding_idx=PAD)
        self.places = place.table if isinstance(place, positions.Added) else None
        self.joined = place if isinstance(place, positions.Concatenated) else None
        self.segments = nn.Embedding(segments, width)
        self.norm, self.dropout = nn.LayerNorm(width, epsilon), Dropout(dropout)

    def forward(self, ids: Tensor, positions: Tensor, segments: Tensor | None = None) -> Tensor:
        x: Tensor = self.table(ids)
        x = x if self.places is None else x + self.places(positions)
        x = x + self.segments(self.segments_of(ids) if segments is None else segments)
        x = x if self.joined is None else self.joined(x, positions)
        embedded: Tensor = self.dropout(self.norm(x))
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
    position: str = "learned",
    segments: int = 2,
    more: int = 0,
    activation: Callable[[Tensor], Tensor] = gelu,
    epsilon: float = 1e-12,
    **parts: Any,
) -> tuple[Stem, nn.Module]:
    """Build a network for rows of at most `length` elements. `more` rows of the table stand behind the alphabet;
    `parts` are more fields of AttentionParts and of Mechanism."""

    def embedding(size: int) -> BertEmbedding:
        made = BertEmbedding(size + more, width, those.before(0, length, width), segments, dropout, epsilon)
        first_weights(made)
        return made

    how, those = chosen(position=position, **parts)
    attentions = how.layers(layers, width, heads, those, length=length)
    places = [None, *how.places(layers, width, those, length=length)[1:]]
    settings: dict[str, Any] = {"norm": norm, "activation": activation, "epsilon": epsilon, "places": places}
    blocks = stack(attentions, width, hidden, dropout, **settings)
    encoder = encoder_over(*blocks, how, width)
    if norm != "deep":
        first_weights(encoder)
    return Stem(width, None, dropout, whole=embedding, marks=Marks.BOTH), encoder
