"""A Transformer encoder alone, with any position kind, and DeepSets: what reads a text without writing one."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import Context, MultiHead
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Encoder
from regard.inputs.embedding import Embedding
from regard.models.places import inside, place
from regard.models.stack import stack


def encoder(
    size: int,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    length: int,
    dropout: float = 0.1,
    norm: str = "pre",
    position: str = "sinusoidal",
    activation: Callable[[Tensor], Tensor] = gelu,
) -> tuple[Embedding, Encoder]:
    """Ids of a vocabulary to features that know the whole row. A learned position table ends at `length`."""
    attentions = [MultiHead(width, heads, **inside(position, heads, width, both=True)) for _ in range(layers)]
    embedding = Embedding(size, width, place(position, length, width), Dropout(dropout))
    return embedding, Encoder(*stack(attentions, width, hidden, dropout, norm=norm, activation=activation))


class Each(nn.Module):
    """φ(x) = ReLU(W x + b) of each element alone: the inner part of DeepSets, ρ(Σ_i φ(x_i)) (Zaheer et al. 2017)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.dropout = nn.Linear(width, width), Dropout(dropout)

    def forward(self, x: Tensor, positions: Tensor) -> Context:
        return Context(self.dropout(self.inner(x).relu()), positions)


def deepsets(size: int, *, width: int, dropout: float = 0.1) -> tuple[Embedding, Each]:
    """Ids of a vocabulary to features of each one alone: neither order nor neighbours count."""
    return Embedding(size, width, None, Dropout(dropout), scale=False), Each(width, dropout)
