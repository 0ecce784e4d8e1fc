"""The heads that fill: p(element at a hidden position | everything that is not hidden)."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_exporting
from torch.nn.functional import linear

from regard.backbones.streams import TwoStream
from regard.inputs.input import Batch
from regard.layers.first_weights import first_weights
from regard.layers.softmax import token_loss
from regard.network import Head, Network, table_of


class Hidden(NamedTuple):
    """Padded rows (batch, n) with their marks."""

    truth: Tensor  # the elements as they are
    hidden: Tensor  # bool: what is to be predicted
    order: Tensor  # 0 for what is given; hidden positions are predicted in the order of their ranks, 1 …


class FillHead(Head):
    """softmax(E f(x) + b) with E the `table`, x the state at a hidden position and f a last `transform`."""

    def __init__(self, rows: int, transform: nn.Module, smoothing: float = 0.0) -> None:
        super().__init__()
        self.transform, self.smoothing = transform, smoothing
        self.bias = nn.Parameter(torch.zeros(rows))

    @abstractmethod
    def looking(self, body: Network, batch: Batch) -> Tensor:
        """Return the states of the hidden positions alone, (hidden, width), in the order of `truth[hidden]`."""

    def forward(self, body: Network, batch: Batch) -> Tensor:
        """Return logits for the hidden positions alone, (hidden, 1, alphabet)."""
        states = self.transform(self.looking(body, batch))
        return linear(states, table_of(body.stem).weight, self.bias).unsqueeze(1)

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return the sum of −log p over the hidden elements."""
        states, wanted = self.transform(self.looking(body, batch)), batch.target.truth[batch.target.hidden]
        return token_loss(states, table_of(body.stem).weight, self.bias, wanted, self.smoothing).unsqueeze(0)


class MaskedHead(FillHead):
    """BERT (Devlin et al. 2019, 3.1): hidden elements are replaced in the input; f(x) = LayerNorm(gelu(W x + b))."""

    def __init__(self, rows: int, width: int, epsilon: float = 1e-12, smoothing: float = 0.0) -> None:
        transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, epsilon))
        super().__init__(rows, transform, smoothing)
        first_weights(transform)

    def looking(self, body: Network, batch: Batch) -> Tensor:
        return body.features(batch.source).values[batch.target.hidden]


class PermutedHead(FillHead):
    """XLNet (Yang et al. 2019, 2.2 and 2.3): the last positions of an order are predicted by the query stream, each
    from all that are given and the hidden ones before it; f(x) = x."""

    def __init__(self, rows: int, smoothing: float = 0.0) -> None:
        super().__init__(rows, nn.Identity(), smoothing)

    def looking(self, body: Network, batch: Batch) -> Tensor:
        assert isinstance(body.backbone, TwoStream)
        targets = targets_of(batch.target.hidden)
        _, queries = body.backbone.streams(body.stem(batch.source), batch.target.order, targets)
        return queries[targets >= 0]


def targets_of(hidden: Tensor) -> Tensor:
    """Return the positions of the hidden elements of each row, (batch, most), filled up with −1."""
    most = hidden.shape[1] if is_exporting() else max(1, int(hidden.sum(1).max()))
    where = torch.arange(hidden.shape[1], device=hidden.device)
    places = torch.where(hidden, where, hidden.shape[1]).sort(1).values[:, :most]
    return places.masked_fill(places == hidden.shape[1], -1)
