"""Recurrence over the real elements of padded rows, with torch's LSTM and GRU."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

Hidden = tuple[Tensor, ...]  # (h,) of a GRU or (h, c) of an LSTM, each (layers, batch, width)
KINDS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}


def walk(rnn: nn.LSTM | nn.GRU, x: Tensor, positions: Tensor, hidden: Hidden | None = None) -> tuple[Tensor, Hidden]:
    """Return the states (batch, n, …) and the last hidden states of an RNN over the real elements of each row.

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
    """Return `layers` of torch's cells with dropout between them, reading forward or both ways."""
    between = dropout if layers > 1 else 0.0
    return KINDS[kind](x_width, width, layers, batch_first=True, bidirectional=both, dropout=between)
