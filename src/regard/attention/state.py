"""States of attention layers: values, passed in and out; `reorder(index)` picks rows for beam search.

- `Cache` grows with every call: all keys and values so far.
- `Rolling` keeps the last `size` positions: constant memory for windowed attention.
- `Fixed` never grows: the projected context of cross-attention.
- `Sums` never grows either: the sums of linear attention.

Keys are stored after rotation, each with its position; a key's place in the store means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention.edges import Edges
from regard.attention.equation import AnyMask, rule_of
from regard.attention.kernels import Kernel
from regard.attention.layer import Attention, New
from regard.attention.linear import Summed, is_linear, step
from regard.attention.masks import Mask, QueryMask, causal, join_positions


@dataclass(frozen=True)
class Fixed:
    """Keys and values that are the same at every step."""

    k: Tensor  # (batch, groups, n, d)
    v: Tensor
    positions: Tensor  # (n,) or (batch, n)
    origin: Tensor | None = None  # (batch,) equal for rows that are copies of one row; None: no row is a copy

    def look(
        self,
        attention: Attention,
        q: Tensor,
        new: New,  # noqa: ARG002
        mask: AnyMask,
        positions: Tensor,
    ) -> tuple[Tensor, Fixed]:
        kept = self.packed()
        return attention(q, kept.k, kept.v, mask, positions, kept.positions), kept

    def packed(self) -> Fixed:
        """Return each head's keys and values in one piece: many steps read them."""
        if self.k.is_contiguous() and self.v.is_contiguous():
            return self
        return Fixed(self.k.contiguous(), self.v.contiguous(), self.positions, self.origin)

    def reorder(self, index: Tensor) -> Fixed:
        """Return the rows `index`. In beam search, hypotheses of one sentence mostly change places: nothing moves."""
        origin = torch.arange(len(self.k)) if self.origin is None else self.origin
        moved = origin[index]
        if torch.equal(moved, origin):
            return self
        return Fixed(pick(self.k, index), pick(self.v, index), _rows(self.positions, index), moved)


@dataclass(frozen=True)
class Rolling:
    """The last `size` keys and values."""

    size: int
    kept: Fixed | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a rolling window keeps at least 1 position, found {self.size}")

    def look(
        self, attention: Attention, q: Tensor, new: New, mask: AnyMask, positions: Tensor
    ) -> tuple[Tensor, Rolling]:
        rule = looks_back(mask)
        if rule is not None and rule.back > self.size:
            raise ValueError(
                f"the mask '{rule.name}' looks back {rule.back:g} positions, but Rolling({self.size}) "
                "forgets sooner: keep more, or use Cache()"
            )
        where = positions if self.kept is None else keys_after(mask, self.kept.positions, positions)
        k, v, state = self.extend(*new(), where)
        return attention(q, k, v, mask, positions, where), state

    def extend(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Rolling]:
        """Return all keys and values that the new queries may look at, and the next state; `positions` are theirs."""
        if self.kept is not None:
            k, v = torch.cat((self.kept.k, k), -2), torch.cat((self.kept.v, v), -2)
        # The new queries may still look at what is about to be forgotten: all of it goes out, only the end is kept.
        kept = Fixed(k[..., -self.size :, :], v[..., -self.size :, :], positions[..., -self.size :])
        return k, v, Rolling(self.size, kept)

    def reorder(self, index: Tensor) -> Rolling:
        return Rolling(self.size, self.kept and self.kept.reorder(index))


@dataclass
class _Buffer:
    """Room for keys and values (room, batch, groups, d), and how much of it is taken.

    Positions come first: what is taken is then one block, which is written at its end and picked from as it is.
    """

    k: Tensor
    v: Tensor
    taken: int = 0

    @classmethod
    def like(cls, k: Tensor, v: Tensor, room: int) -> _Buffer:
        """Return an empty buffer for keys and values such as these (batch, groups, n, d)."""
        new_k, new_v = (x.new_empty(room, *x.shape[:-2], x.shape[-1]) for x in (k, v))
        return cls(new_k, new_v)

    def write(self, k: Tensor, v: Tensor) -> None:
        """Append keys and values (n, batch, groups, d)."""
        end = self.taken + len(k)
        self.k[self.taken : end], self.v[self.taken : end] = k, v
        self.taken = end

    def pick(self, index: Tensor, length: int) -> _Buffer:
        """Return the first positions of the rows `index`, with as much room."""
        index = index.to(self.k.device)
        if torch.is_grad_enabled() and (self.k.requires_grad or self.v.requires_grad):  # no gradient goes through `out`
            return _Buffer(self.k[:length].index_select(1, index), self.v[:length].index_select(1, index), length)
        new_k, new_v = (x.new_empty(len(x), len(index), *x.shape[2:]) for x in (self.k, self.v))
        for old, new in ((self.k, new_k), (self.v, new_v)):
            torch.index_select(old[:length], 1, index, out=new[:length])
        return _Buffer(new_k, new_v, length)


@dataclass(frozen=True)
class Cache:
    """All keys and values so far: `Cache()` to begin with.

    A value like any other, yet appending is cheap: a cache writes into spare room behind its own end while nobody else
    has written there, and copies into a larger buffer otherwise.
    """

    buffer: _Buffer | None = None
    length: int = 0
    positions: Tensor | None = None

    def look(self, attention: Attention, q: Tensor, new: New, mask: AnyMask, positions: Tensor) -> tuple[Tensor, Cache]:
        looks_back(mask)
        where = positions if self.positions is None else keys_after(mask, self.positions, positions)
        k, v, state = self.extend(*new(), where)
        return attention(q, k, v, mask, positions, where), state

    def extend(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Cache]:
        """Return all keys and values so far, these at the end, and the next state; `positions` are those of all."""
        buffer, length = self.buffer, self.length + k.shape[-2]
        recording = torch.is_grad_enabled() and (k.requires_grad or v.requires_grad)
        spare = buffer is not None and buffer.taken == self.length and length <= len(buffer.k)
        if buffer is None or recording or not spare:
            old = buffer
            buffer = _Buffer.like(k, v, length if recording else length + max(15, length // 4))
            if old is not None:
                buffer.write(old.k[: self.length], old.v[: self.length])
        buffer.write(k.movedim(-2, 0), v.movedim(-2, 0))
        keys, values = (x[:length].movedim(0, -2) for x in (buffer.k, buffer.v))
        return keys, values, Cache(buffer, length, positions)

    def reorder(self, index: Tensor) -> Cache:
        if self.buffer is None or self.positions is None:
            return self
        return Cache(self.buffer.pick(index, self.length), self.length, _rows(self.positions, index))


@dataclass(frozen=True)
class Sums:
    """The sums of linear attention so far: `Sums()` to begin with. However long the text is, it does not grow."""

    summed: Summed | None = None

    def look(self, attention: Attention, q: Tensor, new: New, mask: AnyMask, positions: Tensor) -> tuple[Tensor, Sums]:
        rule, score = looks_back(mask), attention.score
        fits = is_linear(score, attention.bias, attention.normalise, attention.mix)
        if rule is not causal or not fits or not isinstance(score, Kernel):
            name = "a tensor" if rule is None else f"'{rule.name}'"
            raise ValueError(
                f"Sums has no single keys to choose among: expected a Kernel with `divide` and the mask 'causal', "
                f"found the score {getattr(score, '__name__', type(score).__name__)} and the mask {name}: use Cache()"
            )
        y, summed = step(q, *new(), score, positions, self.summed)
        return y, Sums(summed)

    def reorder(self, index: Tensor) -> Sums:
        if self.summed is None:
            return self
        return Sums(Summed(*(None if x is None else pick(x, index) for x in self.summed)))  # type: ignore[arg-type]


def looks_back(mask: AnyMask) -> Mask | None:
    """Return the rule of a mask that only looks back; refuse others.

    Step by step a query meets only what is stored; a mask that allows more would give another answer. A tensor was
    laid out by the caller for exactly these keys.
    """
    rule = rule_of(mask)
    if isinstance(rule, Tensor):
        return None
    if isinstance(rule, Edges):
        raise ValueError("edges reach anywhere, so a state cannot follow them step by step: call the layer without one")
    if rule is None or rule.ahead > 0:
        name = "no mask" if rule is None else f"the mask '{rule.name}'"
        raise ValueError(
            f"{name} lets a position look ahead, so step by step gives another answer than all at once: "
            "combine it with causal (`causal & mask`), or call the layer without a state"
        )
    return rule


def keys_after(mask: AnyMask, old: Tensor, new: Tensor) -> Tensor:
    """Return the positions of old keys and new ones; layers that share a mask and a past share the result."""
    return mask.after(old) if isinstance(mask, QueryMask) else join_positions(old, new)


def pick(x: Tensor, index: Tensor) -> Tensor:
    """Return x[index], copied by whole rows; the index may be on the CPU."""
    return x.index_select(0, index.to(x.device))


def _rows(positions: Tensor, index: Tensor) -> Tensor:
    return positions[index] if positions.dim() == 2 else positions
