"""Networks that read long rows of vectors: the Conformer, the pyramidal BiLSTM, and the window baseline."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.backbones.conformer import ConformerLayer
from regard.backbones.pyramid import Pyramid
from regard.backbones.window import Neighbours
from regard.layers.stem import Stem
from regard.models.encoder import encoder_over
from regard.models.mechanism import chosen


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
    window: tuple[int, int] | None = None,
    **more: Any,
) -> tuple[Stem, nn.Module]:
    """Build a Conformer (Gulati et al. 2020), whose attention may look only so far (`window`); `more` are fields of
    AttentionParts and of Mechanism."""
    how, parts = chosen(position=position, window=window, **more)
    attentions = how.layers(layers, width, heads, parts, length=length)
    first, *places = how.places(layers, width, parts, length=length)
    blocks = [
        ConformerLayer(attention, width, hidden, kernel, dropout, place)
        for attention, place in zip(attentions, [None, *places], strict=True)
    ]
    return Stem(width, first, dropout, scale=False), encoder_over(blocks, None, how, width)


def pyramid(*, cell: str, width: int, halvings: int, dropout: float = 0.1) -> tuple[Stem, Pyramid]:
    """Build the listener of Listen, Attend and Spell (Chan et al. 2016)."""
    return Stem(width, None, dropout, scale=False), Pyramid(cell, width, halvings, dropout)


def neighbours(*, width: int, hidden: int, radius: int, dropout: float = 0.1) -> tuple[Stem, nn.Module]:
    """Build a fully connected network over a window of neighbours."""
    return Stem(width, None, dropout, scale=False), Neighbours(width, hidden, radius, dropout)
