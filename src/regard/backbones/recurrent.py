"""Recurrent encoder and decoder: nothing but the last state crosses, or a glimpse of all encoder states at every step.

    h_t = RNN([e(y_(t−1)); o_(t−1)], h_(t−1))        c_t = glimpse(h_t, encoder states)        o_t = tanh(W [h_t; c_t])

The glimpse is nothing (Sutskever et al. 2014), the mean of the states, or attention (Bahdanau et al. 2015, Luong et al.
2015). Feeding o_(t−1) back is Luong's input feeding (3.3); without it all steps of a known target run at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import Attention, Context, Fixed, masks, normalisers, scores
from regard.attention.equation import AnyMask, default_positions
from regard.backbones.dropout import Dropout

Hidden = tuple[Tensor, ...]  # (h,) of a GRU or (h, c) of an LSTM, each (layers, batch, width)
KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


class Memory(NamedTuple):
    """What the encoder hands over: its states as a context, and the decoder's first hidden state."""

    values: Tensor
    positions: Tensor
    hidden: Hidden


class Encoder(nn.Module):
    """Reads both ways; its last states and, if they are `seen` by the decoder, all states get the decoder's width."""

    def __init__(self, kind: str, width: int, layers: int, dropout: float, *, seen: bool) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.rnn = KINDS[kind](width, width, layers, batch_first=True, bidirectional=True, dropout=between)
        self.layers, self.dropout = layers, Dropout(dropout)
        self.states_proj = nn.Linear(2 * width, width) if seen else None
        self.hidden_proj = nn.ModuleList([nn.Linear(2 * width, width) for _ in range(2 if kind == "lstm" else 1)])

    def forward(self, x: Tensor, positions: Tensor) -> Memory:
        batch, length = x.shape[:2]
        lengths = (positions >= 0).sum(-1).expand(batch).clamp(min=1)
        # Packed, so that the backward reading starts at each row's own end: padding changes nothing.
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        out, last = self.rnn(packed)
        states, _ = pad_packed_sequence(out, batch_first=True, total_length=length)
        last = last if isinstance(last, tuple) else (last,)
        both = (h.view(self.layers, 2, batch, -1).transpose(1, 2).flatten(2) for h in last)
        hidden = tuple(torch.tanh(proj(h)) for proj, h in zip(self.hidden_proj, both, strict=True))
        seen = states if self.states_proj is None else self.dropout(self.states_proj(states))
        return Memory(seen, positions, hidden)


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
        between = dropout if layers > 1 else 0.0
        self.rnn = KINDS[kind]((2 if feeding else 1) * width, width, layers, batch_first=True, dropout=between)
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
