"""Outputs: from targets to arrays, from features to a loss, to answers, to text and JSON, and to scores.

An output does not know what its input is. A new one is one file with a subclass of `Output` and its head, and its line
in `regard.outputs.OUTPUTS`. Methods are abstract or final: nothing concrete is overridden.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.config import Config
from regard.data.batches import by_budget, in_shares
from regard.data.example import Example
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.threads import side_by_side
from regard.inputs.input import Batch, Chosen, Input, Row, Source, Use, moved
from regard.inspection.page import Exhibit
from regard.inspection.recording import paused
from regard.network import Network

A = TypeVar("A")  # the answer to one source
BUDGET = 8192  # elements answered at once
CHUNK = 10_000  # examples encoded at once
SHARE = 400  # elements, read and written, that are worth a thread of their own


class Item(NamedTuple):
    """Something to validate or evaluate on: an example, and what is expected of it."""

    example: Example[Any, Any]
    expected: Any


class Held(NamedTuple):
    """Items, and their stored rows."""

    items: Sequence[Item]
    rows: Sequence[Row]


class Rows(Protocol):
    """Work on a padded batch of rows, with their numbers; a result for each."""

    def __call__(self, source: Source, numbers: list[int]) -> Iterable[Any]: ...


class Passes:
    """Passes of rows through a network: sorted by length, cut by budget, and back in order. `others` are the passes of
    models that answer together with this one, `most` the elements of a row that the network reads at once."""

    def __init__(self, input: Input[Any], network: Network, most: int, others: Sequence[Passes] = ()) -> None:
        self.input, self.network, self.most, self.others = input, network, most, tuple(others)

    def length(self, row: Row) -> int:
        """Return what a row costs in a batch."""
        return round(len(row[0]) * self.input.fields[0].tokens)

    def each(
        self, rows: Sequence[Row], work: Rows, *, sizes: Sequence[int] | None = None, budget: int | None = None
    ) -> list[Any]:
        """Return what `work` makes of each row that is not empty, None for the others.

        `sizes` say what each row costs where that is not its length; work of such rows is spread over threads.
        """
        if self.network.training:
            self.network.eval()
        numbers = [i for i, row in enumerate(rows) if len(row[0])]
        cost = sizes or [self.length(row) + 2 for row in rows]
        order = sorted(numbers, key=lambda i: (cost[i], len(rows[i][0])))
        found: list[Any] = [None] * len(rows)
        if sizes is None:
            parts = list(by_budget(order, list(cost), budget or BUDGET))
        else:
            parts = in_shares(order, list(cost), budget or BUDGET, SHARE, torch.get_num_threads())

        @torch.no_grad()
        def run(chosen: list[int]) -> list[Any]:
            with paused():  # a thread has neither the caller's `no_grad` nor its context variables
                return list(work(self.collate([rows[i] for i in chosen]), chosen))

        results = map(run, parts) if sizes is None else side_by_side(run, parts)
        for chosen, some in zip(parts, results, strict=True):
            for i, result in zip(chosen, some, strict=True):
                found[i] = result
        return found

    def in_parts(self, rows: Sequence[Row], work: Rows) -> list[list[Any]]:
        """Return the results for the parts of each row, where rows that are too long are read in parts."""
        parts = [(i, part) for i, row in enumerate(rows) for part in self.input.parts(row, self.most)]
        results: list[list[Any]] = [[] for _ in rows]
        for (i, _), result in zip(parts, self.each([part for _, part in parts], work), strict=True):
            results[i].append(result)
        return results

    def first_parts(self, sources: Sequence[Any]) -> list[Row]:
        """Return the rows of some sources, as far as the network reads at once."""
        return [next(iter(self.input.parts(row, self.most)), row) for row in self.input.encode(sources)]

    def collate(self, rows: Sequence[Row]) -> Source:
        return moved(self.input.collate(rows), self.network.device)


class Output(ABC, Generic[A]):
    """What comes out. `how` says how answers are made, unless that is changed."""

    name: ClassVar[str]  # of the task
    does: ClassVar[str]  # "converts sequences": for sentences about it
    settings: ClassVar[type[Config]]
    use: ClassVar[Use]
    needs: ClassVar[frozenset[str]] = frozenset()  # of what an input may offer
    reads: ClassVar[str]  # the task whose files it reads: convert, tag, classify or continue
    options: ClassVar[frozenset[str]] = frozenset()  # changes of `how`
    printed: ClassVar[frozenset[str]] = frozenset()  # options that change what is printed
    measures: ClassVar[frozenset[str]] = frozenset()  # options of an evaluation
    draws: ClassVar[bool] = False  # answers at random, unless told otherwise
    joins: ClassVar[bool] = False  # answers together with other models
    contiguous: ClassVar[bool] = False  # the end of the data is held out, rather than some of it from all over
    turns: ClassVar[tuple[str, ...]] = ("all",)  # of a step of training
    files: ClassVar[tuple[str, ...]] = ()  # the names of what `contents` writes
    fields: tuple[Field, ...]  # of a stored row, behind those of the input
    how: Any

    # ---- from settings and data -----------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def names(target: Any) -> Sequence[str]:
        """Return the names of the classes in a target, where there are classes."""

    @classmethod
    @abstractmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        """Choose sections of settings that fit the data; `reading` are those of the input."""

    @classmethod
    @abstractmethod
    def learn(cls, config: Any, input: Input[Any], seen: Survey, origin: Output[Any] | None) -> Self:
        """Learn what may be answered; `origin` is the output of the run that a training starts from."""

    @classmethod
    @abstractmethod
    def load(cls, config: Any, input: Input[Any], folder: Path) -> Self:
        """Load what `contents` wrote."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """Return what was learned, as files of a run folder."""

    @abstractmethod
    def network(self, config: Any, input: Input[Any]) -> tuple[Input[Any], Network]:
        """Return the network of these settings with fresh weights, and the input with the marks that it wants."""

    @abstractmethod
    def settled(self, config: Any, counts: NDArray[np.int32]) -> dict[str, Any]:
        """Return settings that follow from the counts (rows, fields) of the stored rows, {"decoding.factor": 1.5}."""

    # ---- training -------------------------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, input: Input[Any], examples: Iterator[Example[Any, Any]]) -> Iterator[Row]:
        """Yield what is stored of all examples, streamed."""

    @abstractmethod
    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        """Return what each term's sum is divided by, for rows of these counts (rows, fields)."""

    @abstractmethod
    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        """Return rows as the padded tensors that the head's loss takes; `extra` elements more of padding."""

    @abstractmethod
    def items(self, examples: Iterable[Example[Any, Any]]) -> list[Item]:
        """Return what is validated and evaluated on."""

    # ---- answers --------------------------------------------------------------------------------------------------

    @abstractmethod
    def refuse(self, passes: Passes, source: Any, how: Any) -> None:
        """Refuse a source that cannot be answered."""

    @abstractmethod
    def refuse_other(self, passes: Passes, other: Passes, output: Output[Any], name: str) -> None:
        """Refuse to answer together with a model that does not fit."""

    @abstractmethod
    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[A]:
        """Answer each source; the first is line `first` of the input, for draws."""

    @abstractmethod
    def as_target(self, answer: A) -> str:
        """Return an answer as targets are written."""

    @abstractmethod
    def as_text(self, answer: A) -> list[tuple[float | None, str]]:
        """Return the lines that are printed of an answer, each with its score."""

    @abstractmethod
    def as_json(self, answer: A) -> dict[str, Any]:
        """Return an answer as JSON can write it."""

    @abstractmethod
    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        """Score held-out items, the first score being what training stops on; and the answers, where there are any.
        `quick` may search less well."""

    @abstractmethod
    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """Score the answers to items; nothing where they cannot be scored one by one."""

    @abstractmethod
    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:
        """Return more about an evaluation than its scores."""

    @abstractmethod
    def trial(self, source: Any) -> Any:
        """Return what somebody may ask first, made from a source of the data."""

    @abstractmethod
    def stream(self, passes: Passes, source: Any, how: Any, write: Callable[[str], None]) -> bool:
        """Write the answer to one source as it is made; False from an output whose answers come whole."""

    def changed(self, changes: Mapping[str, Any], *, scored: bool = True) -> Any:
        """Return `how` with these changes; scores that nobody reads need not be computed."""
        for name in changes:
            if name not in self.options:
                raise UserError(f"{name!r} changes nothing about a model that {self.does}.")
        known = {} if scored or not any(each.name == "scored" for each in fields(self.how)) else {"scored": False}
        return replace(self.how, **changes, **known)

    # ---- looking --------------------------------------------------------------------------------------------------

    @abstractmethod
    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[A]) -> Batch:
        """Return one batch in which the answers are given, in order: where the network looks in it can be recorded."""

    @abstractmethod
    def exhibit(self, passes: Passes, source: Any, answer: str | None) -> Exhibit:
        """Return one source and its answer (the model's own, or a given one), with all attention."""

    @abstractmethod
    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        """Yield what must hold for every trained model of this kind beyond padding and batch, and the largest
        difference."""


def paired(
    input: Input[Any],
    encode: Callable[[Sequence[Example[Any, Any]]], Iterable[Row]],
    examples: Iterator[Example[Any, Any]],
) -> Iterator[Row]:
    """Yield the input's arrays of each source, and behind them the output's of each target."""
    while chunk := list(islice(examples, CHUNK)):
        sources = input.encode([example.source for example in chunk])
        for source, target in zip(sources, encode(chunk), strict=True):
            yield (*source, *target)


def halves(input: Input[Any], rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Cut rows into the input's fields and the output's."""
    cut = len(input.fields)
    return [row[:cut] for row in rows], [row[cut:] for row in rows]


def by_answers(
    output: Output[A], items: Sequence[Item], answers: Sequence[A], samples: int
) -> tuple[list[metrics.Score], list[str]]:
    """Score the answers to items as targets are written."""
    texts = [output.as_target(answer) for answer in answers]
    return output.score(items, texts, samples), texts


def each_alone(examples: Iterable[Example[Any, Any]]) -> list[Item]:
    """Return an item for each example, its target being what is expected."""
    return [Item(example, [example.target]) for example in examples]


def public(how: Any) -> frozenset[str]:
    """Return the names of the fields of options that a user may change."""
    return frozenset(field.name for field in fields(how) if not field.name.startswith("_"))
