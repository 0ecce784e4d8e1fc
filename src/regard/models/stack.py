"""Stacks of layers and their first weights, as the published models that are one stack share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from regard.attention import Layer
from regard.backbones.transformer import EncoderLayer, FeedForward
from regard.layers.residual import PostNorm, PreNorm, Residual

gelu_tanh: Callable[[Tensor], Tensor] = partial(gelu, approximate="tanh")
"""GELU through tanh (Hendrycks and Gimpel 2016), as GPT-2 was trained with it."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "swish": silu,  # x · sigmoid(x) (Ramachandran et al. 2017)
}

NORMS: dict[str, Callable[..., Residual]] = {"pre": PreNorm, "post": PostNorm}


def stack(
    attentions: Sequence[Layer],
    width: int,
    hidden: int,
    dropout: float,
    *,
    norm: str,
    activation: Callable[[Tensor], Tensor],
    epsilon: float = 1e-5,
    places: Sequence[nn.Module | None] = (),
) -> tuple[list[EncoderLayer], nn.Module | None]:
    """Return one layer around each attention, and the norm that ends a pre-LN stack. Sub-layers end with dropout.

    `places` bring positions into each layer, where they do.
    """
    residual = partial(NORMS[norm], width, dropout, epsilon=epsilon)
    layers = [
        EncoderLayer(own, FeedForward(width, hidden, 0.0, activation), residual, where)
        for own, where in zip(attentions, places or [None] * len(attentions), strict=True)
    ]
    return layers, nn.LayerNorm(width, epsilon) if norm == "pre" else None
