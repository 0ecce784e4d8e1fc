"""Continue: a text in, the same text and what comes next out (a language model).

A text is one stream of elements: each line's own, and END for each line break; END also stands before the first line,
so that its first element is predicted like any other. What a line holds at the level of characters is kept exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import metrics
from regard.data.batches import pad
from regard.data.example import Example
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference import search
from regard.inference.passes import Passes
from regard.inference.stop import stoppable
from regard.inputs.input import Batch, Chosen, Input, Row, Use
from regard.inspection import page
from regard.inspection.invariants import causality, difference, stepwise
from regard.inspection.page import Exhibit
from regard.inspection.recording import attentions
from regard.inspection.view import Drawing, View, refuse_unseeable
from regard.models.gpt import gpt
from regard.models.lstm import lstm
from regard.models.mechanism import endless
from regard.models.settings import GptKind, RecurrentLanguageKind
from regard.models.transformer_xl import transformer_xl
from regard.network import Network, table_of
from regard.outputs.abilities import Believes, Details, Guesses, Invariant, Streams, Stretches
from regard.outputs.continuation import settings
from regard.outputs.continuation.head import ContinueHead
from regard.outputs.continuation.settings import FARTHER, ContinueSettings
from regard.outputs.output import CHUNK, Held, Item, Lines, Looked, Output
from regard.text.stream import Growing
from regard.text.tokenizer import END, PAD, START, UNKNOWN, Tokenizer

SEVERAL = 32  # texts continued together
PARTS = 10_000  # of a text at most, between which a bootstrap chooses
SAID = 40  # elements of a continuation that a picture shows


@dataclass(frozen=True)
class Draw:
    """Options of sampling."""

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    longest: int = 300
    seed: int = 1
    before: str = ""  # put before each text: a task's description, examples to follow
    choices: str | None = None  # answers to choose among, a comma between two; blanks count

    @property
    def listed(self) -> list[str]:
        """The answers to choose among."""
        found = [choice for choice in (self.choices or "").split(",") if choice]
        if self.choices is not None and len(found) < 2:
            raise UserError(f"--choices {self.choices}: expected two answers or more with commas between them.")
        return found


@dataclass(frozen=True)
class Continuation:
    """A text continued: all of it, the tokens that were added, their log-probability, and the text before. Or the most
    likely of some choices, and all of them with their log-probabilities, the likeliest first."""

    text: str
    ids: list[int]
    score: float
    given: str
    ranked: tuple[tuple[str, float], ...] = ()


class Continue(Output[Continuation], Streams, Details, Invariant, Believes, Guesses, Stretches):
    """Longer texts out. Elements are drawn: the same seed and place in the input give the same continuation."""

    does, reads = "continues", "continue"
    settings = ContinueSettings
    use = Use.STREAM
    needs: ClassVar[frozenset[str]] = frozenset(("an alphabet",))
    options: ClassVar[frozenset[str]] = frozenset(
        ("longest", "temperature", "top_k", "top_p", "seed", "before", "choices")
    )
    measures: ClassVar[frozenset[str]] = frozenset(("stride",))
    contiguous = draws = True
    length = "output.context"
    how: Draw

    def __init__(self, context: int, how: Draw | None = None) -> None:
        self.context, self.how = context, how or Draw()

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        del reading
        return settings.choose(seen)

    @classmethod
    def made(cls, config: ContinueSettings, input: Input[Any], learned: None) -> Self:
        del input, learned
        return cls(config.output.context, Draw(**config.decoding.model_dump()))

    def network(self, config: ContinueSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        model, context = config.model, self.context
        parts = model.model_dump(exclude={"kind", "tied", "segment", "bias"})
        more: dict[str, Any] = {"smoothing": config.training.smoothing}
        backbone: nn.Module
        if isinstance(model, GptKind):
            stem, backbone = gpt(context=context, **parts)
            more |= {"bias": model.bias, "window": context * (FARTHER if model.position == "alibi" else 1)}
            more["endless"] = endless(model.attention, model.position)
        elif isinstance(model, RecurrentLanguageKind):
            stem, backbone = lstm(**parts)
        else:
            # Each position looks back equally far, so that it does not matter how a text is cut into segments.
            stem, backbone = transformer_xl(same_length=True, **parts)
            more["segment"] = model.segment
        module = input.module(stem)
        assert input.alphabet is not None
        table = table_of(module) if model.tied else None
        return input, Network(module, backbone, ContinueHead(input.alphabet.size, stem.width, table=table, **more))

    # ---- training -------------------------------------------------------------------------------------------------

    def stream_of(self, input: Input[Any], lines: Sequence[Any]) -> list[int]:
        """Return END, and each line with its END."""
        return [END, *(int(id) for row in input.encode(lines) for id in (*row[0], END))]

    def prompt(self, input: Input[Any], text: str) -> list[int]:
        """Return the stream of a text of one or several lines; it begins with END, as all do."""
        return self.stream_of(input, text.split("\n"))[:-1]

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, Any]]) -> Iterator[Row]:
        """Yield the stream in rows of context + 1 elements: the last of a row is the first of the next, so that each
        is predicted once."""
        waiting = [END]
        while chunk := list(islice(examples, CHUNK)):
            waiting += self.stream_of(input, [example.source for example in chunk])[1:]
            whole = (len(waiting) - 1) // self.context * self.context
            yield from ((waiting[start : start + self.context + 1],) for start in range(0, whole, self.context))
            waiting = waiting[whole:]
        if len(waiting) > 1:
            yield (waiting,)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(counts[:, 0].sum() - len(counts)),)

    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        source = input.collate([(row[0][:-1],) for row in rows], extra)
        wanted = pad([np.asarray(row[0][1:]) for row in rows])
        return Batch(source, torch.from_numpy(np.pad(wanted, ((0, 0), (0, extra)))))

    def items(self, examples: Iterable[Example[Any, Any]]) -> list[Item]:
        """The characters of each line are expected, its break being one."""
        return [Item(example, len(example.source) + 1) for example in examples]

    # ---- answers --------------------------------------------------------------------------------------------------

    def answers(self, passes: Passes, sources: Sequence[Any], how: Draw, first: int = 0) -> list[Continuation]:
        """Return each text continued; an empty one stays empty. What is drawn for a text depends on the seed and on its
        place, which is `first` for the first."""
        found = [Continuation("", [], 0.0, "") for _ in sources]
        filled = [place for place, text in enumerate(sources) if text]
        if how.choices is not None:
            for place in filled:
                found[place] = self._chosen(passes, how.before + sources[place], how.listed)
            return found
        sources = [how.before + text if text else text for text in sources]
        for chosen in (filled[i : i + SEVERAL] for i in range(0, len(filled), SEVERAL)):
            prompts = [self.prompt(passes.input, sources[place]) for place in chosen]
            drawn = self._draw(passes, prompts, [first + place for place in chosen], how)
            for place, prompt, one in zip(chosen, prompts, drawn, strict=True):
                growing = Growing(_alphabet(passes), sources[place], prompt)
                text = sources[place] + "".join(growing.add(id) for id in one.tokens)
                found[place] = Continuation(text.removeprefix(how.before), one.tokens, one.score, sources[place])
        return found

    def _chosen(self, passes: Passes, text: str, choices: Sequence[str]) -> Continuation:
        """Return the choice of the largest log p(choice | text), the sum over its elements (Brown et al. 2020, 2.4).

        Where the last element of the text and the first of a choice are written as one, it counts to the choice.
        """
        head, before = _head(passes.network), self.prompt(passes.input, text)
        ranked = []
        for choice in choices:
            ids = self.prompt(passes.input, text + choice)
            same = next((i for i, (a, b) in enumerate(zip(before, ids, strict=False)) if a != b), len(before))
            own = len(ids) - min(same, len(ids) - 1)  # of the choice: one at least
            seen = ids[-max(self.context + 1, own + 1) :]
            nats = head.surprise(passes.network, seen, self.context, max(1, self.context // 2))
            ranked.append((-float(nats[-own:].sum()), choice, ids[-own:]))
        score, best, ids = max(ranked, key=lambda one: one[0])
        order = sorted(((choice, value) for value, choice, _ in ranked), key=lambda one: -one[1])
        return Continuation(best, ids, score, text, tuple(order))

    def stream(self, passes: Passes, source: Any, how: Draw, write: Callable[[str], None]) -> None:
        """Write the text, and each element as soon as it is drawn; for an empty text, what may begin a line."""
        write(source)
        source = how.before + source
        prompt = self.prompt(passes.input, source)
        growing = Growing(_alphabet(passes), source, prompt)
        self._draw(passes, [prompt], [0], how, lambda tokens: write(growing.add(int(tokens[0]))))

    @torch.no_grad()
    def _draw(
        self,
        passes: Passes,
        prompts: list[list[int]],
        places: list[int],
        how: Draw,
        drawn: Callable[[Tensor], None] | None = None,
    ) -> list[search.Hypothesis]:
        """Return continuations of the prompts, by a seed for each place; `drawn` is told of the tokens of each step."""
        network, head = passes.network.eval(), _head(passes.network)
        state = head.start(prompts)

        def step(tokens: Tensor, before: Any) -> tuple[Tensor, Any]:
            if drawn is not None and before is not state:
                drawn(tokens)
            return head.step(network, tokens, before)

        seeds = [how.seed * 1_000_003 + place for place in places]
        draws: dict[str, Any] = {"temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
        limits = search.Limits(minimum=how.longest, maximum=how.longest)
        return search.sample(
            stoppable(step, passes.stop),
            state,
            len(prompts),
            start=START,
            end=None,
            pad=PAD,
            limits=limits,
            seeds=seeds,
            **draws,
        )

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Continuation) -> NDArray[np.float64]:
        """Return the probability of each element of a continuation after each of some texts."""
        if not answer.ids:
            return np.zeros((len(sources), 0))
        found, head = [], _head(passes.network)
        for source in sources:
            ids = [*self.prompt(passes.input, source), *answer.ids][-max(self.context + 1, len(answer.ids) + 1) :]
            nats = head.surprise(passes.network, ids, self.context, max(1, self.context // 2))
            found.append(np.exp(-np.asarray(nats[-len(answer.ids) :], np.float64)))
        return np.stack(found)

    def as_target(self, answer: Continuation) -> str:
        return answer.text

    def as_text(self, answer: Continuation) -> Lines:
        r"""Return one line: a line break inside is written as \n, a backslash as \\."""
        return [(answer.score, answer.text.replace("\\", "\\\\").replace("\n", "\\n"))]

    def as_json(self, answer: Continuation) -> dict[str, Any]:
        ranked = answer.ranked or ((answer.text, answer.score),)
        return {"answers": [{"text": text, "score": score} for text, score in ranked]}

    def evaluate(
        self, passes: Passes, held: Held, how: Draw, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        """Score how well the stream is predicted; `quick` also continues the first line."""
        stride = measures.get("stride")
        if stride is not None and not 1 <= stride <= self.context:
            raise UserError(f"The stride is {stride}, expected 1 to {self.context} (output.context).")
        stream = _joined(held)
        nats = _head(passes.network).surprise(passes.network, stream, self.context, stride or self.context)
        counts = _by_line(nats, stream, held.items)
        pieces: list[str] = []
        if quick:
            self.stream(passes, held.items[0].example.source, replace(how, longest=60), pieces.append)
        scores = self._scores(passes, counts, stride or self.context, samples)
        return scores, ["".join(pieces)] if quick else []

    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, Any]], held: Held, samples: int
    ) -> tuple[str, list[metrics.Score]]:
        """p(x_t) = (count of x_t + 1) / (count of all + alphabet): each element by its frequency alone."""
        counts = np.ones(_alphabet(passes).size)
        np.add.at(counts, self.stream_of(passes.input, [example.source for example in examples]), 1)
        stream = _joined(held)
        nats = -np.log(counts / counts.sum())[np.asarray(stream[1:])]
        return "unigram", self._scores(passes, _by_line(nats, stream, held.items), self.context, samples)

    def stretched(self, length: int) -> Continue:
        return type(self)(length, self.how)

    def _scores(self, passes: Passes, counts: NDArray[np.float64], stride: int, samples: int) -> list[metrics.Score]:
        """Return scores from nats, elements and characters of each line; line breaks count as both."""
        several = math.ceil(len(counts) / PARTS)
        nats, tokens, characters = np.add.reduceat(counts, np.arange(0, len(counts), several)).T
        found = (
            metrics.perplexity(nats, tokens, samples=samples),
            metrics.bits_per_character(nats, characters, samples=samples),
            metrics.cross_entropy(nats, tokens, samples=samples),
        )
        protocol = "the state runs through the whole text"
        if _head(passes.network).window:
            same = "blocks, none overlapping" if stride == self.context else f"windows that move on by {stride}"
            protocol = f"{same}, of {self.context} tokens"
        more = f"tokens:{_alphabet(passes).level}, {int(tokens.sum()):,}|{protocol}"
        return [replace(score, count=len(counts), signature=f"{score.signature}|{more}") for score in found]

    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:
        del answers
        rows = passes.input.encode([item.example.source for item in items])
        ids = np.concatenate([np.asarray(row[0], dtype=np.int64) for row in rows])
        unknown = float((ids == UNKNOWN).mean()) if len(ids) else 0.0
        return f"{100 * unknown:.2g} % of the tokens are unknown and predicted as such" if unknown else ""

    # ---- looking --------------------------------------------------------------------------------------------------

    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[Continuation]) -> Batch:
        del sources
        rows = [self.prompt(passes.input, answer.given) + answer.ids for answer in answers]
        # The last element has read all others; what it predicts is not shown.
        return self.collate(passes.input, [([*row[-self.context :], PAD],) for row in rows])

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Continuation:
        if not attentions(passes.network):
            raise UserError("This model has no attention (model.kind is recurrent): there is nothing to look at.")
        given = source + (answer or "")
        count = len(self.prompt(passes.input, given))
        where = " (output.context)"
        refuse_unseeable(given, count if count > 1 else 0, self.context, "tokens with the line break before it", where)
        room = min(self.how.longest, SAID, self.context - count)
        if answer is None and room:
            return self.answers(passes, [source], replace(self.how, longest=room))[0]
        before, ids = self.prompt(passes.input, source), self.prompt(passes.input, given)
        if answer is None or ids[: len(before)] != before:  # the last element of the text is written otherwise
            return Continuation(given, [], 0.0, given)
        return Continuation(given, ids[len(before) :], 0.0, source)

    def exhibit(self, passes: Passes, source: Any, answer: Continuation, looked: Looked) -> Exhibit:
        """Show the text and its continuation: each element looked at those before it."""
        del source
        names = _names(passes, answer.text)
        if len(names) != looked.batch.target.shape[1]:  # pieces of a continuation may be written as fewer
            pieces = ["\n" if id == END else _alphabet(passes).pieces_of([id])[0] for id in answer.ids]
            names = _names(passes, answer.given) + pieces
        maps = page.maps(looked.seen, lambda _: ("source", "source"))
        weights = np.asarray(maps[0].weights)
        title = None
        if answer.ids:
            title = f"{answer.given} → {answer.text.removeprefix(answer.given)}".replace("\n", " ⏎ ")
        drawing = Drawing(weights[-1].mean(0), names, names, title, heads=(weights, names, names))
        shown = Exhibit.of(View(names), View(names), maps, answer.text, drawing)
        return replace(shown, elements=range(len(names) - len(answer.ids), len(names)))

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        network, head = passes.network, _head(passes.network)
        batch = self.collate(passes.input, [(row[0][: self.context + 1],) for row in rows])
        ids, real = batch.source.values[0], batch.source.real

        def scores(ids: Tensor) -> Tensor:
            return network.scores(batch._replace(source=batch.source._replace(values=(ids,))))

        yield "causality: a later token changes nothing earlier", causality(ids, real, scores)
        steps = stepwise(partial(head.step, network), head.start([row[:1].tolist() for row in ids]), ids)
        known = torch.arange(steps.shape[-1]) != UNKNOWN  # which is never written
        together = difference(scores(ids)[..., known], steps[..., known], real)
        yield "state: step by step equals all at once", together


def _joined(held: Held) -> list[int]:
    """Return the stream of held-out rows: the last element of a row is the first of the next."""
    return [int(id) for number, row in enumerate(held.rows) for id in row[0][number > 0 :]]


def _by_line(nats: NDArray[np.float64], stream: Sequence[int], items: Sequence[Item]) -> NDArray[np.float64]:
    """Return nats, elements and characters of each line."""
    ends = np.flatnonzero(np.asarray(stream[1:]) == END) + 1
    by_line = np.diff(np.concatenate(([0.0], nats.cumsum()))[ends], prepend=0.0)
    return np.stack([by_line, np.diff(ends, prepend=0), [item.expected for item in items]], axis=1)


def _names(passes: Passes, text: str) -> list[str]:
    """Return the names of the elements of a text; a line break stands before each line."""
    return [name for line in text.split("\n") for name in ("\n", *passes.input.view(line).names)]


def _alphabet(passes: Passes) -> Tokenizer:
    assert passes.input.alphabet is not None
    return passes.input.alphabet


def _head(network: Network) -> ContinueHead:
    assert isinstance(network.head, ContinueHead)
    return network.head
