"""Maker: what all outputs that make things of one shape have in common."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.example import Example
from regard.data.format import MOST_LABELS
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import RESTORED, Batch, Input, Restores, Row, Use
from regard.outputs.abilities import Invents, Learns, Portrays, Refuses, Warns
from regard.outputs.imagine.settings import ImagineSettings
from regard.outputs.output import CHUNK, Item, Lines, Output, halves

FILE = "things.json"


class Things(NamedTuple):
    """The shape of a stored row and of its values in a batch, and the labels, the most frequent first."""

    row: tuple[int, ...]
    shape: tuple[int, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Imagined:
    """An answer: numbers about a thing (its code, how far it was missed, how real it looks), and it made again."""

    numbers: dict[str, Any]
    written: dict[str, Any]


class Maker(Output[Imagined], Learns, Refuses, Invents, Portrays, Warns):
    """New things of the same kind out, as long as the input says how to restore its values, and all have one shape."""

    does, reads = "makes new", "imagine"
    settings = ImagineSettings
    use = Use.SELF
    needs: ClassVar[frozenset[str]] = frozenset((RESTORED,))
    measures: ClassVar[frozenset[str]] = frozenset(("features", "training"))
    files: ClassVar[tuple[str, ...]] = (FILE,)
    fields = (Field("label", "<u2", tokens=1),)

    def __init__(self, things: Things) -> None:
        self.things = things

    # ---- from settings and data -----------------------------------------------------------------------------------

    @classmethod
    @final
    def learn(cls, config: Any, input: Input[Any], seen: Survey, origin: Any) -> Things:
        del config, origin
        first = next((source for source in seen.sources if len(input.encode([source])[0][0])), None)
        if first is None:
            raise UserError("There is nothing in the training data to make again: every example is empty.")
        row = input.encode([first])[0]
        counts = Counter(str(target) for target in seen.targets)
        labelled = "" not in counts and len(counts) <= min(MOST_LABELS, max(2, seen.count // 5))
        labels = tuple(name for name, _ in counts.most_common()) if labelled else ()
        return Things(np.shape(row[0]), tuple(input.collate([row]).values[0].shape[1:]), labels)

    @classmethod
    @final
    def load(cls, folder: Path) -> Things:
        path = folder / FILE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            row, shape = (tuple(int(size) for size in found[key]) for key in ("row", "shape"))
            return Things(row, shape, tuple(str(name) for name in found["labels"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error

    @final
    def contents(self) -> dict[str, bytes]:
        return {FILE: json.dumps(self.things._asdict(), ensure_ascii=False).encode()}

    # ---- training -------------------------------------------------------------------------------------------------

    @final
    def rows(self, input: Input[Any], examples: Iterator[Example[Any, Any]]) -> Iterator[Row]:
        numbers = {name: number for number, name in enumerate(self.things.labels)}
        while chunk := list(islice(examples, CHUNK)):
            for example, row in zip(chunk, input.encode([each.source for each in chunk]), strict=True):
                if np.shape(row[0]) != self.things.row:
                    where = f"{example.file}:{example.line}" if example.line else example.file
                    raise UserError(f"{where}: {self._other_shape(row)}; bring all examples to one length.")
                yield (*row, np.array([numbers.get(str(example.target), 0)], np.uint16))

    def _other_shape(self, row: Row) -> str:
        expected, found = (" × ".join(map(str, shape)) for shape in (self.things.row, np.shape(row[0])))
        return f"expected {expected} numbers, as the first example has, found {found}"

    @final
    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        sources, labels = halves(input, rows)
        return Batch(input.collate(sources, extra), torch.tensor([int(label[0][0]) for label in labels]))

    @final
    def items(self, examples: Iterable[Example[Any, Any]]) -> list[Item]:
        return [Item(example, [str(example.target)]) for example in examples]

    # ---- answers --------------------------------------------------------------------------------------------------

    @final
    def refuse(self, passes: Passes, source: Any, how: Any) -> None:
        del how
        row = passes.input.encode([source])[0]
        if len(row[0]) and np.shape(row[0]) != self.things.row:
            raise UserError(f"This model makes things of one shape: {self._other_shape(row)}.")

    @abstractmethod
    def described(self, passes: Passes, rows: Sequence[Row]) -> list[Imagined | None]:
        """Return what the model says of stored things; None for empty ones."""

    @final
    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[Imagined]:
        del how, first
        found = self.described(passes, passes.input.encode(sources))
        return [Imagined({}, {}) if one is None else one for one in found]

    @final
    def as_target(self, answer: Imagined) -> str:
        return self.as_text(answer)[0][1]

    @final
    def as_text(self, answer: Imagined) -> Lines:
        def figures(value: Any) -> str:
            return " ".join(f"{x:.4g}" for x in (value if isinstance(value, list) else [value]))

        return [(None, "\t".join(f"{name} {figures(value)}" for name, value in answer.numbers.items()))]

    @final
    def as_json(self, answer: Imagined) -> dict[str, Any]:
        return {**answer.numbers, **answer.written}

    @final
    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[Imagined]) -> Batch:
        del answers
        rows = [(*row, [0]) for row in passes.input.encode(sources)]
        return self.collate(passes.input, rows)

    @final
    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Imagined:
        if answer is not None:
            raise UserError(
                f"--answer: a model that {self.does} {passes.input.noun} is not given an answer: leave it out."
            )
        found = self.answers(passes, [source], None)[0]
        if not found.numbers:
            raise UserError("The example is empty: there is nothing to look at.")
        return found

    @final
    def alike(self, other: Any) -> bool:
        return type(other) is type(self) and other.things.shape == self.things.shape

    @final
    def number(self, label: str) -> int:
        """Return the number of a label; refuse one that the training data does not have."""
        labels = self.things.labels
        if label not in labels:
            known = ", ".join(labels[:12]) if labels else "none: the training data has no labels"
            raise UserError(f"--label {label}: there is no such label, expected one of {known}.")
        return labels.index(label)


def restored(passes: Passes) -> Restores[Any]:
    """Return the input of a model as one whose values can be restored."""
    assert isinstance(passes.input, Restores)
    return passes.input


def normal(seed: int, count: int, width: int) -> torch.Tensor:
    """Return numbers of N(0, 1), (count, width); the first ones are the same, however many there are."""
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32))


@torch.no_grad()
def in_batches(passes: Passes, made: Any, codes: torch.Tensor, *more: torch.Tensor, size: int = 256) -> NDArray[Any]:
    """Return what `made(codes, …)` makes of codes, some at a time: (codes, …shape)."""
    passes.network.eval()
    place = passes.network.device
    parts = [
        made(*(each[start : start + size].to(place) for each in (codes, *more))).cpu().numpy()
        for start in range(0, len(codes), size)
    ]
    return np.concatenate(parts)
