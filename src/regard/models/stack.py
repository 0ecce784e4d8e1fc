"""Stacks of layers and their first weights, as the published models that are one stack share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from regard.attention import Layer
from regard.backbones.transformer import DecoderLayer, EncoderLayer, FeedForward
from regard.layers.residual import DeepNorm, PostNorm, PreNorm, Residual, deep_alone, scale

gelu_tanh: Callable[[Tensor], Tensor] = partial(gelu, approximate="tanh")
"""GELU through tanh (Hendrycks and Gimpel 2016), as GPT-2 was trained with it."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "swish": silu,  # x · sigmoid(x) (Ramachandran et al. 2017)
}

NORMS: dict[str, Callable[..., Residual]] = {"pre": PreNorm, "post": PostNorm}


def residual_of(norm: str, alpha: float) -> Callable[..., Residual]:
    """Return the residual path of this name; α is DeepNorm's."""
    return partial(DeepNorm, alpha=alpha) if norm == "deep" else NORMS[norm]


def calmed(layers: Iterable[EncoderLayer | DecoderLayer], beta: float) -> None:
    """Scale the first weights of values, outputs and feed-forward parts by DeepNet's β."""
    for layer in layers:
        for weights in layer.branch_weights():
            scale(weights, beta)


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

    `places` bring positions into each layer, where they do. With norm="deep" the first weights are DeepNet's, to be
    left as they are.
    """
    alpha, beta = deep_alone(max(1, len(attentions)))
    residual = partial(residual_of(norm, alpha), width, dropout, epsilon=epsilon)
    layers = [
        EncoderLayer(own, FeedForward(width, hidden, 0.0, activation), residual, where)
        for own, where in zip(attentions, places or [None] * len(attentions), strict=True)
    ]
    if norm == "deep":
        calmed(layers, beta)
    return layers, nn.LayerNorm(width, epsilon) if norm == "pre" else None
