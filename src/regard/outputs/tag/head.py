"""The head that labels every unit: scores of the tags, and a choice from them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import Context
from regard.inputs.input import Batch
from regard.layers.dropout import Dropout
from regard.layers.roles import chosen_among
from regard.network import Network, StatesHead, spoken


class Tagged(NamedTuple):
    """The class of each unit, (batch, m), and True where there is one: units without a label count nowhere."""

    classes: Tensor
    real: Tensor


class Choice(Protocol):
    """The choice of tags from the scores (batch, m, tags) of the units that are `real`."""

    def loss(self, scores: Tensor, tags: Tensor, real: Tensor, smoothing: float) -> Tensor:
        """Return −log p of the right tags, summed."""

    def best(self, scores: Tensor, real: Tensor) -> Tensor:
        """Return the most probable tags, (batch, m)."""

    def probabilities(self, scores: Tensor, real: Tensor) -> Tensor:
        """Return the probability of each tag for each unit, (batch, m, tags)."""


class Independent(nn.Module):
    """A softmax for each unit: p(tags | x) = Π_i softmax(s_i)[tag_i]."""

    def loss(self, scores: Tensor, tags: Tensor, real: Tensor, smoothing: float) -> Tensor:
        return cross_entropy(scores[real], tags[real], reduction="sum", label_smoothing=smoothing)

    def best(self, scores: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        return scores.argmax(-1)

    def probabilities(self, scores: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        return scores.softmax(-1)


class TagHead(StatesHead):
    """The scores of the tags of each unit are a linear map of the vector that speaks for it."""

    def __init__(self, width: int, tags: int, choice: Choice, *, dropout: float, smoothing: float = 0.0) -> None:
        super().__init__()
        self.output, self.choice = chosen_among(nn.Linear(width, max(1, tags))), choice
        self.dropout, self.smoothing = Dropout(dropout), smoothing

    def of(self, states: Context) -> Tensor:
        """Return the score of each tag for each unit, (batch, m, tags), from the states of the backbone."""
        scores: Tensor = self.output(self.dropout(spoken(states)))
        return scores

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:  # noqa: ARG002
        """Return −log p of the tags, summed."""
        target: Tagged = batch.target
        return self.choice.loss(self(body, batch), target.classes, target.real, self.smoothing).unsqueeze(0)
