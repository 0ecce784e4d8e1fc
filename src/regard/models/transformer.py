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
from regard.models.position_kinds import inside, place
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
) -> Pair:
    """Build an encoder and a decoder. `scale` multiplies tables by √width; a `closed` encoder reads the end after each
    source; runs of up to `ngrams` source tokens have vectors of their own, in so many `buckets`."""
    parts = partial(inside, position, heads, width)
    residual = partial(NORMS[norm], width, dropout)

    def feed() -> FeedForward:
        return FeedForward(width, hidden, dropout, ACTIVATIONS[activation])

    def last() -> nn.Module | None:
        return nn.LayerNorm(width) if norm == "pre" else None

    def attention(**more: Any) -> MultiHead:
        return MultiHead(width, heads, **more)

    encoder = Encoder([EncoderLayer(attention(**parts(both=True)), feed(), residual) for _ in range(layers)], last())
    decoder = Decoder(
        [DecoderLayer(attention(**parts(both=False)), attention(), feed(), residual) for _ in range(layers)], last()
    )
    source, target = (Stem(width, place(position, length, width), dropout, scale) for _ in "st")
    marks = Marks.LAST if closed else Marks.NONE
    return Pair(replace(source, ngrams=ngrams, buckets=buckets, marks=marks), encoder, target, decoder)
