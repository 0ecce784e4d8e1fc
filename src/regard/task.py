"""A task: an input, an output and the network between them. Rows, batches, answers in order, JSON: written once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.data.batches import Content
from regard.data.draws import PARTNERS, Draws
from regard.data.example import Example
from regard.data.store import Field
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Covers, Input, Row, Use
from regard.inspection.invariants import difference
from regard.inspection.page import Exhibit
from regard.inspection.recording import paused, watched
from regard.network import Network
from regard.outputs.abilities import Details, Invariant, Joins, Poses, Refuses, Streams, Warns, contents_of
from regard.outputs.effects import effects, shown_parts, with_effects
from regard.outputs.output import Held, Item, Looked, Output, Supervised

WIDER = 5  # elements of padding that must change nothing


@final
class Task:
    """An input, an output, and the network between them. `longest` is the most elements of a row of training."""

    def __init__(self, input: Input[Any], output: Output[Any], network: Network, longest: int) -> None:
        self.input, self.output, self.network = input, output, network
        self.others: tuple[Task, ...] = ()
        self.stop: Callable[[], bool] | None = None  # asked while answering whether to give up
        table = network.longest
        # A learned table of positions ends; any other network reads somewhat more than it was trained on.
        self.most = 4 * longest if table is None else max(1, table - len(input.marks))

    @property
    def does(self) -> str:
        return f"{self.output.does} {self.input.noun}"

    @property
    def turns(self) -> tuple[str, ...]:
        return self.output.turns

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.input.fields, *self.output.fields)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of a run folder that hold what input and output learned."""
        return {**self.input.contents(), **contents_of(self.output)}

    @property
    def passes(self) -> Passes:
        return Passes(self.input, self.network, self.most, [other.passes for other in self.others], self.stop)

    def join(self, others: Sequence[Task], names: Sequence[str]) -> None:
        """Answer together with other models from now on; their names are for complaints."""
        if not isinstance(self.output, Joins):
            raise UserError(f"--with joins models that convert or classify, and this one {self.does}: leave it out.")
        for other, name in zip(others, names, strict=True):
            if type(other.output) is not type(self.output):
                raise UserError(f"--with {name}: expected a model that {self.does}, found one that {other.does}.")
            self.output.refuse_other(self.passes, other.passes, other.output, name)
        self.others = tuple(others)

    # ---- training ---------------------------------------------------------------------------------------------------

    def rows(self, examples: Iterable[Example[Any, Any]]) -> Iterator[Row]:
        """Yield what is stored of all examples, streamed."""
        return self.output.rows(self.input, iter(examples))

    def batch(self, rows: Content | Sequence[Row], draws: Draws | None = None) -> Batch:
        """Return rows as the padded tensors that the loss takes; with `draws`, varied at random for training."""
        if draws is None:
            return self.output.collate(self.input, rows)
        if self.input.mixes:
            rows = [*rows, *draws.others(draws.partners(PARTNERS))]
        batch = self.output.collate(self.input, rows)
        return batch._replace(source=self.input.vary(batch.source, draws))

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return self.output.predictions(counts)

    def held(self, examples: Iterable[Example[Any, Any]]) -> Held:
        """Return examples as something to evaluate on."""
        return self.held_items(self.output.items(examples))

    def held_items(self, items: Sequence[Item]) -> Held:
        return Held(items, list(self.rows(item.example for item in items)))

    def some(self, held: Held, most: int) -> Held:
        """Return at most so many items: the first where their order is content, else some from all over, for files are
        often sorted."""
        count = len(held.items)
        if count <= most:
            return held
        if self.output.contiguous:
            return self.held_items(held.items[:most])
        numbers = [i * count // most for i in range(most)]
        return Held([held.items[i] for i in numbers], [held.rows[i] for i in numbers])

    def item_as_text(self, item: Item) -> tuple[str, list[str]]:
        """Return the source of an item, and what is expected, as text."""
        expected = item.expected if isinstance(item.expected, list) else []
        return self.input.text(item.example.source), [str(text) for text in expected]

    # ---- answers ----------------------------------------------------------------------------------------------------

    def answers(self, sources: Sequence[Any], first: int = 0, **changes: Any) -> list[Any]:
        """Answer each source; the first is line `first` of the input. A watch sees one pass over all, in order."""
        return self._answers(sources, first, self._how(changes))

    def _how(self, changes: Mapping[str, Any], *, scored: bool = True) -> Any:
        for name in changes:
            if name not in self.output.options:
                raise UserError(f"{name!r} changes nothing about a model that {self.does}.")
        return self.output.changed(changes, scored=scored)

    def _answers(self, sources: Sequence[Any], first: int, how: Any) -> list[Any]:
        passes = self.passes
        if isinstance(self.output, Refuses):
            for source in sources:
                self.output.refuse(passes, source, how)
        with paused():
            found = self.output.answers(passes, sources, how, first)
        if watched() and len(sources):
            passes.scores(self.output.known(passes, sources, found))
        return found

    def predict(self, sources: Sequence[Any], **changes: Any) -> list[str]:
        """Return the best answer to each source, as targets are written."""
        for name in changes:
            if name in self.output.printed:
                raise UserError(f"{name!r} changes what is printed: use `answers`, which returns it.")
            if name in self.output.measures:
                raise UserError(f"{name!r} is an option of `evaluate`.")
        found = self._answers(sources, 0, self._how(changes, scored=False))
        return [self.output.as_target(answer) for answer in found]

    def lines(
        self, sources: Sequence[Any], first: int, changes: dict[str, Any], *, with_score: bool, as_json: bool
    ) -> Iterator[str]:
        """Yield what is printed for sources of which the first is line `first` of the input."""
        found = self._answers(sources, first, self._how(changes, scored=with_score or as_json))
        for source, answer in zip(sources, found, strict=True):
            if as_json:
                item = {"source": self.input.text(source), **self.output.as_json(answer)}
                yield json.dumps(item, ensure_ascii=False)
                continue
            for score, text in self.output.as_text(answer):
                yield f"{score:.4f}\t{text}" if with_score and score is not None else text

    def stream(self, source: Any, changes: dict[str, Any], write: Callable[[str], None]) -> bool:
        """Write the answer to one source as it is made; False, and nothing is written, if it can only come whole."""
        if not isinstance(self.output, Streams):
            return False
        with paused():
            self.output.stream(self.passes, source, self._how(changes), write)
        return True

    def refuse(self, source: Any, changes: dict[str, Any]) -> None:
        """Refuse a source that cannot be answered."""
        fault = self.input.unreadable(source)
        if fault:
            raise UserError(fault)
        if isinstance(self.output, Refuses):
            self.output.refuse(self.passes, source, self._how(changes))

    def trial(self, source: Any) -> Any:
        """Return what somebody may ask first, made from a source of the data."""
        return self.output.trial(source) if isinstance(self.output, Poses) else source

    def evaluate(
        self, held: Held, *, quick: bool = False, samples: int = metrics.SAMPLES, **changes: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        """Score held-out items; and the answers, where there are any. `quick` may search less well."""
        measures = {name: changes.pop(name) for name in [*changes] if name in self.output.measures}
        how = self._how(changes)
        with paused():
            return self.output.evaluate(self.passes, held, how, quick=quick, samples=samples, **measures)

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """Score the answers to items; nothing where they cannot be scored one by one."""
        return self.output.score(items, answers, samples) if isinstance(self.output, Supervised) else []

    def warnings(self, held: Held, scores: Sequence[metrics.Score]) -> list[str]:
        """Return what is wrong with a model that has these scores, where the output can tell."""
        if not isinstance(self.output, Warns):
            return []
        with paused():
            return self.output.warnings(self.passes, held, scores)

    def details(self, items: Sequence[Item], answers: Sequence[str]) -> str:
        """Return more about an evaluation than its scores, where there is more."""
        return self.output.details(self.passes, items, answers) if isinstance(self.output, Details) else ""

    # ---- looking ----------------------------------------------------------------------------------------------------

    def exhibit(self, source: Any, answer: str | None, cover: Sequence[int] | Literal["each"] = ()) -> Exhibit:
        """Return one source and its answer (the model's own, or a given one), with all attention; and what the answer
        becomes when some of its parts are covered, by their numbers."""
        self.network.eval()
        self.refuse(source, {})
        passes = self.passes
        given = self.output.looked_at(passes, source, answer)
        batch = self.output.known(passes, [source], [given])
        shown = self.output.exhibit(passes, source, given, Looked(batch, passes.watched(batch)))
        view = passes.view(source)
        if view.sound is not None:
            shown = replace(shown, sound=view.sound)
        elif view.picture is not None or view.scene is not None:
            shown = replace(shown, view=view)
        if not isinstance(self.input, Covers):
            return shown
        parts = shown_parts(shown, view, self.input.coverable(source, view))
        shown = replace(shown, parts=[part for _, part in parts])
        wanted = range(len(parts)) if cover == "each" else [n for n in cover if 0 <= n < len(parts)]
        if not wanted:
            return shown
        chosen = {number: parts[number][0] for number in wanted}
        with paused():
            found = effects(passes, self.output, source, given, chosen, view)
        return with_effects(shown, found, drawn=cover == "each")

    @torch.no_grad()
    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        """Yield what must hold for every trained model, and the largest difference found."""
        passes = self.passes
        most = self.most + (self.output.use is Use.STREAM)  # the last element of a stream's row is only predicted
        rows = [row for row in rows if passes.length(row) <= most] or list(rows[:1])
        own = list(self.output.invariances(passes, rows)) if isinstance(self.output, Invariant) else []
        if not any(name.startswith("padding") for name, _ in own):
            batch, wider = (self.output.collate(self.input, rows, extra) for extra in (0, WIDER))
            plain, real = self.network.scores(batch), _real(batch)
            other = self.network.scores(wider)[:, : plain.shape[1]]
            yield "padding: more of it changes nothing", difference(plain, other, real)
            alone = torch.zeros_like(plain)
            for i, row in enumerate(rows):
                scores = self.network.scores(self.batch([row]))[0]
                alone[i, : len(scores)] = scores[: plain.shape[1]]
            yield "batch: each row is the same alone", difference(plain, alone, real)
        yield from own


def _real(batch: Batch) -> torch.Tensor:
    """Return where there is something to answer, (batch, answers)."""
    if not isinstance(batch.target, torch.Tensor):
        found: torch.Tensor = batch.target.real
        return found
    if batch.target.dim() == 1:
        return torch.ones(len(batch.target), 1, dtype=torch.bool)
    return batch.source.real
