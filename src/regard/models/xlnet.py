"""XLNet (Yang et al. 2019): a language model over permuted orders, by two streams and relative positions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import MultiHead, positions
from regard.backbones.streams import TwoStream
from regard.layers.first_weights import first_weights
from regard.layers.stem import Marks, Stem
from regard.models.stack import stack
from regard.models.transformer_xl import unbiased


def xlnet(
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "post",
    activation: Callable[[Tensor], Tensor] = gelu,
    epsilon: float = 1e-12,
) -> tuple[Stem, TwoStream]:
    """Build a network for features of a known text, or to the two streams of an order of its positions."""
    biases = [positions.RelativeTransformerXL(heads, width // heads) for _ in range(layers)]
    attentions = [MultiHead(width, heads, bias=bias, project=unbiased) for bias in biases]
    parts = stack(attentions, width, hidden, dropout, norm=norm, activation=activation, epsilon=epsilon)
    backbone = TwoStream(*parts, width)
    if norm != "deep":
        first_weights(backbone)
    for bias in biases:
        nn.init.normal_(bias.u, std=0.02)
        nn.init.normal_(bias.v, std=0.02)
    return Stem(width, None, dropout, scale=False, std=0.02, marks=Marks.BOTH), backbone
