"""Transformer-XL (Dai et al. 2019): segments that remember those before them, and relative positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, causal, positions, window
from regard.backbones.dropout import Dropout
from regard.backbones.segments import Segments
from regard.inputs.embedding import Embedding
from regard.models.stack import first_weights, stack

unbiased = partial(nn.Linear, bias=False)


def transformer_xl(
    size: int,
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
) -> tuple[Embedding, Segments]:
    """Ids of a vocabulary to features of what stands there and before, over the `memory` last positions of earlier
    segments too. With `same_length` each position looks back `memory` positions, however the text is cut."""
    biases = [positions.TransformerXL(heads, width // heads) for _ in range(layers)]
    for bias in biases[1:]:  # u and v are the same in every layer (3.3); W_R is each layer's own
        bias.u, bias.v = biases[0].u, biases[0].v
    attentions = [MultiHead(width, heads, bias=bias, project=unbiased) for bias in biases]
    parts = stack(attentions, width, hidden, dropout, norm=norm, activation=activation)
    embedding = Embedding(size, width, None, Dropout(dropout))
    backbone = Segments(*parts, memory, mask=window(memory, 0) if same_length else causal)
    first_weights(embedding, backbone)
    for parameter in (biases[0].u, biases[0].v) if biases else ():
        nn.init.normal_(parameter, std=0.02)
    return embedding, backbone
