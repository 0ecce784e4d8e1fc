"""Inputs: from a raw thing to arrays, from arrays to a padded batch, from a batch to vectors; and a view of itself.

    recognise → read → encode → (stored) → collate → module          view: where weights are drawn

A new input is one file with a subclass of `Input`, and its line in `regard.inputs.INPUTS`.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from regard.attention import Edges, Mask
from regard.config import Section
from regard.data.draws import Draws
from regard.data.format import Format
from regard.data.recognition import Files
from regard.data.store import Field
from regard.data.survey import Survey
from regard.inspection.view import Coverable, View
from regard.layers.stem import Marks, Stem
from regard.text.tokenizer import Tokenizer

B = TypeVar("B")  # a batch, or a part of one
S = TypeVar("S")  # a raw thing: a text, a row of numbers, a handle to a file
Row = tuple[NDArray[Any] | Sequence[int], ...]  # one array for each field


class Use(Enum):
    """The use that an output makes of the elements of its input."""

    SOURCE = "reads them to write something else"
    UNITS = "labels each of them"
    LABEL = "labels all of them together"
    STREAM = "predicts the next one"
    BLANKS = "predicts hidden ones"
    PLACES = "finds things among them"
    SELF = "makes them again"


class Source(NamedTuple):
    """One half of a batch: what goes in."""

    values: tuple[Tensor, ...]  # ids (batch, n), frames (batch, n, width) …
    positions: Tensor  # (n,) or (batch, n); −1 is padding
    mask: Mask | Edges | None = None  # who may look at whom, where that is part of the input
    units: Tensor | None = None  # (batch, m): the vector that speaks for each unit, −1 for none; None: each for itself
    change: Tensor | None = None  # (batch, 2, 3): the affine map from places (x, y) here to those in the source
    shares: Tensor | None = None  # (batch,): of the first of two that are mixed; the second ones' targets follow

    @property
    def real(self) -> Tensor:
        """True where a unit is, (batch, m)."""
        if self.units is not None:
            return self.units >= 0
        return (self.positions >= 0).expand(self.values[0].shape[0], -1)


class Batch(NamedTuple):
    """The argument of a network's loss."""

    source: Source
    target: Any


class Naming(NamedTuple):
    """Things that an argument of the command line names, where that is not simply the thing itself."""

    things: Callable[[str], list[str]]  # a text for each thing: a file may hold several
    units: Callable[[str, Sequence[str]], str]  # the text that names some units of a thing alone


Chosen = tuple[dict[str, Any], dict[str, str]]  # sections of settings, and the reason for each that was chosen


class Input(ABC, Generic[S]):
    """An input. `marks` stand around the elements of each row, where the network wants them."""

    name: ClassVar[str]  # of the input, and of its section in the settings
    noun: ClassVar[str]  # "texts": for sentences about it
    baselines: ClassVar[tuple[str, ...]] = ("deepsets",)  # kinds of model that are simple ones for it
    offers: ClassVar[frozenset[str]] = frozenset()  # what outputs may need: "an alphabet", "units to label"
    fields: tuple[Field, ...]  # of a stored row
    alphabet: Tokenizer | None = None  # of its elements, where they are chosen from one
    naming: ClassVar[Naming | None] = None  # how an argument of the command line names things; None: it is one
    marks: Marks = Marks.NONE
    mixes: bool = False  # in training each row is mixed with another one, which stands behind all rows of a batch

    # ---- from files and settings ------------------------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def settings(use: Use) -> type[Section]:
        """Return the class of its settings."""

    @staticmethod
    @abstractmethod
    def files(use: Use) -> tuple[str, ...]:
        """Return the names of what `contents` writes."""

    @classmethod
    @abstractmethod
    def recognise(cls, files: Files, task: str | None) -> Format | None:
        """Return the form of files that hold this input; `task` leaves only its forms."""

    @classmethod
    @abstractmethod
    def choose(cls, seen: Survey, use: Use) -> Chosen:
        """Choose sections of settings that fit the data: its own, and others where this input needs a network, batches
        or lengths that differ from what an output would choose."""

    @classmethod
    @abstractmethod
    def learn(cls, how: Any, use: Use, sources: Sequence[Any], origin: Input[Any] | None) -> Self:
        """Learn from sources what is needed to read them; `origin` is the input of the run to start from."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, how: Any, use: Use, names: Mapping[str, str]) -> Self:
        """Load what `contents` wrote; `names` has the name in the folder of each file that has another one there."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """Return what was learned, as files of a run folder."""

    # ---- from things to vectors -------------------------------------------------------------------------------------

    @abstractmethod
    def read(self, line: str) -> S:
        """Return the thing that a line of the command line means."""

    @staticmethod
    @abstractmethod
    def unreadable(source: Any) -> str:
        """Return why a thing cannot be read, or nothing."""

    @abstractmethod
    def encode(self, sources: Sequence[S]) -> list[Row]:
        """Return the arrays that are stored of each thing; all are empty for an empty thing."""

    @abstractmethod
    def units(self, row: Row) -> int:
        """Return how many units a row has that can be labelled."""

    @abstractmethod
    def parts(self, row: Row, most: int) -> list[Row]:
        """Cut a row into parts of at most `most` elements; none of an empty one."""

    @abstractmethod
    def collate(self, rows: Sequence[Row], extra: int = 0) -> Source:
        """Pad rows to one length, and by `extra` elements more."""

    @abstractmethod
    def vary(self, source: Source, draws: Draws) -> Source:
        """Return a batch of training rows changed at random, by `draws` alone; as it is where nothing is varied."""

    @abstractmethod
    def module(self, stem: Stem) -> nn.Module:
        """Return the module that makes vectors of a Source: Source → Context."""

    @abstractmethod
    def prepare(self, module: nn.Module, rows: Callable[[], Iterator[Row]]) -> None:
        """Show the module the stored rows before it is trained on them."""

    # ---- for people -------------------------------------------------------------------------------------------------

    @abstractmethod
    def view(self, source: S) -> View:
        """Return what pictures show of a thing."""

    @abstractmethod
    def text(self, source: S) -> str:
        """Return a thing as one line of text."""

    @abstractmethod
    def length(self, source: S) -> int:
        """Return how long a thing is to people, for scores by length."""

    def marked(self, marks: Marks) -> Self:
        """Return the same input with these marks around each row."""
        other = copy.copy(self)
        other.marks = marks
        return other


class Opens(ABC):
    """An input that reads bytes of strangers, as a server gets them: limits are checked before anything is decoded."""

    accepts: ClassVar[str]  # media types, as a page's field for files takes them: "image/*"

    @abstractmethod
    def open(self, content: bytes, media: str) -> Any:
        """Return the thing that these bytes hold; `media` is what the sender says they are."""

    @abstractmethod
    def sample(self) -> Any:
        """Return a thing that is made up, for a model to answer before strangers ask it."""


class Window(NamedTuple):
    """The part of a picture that is read, in its pixels; it may reach beyond the picture."""

    left: float
    top: float
    wide: float
    tall: float

    def shares(self, edges: NDArray[Any]) -> NDArray[Any]:
        """Return edges (n, 4) in pixels as shares of the window."""
        corner, size = [self.left, self.top] * 2, [self.wide, self.tall] * 2
        found: NDArray[Any] = (edges - corner) / size
        return found

    def pixels(self, shares: NDArray[Any]) -> NDArray[Any]:
        """Return edges (n, 4) as shares of the window in pixels."""
        corner, size = [self.left, self.top] * 2, [self.wide, self.tall] * 2
        found: NDArray[Any] = shares * size + corner
        return found


class Framed(ABC):
    """An input whose vectors lie on a grid over a picture."""

    @abstractmethod
    def window(self, source: Any) -> Window:
        """Return the part of a picture that the grid covers."""


class Covers(ABC):
    """An input of which parts can be covered: what the answer becomes without a part says more than its weight."""

    @abstractmethod
    def coverable(self, source: Any, view: View) -> list[Coverable]:
        """Return the parts of a thing that can be covered, by the vectors of its view."""

    @abstractmethod
    def cover(self, source: Any, view: View, part: Coverable) -> Any:
        """Return the same thing without a part, as `read` or `open` would have returned it."""


class Restores(ABC, Generic[S]):
    """An input that can be made again: it offers RESTORED, the inverse of reading.

    `spread` is about the standard deviation of the numbers in `Source.values[0]`.
    """

    spread: float

    @abstractmethod
    def restore(self, values: Tensor) -> Tensor:
        """Return what a network says, numbers of mean 0 and deviation 1, as numbers of `Source.values[0]`."""

    @abstractmethod
    def distance(self, values: Tensor, predicted: Tensor) -> Tensor:
        """Return Σ (x − x̂)² over all components of each row, (batch,)."""

    @abstractmethod
    def thing(self, values: NDArray[Any]) -> S:
        """Return one row of `Source.values[0]` as a thing: the inverse of `encode` and `collate`."""

    @abstractmethod
    def written(self, values: NDArray[Any]) -> dict[str, Any]:
        """Return one row of `Source.values[0]` as JSON can write it."""


RESTORED = "values to restore"  # what an input that `Restores` offers


def moved(batch: B, device: torch.device) -> B:
    """Move a batch to where the network is. From pinned memory it is copied while the GPU still computes."""
    if device.type == "cpu":
        return batch
    moved_batch: B = tree_map(
        lambda part: part.pin_memory().to(device, non_blocking=True) if isinstance(part, Tensor) else part, batch
    )
    return moved_batch


def positions_from(lengths: Sequence[int], width: int) -> Tensor:
    """Return 0, 1, 2 … for elements and −1 for padding, (batch, n); shared (n,) where there is no padding."""
    where = torch.arange(width)
    if all(length == width for length in lengths):
        return where
    return torch.where(where < torch.tensor(lengths)[:, None], where, -1)


def readable(text: str) -> str:
    """Return a text that UTF-8 can write. Bytes that Python could not decode are in it as lone surrogates: where they
    are UTF-8 after all, as in an ASCII locale, they are decoded now; any other is U+FFFD."""
    if text.isascii():
        return text
    lone = re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text)  # such as no byte becomes
    return lone.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
