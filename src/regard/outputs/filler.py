"""The networks that fill: p(token at a hidden position | everything that is not hidden)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.backbones.streams import TwoStream
from regard.backbones.transformer import Encoder
from regard.inputs.embedding import Embedding, positions_of
from regard.models.bert import BertEmbedding
from regard.models.stack import first_weights
from regard.outputs.softmax import token_loss


class Batch(NamedTuple):
    """Padded rows (batch, n): START, the tokens, END."""

    ids: Tensor  # as the network may see them
    truth: Tensor  # as they are
    hidden: Tensor  # bool: what is to be predicted
    order: Tensor  # 0 for what is given; hidden positions are predicted in the order of their ranks, 1 …


class Filler(nn.Module, ABC):
    """softmax(E f(x) + b) with E the embedding table, x the state at a hidden position and f a last `transform`."""

    def __init__(self, embedding: BertEmbedding | Embedding, backbone: nn.Module, transform: nn.Module) -> None:
        super().__init__()
        self.embedding, self.backbone, self.transform = embedding, backbone, transform
        self.bias = nn.Parameter(torch.zeros(embedding.table.num_embeddings))

    def states(self, ids: Tensor) -> Tensor:
        """What the network makes of each token where all can be seen, (batch, n, width)."""
        positions = positions_of(ids)
        states: Tensor = self.backbone(self.embedding(ids, positions), positions).values
        return states

    @abstractmethod
    def looking(self, batch: Batch) -> Tensor:
        """The states of the hidden positions alone, (hidden, width), in the order of `batch.truth[batch.hidden]`."""

    def forward(self, batch: Batch) -> Tensor:
        """Logits for the hidden positions, (hidden, vocabulary): nothing else goes through the largest product."""
        return linear(self.transform(self.looking(batch)), self.embedding.table.weight, self.bias)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """The sum of −log p over the hidden tokens, and their number."""
        states, wanted = self.transform(self.looking(batch)), batch.truth[batch.hidden]
        return token_loss(states, self.embedding.table.weight, self.bias, wanted, smoothing), len(wanted)


class Masked(Filler):
    """BERT (Devlin et al. 2019, 3.1): hidden tokens are replaced in the input; f(x) = LayerNorm(gelu(W x + b))."""

    def __init__(self, embedding: BertEmbedding, backbone: Encoder) -> None:
        width = embedding.table.embedding_dim
        transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, embedding.norm.eps))
        super().__init__(embedding, backbone, transform)
        first_weights(transform)

    def looking(self, batch: Batch) -> Tensor:
        return self.states(batch.ids)[batch.hidden]


class Permuted(Filler):
    """XLNet (Yang et al. 2019, 2.2 and 2.3): the last positions of an order are predicted by the query stream, each
    from all that are given and the hidden ones before it; f(x) = x."""

    def __init__(self, embedding: Embedding, backbone: TwoStream) -> None:
        super().__init__(embedding, backbone, nn.Identity())

    def looking(self, batch: Batch) -> Tensor:
        assert isinstance(self.backbone, TwoStream)
        positions, targets = positions_of(batch.ids), targets_of(batch.hidden)
        _, queries = self.backbone.streams(self.embedding(batch.ids, positions), positions, batch.order, targets)
        return queries[targets >= 0]


def targets_of(hidden: Tensor) -> Tensor:
    """The positions of the hidden tokens of each row, (batch, most), filled up with −1."""
    most = max(1, int(hidden.sum(1).max()))
    places = torch.where(hidden, torch.arange(hidden.shape[1]), hidden.shape[1]).sort(1).values[:, :most]
    return places.masked_fill(places == hidden.shape[1], -1)
