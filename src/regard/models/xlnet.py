"""XLNet (Yang et al. 2019): a language model over permuted orders, by two streams and relative positions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import MultiHead, positions
from regard.backbones.dropout import Dropout
from regard.backbones.streams import TwoStream
from regard.inputs.embedding import Embedding
from regard.models.stack import first_weights, stack
from regard.models.transformer_xl import unbiased


def xlnet(
    size: int,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "post",
    activation: Callable[[Tensor], Tensor] = gelu,
    epsilon: float = 1e-12,
) -> tuple[Embedding, TwoStream]:
    """Ids of a vocabulary to features of a known text, or to the two streams of an order of its positions."""
    biases = [positions.TransformerXL(heads, width // heads) for _ in range(layers)]
    attentions = [MultiHead(width, heads, bias=bias, project=unbiased) for bias in biases]
    parts = stack(attentions, width, hidden, dropout, norm=norm, activation=activation, epsilon=epsilon)
    embedding = Embedding(size, width, None, Dropout(dropout), scale=False)
    backbone = TwoStream(*parts, width)
    first_weights(embedding, backbone)
    for bias in biases:
        nn.init.normal_(bias.u, std=0.02)
        nn.init.normal_(bias.v, std=0.02)
    return embedding, backbone
