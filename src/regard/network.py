"""The only network that the training loop knows: stem → backbone → head."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.attention.positions import LearnedTable
from regard.attention.shortened import LengthProjection
from regard.inputs.input import Batch, Source

BETAS = (0.9, 0.98)  # of Adam's running means


class Player(NamedTuple):
    """The parameters that one turn of a step updates, and their learning rate as a factor of `training.rate`; `betas`
    are Adam's, where they differ from the usual ones."""

    parameters: tuple[nn.Parameter, ...]
    rate: float = 1.0
    betas: tuple[float, float] = BETAS


class Head(nn.Module, ABC):
    """From the features of an input to a loss."""

    @abstractmethod
    def forward(self, body: Network, batch: Batch) -> Tensor:
        """Return the scores of everything that may be answered, (batch, answers, choices)."""

    @abstractmethod
    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        """Return one sum for each term of the loss, (terms,)."""


class StatesHead(Head):
    """A head whose scores come from the states of the backbone alone."""

    @abstractmethod
    def of(self, states: Context) -> Tensor:
        """Return the scores of states, (batch, answers, choices)."""

    def forward(self, body: Network, batch: Batch) -> Tensor:
        return self.of(body.features(batch.source))


class TurnsHead(Head):
    """A head whose training has several players, one for each turn of a step."""

    @abstractmethod
    def players(self, body: Network) -> Mapping[str, Player]:
        """Return the weights that each turn changes."""


class Network(nn.Module):
    """`stem` makes vectors of a Source, `backbone` features of vectors, and `head` a loss of features."""

    def __init__(self, stem: nn.Module, backbone: nn.Module, head: Head) -> None:
        super().__init__()
        self.stem, self.backbone, self.head = stem, backbone, head
        self.engine: Callable[[Batch], Tensor] | None = None

    def features(self, source: Source) -> Context:
        """Return what the backbone makes of each vector."""
        context: Context = self.backbone(self.stem(source))
        return context

    def scores(self, batch: Batch) -> Tensor:
        """Return the head's scores, by the `engine` where another program computes them."""
        return self.by_torch(batch) if self.engine is None else self.engine(batch)

    def by_torch(self, batch: Batch) -> Tensor:
        """Return the head's scores by this network itself, which can be watched."""
        scores: Tensor = self.head(self, batch)
        return scores

    def forward(self, batch: Batch, turn: str = "all") -> Tensor:
        """Return the loss: one sum for each of its terms. This is what DDP and FSDP2 wrap."""
        return self.head.loss(self, batch, turn)

    def players(self) -> Mapping[str, Player]:
        """Return the weights that each turn of a step changes."""
        if isinstance(self.head, TurnsHead):
            return self.head.players(self)
        return {"all": Player(tuple(self.parameters()))}

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def reach(self) -> tuple[int, int] | None:
        """The elements of a row that a feature looks back and ahead, where that is known and finite: then a long row
        can be read in chunks, and nothing changes."""
        stem, found = self.stem, getattr(self.backbone, "reach", None)
        if not isinstance(stem, Subsampling) or found is None or math.isinf(sum(found)):
            return None
        back, ahead = (stem.halo + stem.reduction * (int(each) + 1) for each in found)
        return back, ahead

    @cached_property  # it is asked for every text, and the modules never change
    def longest(self) -> int | None:
        """The most positions there are, where they are a learned table or the length is projected (Linformer)."""
        return _most_positions(self)

    @cached_property
    def reads(self) -> int | None:
        """The most positions of what is read."""
        return _most_positions(self.stem, self.backbone)

    @cached_property
    def writes(self) -> int | None:
        """The most positions of what the head writes."""
        return _most_positions(self.head)


def _most_positions(*modules: nn.Module) -> int | None:
    parts = [part for module in modules for part in module.modules()]
    tables = [len(part.table) for part in parts if isinstance(part, LearnedTable)]
    projected = [part.weight.shape[1] for part in parts if isinstance(part, LengthProjection)]
    return min(tables + projected, default=None)


@runtime_checkable
class Subsampling(Protocol):
    """A stem that makes one vector of `reduction` elements, and sees `halo` elements on either side of them."""

    reduction: int

    @property
    def halo(self) -> int: ...


def table_of(stem: nn.Module) -> nn.Embedding:
    """Return the table of the vectors of an alphabet, for outputs that share it."""
    table = stem.table
    assert isinstance(table, nn.Embedding)
    return table


def spoken(context: Context) -> Tensor:
    """Return the vector that speaks for each unit, (batch, units, width)."""
    if context.units is None:
        return context.values
    where = context.units.clamp(min=0).unsqueeze(-1).expand(-1, -1, context.values.shape[-1])
    return context.values.gather(1, where)
