"""Show, Attend and Tell (Xu et al. 2015): an LSTM that looks at a picture before it writes each word.

    h_0 = tanh(W_h ā + b), c_0 = tanh(W_c ā + b)             ā the mean of the features a_i              (3.1.2)
    α_t = softmax_i f_att(a_i, h_(t−1))                       ẑ_t = β_t Σ_i α_ti a_i                      (4.2)
    β_t = σ(w_β · h_(t−1) + b_β)                              the gate: how much of the picture matters  (4.2.1)
    h_t, c_t = LSTM([E y_(t−1); ẑ_t], h_(t−1), c_(t−1))
    o_t = E y_(t−1) + L_h h_t + L_z ẑ_t                       p(y_t) = softmax(W o_t + b)                (3.1.2, eq. 7)

The doubly stochastic penalty λ Σ_i (1 − Σ_t α_ti)² asks the model to look at every place at some time (4.2.1, eq. 14).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.attention import Context, Fixed, Mask, padding, scores
from regard.backbones.recurrent import FirstHidden, Glimpse, RecurrentEncoder
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem
from regard.models.pair import Pair


@dataclass(frozen=True)
class TellState:
    """The state of the LSTM, the memory as the glimpse keeps it, and Σ_t α_t so far, (batch, places)."""

    hidden: Tensor
    cell: Tensor
    memory: Fixed
    looked: Tensor

    def reorder(self, index: Tensor) -> TellState:
        return TellState(self.hidden[index], self.cell[index], self.memory.reorder(index), self.looked[index])


class Teller(nn.Module):
    """The decoder. `gated`: with β_t; `counts`: its state has Σ_t α_t, which the penalty asks for."""

    def __init__(
        self, width: int, dropout: float, *, gated: bool = True, counts: bool = True, across: Mask = padding
    ) -> None:
        super().__init__()
        self.first = FirstHidden("lstm", width, width, 1)
        self.glimpse = Glimpse(scores.Additive(width, width, width))
        self.gate = nn.Linear(width, 1) if gated else None
        self.lstm = nn.LSTMCell(2 * width, width)
        self.of_state, self.of_picture = nn.Linear(width, width), nn.Linear(width, width)
        self.dropout, self.across, self.counts = Dropout(dropout), across, counts

    def start(self, memory: Context) -> TellState:
        """Return the state before the first word."""
        hidden, cell = (part[0] for part in self.first(memory))
        score = self.glimpse.score
        assert isinstance(score, scores.Additive)
        values = memory.values.unsqueeze(1)
        seen = Fixed(score.k_proj(values), values, memory.where())
        return TellState(hidden, cell, seen, memory.values.new_zeros(memory.values.shape[:2]))

    def forward(
        self,
        x: Context,
        memory: Context | None,
        state: TellState | None = None,
        *,
        keep: bool = False,  # noqa: ARG002
    ) -> tuple[Tensor, TellState]:
        """Return the outputs of all steps of a known caption, or of what follows a state."""
        if state is None:
            if memory is None:
                raise ValueError("a decoder needs a memory: pass the encoder's context, or a state")
            state = self.start(memory)
        positions, outputs = x.where(), []
        for t in range(x.values.shape[1]):
            where = positions[..., t : t + 1]
            output, state = self._step(x.values[:, t], where, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def _step(self, word: Tensor, where: Tensor, state: TellState) -> tuple[Tensor, TellState]:
        glimpse, memory = self.glimpse, state.memory
        seen, _ = glimpse(state.hidden.unsqueeze(1), None, where, self.across.at(where), memory)
        picture = seen.squeeze(1)
        looked = state.looked
        if self.counts and torch.is_grad_enabled():
            looked = looked + self._weights(state, where)
        if self.gate is not None:
            picture = self.gate(state.hidden).sigmoid() * picture
        hidden, cell = self.lstm(torch.cat((word, picture), -1), (state.hidden, state.cell))
        output = word + self.of_state(self.dropout(hidden)) + self.of_picture(picture)
        return self.dropout(output), TellState(hidden, cell, memory, looked)

    def _weights(self, state: TellState, where: Tensor) -> Tensor:
        """Return α_t, (batch, places); 0 after the end of a caption."""
        score, memory = self.glimpse.score, state.memory
        assert isinstance(score, scores.Additive)
        q = score.q_proj(state.hidden[:, None, None])
        allowed = (memory.positions >= 0).expand(len(q), -1)[:, None, None]
        weights: Tensor = self.glimpse.attention.normalise(score.compare(q, memory.k), allowed)
        real = (where >= 0).expand(len(q), -1)
        return weights[:, 0, 0] * real.to(weights.dtype)


def show_attend_tell(*, width: int, dropout: float = 0.1, gated: bool = True, penalty: float = 1.0) -> Pair:
    """Build the decoder, and an LSTM that reads sequences, which an encoder of pictures replaces."""
    encoder = RecurrentEncoder("lstm", width, 1, dropout, seen=True)
    stem, target = (Stem(width, None, dropout, scale=False) for _ in "st")
    return Pair(stem, encoder, target, Teller(width, dropout, gated=gated, counts=penalty > 0))


def doubly_stochastic(state: TellState) -> Tensor:
    """Return Σ_i (1 − Σ_t α_ti)² over the real places of all rows."""
    return ((1 - state.looked).square() * (state.memory.positions >= 0)).sum()
