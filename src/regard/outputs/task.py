"""What the loop, the commands and the run folder know of a task: everything else is its own business.

A task is what comes out of a model, with its settings, vocabularies, loss, answers and metrics together. A new one is
one file with a subclass of `Task`, and its line in `regard.tasks.TASKS`.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard import metrics, page
from regard.config import Config
from regard.data.reading import Pair
from regard.data.store import Store
from regard.errors import UserError
from regard.inputs.tokens import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Item = tuple[str, list[str]]  # a source and its references
Row = tuple[Sequence[int], ...]  # ids, one sequence for each field
Vocabularies = tuple[Tokenizer, ...]
UNITS = {"convert": "pair", "tag": "sentence", "classify": "text", "continue": "line"}  # what files are made of
PLACES = 1024  # texts answered together at most; a draw is governed by its place among so many
CHUNK = 10_000  # pairs encoded at once
LEARN_FROM = 1_000_000  # pairs that vocabularies are learned from


@dataclass(frozen=True)
class Survey:
    """What choosing settings needs to know of the training data: its size, a sample, and what form it has; and which
    levels of tokens are given, for what is chosen has to fit them ("source_level": "words")."""

    count: int
    sources: list[str]
    targets: list[str]
    description: str
    levels: Mapping[str, str] = field(default_factory=dict)

    def level(self, name: str, chosen: str) -> str:
        """The level that will be used."""
        return self.levels.get(name, chosen)


@dataclass(frozen=True)
class Shown:
    """What is printed of an answer besides its text."""

    alignment: str | None = None
    with_score: bool = False
    as_json: bool = False
    embeddings: bool = False

    def __post_init__(self) -> None:
        if self.alignment not in (None, "hard", "soft"):
            raise UserError(f"--alignment is {self.alignment!r}, expected hard or soft.")


def readable(text: str) -> str:
    """A text that UTF-8 can write. Bytes that Python could not decode are in it as lone surrogates: where they are
    UTF-8 after all, as in an ASCII locale, they are decoded now; any other is U+FFFD."""
    if text.isascii():
        return text
    lone = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text)  # such as no byte becomes
    return lone.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Task(ABC):
    """A network, its vocabularies and the way it is used. `network.loss(batch, smoothing)` gives a sum and a count."""

    settings: ClassVar[type[Config]]
    reads: ClassVar[str] = "convert"  # the task whose files it reads: convert, tag, classify or continue
    files: ClassVar[tuple[str, ...]]  # of the vocabularies in a run folder
    fields: ClassVar[tuple[str, ...]]  # of a stored row; the last one is what is predicted
    does: ClassVar[str]  # "converts sequences": for the model card
    options: ClassVar[frozenset[str]] = frozenset()  # of `regard predict` that change its answers
    draws: ClassVar[bool] = False  # answers at random, unless told otherwise
    contiguous: ClassVar[bool] = False  # the end of the data is held out, rather than some of it from all over
    network: nn.Module
    vocabularies: Vocabularies

    # ---- from settings and data -----------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        """Sections of settings that fit the data, and the reason for each that was chosen."""

    @classmethod
    @abstractmethod
    def learn(cls, config: Any, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        """The vocabularies; `pairs()` reads the training data once."""

    @classmethod
    @abstractmethod
    def design(cls, config: Any, vocabularies: Vocabularies) -> nn.Module:
        """The network that the settings describe, with fresh weights."""

    @classmethod
    @abstractmethod
    def assemble(cls, config: Any, vocabularies: Vocabularies, network: nn.Module) -> Task:
        """The task around a network."""

    def settle(self, config: Any, store: Store) -> None:  # noqa: B027  (most tasks have nothing to settle)
        """What follows from the stored rows before any training on them, if anything does."""

    def join(self, others: Sequence[Task], names: Sequence[str]) -> None:  # noqa: ARG002
        """Answer together with other models from now on; their names are for complaints."""
        raise UserError(f"--with joins models that convert or classify, and this one {self.does}: leave it out.")

    # ---- training -------------------------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, pairs: Sequence[Pair]) -> Iterable[Row]:
        """What is stored of some consecutive pairs."""

    def stored(self, pairs: Iterator[Pair]) -> Iterator[Row]:
        """What is stored of all pairs, streamed."""
        while chunk := list(islice(pairs, CHUNK)):
            yield from self.rows(chunk)

    def predictions(self, lengths: NDArray[np.int32]) -> int:
        """How many predictions rows of these lengths (rows, fields) hold: what their summed loss is divided by."""
        return int(lengths[:, -1].sum())

    @abstractmethod
    def batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        """Some rows as the padded tensors that the network's loss takes."""

    def items(self, pairs: Iterable[Pair]) -> list[Item]:
        """What is validated and evaluated on."""
        return [(pair.source, [pair.target]) for pair in pairs]

    # ---- answers --------------------------------------------------------------------------------------------------

    def cleaned(self, text: str) -> str:
        """A text as those of the training data were read."""
        return readable(text).strip()

    def refuse(self, text: str, changes: dict[str, Any]) -> None:  # noqa: B027  (most tasks answer every text)
        """Complain of a text that cannot be answered."""

    def trial(self, text: str) -> str:
        """What somebody may ask first, made from a text of the data."""
        return text

    def stream(self, text: str, changes: dict[str, Any], write: Callable[[str], None]) -> bool:  # noqa: ARG002
        """Write the answer to one text as it is made; False from a task whose answers come whole."""
        return False

    @abstractmethod
    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:
        """The best answer to each text; `changes` are named in `options`."""

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:  # noqa: ARG002
        """What is printed for texts of which the first is line `first` of the input."""
        for text, answer in zip(texts, self.answer(texts, **changes), strict=True):
            yield json.dumps({"source": text, "answer": answer}, ensure_ascii=False) if shown.as_json else answer

    @abstractmethod
    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """The metrics that fit, first the one that training stops on."""

    def evaluate(
        self, items: Sequence[Item], *, quick: bool = False, samples: int = metrics.SAMPLES, **changes: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        """The metrics on items with known answers, and the answers; `quick` may search less well."""
        answers = self.answer([source for source, _ in items], **(self.quickly() if quick else {}) | changes)
        return self.score(items, answers, samples), answers

    def quickly(self) -> dict[str, Any]:
        """Changes for answers that are wanted often and soon: at every validation."""
        return {}

    def details(self, items: Sequence[Item], answers: Sequence[str]) -> str:  # noqa: ARG002
        """More about an evaluation than its scores, as text."""
        return ""

    def length(self, text: str) -> int:
        """How long a source is, for scores by length."""
        return metrics.count_words(text)

    # ---- looking --------------------------------------------------------------------------------------------------

    def example(self, text: str, answer: str | None) -> page.Example:  # noqa: ARG002
        """One text and its answer (the model's own, or a given one), with all attention of all layers and heads."""
        raise UserError(f"A model that {self.does} has nothing to show.")

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:  # noqa: ARG002
        """Where the model looked, as one would show it first; or every layer and head."""
        raise UserError(f"A model that {self.does} has nothing to show.")

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:  # noqa: ARG002
        """What must hold for every trained model of this kind, and the largest difference found."""
        return iter(())
