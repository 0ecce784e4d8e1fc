"""The result of a builder of an encoder–decoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from regard.attention import Context
from regard.backbones.convolution import ConvolutionDecoder
from regard.backbones.recurrent import FirstHidden, RecurrentDecoder
from regard.layers.stem import Stem


class Pair(NamedTuple):
    """An encoder and a decoder, and the stems of what they read."""

    stem: Stem
    encoder: nn.Module
    target: Stem
    decoder: nn.Module

    def read_by(self, stem: Stem, encoder: nn.Module, width: int) -> Pair:
        """Return the pair with another encoder, whose features have this width.

        A recurrent decoder begins with tanh(W · mean of the features): the other encoder has no last states for it.
        """
        decoder = self.decoder
        if isinstance(decoder, RecurrentDecoder):
            rnn = decoder.rnn
            decoder.first = FirstHidden(rnn.mode.lower(), self.target.width, rnn.hidden_size, rnn.num_layers)
        if isinstance(decoder, ConvolutionDecoder):
            decoder.halves = False
        return Pair(stem, Bridge(encoder, width, self.target.width), self.target, decoder)


class Bridge(nn.Module):
    """An encoder whose features are mapped to the width of a decoder: W h + b, or h where the widths are equal."""

    def __init__(self, encoder: nn.Module, width: int, decoder_width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.map = nn.Identity() if width == decoder_width else nn.Linear(width, decoder_width)

    def forward(self, context: Context) -> Context:
        features: Context = self.encoder(context)
        return features._replace(values=self.map(features.values), hidden=None)
