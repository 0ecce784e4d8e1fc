"""Outputs: from targets to arrays, from features to a loss, to answers, to text and JSON, and to scores.

An output does not know what its input is. A new one is one file with a subclass of `Output` or of `Supervised` and its
head, and its line in `regard.outputs.OUTPUTS`. Methods are abstract or final: nothing concrete is overridden. What only
some outputs do, such as learning names or streaming, is in `regard.outputs.abilities`: an output inherits what it can.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from regard import metrics
from regard.config import Config
from regard.data.example import Example
from regard.data.store import Field
from regard.data.survey import Survey
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Chosen, Input, Row, Source, Use
from regard.inspection.page import Exhibit
from regard.inspection.recording import Seen
from regard.network import Network

A = TypeVar("A")  # the answer to one source
CHUNK = 10_000  # examples encoded at once
ARRAYS = 16  # … whose elements have a shape, such as pixels: thousands of them may not fit into memory
Lines = list[tuple[float | None, str]]  # what is printed of an answer, each line with its score


class Item(NamedTuple):
    """Something to validate or evaluate on: an example, and what is expected of it."""

    example: Example[Any, Any]
    expected: Any


class Held(NamedTuple):
    """Items, and their stored rows."""

    items: Sequence[Item]
    rows: Sequence[Row]


class Looked(NamedTuple):
    """The pass of one source with its answer through the network, and where each attention looked in it."""

    batch: Batch
    seen: Mapping[str, Seen]


@dataclass(frozen=True)
class NoOptions:
    """There is nothing to change about how answers are made."""


class Output(ABC, Generic[A]):
    """An output. `how` says how answers are made, unless that is changed."""

    does: ClassVar[str]  # "labels": for sentences that end with what the input reads, as in "labels images"
    settings: ClassVar[type[Config]]
    use: ClassVar[Use]
    needs: ClassVar[frozenset[str]] = frozenset()  # of what an input may offer
    reads: ClassVar[str]  # the task whose files it reads: convert, tag, classify or continue
    options: ClassVar[frozenset[str]] = frozenset()  # changes of `how`
    printed: ClassVar[frozenset[str]] = frozenset()  # options that change what is printed
    measures: ClassVar[frozenset[str]] = frozenset()  # options of an evaluation
    draws: ClassVar[bool] = False  # answers at random, unless told otherwise
    contiguous: ClassVar[bool] = False  # the end of the data is held out, rather than some of it from all over
    turns: ClassVar[tuple[str, ...]] = ("all",)  # of a step of training
    files: ClassVar[tuple[str, ...]] = ()  # the names of what one that `Learns` writes
    fields: tuple[Field, ...] = ()  # of a stored row, behind those of the input
    how: Any = NoOptions()

    # ---- from settings and data -----------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        """Choose sections of settings that fit the data; `reading` are those of the input."""

    @classmethod
    @abstractmethod
    def made(cls, config: Any, input: Input[Any], learned: Any) -> Output[Any]:
        """Return the output of these settings; `learned` is what one that `Learns` has learned or loaded, else None."""

    @abstractmethod
    def network(self, config: Any, input: Input[Any]) -> tuple[Input[Any], Network]:
        """Return the network of these settings with fresh weights, and the input with the marks that it wants."""

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
    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[A]:
        """Answer each source; the first is line `first` of the input, for draws."""

    @abstractmethod
    def as_target(self, answer: A) -> str:
        """Return an answer as targets are written."""

    @abstractmethod
    def as_text(self, answer: A) -> Lines:
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

    @final
    def changed(self, changes: Mapping[str, Any], *, scored: bool = True) -> Any:
        """Return `how` with these changes; scores that nobody reads need not be computed."""
        known = {} if scored or not any(each.name == "scored" for each in fields(self.how)) else {"scored": False}
        return replace(self.how, **changes, **known)

    # ---- looking --------------------------------------------------------------------------------------------------

    @abstractmethod
    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[A]) -> Batch:
        """Return one batch in which the answers are given, in order: where the network looks in it can be recorded."""

    @abstractmethod
    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> A:
        """Return the answer that is looked at: the model's own, or a given one. Refuse what cannot be shown."""

    @abstractmethod
    def exhibit(self, passes: Passes, source: Any, answer: A, looked: Looked) -> Exhibit:
        """Return one source and the answer that is looked at, with all attention."""


class Supervised(Output[A]):
    """An output with a target for each source. A row holds both, and answers are scored one by one."""

    alternatives: ClassVar[bool] = False  # targets of the same source are all right

    @abstractmethod
    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Any:
        """Return the fields of the output of some rows as padded tensors; `source` are those of the input."""

    @abstractmethod
    def row(self, answer: A) -> Row:
        """Return an answer as the fields of a stored row."""

    @abstractmethod
    def held_answers(self, passes: Passes, held: Held, how: Any, *, quick: bool) -> list[A]:
        """Answer held-out items; `quick` may search less well."""

    @abstractmethod
    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """Score the answers to items."""

    @final
    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        sources, targets = halves(input, rows)
        source = input.collate(sources, extra)
        return Batch(source, self.target(source, targets, extra))

    @final
    def items(self, examples: Iterable[Example[Any, Any]]) -> list[Item]:
        """Return an item for each example, or for each source with all its targets where these are alternatives."""
        if not self.alternatives:
            return [Item(example, [example.target]) for example in examples]
        joined: dict[str, Item] = {}
        for example in examples:
            expected = joined.setdefault(example.key, Item(example, [])).expected
            if example.target not in expected:
                expected.append(example.target)
        return list(joined.values())

    @final
    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        del measures
        answers = [self.as_target(answer) for answer in self.held_answers(passes, held, how, quick=quick)]
        return self.score(held.items, answers, samples), answers

    @final
    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[A]) -> Batch:
        source = passes.input.collate(passes.first_parts(sources))
        return Batch(source, self.target(source, [self.row(answer) for answer in answers]))


def paired(
    input: Input[Any],
    encode: Callable[[Sequence[Example[Any, Any]]], Iterable[Row]],
    examples: Iterator[Example[Any, Any]],
) -> Iterator[Row]:
    """Yield the input's arrays of each source, and behind them the output's of each target."""
    together = ARRAYS if any(field.shape for field in input.fields) else CHUNK
    while chunk := list(islice(examples, together)):
        sources = input.encode([example.source for example in chunk])
        for source, target in zip(sources, encode(chunk), strict=True):
            yield (*source, *target)


def halves(input: Input[Any], rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Cut rows into the input's fields and the output's."""
    cut = len(input.fields)
    return [row[:cut] for row in rows], [row[cut:] for row in rows]
