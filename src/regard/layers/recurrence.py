"""Recurrence over the real elements of padded rows: torch's LSTM, GRU and RNN, and the forgetting recurrence.

    rnn          h ← tanh(W x̄ + U h)                    Elman 1990
    lstm, gru    gates read x and h                     Hochreiter and Schmidhuber 1997, Cho et al. 2014
    forgetting   h ← σ(θ_λᵀ x̄) ⊙ h + θ_xᵀ x̄             the gate reads x alone, so all steps run at once

x̄ is x with a 1 appended: a bias is the last row of its θ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

ROUNDS = 16  # of doubling in an exported graph: rows of up to 65,536 elements
Hidden = tuple[Tensor, ...]  # (h, c) of an LSTM or (h,) of any other, each (layers, batch, width)


class ForgettingRNN(nn.Module):
    """h_t = σ(θ_λᵀ x̄_t) ⊙ h_(t−1) + θ_xᵀ x̄_t: a memory to which every x is added, and of which each x fades a share.

    Called as torch's RNNs are, with padded or packed rows. There is no matrix from state to state, and no step waits
    for the one before it: see `scan`.
    """

    mode = "FORGETTING"

    def __init__(
        self, x_width: int, width: int, layers: int = 1, *, dropout: float, batch_first: bool, bidirectional: bool
    ) -> None:
        super().__init__()
        assert batch_first
        self.input_size, self.hidden_size, self.num_layers, self.dropout = x_width, width, layers, dropout
        self.directions = 2 if bidirectional else 1
        widths = [x_width, *[width * self.directions] * (layers - 1)]
        self.maps = nn.ModuleList([nn.Linear(each, 2 * width) for each in widths for _ in range(self.directions)])

    def forward(self, x: Any, first: Tensor | None = None) -> tuple[Any, Tensor]:
        """Return all states and the last ones, (layers · directions, batch, width)."""
        if not isinstance(x, PackedSequence):
            return self._through(x, None, first)
        rows, lengths = pad_packed_sequence(x, batch_first=True)
        real = (torch.arange(rows.shape[1]) < lengths.unsqueeze(-1)).to(rows.device)
        states, last = self._through(rows, real, first)
        return pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False), last

    def _through(self, x: Tensor, real: Tensor | None, first: Tensor | None) -> tuple[Tensor, Tensor]:
        last = []
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = nn.functional.dropout(x, self.dropout, self.training)
            found = []
            for direction in range(self.directions):
                number = layer * self.directions + direction
                begin = x.new_zeros(len(x), self.hidden_size) if first is None else first[number]
                gate, added = self.maps[number](x).chunk(2, -1)
                keep = gate.sigmoid()
                if real is not None:  # padding neither fades the memory nor adds to it
                    keep, added = (torch.where(real.unsqueeze(-1), y, z) for y, z in ((keep, 1.0), (added, 0.0)))
                states = scan(keep.flip(1), added.flip(1), begin) if direction else scan(keep, added, begin)
                last.append(states[:, -1])
                found.append(states.flip(1) if direction else states)
            x = torch.cat(found, -1)
        return x, torch.stack(last)


def scan(keep: Tensor, added: Tensor, first: Tensor) -> Tensor:
    """Return h_t = keep_t ⊙ h_(t−1) + added_t for all t, (batch, n, width), from h_0 = `first`.

    Two steps are one step, (a, b) then (c, d) is (a c, b c + d): ⌈log₂ n⌉ rounds of doubling give all of them.
    keep ≤ 1, so no product overflows, and nothing is divided.
    """
    if not keep.shape[1]:
        return added
    added = torch.cat(((added[:, :1] + keep[:, :1] * first.unsqueeze(1)), added[:, 1:]), 1)
    if is_exporting():
        return _rounds(keep, added)
    reach = 1
    while reach < keep.shape[1]:
        added = torch.cat((added[:, :reach], added[:, reach:] + keep[:, reach:] * added[:, :-reach]), 1)
        keep = torch.cat((keep[:, :reach], keep[:, reach:] * keep[:, :-reach]), 1)
        reach *= 2
    return added


def _rounds(keep: Tensor, added: Tensor) -> Tensor:
    """Return what `scan` returns, by as many rounds for every length, as one graph for all of them needs."""
    place = torch.arange(keep.shape[1], device=keep.device)
    for reach in (2**i for i in range(ROUNDS)):
        before, there = (place - reach).clamp(min=0), (place >= reach).unsqueeze(-1)
        added = torch.where(there, added + keep * added[:, before], added)
        keep = torch.where(there, keep * keep[:, before], keep)
    return added


Recurrence = nn.LSTM | nn.GRU | nn.RNN | ForgettingRNN
KINDS: dict[str, Callable[..., Recurrence]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn": nn.RNN,
    "forgetting": ForgettingRNN,
}


def memories(kind: str) -> int:
    """Return how many tensors a cell's hidden state is made of."""
    return 2 if kind == "lstm" else 1


def walk(rnn: Recurrence, x: Tensor, positions: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
    """Return the states (batch, n, …) and the last hidden states of an RNN over the real elements of each row.

    Padding (position −1) changes nothing wherever it stands; the states there are 0. A backward reading starts at each
    row's own end.
    """
    if is_exporting():
        return _walk_exported(rnn, x, positions)
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


def _walk_exported(rnn: Recurrence, x: Tensor, positions: Tensor) -> tuple[Tensor, Hidden]:
    """Return the same states and the last h as one graph for all batches, without packing: real elements come first,
    and to be read backward each row is turned round within its own length."""
    real = (positions >= 0).expand(x.shape[0], -1)
    place = torch.arange(x.shape[1], device=x.device)
    lengths = real.sum(-1, keepdim=True)
    goes = torch.where(real, real.long().cumsum(-1), lengths + (~real).long().cumsum(-1)) - 1  # where each element goes
    order = torch.zeros_like(goes).scatter(1, goes, place.expand_as(goes))  # and what comes there
    there = place < lengths
    turned = torch.where(there, lengths - 1 - place, place)
    end = (lengths - 1).clamp(min=0).unsqueeze(-1).expand(-1, -1, rnn.hidden_size)
    y, last = _moved(x, order), []
    for layer in range(rnn.num_layers):
        found = []
        for direction in range(_directions(rnn)):
            states = _direction(rnn, layer, direction, _moved(y, turned) if direction else y, there)
            last.append((states.gather(1, end) * (lengths > 0).unsqueeze(-1)).squeeze(1))
            found.append(_moved(states, turned) if direction else states)
        y = torch.cat(found, -1)
    return _moved(y * there.unsqueeze(-1), goes), (torch.stack(last),)


def _directions(rnn: Recurrence) -> int:
    return rnn.directions if isinstance(rnn, ForgettingRNN) else 2 if rnn.bidirectional else 1


def _direction(rnn: Recurrence, layer: int, direction: int, x: Tensor, there: Tensor) -> Tensor:
    """Return the states of one direction of one layer, read forward."""
    number = layer * _directions(rnn) + direction
    first = x.new_zeros(1, x.shape[0], rnn.hidden_size)
    if isinstance(rnn, ForgettingRNN):
        gate, added = rnn.maps[number](x).chunk(2, -1)
        keep, added = (torch.where(there.unsqueeze(-1), y, z) for y, z in ((gate.sigmoid(), 1.0), (added, 0.0)))
        return scan(keep, added, first[0])
    step: Any = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh}[rnn.mode]
    states: Tensor = step(
        x, (first, first) if rnn.mode == "LSTM" else first, rnn.all_weights[number], True, 1, 0.0, False, False, True
    )[0]  # biases, one layer, no dropout, not training, forward, the batch first
    return states


def _moved(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.gather(1, order.unsqueeze(-1).expand(x.shape))


def cells(kind: str, x_width: int, width: int, layers: int, dropout: float, *, both: bool) -> Recurrence:
    """Return `layers` of cells with dropout between them, reading forward or both ways."""
    between = dropout if layers > 1 else 0.0
    return KINDS[kind](x_width, width, layers, batch_first=True, bidirectional=both, dropout=between)
