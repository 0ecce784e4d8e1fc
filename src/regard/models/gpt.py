"""GPT: a Transformer that only looks back (Radford et al. 2018), in the pre-LN form of GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from regard.backbones.transformer import Causal, EncoderLayer
from regard.layers.first_weights import first_weights
from regard.layers.stem import Stem
from regard.models.mechanism import chosen
from regard.models.stack import ACTIVATIONS, stack


def gpt(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    context: int,
    dropout: float = 0.1,
    position: str = "learned",
    norm: str = "pre",
    activation: str = "gelu",
    **more: Any,
) -> tuple[Stem, Causal]:
    """Build a network for features of what stands there and before. A learned position table ends at `context`; `more`
    are fields of AttentionParts and of Mechanism.

    Published GPT-2 weights want `gelu_tanh`, which takes twice the time of gelu on a CPU.
    """
    how, parts = chosen(position=position, **more)
    attentions = how.layers(layers, width, heads, parts, length=context, back=True)
    first, *places = how.places(layers, width, parts, length=context)
    settings: dict[str, Any] = {"norm": norm, "activation": ACTIVATIONS[activation], "places": [None, *places]}
    blocks, last = stack(attentions, width, hidden, dropout, **settings)
    backbone = Causal(blocks, last, mask=how.mask(back=True), start=how.start())
    if norm != "deep":
        first_weights(backbone)
        calm(blocks)
    return Stem(width, first, dropout, scale=False, std=0.02), backbone


def calm(layers: list[EncoderLayer], std: float = 0.02) -> None:
    """Draw the last matrix of each of the 2N branches with 1/√(2N) of its size: their sum does not grow with the depth
    (Radford et al. 2019, 2.3)."""
    for weights in (branch for layer in layers for branch in layer.branch_weights()):
        nn.init.normal_(weights[-1], std=std / math.sqrt(2 * len(layers)))
