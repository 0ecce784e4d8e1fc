"""Heads: several attentions side by side, and the layer that a model is built from.

layer(x, context, positions, mask, state) -> y, state
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.equation import AnyMask, default_positions
from regard.attention.fast import fast
from regard.attention.masks import Laid, Mask
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, softmax
from regard.attention.positions import BiasFunction, Rotate
from regard.attention.scores import Score, scaled_dot
from regard.attention.state import Fixed, Rolling, State

Project = Callable[[int, int], nn.Module]


class Context(NamedTuple):
    """What a cross-attention looks at: values (batch, n, width) and their positions (−1 is padding)."""

    values: Tensor
    positions: Tensor | None = None


class Attention(nn.Module):
    """The equation with its parts filled in. `regard.watch` finds these modules and asks them for their weights."""

    def __init__(
        self,
        *,
        score: Score = scaled_dot,
        bias: BiasFunction | None = None,
        normalise: Normaliser = softmax,
        mix: Mix = weighted_sum,
    ) -> None:
        super().__init__()
        self.score, self.bias, self.normalise, self.mix = score, bias, normalise, mix

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return fast(
            q, k, v, score=self.score, bias=self.bias, mask=mask, normalise=self.normalise, mix=self.mix,
            q_pos=q_pos, k_pos=k_pos,
        )  # fmt: skip


class MultiHead(nn.Module):
    """y = W_O [head_1; …; head_H], head_h = attention(W_Q x, W_K c, W_V c)_h (Vaswani et al. 2017, 3.2.2).

    Each head is `width / heads` wide, so the number of parameters does not depend on the number of heads. With fewer
    `groups` than heads, neighbouring heads share keys and values (grouped-query attention; one group is multi-query).
    `project` makes the projections: nn.Linear shows every head the whole x; `pieces(heads)` cuts x into pieces first.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        groups: int | None = None,
        context_width: int | None = None,
        score: Score = scaled_dot,
        rotate: Rotate | None = None,
        bias: BiasFunction | None = None,
        normalise: Normaliser = softmax,
        mix: Mix = weighted_sum,
        project: Project = nn.Linear,
    ) -> None:
        super().__init__()
        groups = heads if groups is None else groups
        _divides(width, heads, groups)
        self.heads, self.groups = heads, groups
        head_width, context_width = width // heads, context_width or width
        self.q_proj = project(width, width)
        self.k_proj = project(context_width, groups * head_width)
        self.v_proj = project(context_width, groups * head_width)
        self.output_proj = nn.Linear(width, width)
        self.rotate = rotate
        self.attention = Attention(score=score, bias=bias, normalise=normalise, mix=mix)
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
        state: State | Fixed | None = None,
    ) -> tuple[Tensor, State | Fixed | None]:
        """x (batch, m, width) looks at itself, or at a context. Positions are (m,) or (batch, m), by default 0, 1, 2 …

        Self-attention with a state (`Cache()`, `Rolling(size)`) looks at all that came before as well and returns the
        grown state. Cross-attention returns its projected context as a state, for the next step to use.
        """
        positions = default_positions(positions, x.shape[-2], x)
        q = self._heads(self.q_proj(x), self.heads)
        if self.rotate is not None:
            q = self.rotate(q, positions)
        k, v, k_pos, state = self._keys(x, context, positions, mask, state)
        y = self.attention(q, k, v, mask, positions, k_pos)
        return self.output_proj(y.transpose(1, 2).flatten(2)), state

    def _keys(
        self,
        x: Tensor,
        context: Context | Tensor | None,
        positions: Tensor,
        mask: AnyMask,
        state: State | Fixed | None,
    ) -> tuple[Tensor, Tensor, Tensor, State | Fixed | None]:
        if isinstance(state, Fixed):
            return state.k, state.v, state.positions, state
        if context is not None:
            values, given = context if isinstance(context, Context) else (context, None)
            fixed = self._project(values, default_positions(given, values.shape[-2], values))
            return fixed.k, fixed.v, fixed.positions, fixed
        new = self._project(x, positions)
        if state is None:
            return new.k, new.v, positions, None
        _may_be_cached(mask, state)
        return state.extend(new.k, new.v, positions)

    def _project(self, values: Tensor, positions: Tensor) -> Fixed:
        k, v = (self._heads(project(values), self.groups) for project in (self.k_proj, self.v_proj))
        return Fixed(k if self.rotate is None else self.rotate(k, positions), v, positions)

    @staticmethod
    def _heads(x: Tensor, heads: int) -> Tensor:
        """(batch, n, heads · d) to (batch, heads, n, d)."""
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
    """The second way of making heads: head h sees only the h-th piece of x."""
    return partial(Pieces, pieces=heads)


def _divides(width: int, heads: int, groups: int) -> None:
    if heads < 1 or width % heads:
        near = [h for h in range(1, width + 1) if width % h == 0]
        best = min(near, key=lambda h: abs(h - heads))
        raise ValueError(
            f"the heads must divide the width: width {width} with {heads} heads; the nearest number that fits is {best}"
        )
    if groups < 1 or heads % groups:
        raise ValueError(f"the groups must divide the heads: found {heads} heads and {groups} groups")


def _may_be_cached(mask: AnyMask, state: State) -> None:
    """Token by token a query meets only what is stored; a mask that allows more would give another answer."""
    rule = mask.mask if isinstance(mask, Laid) else mask
    if isinstance(rule, Tensor):
        return  # laid out by the caller for exactly these keys
    if not isinstance(rule, Mask) or rule.ahead > 0:
        name = "no mask" if rule is None else f"the mask '{rule.name}'"
        raise ValueError(
            f"{name} lets a position look ahead, so step by step gives another answer than all at once: "
            "combine it with causal (`causal & mask`), or call the layer without a state"
        )
    if isinstance(state, Rolling) and rule.back > state.size:
        raise ValueError(
            f"the mask '{rule.name}' looks back {rule.back:g} positions, but Rolling({state.size}) "
            "forgets sooner: keep more, or use Cache()"
        )
