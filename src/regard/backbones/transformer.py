"""Transformer encoder, decoder, and decoder alone (Vaswani et al. 2017): layers of attention and feed-forward.

post-LN (as published)   x ← LayerNorm(x + f(x))          pre-LN   x ← x + f(LayerNorm(x))

Backbones that read both ways are called as `encoder(x, positions) -> Context`; those that only look back as
`causal(x, positions, state=None, keep=False) -> (features, state)`, where a state continues an earlier call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention.equation import AnyMask
from regard.attention.masks import Laid, Mask, causal, padding
from regard.attention.multihead import Context, MultiHead
from regard.attention.state import Cache, Fixed, State
from regard.backbones.dropout import Dropout


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
        y: Tensor = self.outer(self.dropout(self.activation(self.inner(x))))
        return y


class Residual(nn.Module):
    """The path around a sub-layer: where the sum and the normalisation stand."""

    def __init__(self, width: int, dropout: float, *, pre: bool, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.dropout, self.pre = nn.LayerNorm(width, epsilon), Dropout(dropout), pre

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        inside: Tensor = self.norm(x) if self.pre else x
        return inside

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """The sub-layer's answer y joined with what went around it."""
        joined: Tensor = x + self.dropout(y)
        return joined if self.pre else self.norm(joined)


class EncoderLayer(nn.Module):
    def __init__(self, attention: MultiHead, feed: FeedForward, residual: Callable[[], Residual]) -> None:
        super().__init__()
        self.attention, self.feed = attention, feed
        self.around_attention, self.around_feed = residual(), residual()

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        mask: AnyMask,
        state: State | None = None,
        context: Context | None = None,
    ) -> tuple[Tensor, State | None]:
        """x looks at itself, with a state at what came before as well; or at a context of other inputs to this layer,
        which are normalised as x is (memories of earlier segments, the other stream of two)."""
        around = self.around_attention
        seen = context and Context(around.enter(context.values), context.positions)
        y, state = self.attention(around.enter(x), seen, positions, mask, state)
        x = around.leave(x, y)
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x))), state


class Encoder(nn.Module):
    """Everybody looks at everybody but padding. `norm` ends a pre-LN stack, whose sum was never normalised."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x: Tensor, positions: Tensor) -> Context:
        mask = padding.on(positions, positions)
        for layer in self.layers:
            x, _ = layer(x, positions, mask)
        return Context(x if self.norm is None else self.norm(x), positions)


@dataclass(frozen=True)
class CausalState:
    """What each layer remembers of the positions so far."""

    own: tuple[State, ...]

    def reorder(self, index: Tensor) -> CausalState:
        return CausalState(tuple(state.reorder(index) for state in self.own))


class Causal(nn.Module):
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
        super().__init__()
        self.layers, self.norm, self.mask, self.start = nn.ModuleList(layers), norm, mask, start

    def forward(
        self, x: Tensor, positions: Tensor, state: CausalState | None = None, *, keep: bool = False
    ) -> tuple[Tensor, CausalState | None]:
        """All positions at once (state None), or what follows a state; `keep` begins one."""
        if state is None and keep:
            state = CausalState(tuple(self.start() for _ in self.layers))
        before = [None] * len(self.layers) if state is None else state.own
        mask = self.mask.on(positions, positions if state is None else state.own[0].after(positions))
        grown = []
        for layer, own in zip(self.layers, before, strict=True):
            x, own = layer(x, positions, mask, own)
            grown.append(own)
        return x if self.norm is None else self.norm(x), None if state is None else CausalState(tuple(grown))


@dataclass(frozen=True)
class DecoderState:
    """The caches of all layers, and how many positions they hold."""

    own: tuple[State, ...]
    cross: tuple[Fixed, ...]

    def reorder(self, index: Tensor) -> DecoderState:
        return DecoderState(
            tuple(state.reorder(index) for state in self.own), tuple(state.reorder(index) for state in self.cross)
        )


class DecoderLayer(nn.Module):
    def __init__(self, own: MultiHead, cross: MultiHead, feed: FeedForward, residual: Callable[[], Residual]) -> None:
        super().__init__()
        self.own, self.cross, self.feed = own, cross, feed
        self.around_own, self.around_cross, self.around_feed = residual(), residual(), residual()

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        masks: tuple[Laid, Laid],
        memory: Context | None,
        states: tuple[State | None, Fixed | None],
    ) -> tuple[Tensor, State | None, Fixed]:
        y, own = self.own(self.around_own.enter(x), None, positions, masks[0], states[0])
        x = self.around_own.leave(x, y)
        y, cross = self.cross(self.around_cross.enter(x), memory, positions, masks[1], states[1])
        x = self.around_cross.leave(x, y)
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x))), own, cross


class Decoder(nn.Module):
    """Each position looks at those before it and at the memory."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module | None) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: Context | None,
        state: DecoderState | None = None,
        *,
        keep: bool = False,
    ) -> tuple[Tensor, DecoderState | None]:
        """All positions at once (state None); with `keep` or a state, step by step with caches."""
        keep = keep or state is not None
        where = state.cross[0].positions if state is not None else memory and memory.positions
        assert where is not None
        across = padding.on(positions, where)
        own_mask = causal.on(positions, positions if state is None else state.own[0].after(positions))
        grown: list[tuple[State, Fixed]] = []
        for number, layer in enumerate(self.layers):
            before = (Cache() if keep else None, None) if state is None else (state.own[number], state.cross[number])
            x, own, cross = layer(x, positions, (own_mask, across), memory, before)
            grown.append((own, cross.packed() if state is None and keep else cross))
        y = x if self.norm is None else self.norm(x)
        return y, DecoderState(*zip(*grown, strict=True)) if keep else None
