"""Stacks of layers and their first weights, as the published models that are one stack share them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from regard.attention import MultiHead
from regard.backbones.transformer import EncoderLayer, FeedForward, Residual

gelu_tanh: Callable[[Tensor], Tensor] = partial(gelu, approximate="tanh")
"""GELU through tanh (Hendrycks and Gimpel 2016), as GPT-2 was trained with it."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "swish": silu,  # x · sigmoid(x) (Ramachandran et al. 2017)
}


def stack(
    attentions: Sequence[MultiHead],
    width: int,
    hidden: int,
    dropout: float,
    *,
    norm: str,
    activation: Callable[[Tensor], Tensor],
    epsilon: float = 1e-5,
) -> tuple[list[EncoderLayer], nn.Module | None]:
    """One layer around each attention, and the norm that ends a pre-LN stack. Dropout stands where sub-layers end."""
    residual = partial(Residual, width, dropout, pre=norm == "pre", epsilon=epsilon)
    layers = [EncoderLayer(own, FeedForward(width, hidden, 0.0, activation), residual) for own in attentions]
    return layers, nn.LayerNorm(width, epsilon) if norm == "pre" else None


def first_weights(*modules: nn.Module, std: float = 0.02) -> None:
    """Normal weights, zero biases and zero for padding: the first weights of GPT, BERT and those after them."""
    for module in (part for whole in modules for part in whole.modules()):
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx] = 0
