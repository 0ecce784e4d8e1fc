"""Networks that read long rows of vectors: the Conformer, the pyramidal BiLSTM, and the window baseline."""

from __future__ import annotations

from torch import nn

from regard.attention import MultiHead
from regard.backbones.conformer import ConformerLayer
from regard.backbones.pyramid import Pyramid
from regard.backbones.transformer import Encoder
from regard.backbones.window import Neighbours
from regard.layers.stem import Stem
from regard.models.encoder import seen_from
from regard.models.position_kinds import inside, place


def conformer(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    length: int,
    kernel: int = 15,
    dropout: float = 0.1,
    position: str = "rotary",
    reach: tuple[int, int] | None = None,
) -> tuple[Stem, Encoder]:
    """Build a Conformer (Gulati et al. 2020), whose attention may look only so far (`reach`)."""
    parts = [MultiHead(width, heads, **inside(position, heads, width, both=True)) for _ in range(layers)]
    stack = [ConformerLayer(attention, width, hidden, kernel, dropout) for attention in parts]
    return Stem(width, place(position, length, width), dropout, scale=False), Encoder(
        stack, None, mask=seen_from(reach)
    )


def pyramid(*, cell: str, width: int, halvings: int, dropout: float = 0.1) -> tuple[Stem, Pyramid]:
    """Build the listener of Listen, Attend and Spell (Chan et al. 2016)."""
    return Stem(width, None, dropout, scale=False), Pyramid(cell, width, halvings, dropout)


def neighbours(*, width: int, hidden: int, radius: int, dropout: float = 0.1) -> tuple[Stem, nn.Module]:
    """Build a fully connected network over a window of neighbours."""
    return Stem(width, None, dropout, scale=False), Neighbours(width, hidden, radius, dropout)
