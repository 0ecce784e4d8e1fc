"""Recurrent encoder and decoder: nothing but the last state crosses, or a glimpse of all encoder states at every step.

    h_t = RNN([e(y_(t−1)); o_(t−1)], h_(t−1))        c_t = glimpse(h_t, encoder states)        o_t = tanh(W [h_t; c_t])

The glimpse is nothing (Sutskever et al. 2014), the mean of the states, or attention (Bahdanau et al. 2015, Luong et al.
2015). Feeding o_(t−1) back is Luong's input feeding (3.3); without it all steps of a known target run at once.

Alone, an RNN is a backbone like a Transformer: `Reader` reads both ways, `Causal` forward only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import Attention, Context, Fixed, MultiHead, masks, normalisers, scores
from regard.attention.equation import AnyMask, default_positions
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Residual

Hidden = tuple[Tensor, ...]  # (h,) of a GRU or (h, c) of an LSTM, each (layers, batch, width)
KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def walk(rnn: nn.LSTM | nn.GRU, x: Tensor, positions: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
    """The states (batch, n, …) and the last hidden states of an RNN over the real elements of each row.

    Padding (position −1) changes nothing wherever it stands; the states there are 0. A backward reading starts at each
    row's own end.
    """
    given = hidden if hidden is None or len(hidden) == 2 else hidden[0]
    if not bool((positions < 0).any()):
        states, last = rnn(x, given)
        return states, last if isinstance(last, tuple) else (last,)
    real = (positions >= 0).expand(len(x), -1)
    scattered = bool((real[:, 1:] > real[:, :-1]).any())
    order = real.long().argsort(dim=-1, descending=True, stable=True) if scattered else None
    lengths = real.sum(-1)
    packed = pack_padded_sequence(_moved(x, order), lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
    out, last = rnn(packed, given)
    states, _ = pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])
    last = last if isinstance(last, tuple) else (last,)
    nothing = (lengths == 0).unsqueeze(-1)  # packing takes no empty row: their one step is undone
    if bool(nothing.any()):
        states = states.masked_fill(nothing.unsqueeze(-1), 0.0)
        before = hidden or tuple(torch.zeros_like(h) for h in last)
        last = tuple(torch.where(nothing, old, new) for old, new in zip(before, last, strict=True))
    return _moved(states, None if order is None else order.argsort(-1)), last


def _moved(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.gather(1, order.unsqueeze(-1).expand(x.shape))


def cells(kind: str, x_width: int, width: int, layers: int, dropout: float, *, both: bool) -> nn.LSTM | nn.GRU:
    """`layers` of torch's cells, with dropout between them, read forward or both ways."""
    between = dropout if layers > 1 else 0.0
    return KINDS[kind](x_width, width, layers, batch_first=True, bidirectional=both, dropout=between)


class Memory(NamedTuple):
    """What the encoder hands over: its states as a context, and the decoder's first hidden state."""

    values: Tensor
    positions: Tensor
    hidden: Hidden


class Encoder(nn.Module):
    """Reads both ways; its last states and, if they are `seen` by the decoder, all states get the decoder's width."""

    def __init__(self, kind: str, width: int, layers: int, dropout: float, *, seen: bool) -> None:
        super().__init__()
        self.rnn = cells(kind, width, width, layers, dropout, both=True)
        self.layers, self.dropout = layers, Dropout(dropout)
        self.states_proj = nn.Linear(2 * width, width) if seen else None
        self.hidden_proj = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2 if kind == "lstm" else 1)])

    def forward(self, x: Tensor, positions: Tensor) -> Memory:
        states, last = walk(self.rnn, x, positions)
        both = (h.view(self.layers, 2, len(x), -1).transpose(1, 2).flatten(2) for h in last)
        hidden = tuple(torch.tanh(proj(h)) for proj, h in zip(self.hidden_proj, both, strict=True))
        seen = states if self.states_proj is None else self.dropout(self.states_proj(states))
        return Memory(seen, positions, hidden)


class Reader(nn.Module):
    """Reads both ways: half of each state's width is what came before, the other half what comes after."""

    def __init__(self, kind: str, x_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        if width % 2:
            raise ValueError(f"a reader's width is shared by its two directions: it must be even, found {width}")
        self.rnn = cells(kind, x_width, width // 2, layers, dropout, both=True)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, positions: Tensor) -> Context:
        return Context(self.dropout(walk(self.rnn, x, positions)[0]), positions)


class Attentive(nn.Module):
    """Self-attention over the states of a reader: RNN + self-attention. `around` is the path around the attention."""

    def __init__(self, reader: Reader, attention: MultiHead, around: Residual) -> None:
        super().__init__()
        self.reader, self.attention, self.around = reader, attention, around

    def forward(self, x: Tensor, positions: Tensor) -> Context:
        states = self.reader(x, positions).values
        y, _ = self.attention(self.around.enter(states), None, positions, masks.padding.on(positions, positions))
        return Context(self.around.leave(states, y), positions)


@dataclass(frozen=True)
class CausalState:
    """Everything that an RNN knows of the past."""

    hidden: Hidden

    def reorder(self, index: Tensor) -> CausalState:
        return CausalState(tuple(h[:, index] for h in self.hidden))


class Causal(nn.Module):
    """Reads forward only: the interface of the Transformer's `Causal`."""

    def __init__(self, kind: str, x_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.rnn, self.dropout = cells(kind, x_width, width, layers, dropout, both=False), Dropout(dropout)

    def forward(
        self, x: Tensor, positions: Tensor, state: CausalState | None = None, *, keep: bool = False
    ) -> tuple[Tensor, CausalState | None]:
        y, hidden = walk(self.rnn, x, positions, None if state is None else state.hidden)
        return self.dropout(y), CausalState(hidden) if keep or state is not None else None


class Glimpse(nn.Module):
    """Attention of one head whose keys and values are the encoder states themselves, by any score and normaliser.

    The same interface as MultiHead, which is the key/query/value and multi-head form of a glimpse.
    """

    def __init__(self, score: scores.Score, normalise: normalisers.Normaliser = normalisers.softmax) -> None:
        super().__init__()
        self.score = score
        compare = score.compare if isinstance(score, scores.Additive | scores.MLP) else score
        self.attention = Attention(score=compare, normalise=normalise)

    def forward(
        self, x: Tensor, context: Context | None, positions: Tensor | None, mask: AnyMask, state: Fixed | None = None
    ) -> tuple[Tensor, Fixed]:
        split = self.score if isinstance(self.score, scores.Additive | scores.MLP) else None
        if state is None:
            assert context is not None
            values = context.values.unsqueeze(1)
            keys = values if split is None else split.k_proj(values)
            state = Fixed(keys, values, default_positions(context.positions, values.shape[-2], values))
        q = x.unsqueeze(1) if split is None else split.q_proj(x.unsqueeze(1))
        positions = default_positions(positions, x.shape[-2], x)
        return self.attention(q, state.k, state.v, mask, positions, state.positions).squeeze(1), state


@dataclass(frozen=True)
class DecoderState:
    """Hidden states, the last output (for input feeding), and the memory as the glimpse keeps it."""

    hidden: Hidden
    output: Tensor  # (batch, width)
    memory: Fixed | None
    positions: Tensor

    def reorder(self, index: Tensor) -> DecoderState:
        positions = self.positions[index] if self.positions.dim() == 2 else self.positions
        memory = self.memory and self.memory.reorder(index)
        return DecoderState(tuple(h[:, index] for h in self.hidden), self.output[index], memory, positions)


class Decoder(nn.Module):
    """Writes one token after the other. `glimpse` is None, a Glimpse, or a MultiHead."""

    def __init__(
        self, kind: str, width: int, layers: int, glimpse: nn.Module | None, dropout: float, *, feeding: bool
    ) -> None:
        super().__init__()
        self.rnn = cells(kind, (2 if feeding else 1) * width, width, layers, dropout, both=False)
        self.glimpse, self.feeding = glimpse, feeding
        self.output_proj = nn.Linear(width if glimpse is None else 2 * width, width)
        self.dropout = Dropout(dropout)

    def start(self, memory: Memory) -> DecoderState:
        return DecoderState(memory.hidden, torch.zeros_like(memory.hidden[0][-1]), None, memory.positions)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        memory: Memory | None,
        state: DecoderState | None = None,
        *,
        keep: bool = False,  # noqa: ARG002
    ) -> tuple[Tensor, DecoderState]:
        if state is None:
            assert memory is not None
            state = self.start(memory)
        context = memory and Context(memory.values, memory.positions)
        if not self.feeding:
            return self._steps(x, positions, context, state)
        outputs = []
        for t in range(x.shape[1]):
            fed = torch.cat((x[:, t : t + 1], state.output.unsqueeze(1)), -1)
            y, state = self._steps(fed, positions[..., t : t + 1], context, state)
            outputs.append(y)
        return torch.cat(outputs, 1), state

    def _steps(
        self, x: Tensor, positions: Tensor, context: Context | None, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Some steps whose inputs are all known."""
        y, hidden = self.rnn(x, state.hidden if len(state.hidden) == 2 else state.hidden[0])
        read, memory = y, state.memory
        if self.glimpse is not None:
            mask = masks.padding.on(positions, state.positions)
            seen, memory = self.glimpse(y, context, positions, mask, memory)
            read = torch.cat((y, seen), -1)
        output = torch.tanh(self.output_proj(self.dropout(read)))
        hidden = hidden if isinstance(hidden, tuple) else (hidden,)
        return self.dropout(output), DecoderState(hidden, output[:, -1], memory, state.positions)
