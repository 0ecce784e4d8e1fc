"""The head that labels a whole row: a pool of all states, and a softmax over the labels.

    p(label | x) = softmax(W Σ_i a_i h_i + b)

The weights a_i are content attention (a learned query asks every state), 1/n, 1 (DeepSets), or 1 for one state alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from regard.attention import Context, masks, normalisers, scores
from regard.backbones.recurrent import Glimpse
from regard.inputs.input import Batch
from regard.layers.dropout import Dropout
from regard.layers.roles import chosen_among
from regard.network import Network, StatesHead, table_of


class Pool(nn.Module):
    """All states of a row made one: a query asks each of them. It is `learned` where the weights depend on it."""

    def __init__(self, glimpse: Glimpse, width: int, *, learned: bool) -> None:
        super().__init__()
        self.glimpse = glimpse
        self.query = nn.Parameter(torch.empty(width)) if learned else None
        if self.query is not None:
            nn.init.normal_(self.query, std=width**-0.5)

    def forward(self, states: Context) -> Tensor:
        """(batch, n, width) to (batch, width)."""
        values = states.values
        query = values.new_zeros(values.shape[-1]) if self.query is None else self.query
        asked = torch.zeros(1, dtype=torch.long, device=values.device)
        mask = masks.padding.on(asked, states.where())
        read, _ = self.glimpse(query.expand(len(values), 1, -1), states, asked, mask)
        pooled: Tensor = read.squeeze(1)
        return pooled


class OneState(nn.Module):
    """One state alone: that of the first mark (as BERT does it), or of the last (as GPT does it)."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, states: Context) -> Tensor:
        values = states.values
        if not self.last:
            return values[:, 0]
        ends = states.where().expand(len(values), -1).amax(-1)
        return values[torch.arange(len(values), device=values.device), ends]


def pool(kind: str, width: int) -> Pool | OneState:
    """attention (Yang et al. 2016, 2.2: s_i = w · tanh(W h_i + b)), mean, sum, first or last."""
    if kind == "attention":
        return Pool(Glimpse(scores.Additive(width, width, width)), width, learned=True)
    if kind == "mean":
        return Pool(Glimpse(scores.uniform, normalisers.mean), width, learned=False)
    if kind == "sum":
        return Pool(Glimpse(scores.uniform, normalisers.exponential), width, learned=False)  # exp(0) = 1 for each
    return OneState(last=kind == "last")


class ClassifyHead(StatesHead):
    """`language` is the weight of an auxiliary language-model loss, by the `table` of an alphabet as output layer, for
    backbones that only look back."""

    def __init__(
        self,
        pool: Pool | OneState,
        width: int,
        labels: int,
        *,
        dropout: float,
        smoothing: float = 0.0,
        language: float = 0.0,
    ) -> None:
        super().__init__()
        self.pool, self.output = pool, chosen_among(nn.Linear(width, max(1, labels)))
        self.dropout, self.smoothing, self.language = Dropout(dropout), smoothing, language

    def of(self, states: Context) -> Tensor:
        """Return logits of the labels, (batch, 1, labels), from the states of the backbone."""
        logits: Tensor = self.output(self.dropout(self.pool(states)))
        return logits.unsqueeze(1)

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sum of −log p(label); with the auxiliary loss L_3 = L_2 + λ L_1 (Radford et al. 2018, 3.2), L_1
        being the mean −log p(next token) of each row."""
        states = body.features(batch.source)
        loss = cross_entropy(self.of(states)[:, 0], batch.target, reduction="sum", label_smoothing=self.smoothing)
        if not self.language:
            return loss.unsqueeze(0)
        table = table_of(body.stem).weight
        extra = next_tokens(states.values, batch.source.values[0], batch.source.real, table).sum()
        return torch.stack((loss, self.language * extra))


def next_tokens(states: Tensor, ids: Tensor, real: Tensor, table: Tensor) -> Tensor:
    """Return the mean −log p(next token) of each row, by a table as output layer: (batch,)."""
    real = real[:, 1:]
    logits = linear(states[:, :-1][real], table)
    losses = states.new_zeros(real.shape)
    losses[real] = cross_entropy(logits, ids[:, 1:][real], reduction="none")
    return losses.sum(-1) / real.sum(-1).clamp(min=1)
