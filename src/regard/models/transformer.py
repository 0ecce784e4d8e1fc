"""The Transformer encoder–decoder (Vaswani et al. 2017), from parts."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from regard.attention import MultiHead
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, Residual
from regard.inputs.embedding import Embedding
from regard.inputs.ngrams import Ngrams
from regard.models.places import inside, place
from regard.models.stack import ACTIVATIONS
from regard.outputs.converter import Converter


def transformer(
    source_size: int,
    target_size: int,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "pre",
    position: str = "sinusoidal",
    length: int = 1024,
    joint: bool = False,
    tied: bool = True,
    activation: str = "relu",
    scale: bool = True,
    closed: bool = False,
    ngrams: int = 1,
    buckets: int = 2**17,
) -> Converter:
    """Ids of two vocabularies (one if `joint`) to a converter. `tied` makes the output layer the target's table;
    `scale` multiplies tables by √width; a `closed` encoder reads END after each source;
    runs of up to `ngrams` source tokens have vectors of their own, in so many `buckets`."""
    parts = partial(inside, position, heads, width)
    residual = partial(Residual, width, dropout, pre=norm == "pre")

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
    runs = Ngrams(ngrams, buckets, width) if ngrams > 1 else None
    source = Embedding(source_size, width, place(position, length, width), Dropout(dropout), scale=scale, ngrams=runs)
    target = Embedding(target_size, width, place(position, length, width), Dropout(dropout), scale=scale)
    if joint:
        target.table = source.table
    return Converter(source, target, encoder, decoder, tied=tied, closed=closed)
