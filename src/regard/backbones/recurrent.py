"""Recurrent encoder and decoder: nothing but the last state crosses, or a glimpse of all encoder states at every step.

    before   c_t = glimpse(s_(t−1))      s_t = RNN([e(y_(t−1)); c_t], s_(t−1))            Bahdanau et al. 2015, 3.1
    after    s_t = RNN([e(y_(t−1)); o_(t−1)], s_(t−1))      c_t = glimpse(s_t)             Luong et al. 2015, 3 and 3.3
    both     o_t = tanh(W [s_t; c_t])

The glimpse at the encoder's states is nothing (Sutskever et al. 2014), their mean (1/N) Σ h_i, or attention. `before`
begins with c_0 from s_(−1), the encoder's last state, and y_(−1) = START. Feeding o_(t−1) back is Luong's input
feeding; without it the order `after` runs all steps of a known target at once.

Alone, an RNN is a backbone like a Transformer: `BidirectionalRNN` reads both ways, `CausalRNN` forward only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention import (
    Attention,
    AttentionState,
    Context,
    Fixed,
    Layer,
    Mask,
    State,
    normalisers,
    padding,
    scores,
)
from regard.attention.equation import AnyMask, default_positions
from regard.attention.positions import BiasFunction
from regard.layers.dropout import Dropout
from regard.layers.recurrence import Hidden, cells, memories, walk
from regard.layers.residual import Residual


class RecurrentEncoder(nn.Module):
    """An RNN that reads both ways; its last states, and all states if they are `seen`, are projected to the decoder's
    width. One that reads forward only hands its states over as they are: s_(−1) is its last state."""

    def __init__(
        self, kind: str, width: int, layers: int, dropout: float, *, seen: bool, both_ways: bool = True
    ) -> None:
        super().__init__()
        self.rnn = cells(kind, width, width, layers, dropout, both=both_ways)
        self.layers, self.dropout, self.both_ways = layers, Dropout(dropout), both_ways
        self.states_proj = nn.Linear(2 * width, width) if seen and both_ways else None
        self.hidden_proj = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(memories(kind) * both_ways)])

    def forward(self, context: Context) -> Context:
        x = context.values
        states, last = walk(self.rnn, x, context.where())
        if not self.both_ways:
            return context._replace(values=self.dropout(states), positions=context.where(), hidden=last)
        both = (h.view(self.layers, 2, len(x), -1).transpose(1, 2).flatten(2) for h in last)
        hidden = tuple(torch.tanh(proj(h)) for proj, h in zip(self.hidden_proj, both, strict=True))
        seen = states if self.states_proj is None else self.dropout(self.states_proj(states))
        return context._replace(values=seen, positions=context.where(), hidden=hidden)


class BidirectionalRNN(nn.Module):
    """An RNN that reads both ways: half of each state knows what comes before, the other half what comes after."""

    def __init__(self, kind: str, x_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"two directions share the width of a bidirectional RNN: it must be even, found {width}")
        self.rnn = cells(kind, x_width, width // 2, layers, dropout, both=True)
        self.dropout = Dropout(dropout)

    def forward(self, context: Context) -> Context:
        positions = context.where()
        return context._replace(values=self.dropout(walk(self.rnn, context.values, positions)[0]), positions=positions)


class Attentive(nn.Module):
    """Self-attention over the states of an RNN, with the path `around` it."""

    def __init__(self, reader: nn.Module, attention: Layer, around: Residual, *, mask: Mask = padding) -> None:
        super().__init__()
        self.reader, self.attention, self.around, self.mask = reader, attention, around, mask

    def forward(self, context: Context) -> Context:
        context = self.reader(context)
        states, positions = context.values, context.where()
        mask = context.rule(self.mask).at(positions)
        y, _ = self.attention(self.around.enter(states), None, positions, mask)
        return context._replace(values=self.around.leave(states, y))


@dataclass(frozen=True)
class RecurrentState:
    """The hidden states of an RNN."""

    hidden: Hidden

    def reorder(self, index: Tensor) -> RecurrentState:
        return RecurrentState(tuple(h[:, index] for h in self.hidden))


class CausalRNN(nn.Module):
    """An RNN that reads forward only, with the interface of the Transformer's `Causal`."""

    def __init__(self, kind: str, x_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.rnn, self.dropout = cells(kind, x_width, width, layers, dropout, both=False), Dropout(dropout)

    def forward(self, context: Context) -> Context:
        return self.steps(context)[0]

    def steps(self, context: Context, state: RecurrentState | None = None) -> tuple[Context, RecurrentState]:
        """Return the states of what follows a state, and the state after it; None begins one."""
        positions = context.where()
        y, hidden = walk(self.rnn, context.values, positions, None if state is None else state.hidden)
        return context._replace(values=self.dropout(y), positions=positions), RecurrentState(hidden)


class Glimpse(nn.Module):
    """Attention of one head whose keys and values are the encoder states themselves, by any score and normaliser.

    The same interface as MultiHead, which is the key/query/value and multi-head form of a glimpse.
    """

    def __init__(
        self,
        score: scores.Score,
        normalise: normalisers.Normaliser = normalisers.softmax,
        bias: BiasFunction | None = None,
    ) -> None:
        super().__init__()
        self.score = score
        compare = score.compare if isinstance(score, scores.Additive | scores.MLP) else score
        self.attention = Attention(score=compare, bias=bias, normalise=normalise)

    def forward(
        self,
        x: Tensor,
        context: Context | None,
        positions: Tensor | None,
        mask: AnyMask,
        state: AttentionState | None = None,
    ) -> tuple[Tensor, AttentionState]:
        split = self.score if isinstance(self.score, scores.Additive | scores.MLP) else None
        if state is None:
            assert context is not None
            values = context.values.unsqueeze(1)
            state = Fixed(values if split is None else split.k_proj(values), values, context.where())
        q = x.unsqueeze(1) if split is None else split.q_proj(x.unsqueeze(1))
        y, state = state.look(self.attention, q, _nothing_new, mask, default_positions(positions, x.shape[-2], x))
        return y.squeeze(1), state

    def branch_weights(self) -> list[Tensor]:
        return []


def _nothing_new() -> tuple[Tensor, Tensor]:
    raise ValueError(
        "a glimpse looks at a fixed context: expected a state that was begun with one, found one that grows"
    )


class FirstHidden(nn.Module):
    """tanh(W c + b), c the mean of a memory's real values: a decoder's first hidden states, where no encoder makes them
    (Xu et al. 2015, 3.1.2)."""

    def __init__(self, kind: str, memory_width: int, width: int, layers: int) -> None:
        super().__init__()
        self.shape = (memories(kind), layers, width)
        self.proj = nn.Linear(memory_width, self.shape[0] * layers * width)

    def forward(self, memory: Context) -> Hidden:
        real = (memory.where() >= 0).unsqueeze(-1).to(memory.values.dtype)
        mean = (memory.values * real).sum(1) / real.expand(len(memory.values), -1, -1).sum(1).clamp(min=1)
        hidden: Tensor = torch.tanh(self.proj(mean)).unflatten(-1, self.shape)  # (batch, parts, layers, width)
        return tuple(h.transpose(0, 1).contiguous() for h in hidden.unbind(1))


@dataclass(frozen=True)
class RecurrentDecoderState:
    """Hidden states, the last output (for input feeding), and the memory as the glimpse keeps it."""

    hidden: Hidden
    output: Tensor  # (batch, width)
    memory: State | None

    def reorder(self, index: Tensor) -> RecurrentDecoderState:
        memory = None if self.memory is None else self.memory.reorder(index)
        return RecurrentDecoderState(tuple(h[:, index] for h in self.hidden), self.output[index], memory)


class RecurrentDecoder(nn.Module):
    """An RNN that writes one token after the other. `glimpse` is None or a layer that attends to the memory under the
    mask `across`; `before` the step, from the last state, or after it, from the new one. `feeding` gives the last
    output to the next step.

    The memory brings the first hidden states, or `first` makes them from the memory.
    """

    def __init__(
        self,
        kind: str,
        width: int,
        layers: int,
        glimpse: Layer | None,
        dropout: float,
        *,
        feeding: bool,
        before: bool = False,
        across: Mask = padding,
        first: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if before and glimpse is None:
            raise ValueError("before=True looks at the memory before each step: pass a glimpse to look with")
        self.rnn = cells(kind, (1 + feeding + before) * width, width, layers, dropout, both=False)
        self.glimpse, self.feeding, self.before, self.across, self.first = glimpse, feeding, before, across, first
        self.output_proj = nn.Linear(width if glimpse is None else 2 * width, width)
        self.dropout = Dropout(dropout)

    def start(self, memory: Context) -> RecurrentDecoderState:
        """Return the state before the first step."""
        hidden = memory.hidden
        if hidden is None:
            if self.first is None:
                raise ValueError(
                    "the memory brings no first hidden states for a recurrent decoder: "
                    "build the decoder with first=FirstHidden(…), which makes them from the memory"
                )
            hidden = self.first(memory)
            assert hidden is not None
        return RecurrentDecoderState(hidden, torch.zeros_like(hidden[0][-1]), None)

    def forward(
        self,
        x: Context,
        memory: Context | None,
        state: RecurrentDecoderState | None = None,
        *,
        keep: bool = False,  # noqa: ARG002
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Return the outputs of all steps of a known target, or of what follows a state, which remembers the memory."""
        if state is None:
            if memory is None:
                raise ValueError("a decoder needs a memory: pass the encoder's context, or a state that has seen it")
            state = self.start(memory)
        values, positions = x.values, x.where()
        if self.before and not self.feeding:
            return self._looking_first(values, positions, memory, state)
        if not self.feeding:
            return self._steps(values, positions, memory, state)
        step = self._looking_first if self.before else self._steps
        outputs = []
        for t in range(values.shape[1]):
            fed = torch.cat((values[:, t : t + 1], state.output.unsqueeze(1)), -1)
            y, state = step(fed, positions[..., t : t + 1], memory, state)
            outputs.append(y)
        return torch.cat(outputs, 1), state

    def _looking_first(
        self, x: Tensor, positions: Tensor, memory: Context | None, state: RecurrentDecoderState
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Take some steps, each after a glimpse from the state before it. Their outputs are made at once."""
        assert self.glimpse is not None
        hidden, seen = state.hidden, state.memory
        states, looks = [], []
        for t in range(x.shape[1]):
            where = positions[..., t : t + 1]
            looked, seen = self.glimpse(hidden[0][-1].unsqueeze(1), memory, where, self.across.at(where), seen)
            y, hidden = self._next(torch.cat((x[:, t : t + 1], looked), -1), hidden)
            states.append(y)
            looks.append(looked)
        output = self._output(torch.cat((torch.cat(states, 1), torch.cat(looks, 1)), -1))
        return self.dropout(output), RecurrentDecoderState(hidden, output[:, -1], seen)

    def _steps(
        self, x: Tensor, positions: Tensor, memory: Context | None, state: RecurrentDecoderState
    ) -> tuple[Tensor, RecurrentDecoderState]:
        """Take some steps whose inputs are all known."""
        y, hidden = self._next(x, state.hidden)
        read, seen = y, state.memory
        if self.glimpse is not None:
            looked, seen = self.glimpse(y, memory, positions, self.across.at(positions), seen)
            read = torch.cat((y, looked), -1)
        output = self._output(read)
        return self.dropout(output), RecurrentDecoderState(hidden, output[:, -1], seen)

    def _next(self, x: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        y, after = self.rnn(x, hidden if len(hidden) == 2 else hidden[0])
        return y, after if isinstance(after, tuple) else (after,)

    def _output(self, read: Tensor) -> Tensor:
        output: Tensor = torch.tanh(self.output_proj(self.dropout(read)))
        return output
