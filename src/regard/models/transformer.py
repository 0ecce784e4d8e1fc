"""The Transformer encoder–decoder (Vaswani et al. 2017), from parts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from regard.backbones.transformer import Decoder, DecoderLayer, EncoderLayer, FeedForward
from regard.layers.residual import deep_pair
from regard.layers.stem import Marks, Stem
from regard.models.encoder import encoder_over
from regard.models.mechanism import Mechanism, chosen
from regard.models.pair import Pair
from regard.models.stack import ACTIVATIONS, calmed, residual_of


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
    AttentionParts and, for self-attention, of Mechanism. Under linformer the decoder, which looks back, has the full
    attention."""
    how, parts = chosen(position=position, **more)
    writing = Mechanism() if how.kind == "linformer" else replace(how, extra=0)
    (alpha, beta), (decoder_alpha, decoder_beta) = deep_pair(layers, layers)
    residual, decoder_residual = (partial(residual_of(norm, a), width, dropout) for a in (alpha, decoder_alpha))

    def feed() -> FeedForward:
        return FeedForward(width, hidden, dropout, ACTIVATIONS[activation])

    def last() -> nn.Module | None:
        return nn.LayerNorm(width) if norm == "pre" else None

    own = how.layers(layers, width, heads, parts, length=length)
    first, *places = how.places(layers, width, parts, length=length)
    reading = [EncoderLayer(one, feed(), residual, where) for one, where in zip(own, [None, *places], strict=True)]
    own = writing.layers(layers, width, heads, parts, length=length, back=True)
    target_first, *places = writing.places(layers, width, parts, length=length)
    crossing = [parts.cross(width, heads) for _ in range(layers)]
    decoding = [
        DecoderLayer(one, cross, feed(), decoder_residual, where)
        for one, cross, where in zip(own, crossing, [None, *places], strict=True)
    ]
    if norm == "deep":
        calmed(reading, beta)
        calmed(decoding, decoder_beta)
    encoder = encoder_over(reading, last(), how, width)
    decoder = Decoder(decoding, last(), mask=writing.mask(back=True), start=writing.start())
    source, target = (Stem(width, where, dropout, scale) for where in (first, target_first))
    marks = Marks.LAST if closed else Marks.NONE
    return Pair(replace(source, ngrams=ngrams, buckets=buckets, marks=marks), encoder, target, decoder)
