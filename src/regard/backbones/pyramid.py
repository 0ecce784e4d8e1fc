"""The pyramidal BiLSTM of Listen, Attend and Spell (Chan et al. 2016, 3.1).

    h^j_i = BLSTM(h^j_(i−1), [h^(j−1)_(2i); h^(j−1)_(2i+1)])

Each layer but the first reads two states of the one below at once, so that n vectors become ⌈n / 2⌉. A vector keeps the
position of the first one that it stands for.
"""

from __future__ import annotations

from torch import nn
from torch.nn.functional import pad

from regard.attention import Context
from regard.backbones.recurrent import BidirectionalRNN


class Pyramid(nn.Module):
    """A bidirectional RNN, and `halvings` more, each over pairs of states."""

    def __init__(self, kind: str, width: int, halvings: int, dropout: float) -> None:
        super().__init__()
        self.first = BidirectionalRNN(kind, width, width, 1, dropout)
        self.layers = nn.ModuleList(BidirectionalRNN(kind, 2 * width, width, 1, dropout) for _ in range(halvings))

    def forward(self, context: Context) -> Context:
        context = self.first(context)
        for layer in self.layers:
            context = layer(paired_up(context))
        return context


def paired_up(context: Context) -> Context:
    """Return two neighbouring vectors as one, at the position of the first; beyond the end of a row are zeros."""
    where = context.where()
    values = context.values * (where >= 0).unsqueeze(-1)
    values = pad(values, (0, 0, 0, values.shape[1] % 2)).unflatten(1, (-1, 2)).flatten(2)
    units, (frames, *rest) = context.units, context.stride or (1, 1, 1)
    if units is not None:
        units = units.div(2, rounding_mode="floor")  # −1 stays −1
    stride = (2 * frames, rest[0], rest[1])
    return context._replace(values=values, positions=where[..., ::2], units=units, stride=stride)
