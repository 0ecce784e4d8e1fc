"""A Transformer encoder alone, with any position kind, and DeepSets: networks that read and do not write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import gelu

from regard.attention import Context, Mask, padding, window
from regard.backbones.transformer import Encoder
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem
from regard.models.parts import AttentionParts
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
    reach: tuple[int, int] | None = None,
    **parts: Any,
) -> tuple[Stem, Encoder]:
    """Build a network for features that know the whole row, or as far as attention reaches back and ahead. A learned
    position table ends at `length`; `parts` are more fields of AttentionParts."""
    made = AttentionParts(position=position, **parts)
    attentions = [made.own(width, heads, number, length, both=True) for number in range(layers)]
    first, *places = (made.before(number, length, width) for number in range(layers))
    blocks = stack(attentions, width, hidden, dropout, norm=norm, activation=activation, places=[None, *places])
    return Stem(width, first, dropout, reach=layers), Encoder(*blocks, mask=seen_from(reach))


def seen_from(reach: tuple[int, int] | None) -> Mask:
    """Return the mask of an encoder that looks so far back and ahead; None: at everything."""
    return padding if reach is None else window(*reach)


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
