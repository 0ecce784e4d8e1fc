"""Linformer (Wang et al. 2020): keys and values are projected along the length, so that all queries look at k columns.

    head_h = softmax(Q_h (E K_h)ᵀ / √d) (F V_h),   E and F of shape k × n                         (equation 7)

Every projected column mixes all positions. That is why there is no causal form, no cache and no packed row: a mask can
no longer tell one key from another. Padding is left out of the mixing, and a row shorter than the trained length uses
the first columns of E and F: each position has its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting
from torch.nn.functional import scaled_dot_product_attention

from regard.attention.equation import AnyMask, check, default_positions, match_heads, rule_of
from regard.attention.layer import Context, State, Watchable
from regard.attention.linear import by_batch
from regard.attention.masks import Mask, padding
from regard.layers.roles import BETWEEN, Role


class LengthProjection(nn.Module):
    """E: from `length` positions to `columns`. Layers, or keys and values, share it where it is the same module."""

    roles: ClassVar[dict[str, Role]] = {"weight": BETWEEN}

    def __init__(self, length: int, columns: int) -> None:
        super().__init__()
        if columns < 1:
            raise ValueError(f"a length is projected to 1 or more columns, found {columns}")
        self.weight = nn.Parameter(torch.empty(columns, length))
        # A projected key is then as large as a key. With the paper's 1/√columns it would be √(length / columns) times
        # as large, and softmax would begin with a weight of 1 on one column.
        nn.init.normal_(self.weight, std=1 / math.sqrt(max(1, length)))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return (batch, heads, columns, d) of x (batch, heads, n, d); padding has no part in it."""
        length = self.weight.shape[1]
        if not is_exporting() and positions.numel() and int(positions.max()) >= length:
            raise ValueError(
                f"Linformer projects positions 0 to {length - 1}, found position {int(positions.max())}: shorten the "
                "input, or train with a larger data.longest"
            )
        real, first = positions >= 0, torch.arange(positions.shape[-1], device=positions.device)
        if not is_exporting() and bool((positions == first).all()):
            return self.weight[:, : len(first)].to(x.dtype) @ x
        # Every position in its place: zeros instead of padding.
        if not is_exporting() and bool(((positions == first) | ~real).all()):
            gone = by_batch(~real)
            return self.weight[:, : len(first)].to(x.dtype) @ x.masked_fill(gone, 0.0)
        columns = self.weight.to(x.dtype)[:, positions.clamp(min=0)] * real  # (columns, n) or (columns, batch, n)
        return (columns if columns.dim() == 2 else columns.transpose(0, 1).unsqueeze(1)) @ x


class ShortenedAttention(Watchable):
    """The equation over projected columns."""

    projected = True

    def __init__(self, keys: LengthProjection, values: LengthProjection) -> None:
        super().__init__()
        self.keys, self.values = keys, values

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        check(q, k, v)
        refuse_masks(mask)
        k, v = match_heads(q, self.keys(k, k_pos), self.values(v, k_pos))
        return scaled_dot_product_attention(q, k, v)

    @torch.no_grad()
    def weights(
        self,
        q: Tensor,
        k: Tensor,
        mask: AnyMask,
        q_pos: Tensor,  # noqa: ARG002
        k_pos: Tensor,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the weights (batch, heads, m, columns): of projected columns, each a mixture of all positions."""
        refuse_masks(mask)
        k, _ = match_heads(q, k, k)
        chosen = slice(None) if heads is None else list(heads)
        k = self.keys(k[:, chosen], k_pos)
        return (q[:, chosen] @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)


def refuse_masks(mask: AnyMask) -> None:
    """Refuse any mask but padding."""
    rule = rule_of(mask)
    if rule is not None and rule is not padding:
        name = f"'{rule.name}'" if isinstance(rule, Mask) else type(rule).__name__
        raise ValueError(
            "Linformer mixes all positions into each of its keys, so that a mask cannot take some of them away: "
            f"expected no mask but padding, found {name}. Use linear, performer, local or bigbird attention"
        )


class Shortened(nn.Module):
    """Linformer's layer: multi-head attention to projected keys and values."""

    def __init__(self, width: int, heads: int, keys: LengthProjection, values: LengthProjection) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"the heads must divide the width: found width {width} with {heads} heads")
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.output_proj = (nn.Linear(width, width) for _ in range(4))
        self.attention = ShortenedAttention(keys, values)
        for layer in (self.q_proj, self.k_proj, self.v_proj, self.output_proj):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: Tensor,
        context: Context | None = None,
        positions: Tensor | None = None,
        mask: AnyMask = None,
        state: State | None = None,
    ) -> tuple[Tensor, None]:
        """Attend from x (batch, m, width) to itself or a context."""
        if state is not None:
            raise ValueError(
                "Linformer has no state: each of its keys mixes all positions, those to come too. Use linear, "
                "performer, local or bigbird attention to write step by step"
            )
        positions = default_positions(positions, x.shape[-2], x)
        seen = Context(x, positions) if context is None else context
        q, k, v = (
            project(values).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project, values in ((self.q_proj, x), (self.k_proj, seen.values), (self.v_proj, seen.values))
        )
        y = self.attention(q, k, v, mask, positions, seen.where())
        return self.output_proj(y.transpose(1, 2).flatten(2)), None

    def branch_weights(self) -> list[Tensor]:
        return [self.v_proj.weight, self.output_proj.weight]
