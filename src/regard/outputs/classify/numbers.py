"""A number for the whole input (how alike two sentences are, how many stars …): `output.kind=number` of classify.

    answer = m + s · (w · Σ_i a_i h_i + b),      loss = ((answer − expected) / s)²

m and s are the middle and half the range of the numbers in the training data: the network answers about −1 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard import metrics
from regard.data.example import Example
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Chosen, Input, Row, Source, Use
from regard.inspection import page
from regard.inspection.page import Exhibit
from regard.inspection.view import Drawing, View, refuse_unseeable
from regard.network import Network
from regard.outputs.abilities import Guesses, Learns
from regard.outputs.classify.head import square_loss
from regard.outputs.classify.network import pooled, terms_of
from regard.outputs.classify.settings import ClassifySettings, choose
from regard.outputs.output import Held, Item, Lines, Looked, Supervised, halves, paired
from regard.text.classes import Classes

SHOWN = 500  # elements that a picture can hold


class Estimates(Supervised[float | None], Guesses, Learns):
    """Estimates out, None for an empty row. The classes are the numbers of the training data."""

    does, reads = "measures", "classify"
    settings = ClassifySettings
    use = Use.LABEL
    files: ClassVar[tuple[str, ...]] = ("labels.json",)
    fields = (Field("number", "<f4", tokens=1),)

    def __init__(self, classes: Classes, terms: int = 1) -> None:
        known = [metrics.number_of(name) for name in classes.names]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        self.classes, self.terms = classes, terms
        self.middle, self.scale = (low + high) / 2, (high - low) / 2 or 1.0

    @classmethod
    def learn(cls, config: Any, input: Input[Any], seen: Survey, origin: Any) -> Classes:
        del config, input, origin
        return Classes.learn(seen.names, " ", None)

    @classmethod
    def load(cls, folder: Path) -> Classes:
        return Classes.load(folder / cls.files[0])

    def contents(self) -> dict[str, bytes]:
        return {self.files[0]: self.classes.vocabulary.as_bytes()}

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return choose(seen, reading)

    @classmethod
    def made(cls, config: ClassifySettings, input: Input[Any], learned: Classes) -> Self:
        del input
        return cls(learned, terms_of(config))

    def network(self, config: ClassifySettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        return pooled(config, input, 1, square_loss)

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, str]]) -> Iterator[Row]:
        def targets(some: Sequence[Example[Any, str]]) -> Iterable[Row]:
            return (self.row(number_in(example.target, example)) for example in some)

        return paired(input, targets, examples)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(len(counts)),) * self.terms

    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Tensor:
        del source, extra
        return (torch.tensor([float(row[0][0]) for row in rows]) - self.middle) / self.scale

    def row(self, answer: float | None) -> Row:
        return (np.array([answer or 0.0], np.float32),)

    # ---- answers --------------------------------------------------------------------------------------------------

    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[float | None]:
        del how, first
        return self._numbers(passes, passes.input.encode(sources))

    def held_answers(self, passes: Passes, held: Held, how: Any, *, quick: bool) -> list[float | None]:
        del how, quick
        return self._numbers(passes, halves(passes.input, held.rows)[0])

    def _numbers(self, passes: Passes, rows: Sequence[Row]) -> list[float | None]:
        """Return the number of each row, a mean over the parts of a long one; None for an empty one."""

        def work(source: Any, numbers: list[int]) -> list[float]:
            found = passes.network.scores(Batch(source, torch.zeros(len(numbers))))[:, 0, 0].double()
            return [self.middle + self.scale * value for value in found.tolist()]

        return [float(np.mean(parts)) if parts else None for parts in passes.in_parts(rows, work)]

    def as_target(self, answer: float | None) -> str:
        return "" if answer is None else f"{answer:.6g}"

    def as_text(self, answer: float | None) -> Lines:
        return [(None, self.as_target(answer))]

    def as_json(self, answer: float | None) -> dict[str, Any]:
        return {"number": answer}

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        expected = [item.expected for item in items]
        scores = (metrics.pearson, metrics.spearman, metrics.mean_error)
        return [score(answers, expected, samples=samples) for score in scores]

    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, str]], held: Held, samples: int
    ) -> tuple[str, list[metrics.Score]]:
        """The mean of all numbers."""
        del passes
        mean = float(np.mean([metrics.number_of(example.target) for example in examples]))
        return "mean", self.score(held.items, [self.as_target(mean)] * len(held.items), samples)

    # ---- looking --------------------------------------------------------------------------------------------------

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> float | None:
        count = len(passes.input.encode([source])[0][0])
        refuse_unseeable(passes.input.text(source), count, min(passes.most, SHOWN))
        return self.answers(passes, [source], None)[0] if answer is None else metrics.number_of(answer)

    def exhibit(self, passes: Passes, source: Any, answer: float | None, looked: Looked) -> Exhibit:
        influence = passes.influence(looked.batch, torch.zeros(1, dtype=torch.long))
        view, said = passes.input.view(source), f"{answer or 0.0:.3g}"
        maps = [page.influence(influence), *page.maps(looked.seen, _sides)]
        shown = Exhibit.of(view, View([said]), maps, passes.input.text(source))
        drawing = Drawing(influence[0], view.names, title=said, what="influence: size of the gradient")
        return replace(shown, drawing=drawing)


def refuse_words(seen: Survey) -> None:
    """Refuse the first target that is no number, with its place if the survey has kept it."""
    places = {example.target: example for example in reversed(seen.examples)}  # the first of each
    for name in seen.names:
        number_in(name, places.get(name))


def number_in(target: str, example: Example[Any, str] | None) -> float:
    """Return the number that a target is, or refuse it with the place where it stands."""
    try:
        return metrics.number_of(target)
    except UserError:
        place = "" if example is None else f"{example.file}:{example.line}: "
        raise UserError(
            f"{place}output.kind=number expects a number such as 3.5 for each text, found {target[:40]!r}. "
            "Correct the line, or set output.kind=label."
        ) from None


def _sides(name: str) -> tuple[page.Side, page.Side]:
    return ("target", "source") if name.startswith("head") else ("source", "source")
