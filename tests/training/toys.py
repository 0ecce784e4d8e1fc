"""Toy inputs, outputs and heads for the loop: buffers of every kind, two terms with totals of their own, targets with
holes, two players. Task, Network, Head and TurnsHead are the real ones."""

from abc import ABCMeta
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus
from torch.nn.utils.parametrizations import spectral_norm

from regard.attention import Context
from regard.data.example import Example
from regard.data.store import Field, write_store
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Input, Row, Source, positions_from
from regard.metrics import Score
from regard.network import Head, Network, Player, TurnsHead
from regard.outputs.output import Held, Item, Output, halves
from regard.runs import settings
from regard.task import Task
from regard.training.distributed import World
from regard.training.loop import Trainer
from regard.training.prepare import Prepared
from regard.training.progress import Progress

WIDTH, MARKS = 4, 9
Kind = TypeVar("Kind", bound=ABCMeta)


def in_part(kind: Kind) -> Kind:
    """Let a class do without the methods that the loop never asks for."""
    kind.__abstractmethods__ = frozenset()
    return kind


class Target(NamedTuple):
    """The target of each frame, (batch, n), the mark of each, and True where a frame has one."""

    wanted: Tensor
    marks: Tensor
    real: Tensor


@in_part
class Frames(Input[NDArray[np.float32]]):
    """Rows of frames, each of WIDTH numbers."""

    name, noun = "frames", "frames"
    fields = (Field("frames", "<f4", (WIDTH,)),)

    def vary(self, source: Source, draws: Any) -> Source:
        return source

    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        lengths = [len(row[0]) for row in rows]
        values = np.zeros((len(rows), max(lengths) + extra, WIDTH), np.float32)
        for number, row in enumerate(rows):
            values[number, : len(row[0])] = row[0]
        return Source((torch.from_numpy(values),), positions_from(lengths, values.shape[1]))

    def text(self, source: Any) -> str:
        return str(source)


@in_part
class Marked(Output[float]):
    """The sum of every frame, and a mark for some of them. `scored=False` is an output without metrics."""

    fields = (Field("marks", "<u2", tokens=0), Field("labelled", "<u4", tokens=0))  # frames that have a mark

    def __init__(self, turns: tuple[str, ...] = ("all",), *, scored: bool = True, terms: int = 1) -> None:
        self.turns, self.scored, self.terms = turns, scored, terms  # type: ignore[misc]
        self.seen: list[Sequence[Row]] = []

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(counts[:, 0].sum()), float(counts[:, 1].sum()))[: self.terms]

    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        self.seen.append(rows)
        sources, targets = halves(input, rows)
        source = input.collate(sources, extra)
        marks = torch.zeros(source.values[0].shape[:2], dtype=torch.int64)
        real = torch.zeros_like(marks, dtype=torch.bool)
        for number, (classes, where) in enumerate(targets):
            places = torch.from_numpy(np.asarray(where, np.int64))
            marks[number, places] = torch.from_numpy(np.asarray(classes, np.int64))
            real[number, places] = True
        return Batch(source, Target(source.values[0].double().sum(-1), marks, real))

    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[Score], list[str]]:
        del how, quick, samples, measures
        if not self.scored:
            return [], []
        assert not passes.network.training
        with torch.no_grad():
            loss = passes.network(self.collate(passes.input, held.rows), self.turns[0]).sum()
        return [Score("error", float(loss), "", None, None, 8, False, "")], ["-"] * len(held.items)


# ---- networks ------------------------------------------------------------------------------------------------------


class FrameStem(nn.Module):
    """Frames as vectors, in the precision of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("one", torch.ones(()), persistent=False)

    def forward(self, source: Source) -> Context:
        return Context(source.values[0].to(self.one.dtype), source.positions)


def real_of(x: Context) -> Tensor:
    return (x.where() >= 0).expand(x.values.shape[:2])


class Normed(nn.Module):
    """A backbone that keeps buffers: BatchNorm, a singular vector, and noise."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = spectral_norm(nn.Linear(WIDTH, 6)), nn.BatchNorm1d(6)
        self.register_buffer("features", torch.randn(6, dtype=torch.float64))
        self.register_buffer("constant", torch.ones(3), persistent=False)

    def forward(self, x: Context) -> Context:
        real = real_of(x)
        states = self.norm(self.first(x.values[real])) * self.features.float()
        return x._replace(values=states.new_zeros(*real.shape, 6).masked_scatter(real.unsqueeze(-1), states))


class CountingHead(Head):
    """A regression of every frame, with a counter of batches that changes the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.last = nn.Dropout(0.2), nn.Linear(6, 1)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, body: Network, batch: Batch) -> Tensor:
        if self.training:
            self.seen += 1
        found: Tensor = self.last(self.dropout(body.features(batch.source).values))
        return found * (1 + 0.1 * torch.cos(self.seen.float()))

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        assert turn == "all"
        wrong = self(body, batch).squeeze(-1) - batch.target.wanted.float()
        return wrong[batch.source.real].square().sum().reshape(1)


def buffered() -> Network:
    return Network(FrameStem(), Normed(), CountingHead())


class TwoTermsHead(Head):
    """A regression of every frame and a choice of every mark: sums with totals of their own; frames without a mark are
    holes."""

    def __init__(self) -> None:
        super().__init__()
        self.frame, self.mark = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, MARKS)

    def forward(self, body: Network, batch: Batch) -> Tensor:
        scores: Tensor = self.mark(body.features(batch.source).values)
        return scores

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        values, (wanted, marks, real) = body.features(batch.source).values, batch.target
        by_frame = (self.frame(values).squeeze(-1) - wanted).square()[batch.source.real].sum()
        return torch.stack([by_frame, cross_entropy(self.mark(values)[real], marks[real], reduction="sum")])


def two_terms() -> Network:
    return Network(FrameStem(), nn.Identity(), TwoTermsHead())


class DuelHead(TurnsHead):
    """A tiny linear GAN: a generator of frames, and a critic that tells them from those of the data.

    The generator's noise is a part of each frame, so that it is the same for any number of processes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.generator = nn.Linear(WIDTH, 1), nn.Linear(2, WIDTH)

    def players(self, body: Network) -> dict[str, Player]:
        assert body.head is self
        return {
            "critic": Player(tuple(self.critic.parameters()), 2.0),
            "generator": Player(tuple(self.generator.parameters())),
        }

    def forward(self, body: Network, batch: Batch) -> Tensor:
        judged: Tensor = self.critic(body.features(batch.source).values)
        return judged

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        frames = body.features(batch.source).values[batch.source.real]
        made = self.generator(frames[:, :2])
        sign = 1.0 if turn == "critic" else -1.0
        judged = softplus(sign * self.critic(made)).sum()
        return (judged + softplus(-self.critic(frames)).sum() * (turn == "critic")).reshape(1)


def adversaries() -> Network:
    return Network(FrameStem(), nn.Identity(), DuelHead())


# ---- trainings -----------------------------------------------------------------------------------------------------


def toy(network: Network, turns: tuple[str, ...] = ("all",), *, scored: bool = True) -> Task:
    terms = 2 if isinstance(network.head, TwoTermsHead) else 1
    return Task(Frames(), Marked(turns, scored=scored, terms=terms), network, 9)


def trainer(task: Task, run: Path, world: World | None = None, **training: Any) -> Trainer:
    """A trainer of a toy task on 60 rows of random frames, of which some have a mark."""
    generator = np.random.default_rng(0)
    run.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for _ in range(60):
        count = int(generator.integers(2, 9))
        labelled = np.flatnonzero(generator.random(count) < 0.4)
        frames = generator.normal(size=(count, WIDTH)).astype(np.float32)
        rows.append((frames, generator.integers(0, MARKS, len(labelled)), labelled))
    store = write_store(run / "rows" / str(world.rank if world else 0), rows, task.fields)
    how = {"budget": 40, "every": 4, "steps": 12, "minutes": None, "warmup": 3, "rate": 0.02, "average": 3} | training
    config = settings.make({"task": "convert", "data": {"train": ["-"]}, "training": how}, "toy")
    held = Held([Item(Example("a", "b", "-", line), ["b"]) for line in range(3)], rows[:3])
    return Trainer(run, Prepared(config, task, store, held), Progress(quiet=True), world)
