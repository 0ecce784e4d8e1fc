"""A Transformer encoder alone, with any position kind, and DeepSets: networks that read and do not write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import Context
from regard.backbones.landmarks import Landmarks
from regard.backbones.transformer import Encoder
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem
from regard.models.mechanism import Mechanism, chosen
from regard.models.stack import stack


def encoder(
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
    window: tuple[int, int] | None = None,
    **more: Any,
) -> tuple[Stem, nn.Module]:
    """Build a network for features that know the whole row, or a `window` of it back and ahead. A learned position
    table ends at `length`; `more` are fields of AttentionParts and of Mechanism."""
    how, parts = chosen(position=position, window=window, **more)
    attentions = how.layers(layers, width, heads, parts, length=length)
    first, *places = how.places(layers, width, parts, length=length)
    blocks = stack(attentions, width, hidden, dropout, norm=norm, activation=activation, places=[None, *places])
    return Stem(width, first, dropout, reach=layers), encoder_over(*blocks, how, width)


def encoder_over(
    layers: Sequence[nn.Module], norm: nn.Module | None, how: Mechanism, width: int
) -> Encoder | Landmarks:
    """Return the encoder of these layers, behind learned global tokens if the mechanism has some."""
    made = Encoder(layers, norm, mask=how.mask())
    return Landmarks(made, how.tokens, width) if how.tokens else made


class Each(nn.Module):
    """φ(x) = ReLU(W x + b) of each element alone: the inner part of DeepSets, ρ(Σ_i φ(x_i)) (Zaheer et al. 2017)."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.inner, self.dropout = nn.Linear(width, width), Dropout(dropout)

    def forward(self, context: Context) -> Context:
        values = self.dropout(self.inner(context.values).relu())
        return context._replace(values=values, positions=context.where())


def deepsets(*, width: int, dropout: float = 0.1) -> tuple[Stem, Each]:
    """Build a network for features of each element alone: neither order nor neighbours count."""
    return Stem(width, None, dropout, scale=False), Each(width, dropout)
