"""Classify: one label for the whole input (sentiment, intent, topic, language …), and what decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
from regard.inspection.invariants import difference
from regard.inspection.page import Exhibit
from regard.inspection.recording import Seen
from regard.inspection.scenes import refuse_crowd, sketch
from regard.inspection.view import Drawing, View, refuse_unseeable
from regard.models.encoder import Each
from regard.network import Network, Subsampling
from regard.outputs.abilities import Believes, Chooses, Details, Examines, Features, Guesses, Invariant, Joins
from regard.outputs.classify.head import ClassifyHead, OneState, label_loss
from regard.outputs.classify.network import pooled, terms_of
from regard.outputs.classify.numbers import Estimates, refuse_words
from regard.outputs.classify.settings import ClassifySettings, PoolSettings, choose
from regard.outputs.output import Held, Item, Lines, Looked, Supervised, halves, paired
from regard.text import labels
from regard.text.classes import Classes

SHOWN = 500  # elements that a picture can hold


@dataclass(frozen=True)
class Label:
    """The most probable label of a row, and the probability of each; none of an empty row."""

    label: str
    probabilities: dict[str, float]


class Classify(Supervised[Label], Chooses, Examines, Joins, Details, Invariant, Features, Believes, Guesses):
    """Labels out. A row that is too long is read in parts, whose probabilities are averaged."""

    does, reads = "labels", "classify"
    settings = ClassifySettings
    use = Use.LABEL
    files: ClassVar[tuple[str, ...]] = ("labels.json",)
    fields = (Field("label", "<u2", tokens=1),)

    def __init__(self, classes: Classes, terms: int = 1, how: PoolSettings | None = None) -> None:
        self.classes, self.terms, self.asked = classes, terms, how or PoolSettings()

    @staticmethod
    def names(target: str) -> tuple[str]:
        return (target,)

    @classmethod
    def examine(cls, config: ClassifySettings, seen: Survey) -> None:
        if config.output.kind == "number":
            refuse_words(seen)

    @classmethod
    def made(cls, config: ClassifySettings, input: Input[Any], learned: Classes) -> Classify | Estimates:
        if config.output.kind == "number":
            return Estimates.made(config, input, learned)
        if config.output.positive not in (None, *learned.names):
            known = ", ".join(learned.names[:8])
            raise UserError(f"output.positive is {config.output.positive}, expected a label: {known}.")
        return cls(learned, terms_of(config), config.output)

    def network(self, config: ClassifySettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        return pooled(config, input, len(self.classes), label_loss(config.training.smoothing))

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, str]]) -> Iterator[Row]:
        def targets(some: Sequence[Example[Any, str]]) -> Iterable[Row]:
            return ((row,) for row in self.classes.encode(labels.closed(example.target) for example in some))

        return paired(input, targets, examples)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(len(counts)),) * self.terms

    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Tensor:
        del source, extra
        return torch.tensor([int(row[0][0]) for row in rows])

    def row(self, answer: Label) -> Row:
        return ([self.classes.names.index(answer.label) if answer.label else 0],)

    # ---- answers --------------------------------------------------------------------------------------------------

    def refuse_other(self, passes: Passes, other: Passes, output: Classify, name: str) -> None:
        """Refuse to answer together with a model of other labels."""
        del passes, other
        if output.classes.names != self.classes.names:
            raise UserError(f"{name} has other labels: an ensemble needs models with the same labels.")

    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[Label]:
        del how, first
        each = [self.probabilities(one, one.input.encode(sources)) for one in (passes, *passes.others)]
        return [self._label(found) for found in zip(*each, strict=True)]

    def held_answers(self, passes: Passes, held: Held, how: Any, *, quick: bool) -> list[Label]:
        del quick
        if passes.others:  # which may read otherwise
            return self.answers(passes, [item.example.source for item in held.items], how)
        rows, _ = halves(passes.input, held.rows)
        return [self._label([found]) for found in self.probabilities(passes, rows)]

    def _label(self, found: Sequence[NDArray[np.float64] | None]) -> Label:
        """Return the label by the mean of what all models say."""
        known = [one for one in found if one is not None]
        if not known:
            return Label("", {})
        shares = dict(zip(self.classes.names, np.mean(known, 0).tolist(), strict=True))
        return Label(max(shares, key=lambda name: shares[name]), shares)

    def probabilities(self, passes: Passes, rows: Sequence[Row]) -> list[NDArray[np.float64] | None]:
        """Return the probability of each label for each row; None for an empty one."""

        def work(source: Any, numbers: list[int]) -> NDArray[np.float64]:
            batch = Batch(source, torch.zeros(len(numbers), dtype=torch.long))
            return np.asarray(passes.network.scores(batch)[:, 0].double().softmax(-1).cpu())

        return [np.mean(parts, 0) if parts else None for parts in passes.in_parts(rows, work)]

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Label) -> NDArray[np.float64]:
        number = self.classes.names.index(answer.label)
        found = self.probabilities(passes, passes.input.encode(sources))
        return np.array([[0.0 if shares is None else shares[number]] for shares in found])

    def features(self, passes: Passes, sources: Sequence[Any]) -> NDArray[np.float64]:
        """Return the pooled state of each source, from which the output layer chooses."""

        def work(source: Any, numbers: list[int]) -> NDArray[np.float64]:
            del numbers
            head = passes.network.head
            assert isinstance(head, ClassifyHead)
            return np.asarray(head.pool(passes.network.features(source)).double().cpu())

        found = passes.in_parts(passes.input.encode(sources), work)
        return np.stack([np.mean(parts, 0) for parts in found if parts])

    def as_target(self, answer: Label) -> str:
        return answer.label

    def as_text(self, answer: Label) -> Lines:
        return [(answer.probabilities.get(answer.label), answer.label)]

    def as_json(self, answer: Label) -> dict[str, Any]:
        ordered = sorted(answer.probabilities.items(), key=lambda item: -item[1])
        return {"label": answer.label, "probabilities": {name: round(share, 6) for name, share in ordered}}

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        references = _references(items)
        found = metrics.evaluate(answers, references, kind="labels", samples=samples)
        if self.asked.metric == "matthews":
            found.insert(0, metrics.matthews(answers, references, samples=samples))
        if self.asked.metric == "f1":
            label = self.asked.positive or self.classes.names[-1]  # the most frequent stands first
            found.insert(0, metrics.class_f1(answers, references, label=label, samples=samples))
        return found

    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, Any]], held: Held, samples: int
    ) -> tuple[str, list[metrics.Score]]:
        """The most frequent label."""
        del passes
        best = labels.closed(Counter(example.target for example in examples).most_common(1)[0][0])
        return "majority", self.score(held.items, [labels.opened(best)] * len(held.items), samples)

    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:  # noqa: ARG002
        return metrics.render_confusion(*metrics.confusion(answers, _references(items)))

    # ---- looking --------------------------------------------------------------------------------------------------

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Label:
        refuse_crowd(passes.input.view(source), passes.input.text(source))
        count = len(passes.input.encode([source])[0][0])
        refuse_unseeable(passes.input.text(source), count, min(passes.most, SHOWN))
        own = self.answers(passes, [source], None)[0]
        if answer is None:
            return own
        self.classes.number(answer.strip(), "label", "is", "one of")
        return replace(own, label=answer.strip())

    def exhibit(self, passes: Passes, source: Any, answer: Label, looked: Looked) -> Exhibit:
        view = passes.view(source)
        maps = page.maps(looked.seen, _sides, view)
        influence = view.filled(passes.influence(looked.batch, looked.batch.target))
        if not any(m.rows == "target" for m in maps):
            maps.insert(0, page.influence(influence))
        if view.scene is not None:
            decided = self._decided(passes.network, looked.seen) or (influence[0], "size of the gradient")
            return _sketched(view, answer, maps, *decided)
        if passes.input.marks:
            view = replace(view, groups=None)
        shown = Exhibit.of(view, View([answer.label]), maps, passes.input.text(source))
        title = f"{answer.label}  ({100 * answer.probabilities[answer.label]:.0f} %)"
        weights, what = self._decided(passes.network, looked.seen) or (influence[0], "influence: size of the gradient")
        heads = shown.in_words(next((m for m in maps if m.rows == "source"), maps[0]))
        drawing = Drawing(view.columns(view.filled(weights)), view.shown, title=title, what=what, heads=heads)
        return replace(shown, drawing=drawing)

    def _decided(self, network: Network, seen: Mapping[str, Seen]) -> tuple[NDArray[np.float32], str] | None:
        """Return how much each vector had to do with the label, where attention tells: the weights of content
        attention, or those of the last layer where one state stands for all."""
        assert isinstance(network.head, ClassifyHead)
        looks, row = network.head.pool, 0
        if isinstance(looks, OneState):
            wanted, row = [name for name in seen if name.startswith("backbone")], -1 if looks.last else 0
        else:
            wanted = ["head.pool.glimpse"] * looks.content
        if not wanted or seen[wanted[-1]].projected:  # columns that are no elements of the input
            return None
        return page.shown_weights(seen[wanted[-1]]).mean(0)[row], "attention weight"

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        if not isinstance(passes.network.backbone, Each):
            return
        fields, stem = passes.input.fields, passes.network.stem
        # Frames of which several become one vector have an order there, and so have the rows of a picture.
        if len(fields[0].shape) > 1 or (isinstance(stem, Subsampling) and (stem.reduction > 1 or stem.halo)):
            return
        cut = len(fields)
        turned = [(*(np.flip(field, 0).copy() for field in row[:cut]), *row[cut:]) for row in rows]
        plain, other = (passes.network.scores(self.collate(passes.input, each)) for each in (rows, turned))
        real = torch.ones(plain.shape[:2], dtype=torch.bool)
        yield "order: turning a text round changes nothing", difference(plain, other, real)

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return choose(seen, reading)


def _references(items: Sequence[Item]) -> list[list[str]]:
    return [[labels.opened(labels.closed(label)) for label in item.expected] for item in items]


def _sides(name: str) -> tuple[page.Side, page.Side]:
    return ("target", "source") if name.startswith("head") else ("source", "source")


def _sketched(view: View, label: Label, found: Sequence[page.Map], shades: NDArray[np.float32], what: str) -> Exhibit:
    """Return the exhibit of a graph: nodes by how much they decided, edges by the weights along them."""
    inside = [one for one in found if one.rows == "source"]
    layers = [layer for one in inside for layer in np.asarray(one.weights)]
    title = f"{label.label}  ({100 * label.probabilities[label.label]:.0f} %)   nodes: {what}"
    drawn = sketch(view, layers[-1:], title, shades=shades)
    decided = page.Map(f"which nodes decided ({what})", "target", "source", np.asarray(shades)[None, None, None])
    return Exhibit(view.names, [label.label], [decided, *inside], title, sketch=drawn)
