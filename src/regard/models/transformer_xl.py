"""Transformer-XL (Dai et al. 2019): segments that remember those before them, and relative positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, causal, positions, window
from regard.backbones.segments import Segments
from regard.layers.first_weights import first_weights
from regard.layers.stem import Stem
from regard.models.stack import stack

unbiased = partial(nn.Linear, bias=False)


def transformer_xl(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    memory: int,
    same_length: bool = False,
    dropout: float = 0.1,
    norm: str = "post",
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> tuple[Stem, Segments]:
    """Build a network for features of what stands there and before, over the `memory` last positions of earlier
    segments too. With `same_length` each position looks back `memory` positions, however the text is cut."""
    biases = [positions.RelativeTransformerXL(heads, width // heads) for _ in range(layers)]
    for bias in biases[1:]:  # u and v are the same in every layer (3.3); W_R is each layer's own
        bias.u, bias.v = biases[0].u, biases[0].v
    attentions = [MultiHead(width, heads, bias=bias, project=unbiased) for bias in biases]
    parts = stack(attentions, width, hidden, dropout, norm=norm, activation=activation)
    backbone = Segments(*parts, memory, mask=window(memory, 0) if same_length else causal)
    if norm != "deep":
        first_weights(backbone)
    for parameter in (biases[0].u, biases[0].v) if biases else ():
        nn.init.normal_(parameter, std=0.02)
    return Stem(width, None, dropout, std=0.02), backbone
