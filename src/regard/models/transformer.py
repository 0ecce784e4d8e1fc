"""The Transformer encoder–decoder (Vaswani et al. 2017), from parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from regard.attention import MultiHead
from regard.backbones.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward
from regard.layers.stem import Marks, Stem
from regard.models.pair import Pair
from regard.models.parts import AttentionParts
from regard.models.stack import ACTIVATIONS, NORMS


def transformer(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "pre",
    position: str = "sinusoidal",
    length: int = 1024,
    activation: str = "relu",
    scale: bool = True,
    closed: bool = False,
    ngrams: int = 1,
    buckets: int = 2**17,
    **more: Any,
) -> Pair:
    """Build an encoder and a decoder. `scale` multiplies tables by √width; a `closed` encoder reads the end after each
    source; runs of up to `ngrams` source tokens have vectors of their own, in so many `buckets`; `more` are fields of
    AttentionParts."""
    parts = AttentionParts(position=position, **more)
    residual = partial(NORMS[norm], width, dropout)

    def feed() -> FeedForward:
        return FeedForward(width, hidden, dropout, ACTIVATIONS[activation])

    def last() -> nn.Module | None:
        return nn.LayerNorm(width) if norm == "pre" else None

    def own(number: int, *, both: bool) -> MultiHead:
        return parts.own(width, heads, number, length, both=both)

    def where(number: int) -> nn.Module | None:
        return parts.before(number, length, width) if number else None

    numbers = range(layers)
    encoder = Encoder([EncoderLayer(own(n, both=True), feed(), residual, where(n)) for n in numbers], last())
    decoder = Decoder(
        [DecoderLayer(own(n, both=False), parts.cross(width, heads), feed(), residual, where(n)) for n in numbers],
        last(),
    )
    source, target = (Stem(width, parts.before(0, length, width), dropout, scale) for _ in "st")
    marks = Marks.LAST if closed else Marks.NONE
    return Pair(replace(source, ngrams=ngrams, buckets=buckets, marks=marks), encoder, target, decoder)
