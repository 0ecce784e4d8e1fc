"""The network that tags every word: embedding, backbone, and a choice of tags from the scores of each word.

The words are the tokens themselves, or each is cut into sub-words and its first one speaks for it (Devlin et al. 2019).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.backbones.dropout import Dropout
from regard.inputs.embedding import positions_of
from regard.inputs.tokens import PAD
from regard.inputs.words import Forgetting


class Batch(NamedTuple):
    """Padded rows of n tokens that make up m words."""

    ids: Tensor  # (batch, n)
    tags: Tensor  # (batch, m), classes
    firsts: Tensor | None  # (batch, m): where each word begins, −1 for padding; None if every token is a word
    more: tuple[Tensor, ...]  # what the embedding reads beside ids and positions: the words' spellings

    @property
    def real(self) -> Tensor:
        """Where words are, (batch, m)."""
        return self.ids != PAD if self.firsts is None else self.firsts >= 0


class Choice(Protocol):
    """How tags are chosen from the scores (batch, m, tags) of the words that are `real`."""

    def loss(self, scores: Tensor, tags: Tensor, real: Tensor, smoothing: float) -> Tensor:
        """−log p of the right tags, summed."""

    def best(self, scores: Tensor, real: Tensor) -> Tensor:
        """The most probable tags, (batch, m)."""

    def probabilities(self, scores: Tensor, real: Tensor) -> Tensor:
        """Of each tag for each word, (batch, m, tags)."""


class Independent(nn.Module):
    """A softmax for each word: p(tags | x) = Π_i softmax(s_i)[tag_i]."""

    def loss(self, scores: Tensor, tags: Tensor, real: Tensor, smoothing: float) -> Tensor:
        return cross_entropy(scores[real], tags[real], reduction="sum", label_smoothing=smoothing)

    def best(self, scores: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        return scores.argmax(-1)

    def probabilities(self, scores: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        return scores.softmax(-1)


class Tagger(nn.Module):
    def __init__(
        self,
        embedding: nn.Module,
        backbone: nn.Module,
        head: nn.Linear,
        choice: Choice,
        *,
        dropout: float,
        forget: float,
    ) -> None:
        super().__init__()
        self.embedding, self.backbone, self.head, self.choice = embedding, backbone, head, choice
        self.dropout, self.forget = Dropout(dropout), Forgetting(forget)

    def embed(self, batch: Batch) -> Tensor:
        x: Tensor = self.embedding(self.forget(batch.ids), positions_of(batch.ids), *batch.more)
        return x

    def scores(self, x: Tensor, batch: Batch) -> Tensor:
        """The score of each tag for each word, from the tokens' vectors."""
        states: Tensor = self.backbone(x, positions_of(batch.ids))[0]
        if batch.firsts is not None:
            where = batch.firsts.clamp(min=0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
            states = states.gather(1, where)
        scores: Tensor = self.head(self.dropout(states))
        return scores

    def forward(self, batch: Batch) -> Tensor:
        """The score of each tag for each word, (batch, m, tags)."""
        return self.scores(self.embed(batch), batch)

    def loss(self, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, int]:
        """−log p of the tags, summed, and the number of words."""
        real = batch.real
        return self.choice.loss(self(batch), batch.tags, real, smoothing), int(real.sum())
