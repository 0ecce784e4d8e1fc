"""Continue: a text in, the same text and what comes next out (a language model).

A text is one stream of tokens: each line's own, and END for each line break; END also stands before the first line, so
that its first token is predicted like any other. What a line holds at the level of characters is kept exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import metrics, page, pictures, search
from regard.data.batches import pad
from regard.data.reading import Pair
from regard.errors import UserError
from regard.inputs.tokens import END, PAD, START, Tokenizer
from regard.outputs import writers
from regard.outputs.growing import Growing, plain, shielded
from regard.outputs.invariance import difference
from regard.outputs.task import CHUNK, LEARN_FROM, Item, Row, Shown, Survey, Task, Vocabularies, readable
from regard.outputs.writer import Writer
from regard.outputs.writers import Settings
from regard.watching import attentions, paused, watch, watched

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SEVERAL = 32  # texts continued together
PARTS = 10_000  # of a text at most, between which a bootstrap chooses


@dataclass(frozen=True)
class Drawing:
    """How tokens are drawn."""

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None
    longest: int = 300
    seed: int = 1


@dataclass(frozen=True)
class Answer:
    """A text continued: all of it, the tokens that were added, and their log-probability."""

    text: str
    ids: list[int]
    score: float


class Continue(Task):
    """Texts in, longer texts out. Tokens are drawn: the same seed and place in the input give the same continuation."""

    settings = Settings
    reads = "continue"
    files = ("tokenizer.json",)
    fields = ("text",)
    does = "continues texts"
    options = frozenset(("longest", "temperature", "top_k", "top_p", "seed", "stride"))
    contiguous = True
    draws = True
    network: Writer

    def __init__(self, network: Writer, vocabulary: Tokenizer, context: int, how: Drawing | None = None) -> None:
        self.network, self.vocabulary, self.context, self.how = network, vocabulary, context, how or Drawing()
        self.vocabularies = (vocabulary,)

    @classmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        return writers.choose(seen)

    @classmethod
    def learn(cls, config: Settings, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        tokens = config.tokens
        lines = (shielded(pair.source, tokens.level) for pair in islice(pairs(), LEARN_FROM))
        return (Tokenizer.train(lines, tokens.level, tokens.size, lowercase=tokens.lowercase),)

    @classmethod
    def design(cls, config: Settings, vocabularies: Vocabularies) -> Writer:
        return writers.network(config, vocabularies[0].size)

    @classmethod
    def assemble(cls, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> Continue:
        assert isinstance(network, Writer)
        return cls(network, vocabularies[0], config.tokens.context, Drawing(**config.decoding.model_dump()))

    # ---- training -------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """The stream of a text of one or several lines; it begins with END, as all do."""
        return self._stream(text.split("\n"))[:-1]

    def _stream(self, lines: Sequence[str]) -> list[int]:
        """END, and each line with its END."""
        found = self.vocabulary.encode_batch([shielded(line, self.vocabulary.level) for line in lines])
        return [END, *(id for line in found for id in (*line, END))]

    def rows(self, pairs: Sequence[Pair]) -> list[Row]:
        return [*self.stored(iter(pairs))]

    def stored(self, pairs: Iterator[Pair]) -> Iterator[Row]:
        """The stream in rows of context + 1 tokens: the last of a row is the first of the next, so that each token is
        predicted once."""
        waiting = [END]
        while chunk := list(islice(pairs, CHUNK)):
            waiting += self._stream([pair.source for pair in chunk])[1:]
            whole = (len(waiting) - 1) // self.context * self.context
            yield from ((waiting[start : start + self.context + 1],) for start in range(0, whole, self.context))
            waiting = waiting[whole:]
        if len(waiting) > 1:
            yield (waiting,)

    def predictions(self, lengths: NDArray[np.int32]) -> int:
        return int(lengths[:, 0].sum()) - len(lengths)

    def batch(self, rows: Sequence[Sequence[Any]]) -> Tensor:
        return torch.from_numpy(pad([row[0] for row in rows]))

    # ---- answers --------------------------------------------------------------------------------------------------

    def cleaned(self, text: str) -> str:
        return readable(text)

    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:
        return [answer.text for answer in self.answers(texts, **changes)]

    def answers(self, texts: Sequence[str], first: int = 0, **changes: Any) -> list[Answer]:
        """Each text continued; an empty one stays empty. What is drawn for a text depends on the seed and on its place,
        which is `first` for the first."""
        how = replace(self.how, **changes)
        found = [Answer("", [], 0.0) for _ in texts]
        filled = [place for place, text in enumerate(texts) if text]
        for chosen in (filled[i : i + SEVERAL] for i in range(0, len(filled), SEVERAL)):
            prompts = [self.encode(texts[place]) for place in chosen]
            drawn = self._draw(prompts, [first + place for place in chosen], how)
            for place, prompt, one in zip(chosen, prompts, drawn, strict=True):
                growing = Growing(self.vocabulary, texts[place], prompt)
                text = texts[place] + "".join(growing.add(id) for id in one.tokens)
                found[place] = Answer(text, one.tokens, one.score)
        if watched():
            self._look([self.encode(text)[-self.context :] for text in texts])
        return found

    def stream(self, text: str, changes: dict[str, Any], write: Callable[[str], None]) -> bool:
        """The text, and each token as soon as it is drawn; for an empty text, what may stand at a line's beginning."""
        write(text)
        prompt = self.encode(text)
        growing = Growing(self.vocabulary, text, prompt)
        self._draw([prompt], [0], replace(self.how, **changes), lambda tokens: write(growing.add(int(tokens[0]))))
        return True

    @torch.no_grad()
    def _draw(
        self,
        prompts: list[list[int]],
        places: list[int],
        how: Drawing,
        drawn: Callable[[Tensor], None] | None = None,
    ) -> list[search.Hypothesis]:
        """Continuations of the prompts, by a seed for each place; `drawn` is told of the tokens of each step."""
        self.network.eval()
        state = self.network.start(prompts)

        def step(tokens: Tensor, before: Any) -> tuple[Tensor, Any]:
            if drawn is not None and before is not state:
                drawn(tokens)
            return self.network.step(tokens, before)

        seeds = [how.seed * 1_000_003 + place for place in places]
        draws: dict[str, Any] = {"temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
        limits = search.Limits(minimum=how.longest, maximum=how.longest)
        with paused():
            return search.sample(
                step, state, len(prompts), start=START, end=None, pad=PAD, limits=limits, seeds=seeds, **draws
            )

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:
        r"""A line each: a line break inside is written as \n, a backslash as \\; JSON has the text as it is."""
        for text, answer in zip(texts, self.answers(texts, first, **changes), strict=True):
            if shown.as_json:
                item = {"text": answer.text, "score": answer.score}
                yield json.dumps({"source": text, "answers": [item]}, ensure_ascii=False)
                continue
            plain = answer.text.replace("\\", "\\\\").replace("\n", "\\n")
            yield f"{answer.score:.4f}\t{plain}" if shown.with_score else plain

    def evaluate(
        self,
        items: Sequence[Item],
        *,
        quick: bool = False,
        samples: int = metrics.SAMPLES,
        stride: int | None = None,
        **changes: Any,
    ) -> tuple[list[metrics.Score], list[str]]:
        """How well the items, which are the lines of one text, are predicted; `quick` also continues the first line."""
        if stride is not None and not 1 <= stride <= self.context:
            raise UserError(f"The stride is {stride}, expected 1 to {self.context} (tokens.context).")
        lines = [source for source, _ in items]
        stream = self._stream(lines)
        nats = self.network.surprise(stream, self.context, stride or self.context)
        ends = np.flatnonzero(np.asarray(stream[1:]) == END) + 1
        by_line = np.diff(np.concatenate(([0.0], nats.cumsum()))[ends], prepend=0.0)
        counts = np.stack([by_line, np.diff(ends, prepend=0), [len(line) + 1 for line in lines]], axis=1)
        pieces: list[str] = []
        if quick:
            self.stream(lines[0], {"longest": 60} | changes, pieces.append)
        return self._scores(counts, self._protocol(stride or self.context), samples), ["".join(pieces)] if quick else []

    def _protocol(self, stride: int) -> str:
        if not self.network.window:
            return "the state runs through the whole text"
        same = "blocks, none overlapping" if stride == self.context else f"windows that move on by {stride}"
        return f"{same}, of {self.context} tokens"

    def _scores(self, counts: NDArray[np.float64], protocol: str, samples: int) -> list[metrics.Score]:
        """From nats, tokens and characters of each line; line breaks count as tokens and as characters."""
        several = math.ceil(len(counts) / PARTS)
        nats, tokens, characters = np.add.reduceat(counts, np.arange(0, len(counts), several)).T
        found = (
            metrics.perplexity(nats, tokens, samples=samples),
            metrics.bits_per_character(nats, characters, samples=samples),
            metrics.cross_entropy(nats, tokens, samples=samples),
        )
        more = f"tokens:{self.vocabulary.level}, {int(tokens.sum()):,}|{protocol}"
        return [replace(score, count=len(counts), signature=f"{score.signature}|{more}") for score in found]

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:  # noqa: ARG002
        return self.evaluate(items, samples=samples)[0]

    def details(self, items: Sequence[Item], answers: Sequence[str]) -> str:  # noqa: ARG002
        lines = [shielded(source, self.vocabulary.level) for source, _ in items]
        unknown = self.vocabulary.unknown_rate(lines)
        return f"{100 * unknown:.2g} % of the tokens are unknown and predicted as such" if unknown else ""

    # ---- looking --------------------------------------------------------------------------------------------------

    def _look(self, rows: Sequence[Sequence[int]]) -> None:
        """One pass over known texts, for whoever is watching."""
        with torch.no_grad():
            self.network.features(self.batch([(np.array(row),) for row in rows]))

    def example(self, text: str, answer: str | None) -> page.Example:
        ids = self.encode(text + (answer or ""))
        self._refuse(ids)
        with watch(self.network) as seen:
            self._look([ids])
        level, names = self.vocabulary.level, list[str]()
        for line in (text + (answer or "")).split("\n"):
            names += ["\n", *(plain(piece, level) for piece in self.vocabulary.pieces(shielded(line, level)))]
        return page.Example(names, names, page.maps(seen, lambda _: ("source", "source")), text + (answer or ""))

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:
        """Where each token looked: a mean over the heads of the last layer, or every layer and head."""
        example = self.example(text, answer)
        weights = np.asarray(example.maps[0].weights)
        if grid:
            return pictures.grid(weights, example.source, example.source)
        return pictures.alignment(weights[-1].mean(0), example.source, example.source)

    def _refuse(self, ids: list[int]) -> None:
        if not attentions(self.network):
            raise UserError("This model has no attention (model.kind is recurrent): there is nothing to look at.")
        if len(ids) < 2:
            raise UserError("The text is empty: there is nothing to look at.")
        if len(ids) > self.context:
            raise UserError(
                f"The text is too long to show: {len(ids):,} tokens with the line break before it, expected at most "
                f"{self.context:,} (tokens.context)."
            )

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        network, ids = self.network, self.batch([(np.asarray(row[0][: self.context]),) for row in rows])
        real, middle, plain = ids != PAD, ids.shape[1] // 2, network(ids)
        changed = ids.clone()
        changed[:, middle:] = torch.where(real[:, middle:], 4 + (ids[:, middle:] + 1) % 4, PAD)
        causal = difference(plain[:, :middle], network(changed)[:, :middle], real[:, :middle])
        yield "causality: a later token changes nothing earlier", causal
        wider = network(nn.functional.pad(ids, (0, 5)))[:, : ids.shape[1]]
        yield "padding: more of it changes nothing", difference(plain, wider, real)
        alone = [network(row[None, row != PAD])[0] for row in ids]
        together = [difference(plain[i, : len(own)], own, real[i, : len(own)]) for i, own in enumerate(alone)]
        yield "batch: each row is the same alone", max(together)
        state, steps = network.start([row[:1].tolist() for row in ids]), []
        for t in range(ids.shape[1]):
            logits, state = network.step(ids[:, t], state)
            steps.append(logits)
        known = torch.arange(plain.shape[-1]) != 1  # the unknown token is never written
        yield (
            "state: step by step equals all at once",
            difference(plain[..., known], torch.stack(steps, 1)[..., known], real),
        )
