"""Transformer encoder, decoder, and decoder alone (Vaswani et al. 2017): layers of attention and feed-forward.

`mask` is the rule of who may attend to whom, and `start` makes a layer's first state. A truncated encoder, a decoder
with a rolling window and one that sees all its queries at once (DETR) are arguments, not classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.attention import Cache, Context, Layer, Mask, State, causal, padding
from regard.attention.equation import AnyMask
from regard.layers.activation import activated
from regard.layers.dropout import Dropout
from regard.layers.residual import Residual


class FeedForward(nn.Module):
    """ReLU(x W₁ + b₁) W₂ + b₂ for each position alone (3.3)."""

    def __init__(
        self, width: int, hidden: int, dropout: float, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.activation, self.dropout = activation, Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.outer(self.dropout(activated(self.activation, self.inner(x))))
        return y

    def branch_weights(self) -> list[Tensor]:
        """Return the matrices on the path to y, in order; initialisations scale them."""
        return [self.inner.weight, self.outer.weight]


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each with a path around it. `place` brings positions into what the layer reads."""

    halo = 0  # how far it looks on either side beyond its attention

    def __init__(
        self, attention: Layer, feed: FeedForward, residual: Callable[[], Residual], place: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.attention, self.feed, self.place = attention, feed, place
        self.around_attention, self.around_feed = residual(), residual()

    def forward(
        self,
        x: Tensor,
        context: Context | None = None,
        positions: Tensor | None = None,
        mask: AnyMask = None,
        state: State | None = None,
    ) -> tuple[Tensor, State | None]:
        """Attend from x to itself, with a state to what came before as well; or to a context of other inputs to this
        layer, which are normalised as x is (memories of earlier segments, the other stream of two)."""
        around = self.around_attention
        x = x if self.place is None else self.place(x, positions)
        seen = None if context is None else context._replace(values=around.enter(context.values))
        y, state = self.attention(around.enter(x), seen, positions, mask, state)
        x = around.leave(x, y)
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x))), state

    def branch_weights(self) -> list[Sequence[Tensor]]:
        """Return the matrices of each sub-layer on its path into the residual sum, in order."""
        return [self.attention.branch_weights(), self.feed.branch_weights()]


class Stack(nn.Module):
    """Layers one after the other. `norm` ends a pre-LN stack, whose sum was never normalised.

    With `checkpointing` a training keeps only what goes into each layer and computes the rest again for the gradient
    (Chen et al. 2016): 100 layers then need the memory of a few.
    """

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers, self.norm, self.checkpointing = nn.ModuleList(layers), norm, False

    def through(self, layer: nn.Module, *given: Any) -> Any:
        """Return what a layer makes of its arguments."""
        if self.checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *given, use_reentrant=False)
        return layer(*given)

    def ended(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class Encoder(Stack):
    """Layers over all positions at once. By default every position attends to all but padding."""

    def __init__(self, layers: Sequence[nn.Module], norm: nn.Module | None, *, mask: Mask = padding) -> None:
        super().__init__(layers, norm)
        self.mask = mask

    @property
    def reach(self) -> tuple[float, float]:
        """The vectors that a feature looks back and ahead through all layers."""
        halos: list[Any] = [layer.halo for layer in self.layers]
        beyond = sum(halos)
        return len(self.layers) * self.mask.back + beyond, len(self.layers) * self.mask.ahead + beyond

    def forward(self, context: Context) -> Context:
        x, positions = context.values, context.where()
        mask = context.rule(self.mask).at(positions)
        for layer in self.layers:
            x, _ = self.through(layer, x, None, positions, mask)
        return context._replace(values=self.ended(x), positions=positions)


@dataclass(frozen=True)
class CausalState:
    """The state of each layer."""

    own: tuple[State, ...]

    def reorder(self, index: Tensor) -> CausalState:
        return CausalState(tuple(state.reorder(index) for state in self.own))


class Causal(Stack):
    """A decoder alone: each position looks at itself and those before it, as far as the mask reaches.

    `start` makes a layer's first state: a Cache, or a Rolling one that fits the mask's reach.
    """

    def __init__(
        self,
        layers: Sequence[EncoderLayer],
        norm: nn.Module | None,
        *,
        mask: Mask = causal,
        start: Callable[[], State] = Cache,
    ) -> None:
        super().__init__(layers, norm)
        self.mask, self.start = mask, start

    def forward(self, context: Context) -> Context:
        return self._through(context, [None] * len(self.layers))[0]

    def steps(self, context: Context, state: CausalState | None = None) -> tuple[Context, CausalState]:
        """Return the features of what follows a state, and the state after it; None begins one."""
        features, own = self._through(context, [self.start() for _ in self.layers] if state is None else state.own)
        return features, CausalState(own)

    def _through(self, context: Context, before: Sequence[State | None]) -> tuple[Context, tuple[State, ...]]:
        x, positions = context.values, context.where()
        mask = context.rule(self.mask).at(positions)
        grown = []
        for layer, own in zip(self.layers, before, strict=True):
            x, own = self.through(layer, x, None, positions, mask, own)
            grown.append(own)
        return context._replace(values=self.ended(x), positions=positions), tuple(grown)


@dataclass(frozen=True)
class DecoderState:
    """The states of each layer's self-attention and cross-attention."""

    own: tuple[State, ...]
    cross: tuple[State, ...]

    def reorder(self, index: Tensor) -> DecoderState:
        return DecoderState(
            tuple(state.reorder(index) for state in self.own), tuple(state.reorder(index) for state in self.cross)
        )


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention to a memory, and feed-forward, each with a path around it. `place` brings
    positions into what the layer reads."""

    def __init__(
        self,
        own: Layer,
        cross: Layer,
        feed: FeedForward,
        residual: Callable[[], Residual],
        place: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.own, self.cross, self.feed, self.place = own, cross, feed, place
        self.around_own, self.around_cross, self.around_feed = residual(), residual(), residual()

    def forward(
        self,
        x: Tensor,
        memory: Context | None,
        positions: Tensor,
        masks: tuple[AnyMask, AnyMask],
        states: tuple[State | None, State | None] = (None, None),
    ) -> tuple[Tensor, tuple[State | None, State | None]]:
        """Return features and states. `masks` and `states` are those of self-attention and of cross-attention."""
        x = x if self.place is None else self.place(x, positions)
        y, own = self.own(self.around_own.enter(x), None, positions, masks[0], states[0])
        x = self.around_own.leave(x, y)
        y, cross = self.cross(self.around_cross.enter(x), memory, positions, masks[1], states[1])
        x = self.around_cross.leave(x, y)
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x))), (own, cross)

    def branch_weights(self) -> list[Sequence[Tensor]]:
        """Return the matrices of each sub-layer on its path into the residual sum, in order."""
        return [self.own.branch_weights(), self.cross.branch_weights(), self.feed.branch_weights()]


class Decoder(Stack):
    """Layers in which each position attends to those before it and to a memory.

    `mask` is the rule of self-attention and `across` that of cross-attention; `start` makes a layer's first state.
    """

    def __init__(
        self,
        layers: Sequence[DecoderLayer],
        norm: nn.Module | None,
        *,
        mask: Mask = causal,
        across: Mask = padding,
        start: Callable[[], State] = Cache,
    ) -> None:
        super().__init__(layers, norm)
        self.mask, self.across, self.start = mask, across, start

    def forward(
        self, x: Context, memory: Context | None, state: DecoderState | None = None, *, keep: bool = False
    ) -> tuple[Tensor, DecoderState | None]:
        """Return the features of all positions at once (state None) or of what follows a state; `keep` begins one.

        A state remembers the memory, which may then be None.
        """
        if state is None and memory is None:
            raise ValueError("a decoder needs a memory: pass the encoder's context, or a state that has seen it")
        y, positions = x.values, x.where()
        masks = (x.rule(self.mask).at(positions), self.across.at(positions))
        own, cross = [], []
        for number, layer in enumerate(self.layers):
            before = (
                (self.start() if keep else None, None) if state is None else (state.own[number], state.cross[number])
            )
            y, (of_own, of_cross) = self.through(layer, y, memory, positions, masks, before)
            own.append(of_own)
            cross.append(of_cross)
        kept = DecoderState(tuple(own), tuple(cross)) if keep or state is not None else None
        return self.ended(y), kept
