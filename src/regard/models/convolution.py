"""Convolutional sequence to sequence learning (Gehring et al. 2017), and its encoder alone."""

from __future__ import annotations

from dataclasses import replace

from regard.backbones.convolution import ConvolutionDecoder, ConvolutionEncoder
from regard.layers.stem import Stem
from regard.models.pair import Pair
from regard.models.position_kinds import place


def convolution(
    *, layers: int, width: int, kernel: int, length: int, dropout: float = 0.1, position: str = "learned"
) -> tuple[Stem, ConvolutionEncoder]:
    """Build a network for features of windows; `layers` of them see layers · (kernel − 1) + 1 elements."""
    stem = Stem(width, place(position, length, width), dropout, scale=False, std=0.1)
    return stem, ConvolutionEncoder(width, layers, kernel, dropout)


def convs2s(
    *,
    layers: int,
    width: int,
    kernel: int,
    length: int = 1024,
    dropout: float = 0.1,
    position: str = "learned",
    ngrams: int = 1,
    buckets: int = 2**17,
) -> Pair:
    """Build an encoder and a decoder. Runs of up to `ngrams` source tokens have vectors of their own, in so many
    `buckets`."""
    source, target = (Stem(width, place(position, length, width), dropout, scale=False, std=0.1) for _ in "st")
    encoder = ConvolutionEncoder(width, layers, kernel, dropout, halves=True)
    decoder = ConvolutionDecoder(width, layers, kernel, dropout)
    return Pair(replace(source, ngrams=ngrams, buckets=buckets), encoder, target, decoder)
