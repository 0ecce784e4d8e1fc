"""The result of a builder of an encoder–decoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from regard.layers.stem import Stem


class Pair(NamedTuple):
    """An encoder and a decoder, and the stems of what they read."""

    stem: Stem
    encoder: nn.Module
    target: Stem
    decoder: nn.Module
