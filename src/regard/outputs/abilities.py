"""Abilities: what some outputs do and others do not. An output inherits what it can, and the task asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Example
from regard.data.survey import Survey
from regard.inference.passes import Passes
from regard.inputs.input import Input, Row
from regard.metrics import Score
from regard.outputs.output import Held, Item
from regard.text.classes import Classes


class Learns(ABC):
    """It learns from the data what may be answered, and keeps that in files of the run folder."""

    files: ClassVar[tuple[str, ...]]

    @classmethod
    @abstractmethod
    def learn(cls, config: Any, input: Input[Any], seen: Survey, origin: Any) -> Any:
        """Return what is learned; `origin` is the output of the run that a training starts from, or None."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Any:
        """Return what `contents` wrote."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """Return what was learned, as files of a run folder."""


class Chooses(Learns):
    """It chooses between classes, whose names are all that it learns; `blank` stands for a blank inside a name."""

    blank: ClassVar[str] = " "
    classes: Classes

    @staticmethod
    @abstractmethod
    def names(target: Any) -> Iterable[str]:
        """Return the names of the classes in a target."""

    @classmethod
    @final
    def learn(cls, config: Any, input: Input[Any], seen: Survey, origin: Any) -> Classes:
        del config, input
        return Classes.learn(seen.names, cls.blank, origin.classes if isinstance(origin, cls) else None)

    @classmethod
    @final
    def load(cls, folder: Path) -> Classes:
        return Classes.load(folder / cls.files[0], cls.blank)

    @final
    def contents(self) -> dict[str, bytes]:
        return {self.files[0]: self.classes.vocabulary.as_bytes()}


class Examines(ABC):
    """Not all targets go with all of its settings."""

    @classmethod
    @abstractmethod
    def examine(cls, config: Any, seen: Survey) -> None:
        """Refuse the first target that does not go with the settings, with its place."""


class Settles(ABC):
    """Some of its settings follow from the stored rows."""

    @abstractmethod
    def settled(self, counts: NDArray[np.int32]) -> dict[str, Any]:
        """Return settings that follow from the counts (rows, fields) of the stored rows, {"decoding.factor": 1.5}."""


class Refuses(ABC):
    """Not every source can be answered."""

    @abstractmethod
    def refuse(self, passes: Passes, source: Any, how: Any) -> None:
        """Refuse a source that cannot be answered."""


class Joins(ABC):
    """It answers together with other models that do the same."""

    @abstractmethod
    def refuse_other(self, passes: Passes, other: Passes, output: Any, name: str) -> None:
        """Refuse to answer together with a model that does not fit."""


class Streams(ABC):
    """Its answers can be written while they are made."""

    @abstractmethod
    def stream(self, passes: Passes, source: Any, how: Any, write: Callable[[str], None]) -> None:
        """Write the answer to one source, piece by piece."""


class Poses(ABC):
    """A source of the data is not yet a question to it."""

    @abstractmethod
    def trial(self, source: Any) -> Any:
        """Return what somebody may ask first, made from a source of the data."""


class Believes(ABC):
    """It says how probable it finds each element of a given answer."""

    @abstractmethod
    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Any) -> NDArray[np.float64]:
        """Return the probability of each element of an answer to each of some sources, (sources, elements)."""


class Summarises(ABC):
    """Its targets and answers are too long for a table."""

    @abstractmethod
    def summary(self, target: str) -> str:
        """Return a target, or an answer that is written as one, in a few words."""


class Features(ABC):
    """It has a vector for each source, in which things that are alike lie near each other."""

    @abstractmethod
    def features(self, passes: Passes, sources: Sequence[Any]) -> NDArray[np.float64]:
        """Return the vector of each source, (sources, width)."""


class FeatureSpace(NamedTuple):
    """The vectors of another model, and what names it: its run and its checksum."""

    name: str
    of: Callable[[Sequence[Any]], NDArray[np.float64]]


class Invents(ABC):
    """It makes new things: out of nothing, near a thing, or between two. Each is a row of `Source.values[0]`."""

    @abstractmethod
    def new(self, passes: Passes, count: int, seed: int, label: str | None = None) -> NDArray[Any]:
        """Return new things, the same for the same seed; of a class, where it makes things of classes."""

    @abstractmethod
    def near(self, passes: Passes, source: Any, count: int, noise: float, seed: int) -> NDArray[Any]:
        """Return things whose codes differ from that of a source by noise of this deviation."""

    @abstractmethod
    def between(self, passes: Passes, one: Any, other: Any, count: int) -> NDArray[Any]:
        """Return things on the straight line from the code of one source to that of another."""


class Portrays(ABC):
    """There are pictures of it that need data and perhaps other runs, rather than one source."""

    portraits: ClassVar[Mapping[str, str]]  # the name of each, and what it shows

    @abstractmethod
    def alike(self, other: Any) -> bool:
        """Return True if the model of another output can stand beside its own."""

    @abstractmethod
    def portray(self, name: str, named: Mapping[str, Passes], held: Held, answer: str | None) -> Any:
        """Return the figure of this name, for models by their names, this one first."""


class Warns(ABC):
    """It can tell when a training has gone wrong."""

    @abstractmethod
    def warnings(self, passes: Passes, held: Held, scores: Sequence[Score]) -> list[str]:
        """Return what is wrong with a model that has these scores on held-out items."""


class Details(ABC):
    """There is more to say about an evaluation than scores."""

    @abstractmethod
    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:
        """Return more about an evaluation, or nothing."""


class Guesses(ABC):
    """There is a baseline that looks at no source: what is most frequent, or the mean."""

    @abstractmethod
    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, Any]], held: Held, samples: int
    ) -> tuple[str, list[Score]]:
        """Return the name of the baseline that knows these examples, and its scores on held-out items."""


class Stretches(ABC):
    """It reads rows of a length that is a setting, and may be asked to read longer ones than in training."""

    length: ClassVar[str]  # the setting

    @abstractmethod
    def stretched(self, length: int) -> Any:
        """Return an output that does the same on rows of this length."""


class Invariant(ABC):
    """More must hold for every trained model of its kind than for all."""

    @abstractmethod
    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        """Yield what must hold beyond padding and batch, and the largest difference."""


def names_in(output: type[Any]) -> Callable[[Any], Iterable[str]]:
    """Return the function that names the classes in a target; without classes there are none."""
    return output.names if issubclass(output, Chooses) else lambda _: ()


def in_short(output: Any, target: str) -> str:
    """Return a target as a table shows it."""
    return output.summary(target) if isinstance(output, Summarises) else target


def contents_of(output: Any) -> dict[str, bytes]:
    """Return what an output learned, as files of a run folder."""
    return output.contents() if isinstance(output, Learns) else {}
