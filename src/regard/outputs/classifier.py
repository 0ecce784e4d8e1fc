"""The network that labels a whole text: embedding, backbone, a pool of all states, and a softmax over the labels.

    p(label | x) = softmax(W Σ_i a_i h_i + b)

The weights a_i are content attention (a learned query asks every state), 1/n, 1 (DeepSets), or 1 for one state alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from regard.attention import Context, masks, normalisers, scores
from regard.backbones.dropout import Dropout
from regard.backbones.recurrent import Glimpse
from regard.inputs.embedding import positions_of
from regard.inputs.tokens import PAD
from regard.inputs.words import Forgetting


class Batch(NamedTuple):
    """Padded ids and the class of each row."""

    ids: Tensor  # (batch, n)
    labels: Tensor  # (batch,)


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
        values, positions = states
        assert positions is not None
        query = values.new_zeros(values.shape[-1]) if self.query is None else self.query
        asked = torch.zeros(1, dtype=torch.long, device=values.device)
        read, _ = self.glimpse(query.expand(len(values), 1, -1), states, asked, masks.padding.on(asked, positions))
        pooled: Tensor = read.squeeze(1)
        return pooled


class Place(nn.Module):
    """One state alone: that of the first token (START, as BERT does it), or of the last (END, as GPT does it)."""

    def __init__(self, *, last: bool) -> None:
        super().__init__()
        self.last = last

    def forward(self, states: Context) -> Tensor:
        values, positions = states
        assert positions is not None
        if not self.last:
            return values[:, 0]
        ends = positions.expand(len(values), -1).amax(-1)
        return values[torch.arange(len(values), device=values.device), ends]


def pool(kind: str, width: int) -> Pool | Place:
    """attention (Yang et al. 2016, 2.2: s_i = w · tanh(W h_i + b)), mean, sum, first or last."""
    if kind == "attention":
        return Pool(Glimpse(scores.Additive(width, width, width)), width, learned=True)
    if kind == "mean":
        return Pool(Glimpse(scores.uniform, normalisers.mean), width, learned=False)
    if kind == "sum":
        return Pool(Glimpse(scores.uniform, normalisers.exponential), width, learned=False)  # exp(0) = 1 for each
    return Place(last=kind == "last")


class Classifier(nn.Module):
    """`language` is the weight of an auxiliary language-model loss, for backbones that only look back."""

    def __init__(
        self,
        embedding: nn.Module,
        backbone: nn.Module,
        pool: Pool | Place,
        head: nn.Linear,
        *,
        dropout: float,
        forget: float,
        language: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding, self.backbone, self.pool, self.head = embedding, backbone, pool, head
        self.dropout, self.forget, self.language = Dropout(dropout), Forgetting(forget), language

    def embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.embedding(self.forget(ids), positions_of(ids))
        return x

    def states(self, x: Tensor, positions: Tensor) -> Tensor:
        """What the backbone says of each token: (batch, n, width)."""
        states: Tensor = self.backbone(x, positions)[0]
        return states

    def logits(self, states: Tensor, positions: Tensor) -> Tensor:
        pooled = self.dropout(self.pool(Context(states, positions)))
        logits: Tensor = self.head(pooled)
        return logits

    def forward(self, batch: Batch) -> Tensor:
        """Logits of the labels, (batch, labels)."""
        positions = positions_of(batch.ids)
        return self.logits(self.states(self.embed(batch.ids), positions), positions)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The sum of −log p(label), with label smoothing, and the number of rows; L_3 = L_2 + λ L_1 with the auxiliary
        loss (Radford et al. 2018, 3.2), L_1 the mean −log p(next token) of each row."""
        positions = positions_of(batch.ids)
        states = self.states(self.embed(batch.ids), positions)
        logits = self.logits(states, positions)
        loss = cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)
        if self.language:
            loss = loss + self.language * self.next_tokens(states, batch.ids).sum()
        return loss, len(batch.labels)

    def next_tokens(self, states: Tensor, ids: Tensor) -> Tensor:
        """The mean −log p(next token) of each row, by the embedding's table as output layer: (batch,)."""
        table = self.embedding.table
        assert isinstance(table, nn.Embedding)
        real = ids[:, 1:] != PAD
        logits = linear(states[:, :-1][real], table.weight)
        losses = states.new_zeros(real.shape)
        losses[real] = cross_entropy(logits, ids[:, 1:][real], reduction="none")
        return losses.sum(-1) / real.sum(-1).clamp(min=1)
