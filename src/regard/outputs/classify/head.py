"""The head that labels a whole row: a pool of all states, and a softmax over the labels.

    p(label | x) = softmax(W Σ_i a_i h_i + b)

| pooling | a_i |
|---|---|
| attention | softmax over i of w · tanh(V h_i + v): a learned query asks every state (Yang et al. 2016, 2.2) |
| gate | σ(θ_λᵀ h̄_i): a gate for each state alone. Nothing makes gates compete, so they may learn to open for all |
| forgetting | γ^(n−i): the last state counts 1, each earlier one γ times the next |
| mean, sum | 1/n, and 1 (DeepSets) |
| first, last | 1 for one state alone |

h̄ is h with a 1 appended. A composite memory Σ_i a_i θᵀh_i is θᵀ Σ_i a_i h_i: its θ is W.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from regard.attention import Context, masks, normalisers, positions, scores
from regard.backbones.recurrent import Glimpse
from regard.inputs.input import Batch
from regard.layers.dropout import Dropout
from regard.layers.roles import chosen_among
from regard.network import Network, StatesHead, table_of


class Pool(nn.Module):
    """All states of a row made one: a query, from the place of the last, asks each of them. The query is `learned`
    where the weights depend on it; the weights tell of the states where they are `content` weights."""

    def __init__(self, glimpse: Glimpse, width: int, *, learned: bool = False, content: bool = False) -> None:
        super().__init__()
        self.glimpse, self.content = glimpse, content
        self.query = nn.Parameter(torch.empty(width)) if learned else None
        if self.query is not None:
            nn.init.normal_(self.query, std=width**-0.5)

    def forward(self, states: Context) -> Tensor:
        """(batch, n, width) to (batch, width)."""
        values = states.values
        query = values.new_zeros(values.shape[-1]) if self.query is None else self.query
        where = states.where().expand(values.shape[0], -1)
        asked = where.amax(-1, keepdim=True).clamp(min=0)
        mask = masks.padding.on(asked, where)
        read, _ = self.glimpse(query.expand(values.shape[0], 1, -1), states._replace(positions=where), asked, mask)
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
        ends = states.where().expand(values.shape[0], -1).amax(-1)
        return values[torch.arange(values.shape[0], device=values.device), ends]


def pool(kind: str, width: int, gamma: float = 0.9) -> Pool | OneState:
    """Return the pool of this name; `gamma` is the share that forgetting keeps of each step."""
    if kind == "attention":
        return Pool(Glimpse(scores.Additive(width, width, width)), width, learned=True, content=True)
    if kind == "gate":
        return Pool(Glimpse(scores.Content(width, 1), normalisers.sigmoid), width, content=True)
    if kind == "forgetting":
        return Pool(Glimpse(scores.uniform, normalisers.exponential, positions.Decay(gamma)), width)
    if kind == "mean":
        return Pool(Glimpse(scores.uniform, normalisers.mean), width)
    if kind == "sum":
        return Pool(Glimpse(scores.uniform, normalisers.exponential), width)  # exp(0) = 1 for each
    return OneState(last=kind == "last")


Measure = Callable[..., Tensor]  # of answers, targets and, if they differ, the weights of the rows


def label_loss(smoothing: float) -> Measure:
    """Return Σ −log p(label), with label smoothing, from logits (batch, labels) and labels (batch,)."""

    def measure(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        if weights is None:
            return cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing)
        return (weights * cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)).sum()

    return measure


def square_loss(numbers: Tensor, wanted: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return Σ (answered − expected)² of numbers (batch, 1) and (batch,)."""
    squares = (numbers[:, 0] - wanted).square()
    return squares.sum() if weights is None else (weights * squares).sum()


class ClassifyHead(StatesHead):
    """`measure` is the loss of what the output layer says. `language` is the weight of an auxiliary language-model
    loss, by the `table` of an alphabet as output layer, for backbones that only look back."""

    def __init__(
        self,
        pool: Pool | OneState,
        width: int,
        labels: int,
        *,
        dropout: float,
        measure: Measure,
        language: float = 0.0,
    ) -> None:
        super().__init__()
        self.pool, self.output = pool, chosen_among(nn.Linear(width, max(1, labels)))
        self.dropout, self.measure, self.language = Dropout(dropout), measure, language

    def of(self, states: Context) -> Tensor:
        """Return logits of the labels, (batch, 1, labels), from the states of the backbone."""
        logits: Tensor = self.output(self.dropout(self.pool(states)))
        return logits.unsqueeze(1)

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sum of the losses L_2 of the labels; with the auxiliary loss L_3 = L_2 + λ L_1 (Radford et al.
        2018, 3.2), L_1 being the mean −log p(next token) of each row."""
        states = body.features(batch.source)
        logits, shares = self.of(states)[:, 0], batch.source.shares
        if shares is None:
            loss = self.measure(logits, batch.target)
        else:  # of two things that are mixed, each counts by its share
            one, other = batch.target.split(len(logits))
            loss = self.measure(logits, one, shares) + self.measure(logits, other, 1 - shares)
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
