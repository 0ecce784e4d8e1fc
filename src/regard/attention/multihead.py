"""Heads: several attentions side by side, and the layer that most models are built from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.equation import AnyMask, default_positions, rule_of
from regard.attention.fast import reason
from regard.attention.layer import Attention, AttentionState, Context, Watchable
from regard.attention.linear import is_linear
from regard.attention.masks import Laid, Mask, QueryMask, padding
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, softmax
from regard.attention.positions import BiasFunction, Rotate
from regard.attention.scores import Score, scaled_dot
from regard.attention.state import Fixed

Project = Callable[[int, int], nn.Module]


class MultiHead(nn.Module):
    """y = W_O [head_1; …; head_H], head_h = attention(W_Q x, W_K c, W_V c)_h (Vaswani et al. 2017, 3.2.2).

    Each head is `width / heads` wide, so the number of parameters does not depend on the number of heads; `key_width`
    (d_k) and `value_width` (d_v) set the widths of queries and keys, and of values, apart from it. `rotate` brings
    positions into queries and keys, `rotate_values` into values. With fewer `groups` than heads, neighbouring heads
    share keys and values (grouped-query attention; one group is multi-query).
    `project` makes the projections: nn.Linear shows every head the whole x; `pieces(heads)` cuts x into pieces first.
    `attention` takes the place of the equation with these parts (windows over a grid).
    `mask` is a rule of this layer's own, which holds beside the one it is called with (BigBird's random blocks).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        context_width: int | None = None,
        score: Score = scaled_dot,
        key_width: int | None = None,
        value_width: int | None = None,
        rotate: Rotate | None = None,
        rotate_values: Rotate | None = None,
        bias: BiasFunction | None = None,
        normalise: Normaliser = softmax,
        mix: Mix = weighted_sum,
        project: Project = nn.Linear,
        attention: Watchable | None = None,
        mask: Mask | None = None,
    ) -> None:
        super().__init__()
        groups = heads if groups is None else groups
        _divides(width, heads, groups, given=key_width is not None and value_width is not None)
        self.heads, self.groups, self.mask = heads, groups, mask
        context_width, key_width, value_width = (
            context_width or width,
            key_width or width // heads,
            value_width or width // heads,
        )
        self.width, self.context_width = width, context_width
        self.q_proj = project(width, heads * key_width)
        self.k_proj = project(context_width, groups * key_width)
        self.v_proj = project(context_width, groups * value_width)
        self.output_proj = nn.Linear(heads * value_width, width)
        self.rotate, self.rotate_values = rotate, rotate_values
        own = attention or Attention(score=score, bias=bias, normalise=normalise, mix=mix)
        self.attention: Any = own
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.output_proj):
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        context: Context | Tensor | None = None,
        positions: Tensor | None = None,
        mask: AnyMask = None,
        state: AttentionState | None = None,
    ) -> tuple[Tensor, AttentionState | None]:
        """Attend from x (batch, m, width) to itself or a context. Positions are (m,) or (batch, m), or else 0, 1, 2 …

        With a state, x attends to what the state remembers: all or the last keys so far (`Cache()`, `Rolling(size)`),
        which then include its own. Cross-attention returns its projected context as a state for the next step.
        """
        self._refuse("x", x, self.width)
        if isinstance(context, Context | Tensor):
            self._refuse("context", context if isinstance(context, Tensor) else context.values, self.context_width)
        positions = default_positions(positions, x.shape[-2], x)
        mask = mask if self.mask is None else _both(self.mask, mask, positions)
        q = self._heads(self.q_proj(x), self.heads)
        if self.rotate is not None:
            q = self.rotate(q, positions)
        if state is not None:
            y, state = state.look(self.attention, q, partial(self._project, x, positions), mask, positions)
        elif context is not None:
            seen = context if isinstance(context, Context) else Context(context)
            where = seen.where()
            k, v = self._project(seen.values, where)
            y, state = self.attention(q, k, v, mask, positions, where), Fixed(k, v, where)
        else:
            k, v = self._project(x, positions)
            y = self.attention(q, k, v, mask, positions, positions)
        return self.output_proj(y.transpose(1, 2).flatten(2)), state

    @staticmethod
    def _refuse(name: str, x: Tensor, width: int) -> None:
        """Refuse, in one sentence, what the projections would refuse in matrices."""
        expected = f"{name}: expected a tensor (batch, length, {width}), found"
        if not isinstance(x, Tensor):
            raise TypeError(f"{expected} {type(x).__name__}")
        if x.dim() == 2 and x.shape[-1] == width:
            raise ValueError(f"{expected} {tuple(x.shape)}. Try {name}.unsqueeze(0) for a batch of one")
        if x.dim() != 3 or x.shape[-1] != width:
            raise ValueError(f"{expected} {tuple(x.shape)}")

    def branch_weights(self) -> list[Tensor]:
        return [p for part in (self.v_proj, self.output_proj) for p in part.parameters() if p.dim() > 1]

    def _project(self, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys (batch, groups, n, d_k) and values (batch, groups, n, d_v)."""
        k, v = (self._heads(project(values), self.groups) for project in (self.k_proj, self.v_proj))
        v = v if self.rotate_values is None else self.rotate_values(v, positions)
        return k if self.rotate is None else self.rotate(k, positions), v

    @staticmethod
    def _heads(x: Tensor, heads: int) -> Tensor:
        """Reshape (batch, n, heads · d) to (batch, heads, n, d)."""
        split: Tensor = x.unflatten(-1, (heads, -1))
        return split.transpose(1, 2)


class Pieces(nn.Module):
    """A linear map in blocks: x is cut into pieces, and piece h is mapped by W_h alone: y_h = W_h x_h + b_h."""

    def __init__(self, width: int, out_width: int, pieces: int) -> None:
        super().__init__()
        if width % pieces or out_width % pieces:
            raise ValueError(f"the pieces must divide the width: found {width} and {out_width} for {pieces} pieces")
        self.weight = nn.Parameter(torch.empty(pieces, width // pieces, out_width // pieces))
        self.bias = nn.Parameter(torch.zeros(out_width))
        nn.init.uniform_(self.weight, -1 / math.sqrt(width // pieces), 1 / math.sqrt(width // pieces))

    def forward(self, x: Tensor) -> Tensor:
        cut = x.unflatten(-1, (len(self.weight), -1))
        return torch.einsum("...hi,hio->...ho", cut, self.weight).flatten(-2) + self.bias


def pieces(heads: int) -> Project:
    """Return the projection by which head h sees only the h-th piece of x."""
    return partial(Pieces, pieces=heads)


def unfused(network: nn.Module) -> list[str]:
    """Return a sentence for each reason why multi-head attentions of a network go without the fused kernel."""
    inside = (layer.attention for layer in network.modules() if isinstance(layer, MultiHead))
    found = [attention for attention in inside if isinstance(attention, Attention)]
    parts: list[dict[str, Any]] = [
        {"score": a.score, "bias": a.bias, "normalise": a.normalise, "mix": a.mix} for a in found
    ]
    whys = Counter(reason(**each) for each in parts if not is_linear(**each))  # which has a fast form of its own
    return [f"{count} of {len(found)} attentions take the plain form: {why}" for why, count in whys.items() if why]


def _both(own: Mask, given: AnyMask, positions: Tensor) -> QueryMask:
    """Return a layer's own rule beside the one that it is called with."""
    rule = rule_of(given)
    if rule is not None and not isinstance(rule, Mask):
        raise ValueError(f"a layer with the mask '{own.name}' of its own takes a rule, found {type(rule).__name__}")
    return ((rule or padding) & own).at(given.q_pos if isinstance(given, QueryMask | Laid) else positions)


def _divides(width: int, heads: int, groups: int, *, given: bool) -> None:
    if heads < 1 or (width % heads and not given):
        near = [h for h in range(1, width + 1) if width % h == 0]
        best = min(near, key=lambda h: abs(h - heads))
        raise ValueError(
            f"the heads must divide the width: width {width} with {heads} heads; the nearest number that fits is {best}"
        )
    if groups < 1 or heads % groups:
        raise ValueError(f"the groups must divide the heads: found {heads} heads and {groups} groups")
