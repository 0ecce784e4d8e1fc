"""DETR (Carion et al. 2020): a picture's features, a Transformer encoder over them, and queries that ask it for things.

    features (a CNN or patches) + places → encoder → memory          queries → decoder over the memory → classes, boxes

The decoder has no causal mask: a set has no order, and all queries ask at once.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from regard.attention import MultiHead
from regard.attention.grid import GridSinusoids
from regard.backbones.queries import Gaze, GridEncoder, QueryDecoder, QueryLayer
from regard.backbones.transformer import Encoder, FeedForward
from regard.layers.residual import PreNorm
from regard.models.stack import stack


def detr(
    *, encoder_layers: int, layers: int, width: int, hidden: int, heads: int, dropout: float = 0.1, anchors: bool = True
) -> tuple[nn.Module, QueryDecoder]:
    """Build what reads the features of a picture, and the decoder of the queries. Both are pre-LN."""
    attentions = [MultiHead(width, heads) for _ in range(encoder_layers)]
    parts, norm = stack(attentions, width, hidden, dropout, norm="pre", activation=torch.relu)
    encoder = GridEncoder(GridSinusoids(width), Encoder(parts, norm))
    residual = partial(PreNorm, width, dropout)
    asking = [
        QueryLayer(
            MultiHead(width, heads), Gaze(width, heads, local=anchors), FeedForward(width, hidden, 0.0), residual
        )
        for _ in range(layers)
    ]
    return encoder, QueryDecoder(asking, nn.LayerNorm(width), anchors=anchors)
