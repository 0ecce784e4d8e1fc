"""GPT: a Transformer that only looks back (Radford et al. 2018), in the pre-LN form of GPT-2 (Radford et al. 2019)."""

from __future__ import annotations

import math

from torch import nn

from regard.attention import MultiHead
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Causal, EncoderLayer
from regard.inputs.embedding import Embedding
from regard.models.places import inside, place
from regard.models.stack import ACTIVATIONS, first_weights, stack


def gpt(
    size: int,
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
) -> tuple[Embedding, Causal]:
    """Ids of a vocabulary to features of what stands there and before. A learned position table ends at `context`.

    Published GPT-2 weights want `gelu_tanh`, which takes twice the time of gelu on a CPU.
    """
    attentions = [MultiHead(width, heads, **inside(position, heads, width, both=False)) for _ in range(layers)]
    blocks, last = stack(attentions, width, hidden, dropout, norm=norm, activation=ACTIVATIONS[activation])
    embedding = Embedding(size, width, place(position, context, width), Dropout(dropout), scale=False)
    backbone = Causal(blocks, last)
    first_weights(embedding, backbone)
    calm(blocks)
    return embedding, backbone


def calm(layers: list[EncoderLayer], std: float = 0.02) -> None:
    """What 2N sub-layers add to the residual path starts with 1/√(2N) of its size, so that their sum does not grow with
    the depth (Radford et al. 2019, 2.3)."""
    for layer in layers:
        for projection in (layer.attention.output_proj, layer.feed.outer):
            nn.init.normal_(projection.weight, std=std / math.sqrt(2 * len(layers)))
