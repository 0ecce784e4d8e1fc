"""The interfaces between attention layers and the modules around them.

    layer(x, context, positions, mask, state) -> y, state

`Context` passes from one module to the next, `Layer` is a layer and `State` its memory between two calls, `Attention`
is the equation inside a layer, `Watchable` an attention that `regard.watch` can show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention.edges import Edges, dense_weights, edge_weights
from regard.attention.equation import AnyMask, default_positions, lay, match_heads
from regard.attention.fast import fast
from regard.attention.masks import Mask
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, WeightDropout, softmax
from regard.attention.positions import BiasFunction
from regard.attention.scores import Score, scaled_dot


class Context(NamedTuple):
    """The vectors of a batch with their positions, mask and layout. Stems and backbones take and return it."""

    values: Tensor  # (batch, n, width)
    positions: Tensor | None = None  # (n,) or (batch, n), −1 is padding; None: 0, 1, 2 …
    mask: Mask | Edges | None = None  # who may look at whom, beside the rule of the backbone
    units: Tensor | None = None  # (batch, m) the index of the vector that speaks for each unit, −1 is padding
    grid: tuple[int, int, int] | None = None  # frames, rows and columns of the vectors
    stride: tuple[int, int, int] | None = None  # frames, rows and columns of the input for each vector
    hidden: tuple[Tensor, ...] | None = None  # a recurrent decoder's first states, each (layers, batch, width)

    def where(self) -> Tensor:
        """Return the positions, 0, 1, 2 … if none are given."""
        return default_positions(self.positions, self.values.shape[-2], self.values)

    def rule(self, mask: Mask) -> Mask | Edges:
        """Return `mask`, combined with the context's own if there is one."""
        return mask if self.mask is None else mask & self.mask

    def reorder(self, index: Tensor) -> Context:
        """Return the rows `index` of the batch. The mask stays as it is: a rule is about positions, not rows."""
        shared = self.positions is None or self.positions.dim() == 1
        return self._replace(
            values=self.values[index],
            positions=self.positions if shared or self.positions is None else self.positions[index],
            units=None if self.units is None else self.units[index],
            hidden=None if self.hidden is None else tuple(h[:, index] for h in self.hidden),
        )


class State(Protocol):
    """The memory of a layer or a backbone between two calls: a value, passed in and out."""

    def reorder(self, index: Tensor) -> State:
        """Return the state of the rows `index` of the batch, for beam search."""


class Layer(Protocol):
    """A layer of attention: `x` looks at itself, at a context, or at what its state remembers.

    A mask is a rule, a rule at the queries of this call, or a mask laid over exactly this layer's keys. A layer whose
    keys are not those of the batch takes the rule and lays it itself.
    """

    def __call__(
        self, x: Tensor, context: Context | None, positions: Tensor | None, mask: AnyMask, state: State | None = None
    ) -> tuple[Tensor, State | None]: ...

    def branch_weights(self) -> Sequence[Tensor]:
        """Return the matrices on the linear path from the values to y, in order: y grows with each of them.

        Initialisations scale them, so that the sum over many layers does not grow (GPT-2, DeepNet).
        """


class Watchable(nn.Module, ABC):
    """An attention whose weights can be shown; called as the equation is.

    `projected`: its columns are mixtures of positions, not positions. `before`: so many positions before the input's
    own are the network's (learned global tokens).
    """

    projected: bool = False
    before: int = 0

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return the answer (batch, heads, m, d_v)."""

    @abstractmethod
    def weights(
        self, q: Tensor, k: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        """Return the weights (batch, heads, m, n) of all heads or of some, without dropout."""


class Attention(Watchable):
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

    @torch.no_grad()
    def weights(
        self, q: Tensor, k: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None = None
    ) -> Tensor:
        k, _ = match_heads(q, k, k)
        chosen = slice(None) if heads is None else list(heads)
        if isinstance(mask, Edges):
            return self._along(q, k, mask, q_pos, k_pos, heads)
        scores: Tensor = self.score(q[:, chosen], k[:, chosen])
        if self.bias is not None:
            added = self.bias(q, k, q_pos, k_pos)
            scores = scores + (added[..., chosen, :, :] if added.dim() >= 3 and added.shape[-3] > 1 else added)
        allowed = mask if isinstance(mask, Tensor) else lay(mask, q_pos, k_pos).rows(q_pos)
        if allowed.dim() >= 3 and allowed.shape[-3] > 1:
            allowed = allowed[..., chosen, :, :]
        return undropped(self.normalise)(scores, allowed)

    def _along(
        self, q: Tensor, k: Tensor, edges: Edges, q_pos: Tensor, k_pos: Tensor, heads: Sequence[int] | None
    ) -> Tensor:
        parts: dict[str, Any] = {"score": self.score, "bias": self.bias, "normalise": undropped(self.normalise)}
        weights, flat = edge_weights(q, k, edges, q_pos=q_pos, k_pos=k_pos, **parts)
        return dense_weights(weights, flat, len(q), q.shape[-2], k.shape[-2], heads)


def undropped(normalise: Normaliser) -> Normaliser:
    """Return a normaliser without its dropout."""
    return normalise.normalise if isinstance(normalise, WeightDropout) else normalise


New = Callable[[], tuple[Tensor, Tensor]]


class AttentionState(State, Protocol):
    """The state of a layer that projects queries, keys and values. It chooses the keys and how to keep them."""

    def look(
        self, attention: Attention, q: Tensor, new: New, mask: AnyMask, positions: Tensor
    ) -> tuple[Tensor, AttentionState]:
        """Return the answer to queries at these positions, and the state for the next call.

        `new` computes the keys and values of the same positions; a state that needs none does not call it.
        """

    def reorder(self, index: Tensor) -> AttentionState: ...
