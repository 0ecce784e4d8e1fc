"""Masks: rules of attending.  `mask(q_pos, k_pos)` is True where the query at q_pos may attend to the key at k_pos.

A mask is a rule about *positions*, not indices: a cache, packed documents and windows then need no special case. The
rule works element by element and broadcasts; combine rules with `&`, `|`, `~`. Position −1 means padding: a key there
is never attended, whatever the rule says, and a query there attends to nothing (but under `padding` alone, for cost).

    causal & document(ids)          |          window(128, 0) | prefix(4)          |          ~block(16)

A rule of your own is a plain function: `Mask(lambda q, k: (q - k) % 2 == 0)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch.compiler import is_exporting

Rule = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class BlockLayout:
    """A mask in whole blocks of positions: which blocks of keys a block of queries may look at."""

    size: int  # positions in a block
    keys: Tensor  # (rows, blocks, slots) numbers of blocks, each at most once, −1 for none; rows: batch or 1
    wide: Tensor  # (rows, few) blocks whose queries look at all keys, −1 for none

    def __or__(self, other: BlockLayout) -> BlockLayout:
        keys, wide = (join_blocks(*both) for both in ((self.keys, other.keys), (self.wide, other.wide)))
        return BlockLayout(self.size, keys, wide)

    def allows(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return the rule itself, (rows, …, m, n) for positions (rows or 1, …, m, 1) and (rows or 1, …, 1, n)."""
        rows, blocks, _ = self.keys.shape
        q, k = (positions.clamp(min=0) // self.size for positions in (q_pos, k_pos))
        most = max(blocks, *(1 + int(x.max()) if x.numel() else 1 for x in (q, k)))
        table = torch.zeros(rows, most + 1, most + 1, dtype=torch.bool, device=q.device)  # the last is for −1
        table[:, :blocks].scatter_(-1, self.keys % (most + 1), value=True)
        table.scatter_(1, (self.wide % (most + 1)).unsqueeze(-1).expand(-1, -1, most + 1), value=True)
        return table[_batch(table, q), q, k]


def join_blocks(some: Tensor, others: Tensor) -> Tensor:
    """Return numbers of blocks (rows, …, slots) side by side, with −1 in place of those that are there already."""
    both = torch.cat((some, others), -1).sort(-1).values
    again = torch.zeros_like(both, dtype=torch.bool)
    again[..., 1:] = both[..., 1:] == both[..., :-1]
    return both.masked_fill(again, -1)


@dataclass(frozen=True, eq=False)
class Mask:
    """A rule, its name, and its reach: how far a query may look `back` and `ahead`.

    The reach is what makes a mask fast or fit for a cache: a finite reach on both sides costs linear time (blocks.py),
    and only a rule with `ahead == 0` can be decoded token by token. A rule of unknown reach is taken to reach
    everywhere; `causal & rule` states the contrary. A mask in whole blocks states them by `blocks`, from the length of
    each row of keys; `rest` is the rule that it is `&`-ed with. Its own rule is then asked with all keys of a row.
    """

    rule: Rule
    name: str = "mask"
    back: float = math.inf
    ahead: float = math.inf
    blocks: Callable[[Tensor], BlockLayout] | None = None
    rest: Mask | None = None

    def __call__(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.rule(q_pos, k_pos)

    def __deepcopy__(self, _: object) -> Mask:
        return self  # rules are compared by identity, in a copy of a network too

    def __and__(self, other: Mask) -> Mask:
        if not isinstance(other, Mask):
            return NotImplemented  # other forms of a mask say for themselves how they join a rule
        if other is padding or other is self:  # every laid mask keeps padding out already
            return self
        if self is padding:
            return other
        return Mask(
            lambda q, k: self(q, k) & other(q, k),
            f"{self.name} & {other.name}",
            min(self.back, other.back),
            min(self.ahead, other.ahead),
            *self._whole_blocks_and(other),
        )

    def _whole_blocks_and(self, other: Mask) -> tuple[Callable[[Tensor], BlockLayout] | None, Mask | None]:
        """Return `blocks` and `rest` of this mask and another one."""
        if self.blocks is not None and other.blocks is not None:
            return None, None
        if self.blocks is not None:
            return self.blocks, other if self.rest is None else self.rest & other
        return other.blocks, None if other.blocks is None else self if other.rest is None else self & other.rest

    def __or__(self, other: Mask) -> Mask:
        return Mask(
            lambda q, k: self(q, k) | other(q, k),
            f"({self.name} | {other.name})",
            max(self.back, other.back),
            max(self.ahead, other.ahead),
            self._blocks_or(other),
        )

    def _blocks_or(self, other: Mask) -> Callable[[Tensor], BlockLayout] | None:
        one, two = self.blocks, other.blocks
        if one is None or two is None or self.rest is not None or other.rest is not None:
            return None
        return lambda lengths: one(lengths) | two(lengths)

    def __invert__(self) -> Mask:
        return Mask(lambda q, k: ~self(q, k), f"~({self.name})")

    def on(self, q_pos: Tensor, k_pos: Tensor) -> Laid:
        """Lay this rule over the positions of one batch, (m,) or (batch, m)."""
        return Laid(self, q_pos, k_pos)

    def at(self, q_pos: Tensor) -> QueryMask:
        """Return this rule at the queries of one call: all layers share it, each lays it over its own keys."""
        return QueryMask(self, q_pos)


@dataclass(frozen=True, eq=False)
class QueryMask:
    """A rule at the query positions of one call. Layers that look at the same key positions share one Laid.

    Only the layer knows its keys: those of the batch, those of its state, or fewer that it makes itself.
    """

    mask: Mask
    q_pos: Tensor  # (m,) or (batch, m)
    laid: list[Laid] = field(default_factory=list)
    joined: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def after(self, old: Tensor) -> Tensor:
        """Return the positions of old keys and then the queries' own; the same tensor for the same old one."""
        for before, both in self.joined:
            if before is old:
                return both
        self.joined.append((old, join_positions(old, self.q_pos)))
        return self.joined[-1][1]

    def on(self, k_pos: Tensor) -> Laid:
        """Return the rule laid over these keys, which is done once for equal positions."""
        for laid in self.laid:
            if laid.k_pos is k_pos or (not is_exporting() and torch.equal(laid.k_pos, k_pos)):
                return laid
        self.laid.append(self.mask.on(self.q_pos, k_pos))
        return self.laid[-1]


@dataclass(frozen=True, eq=False)
class Laid:
    """A mask laid over one batch's positions. Its forms are computed when first asked for, once per batch.

    An exported graph serves any batch: whatever depends on the positions of one is then as in the general case.
    """

    mask: Mask
    q_pos: Tensor  # (m,) or (batch, m)
    k_pos: Tensor  # (n,) or (batch, n)
    store: dict[str, object] = field(default_factory=dict)  # forms of other files (blocks, Flex), each computed once

    def rows(self, q_pos: Tensor) -> Tensor:
        """Return the boolean matrix for some queries: (rows, n), or (batch, 1, rows, n) for positions by batch."""
        q, k = q_pos.unsqueeze(-1), self.k_pos.unsqueeze(-2)
        allowed = self.mask(q, k)
        if allowed.dtype != torch.bool:
            raise ValueError(
                f"the mask '{self.mask.name}' gave {allowed.dtype}, expected torch.bool, True where a query may attend"
            )
        if self._padded:
            allowed = allowed & (k >= 0)
            if self.mask is not padding:  # which stays a row per batch, (batch, 1, 1, n), for the sake of cost
                allowed = allowed & (q >= 0)
        return allowed.unsqueeze(-3) if allowed.dim() == 3 else allowed

    @cached_property
    def _padded(self) -> bool:
        return is_exporting() or bool((self.k_pos < 0).any() or (self.q_pos < 0).any())

    @cached_property
    def dense(self) -> Tensor | None:
        """The boolean matrix over all queries, or None where everything is allowed."""
        allowed = self.rows(self.q_pos)
        return None if not is_exporting() and bool(allowed.all()) else allowed

    @cached_property
    def aligned(self) -> bool:
        """True if queries and keys are the same consecutive positions (with padding among them or not)."""
        if is_exporting() or self.q_pos.shape != self.k_pos.shape or not torch.equal(self.q_pos, self.k_pos):
            return False
        first = self.q_pos - torch.arange(self.q_pos.shape[-1], device=self.q_pos.device)
        real = self.q_pos >= 0
        low = first.masked_fill(~real, torch.iinfo(first.dtype).max).amin(-1, keepdim=True) if first.numel() else first
        return bool(((first == low) | ~real).all())

    @cached_property
    def triangle(self) -> bool:
        """True if this is exactly the lower triangle that fused kernels know as `is_causal`."""
        return self.mask is causal and self.aligned and not self._padded


padding = Mask(lambda q, k: k >= 0, "padding")  # noqa: ARG005
"""Everything but padding may be attended."""

causal = Mask(lambda q, k: k <= q, "causal", ahead=0)
"""Only the present and the past: k ≤ q (Vaswani et al. 2017, 3.2.3)."""


def window(left: int, right: int) -> Mask:
    """Truncated attention: from `left` positions back to `right` ahead, −left ≤ k − q ≤ right."""
    if left < 0 or right < 0:
        raise ValueError(f"a window reaches back and ahead by 0 or more positions, found left={left}, right={right}")
    return Mask(lambda q, k: (k >= q - left) & (k <= q + right), f"window({left}, {right})", left, right)


def block(size: int) -> Mask:
    """Blocks of `size` positions that only see themselves (Swin's windows along one axis)."""
    return Mask(lambda q, k: q // size == k // size, f"block({size})", size - 1, size - 1)


def prefix(length: int) -> Mask:
    """The first `length` positions, for every query; with `causal |` this is the prefix language model's mask."""
    return Mask(lambda q, k: k < length, f"prefix({length})")  # noqa: ARG005


def document(ids: Tensor) -> Mask:
    """The same document of a packed row: `ids[p]`, or `ids[batch, p]`, names the document of position p."""

    def same(q: Tensor, k: Tensor) -> Tensor:
        return _lookup(ids, q) == _lookup(ids, k)

    return Mask(same, "document")


def ordering(matrix: Tensor) -> Mask:
    """Any dependency ordering or graph as a 0/1 matrix: M[q, k] = 1 where q may look at k. (n, n) or (batch, n, n)."""
    if matrix.dim() not in (2, 3) or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(
            f"an ordering is a square 0/1 matrix, (n, n) or (batch, n, n), found shape {tuple(matrix.shape)}"
        )
    allowed = matrix.bool()

    def look(q: Tensor, k: Tensor) -> Tensor:
        size = matrix.shape[-1]
        for positions in (q, k):
            if positions.numel() and int(positions.max()) >= size:
                last = int(positions.max())
                raise ValueError(f"the ordering covers positions 0 to {size - 1}, found {last}: pass a larger matrix")
        if matrix.dim() == 2:
            return allowed[q, k]
        return allowed[_batch(matrix, q), q, k]

    return Mask(look, "ordering")


def permutation(order: Tensor, *, itself: bool = True) -> Mask:
    """XLNet's masks: position p comes `order[p]`-th, and a query sees the keys before it, and `itself` or not.

    The content stream sees itself, the query stream does not (Yang et al. 2019, section 2.3).
    """

    def earlier(q: Tensor, k: Tensor) -> Tensor:
        q_rank, k_rank = _lookup(order, q), _lookup(order, k)
        return k_rank <= q_rank if itself else k_rank < q_rank

    return Mask(earlier, "permutation")


def join_positions(old: Tensor, new: Tensor) -> Tensor:
    """Join positions, one after the other; shared ones are repeated where the others differ by batch."""
    if old.dim() != new.dim():
        batch = len(old if old.dim() == 2 else new)
        old, new = (p if p.dim() == 2 else p.expand(batch, -1) for p in (old, new))
    return torch.cat((old, new), -1)


def _batch(table: Tensor, positions: Tensor) -> Tensor:
    """Return row numbers shaped to go with positions (batch, …), so that table[batch, positions] broadcasts."""
    return torch.arange(table.shape[0], device=table.device).view(-1, *[1] * (max(positions.dim(), 3) - 1))


def _lookup(table: Tensor, positions: Tensor) -> Tensor:
    return table[positions] if table.dim() == 1 else table[_batch(table, positions), positions]
