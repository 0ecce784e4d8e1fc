"""Convert: a sequence out whose length the model decides (translation, pronunciation, inflection, captions …)."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard import metrics
from regard.data.batches import pad
from regard.data.example import Example
from regard.data.store import Field, id_dtype
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference import search
from regard.inference.ctc import PrefixScores
from regard.inference.ensemble import Ensemble, EnsembleState
from regard.inference.passes import Passes
from regard.inference.scorers import ScorersState, Weighted
from regard.inference.search import Hypothesis, Limits, Step
from regard.inference.stop import stoppable
from regard.inputs.embedding import Embedding
from regard.inputs.input import Chosen, Input, Row, Source, Use, positions_from
from regard.inspection import page
from regard.inspection.alignment import Alignment
from regard.inspection.invariants import causality, difference, stepwise
from regard.inspection.page import Exhibit
from regard.inspection.recording import Seen, attentions
from regard.inspection.view import Drawing, View, joined, refuse_unseeable
from regard.layers.dropout import Dropout
from regard.layers.stem import Marks
from regard.models.convolution import convs2s
from regard.models.encoders import encoder_of
from regard.models.pair import Pair
from regard.models.picture_settings import TellKind
from regard.models.recurrent import recurrent
from regard.models.settings import ConvolutionPair, OwnEncoder, TransformerPair
from regard.models.show_attend_tell import show_attend_tell
from regard.models.transformer import transformer
from regard.network import Network, table_of
from regard.outputs.abilities import Believes, Guesses, Invariant, Joins, Learns, Refuses, Settles
from regard.outputs.convert import settings
from regard.outputs.convert.ctc import CTC
from regard.outputs.convert.head import ConvertHead, Written
from regard.outputs.convert.settings import ConvertSettings
from regard.outputs.output import Held, Item, Lines, Looked, Supervised, halves, paired
from regard.text.tokenizer import END, PAD, START, SUB_WORDS, Tokenizer

FINIS = "∎"  # the end in pictures: a sign that the font has which comes with matplotlib
PARTS = ("words", *SUB_WORDS)  # levels whose tokens may be parts of a word
PLACES = 1024  # a draw is governed by its place among so many
LONGEST = " of it and of its answer (4 × data.longest)"  # tokens that can be shown
SEVERAL = 32  # sources whose probabilities are computed together
STRANGE = "only models with the same data and token settings can be an ensemble"


@dataclass(frozen=True)
class Conversion:
    """One converted source, with its log-probability and where it looked, if that was asked for."""

    text: str
    score: float
    normalised: float
    finished: bool
    ids: list[int]
    weights: NDArray[np.float32] | None = None  # (answer tokens, source tokens), where the engine gave them
    alignment: Alignment | None = None


class Conversions(list[Conversion]):
    """The best conversions of one source; `asked` may be more than there are."""

    asked = 1


@dataclass(frozen=True)
class Search:
    """Options of the search: sampling if `seed` is given, greedy for a beam of 1, beam search otherwise."""

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 1.0
    minimum: int = 0
    factor: float = 3.0
    longest: int = 256
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    alignment: str | None = None
    budget: int = 14_000  # tokens of a batch, read and written, every hypothesis counted
    scored: bool = True  # False: nobody reads the scores, so an engine need not compute them
    ctc: float = 0.0  # weight of CTC's prefix scores, where there is a head for it

    def __post_init__(self) -> None:
        if self.alignment not in (None, "hard", "soft"):
            raise UserError(f"--alignment is {self.alignment!r}, expected hard or soft.")

    def limits(self, lengths: Sequence[int]) -> Limits:
        most = [min(self.longest, int(self.factor * (n + 3) + 3)) for n in lengths]
        return Limits(minimum=self.minimum, maximum=[max(self.minimum, n) for n in most])


# From the passes, rows, the search, and the place of each row among the sources, to the best answers to each row.
Engine = Callable[[Passes, list[Row], Search, list[int]], list[list[Conversion]]]


class Convert(Supervised[Conversions], Learns, Settles, Refuses, Joins, Invariant, Believes, Guesses):
    """Sequences out. `longest` is the most elements of a source."""

    does, reads = "converts", "convert"
    settings = ConvertSettings
    use = Use.SOURCE
    options: ClassVar[frozenset[str]] = frozenset(
        ("beam", "n_best", "length_penalty", "minimum", "longest", "temperature", "top_k", "top_p", "seed", "alignment")
    )
    printed: ClassVar[frozenset[str]] = frozenset(("alignment",))
    alternatives = True
    files: ClassVar[tuple[str, ...]] = ("target.json",)
    how: Search
    engine: Engine | None = None  # what searches in place of torch

    def __init__(
        self,
        vocabulary: Tokenizer,
        how: Search | None = None,
        longest: int = 1024,
        *,
        closed: bool = False,
        metric: str = "auto",
        terms: int = 1,
    ) -> None:
        self.vocabulary, self.how, self.longest, self.closed = vocabulary, how or Search(), longest, closed
        self.metric, self.terms = metric, terms
        self.fields = (Field("target", id_dtype(vocabulary.size)),)

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return settings.choose(seen, reading)

    @classmethod
    def learn(cls, config: ConvertSettings, input: Input[Any], seen: Survey, origin: Any) -> Tokenizer:
        """Learn a vocabulary of the targets, cut as the sources are unless the settings say otherwise."""
        how, source = config.output, config.reading
        if isinstance(origin, Convert):
            return origin.vocabulary
        if not how.joint:
            size = getattr(source, "size", None) if how.size is None else how.size
            lowercase = getattr(source, "lowercase", False) if how.lowercase is None else how.lowercase
            cut = {"lowercase": lowercase, "decomposed": how.decomposed}
            return Tokenizer.train(seen.targets, how.level, size, **cut)
        if input.alphabet is None or input.alphabet.level != how.level:
            found = "nothing" if input.alphabet is None else input.alphabet.level
            raise UserError(f"output.joint needs one level for both sides, found {found} and {how.level}.")
        return input.alphabet

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        return Tokenizer.load(folder / "target.json")

    @classmethod
    def made(cls, config: ConvertSettings, input: Input[Any], learned: Tokenizer) -> Self:
        del input
        how, given = Search(**config.decoding.model_dump()), config.output
        terms = 2 if given.ctc else 1
        return cls(learned, how, 4 * config.data.longest, closed=given.closed, metric=given.metric, terms=terms)

    def contents(self) -> dict[str, bytes]:
        return {"target.json": self.vocabulary.as_bytes()}

    def network(self, config: ConvertSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        model = config.model
        parts = model.model_dump(exclude={"kind", "tied"})
        length = 2 + max(config.data.longest, config.decoding.longest)
        if isinstance(model, TransformerPair):
            pair: Pair = transformer(length=length, **parts)
        elif isinstance(model, ConvolutionPair):
            pair = convs2s(length=length, **parts)
        elif isinstance(model, TellKind):
            pair = show_attend_tell(**parts)
        else:
            pair = recurrent(**parts)
        if not isinstance(config.encoder, OwnEncoder):
            pair = pair.read_by(*encoder_of(config.encoder, config.data.longest), config.encoder.width)
        input = input.marked(pair.stem.marks)
        stem, asked = input.module(pair.stem), pair.target
        target = Embedding(self.vocabulary.size, asked.width, asked.place, Dropout(asked.dropout), scale=asked.scale)
        if config.output.joint:
            target.table = table_of(stem)
        penalty = model.penalty if isinstance(model, TellKind) else 0.0
        ctc = CTC(asked.width, self.vocabulary.size) if config.output.ctc else None
        weights = {"smoothing": config.training.smoothing, "penalty": penalty, "share": config.output.ctc}
        head = ConvertHead(target, pair.decoder, tied=model.tied, ctc=ctc, **weights)
        return input, Network(stem, pair.encoder, head)

    def settled(self, counts: NDArray[np.int32]) -> dict[str, Any]:
        """Return how much longer than its source a target gets."""
        longer = float((1.2 * counts[:, -1] / (counts[:, 0] + 3)).max())
        return {"decoding.factor": round(max(0.5, longer), 2)}

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, str]]) -> Iterator[Row]:
        def targets(some: Sequence[Example[Any, str]]) -> Iterator[Row]:
            found = self.vocabulary.encode_batch([example.target for example in some])
            return (([*ids, END],) for ids in found)

        return paired(input, targets, examples)

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(counts[:, -1].sum()),) * self.terms

    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Written:
        del source
        ids = np.pad(pad([np.asarray(row[0]) for row in rows]), ((0, 0), (0, extra)))
        return Written(torch.from_numpy(ids), positions_from([len(row[0]) for row in rows], ids.shape[1]))

    def row(self, answer: Conversions) -> Row:
        return ([*answer[0].ids, END],)

    # ---- answers --------------------------------------------------------------------------------------------------

    def refuse(self, passes: Passes, source: Any, how: Search) -> None:
        text, table, written = passes.input.text(source), passes.network.reads, passes.network.writes
        held = "the learned position table holds positions 0 to"
        if written is not None and how.longest >= written:
            raise UserError(f"longest is {how.longest:,}, but {held} {written - 1}.")
        most = self.longest if table is None else min(self.longest, table - len(passes.input.marks))
        if (passes.input.alphabet is not None and len(text) <= most) or (
            count := passes.length(passes.input.encode([source])[0])
        ) <= most:
            return
        why = f"{held} {table - 1}" if table is not None and most < self.longest else "4 × data.longest"
        raise UserError(f"The text is too long: {count:,} tokens, expected at most {most:,} ({why}).")

    def answers(self, passes: Passes, sources: Sequence[Any], how: Search, first: int = 0) -> list[Conversions]:
        """Return the best answers to each source; an empty source has an empty answer."""
        if how.alignment is not None and not self.crossing(passes.network):
            raise UserError("This model has no attention between target and source, so there is nothing to align.")
        if how.n_best > how.beam:
            if how.beam != self.how.beam:
                raise UserError(f"n_best is {how.n_best} and beam {how.beam}: a beam finds at most as many answers.")
            how = replace(how, beam=how.n_best)
        found = self.search(passes, passes.input.encode(sources), how, first)
        for source, answers in zip(sources, found, strict=True):
            answers.asked = how.n_best
            if how.alignment is not None:
                answers[:] = [self._aligned(passes, source, one, how) for one in answers]
        return found

    def search(self, passes: Passes, rows: Sequence[Row], how: Search, first: int = 0) -> list[Conversions]:
        """Return the best answers to each row."""
        answers = [Conversions([Conversion("", 0.0, 0.0, True, [])]) for _ in rows]
        numbers = [i for i, row in enumerate(rows) if len(row[0])]
        engine = self.engine or self.by_torch
        found = engine(passes, [rows[i] for i in numbers], how, [first + i for i in numbers])
        for i, row in zip(numbers, found, strict=True):
            answers[i] = Conversions(row)
        return answers

    def by_torch(self, passes: Passes, rows: list[Row], how: Search, places: list[int]) -> list[list[Conversion]]:
        """Search by the engine that knows every model and every search. Long and short rows are searched apart."""
        # A row is read once and written at most to its end; how far it goes is guessed by its length.
        lengths = [passes.length(row) for row in rows]
        elements = [len(row[0]) for row in rows]  # what settings.factor was found by
        maxima = how.limits(elements).maxima(len(rows))
        sizes = [n + max(how.minimum, min(n, most)) for n, most in zip(lengths, maxima, strict=True)]

        def work(source: Any, numbers: list[int]) -> list[list[Conversion]]:
            limits = how.limits([elements[i] for i in numbers])
            found = self._search(passes, source, how, limits, [places[i] for i in numbers])
            return [[self._answer(one) for one in each] for each in found]

        return passes.each(rows, work, sizes=sizes, budget=how.budget // how.beam)

    def _search(
        self, passes: Passes, source: Any, how: Search, limits: Limits, places: list[int]
    ) -> list[list[Hypothesis]]:
        networks = [passes.network, *(other.network.eval() for other in passes.others)]
        given: dict[str, Any] = {"start": START, "end": END, "pad": PAD, "limits": limits}
        heads = [network.head for network in networks if isinstance(network.head, ConvertHead)]
        states = [head.start(network, source) for head, network in zip(heads, networks, strict=True)]
        step: Step[Any] = heads[0].step
        state: Any = states[0]
        if len(heads) > 1:
            step, state = Ensemble([head.step for head in heads]).step, EnsembleState(tuple(states))
        prefixes = [(head.ctc, one.memory) for head, one in zip(heads, states, strict=True) if head.ctc is not None]
        if prefixes and how.ctc and how.seed is None:
            scorer = PrefixScores(PAD, END)
            own = [scorer.start(*ctc.logs(memory)) for ctc, memory in prefixes if memory is not None]
            shares = [(scorer.step, how.ctc / len(own)) for _ in own]
            step, state = Weighted([(step, 1 - how.ctc), *shares]).step, ScorersState((state, *own))
            given["summed"] = True
        step, count = stoppable(step, passes.stop), len(places)
        if how.seed is not None:
            # Lines come in chunks that depend on time: a draw depends on a line's block and its place in that.
            seeds = [(how.seed + 1_000_003 * (place // PLACES)) * 1_000_003 + place % PLACES for place in places]
            draws: dict[str, Any] = {"temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
            return [[h] for h in search.sample(step, state, count, seeds=seeds, **draws, **given)]
        if how.beam == 1:
            return [[h] for h in search.greedy(step, state, count, scored=how.scored, **given)]
        size: dict[str, Any] = {"size": how.beam, "n_best": how.n_best, "length_penalty": how.length_penalty}
        return search.beam(step, state, count, **size, **given)

    def _answer(self, found: Hypothesis) -> Conversion:
        text = self.vocabulary.decode(found.tokens)
        return Conversion(text, found.score, found.normalised, found.finished, found.tokens)

    def refuse_other(self, passes: Passes, other: Passes, output: Convert, name: str) -> None:
        """Refuse to search together with a model of other vocabularies."""
        ours = passes.input.contents() | self.contents()
        if ours != other.input.contents() | output.contents():
            raise UserError(f"{name} has another vocabulary: {STRANGE}; seeds and networks may differ.")

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Conversions) -> NDArray[np.float64]:
        """Return p(y_i | y_<i, x) of each token of the best answer, and of its end."""
        found = []
        for first in range(0, len(sources), SEVERAL):
            some = sources[first : first + SEVERAL]
            batch = self.known(passes, some, [answer] * len(some))
            shares = passes.scores(batch).double().softmax(-1).cpu()
            found.append(shares.gather(-1, batch.target.ids.unsqueeze(-1)).squeeze(-1))
        return np.asarray(torch.cat(found))

    def as_target(self, answer: Conversions) -> str:
        return answer[0].text

    def as_text(self, answer: Conversions) -> Lines:
        lines: Lines = []
        for one in answer:
            text = " ".join(one.text.split("\n"))
            if one.alignment is not None:
                text += "\t" + one.alignment.as_text()
            lines.append((one.score, text))
        return lines + [(-math.inf, "")] * (answer.asked - len(lines))

    def as_json(self, answer: Conversions) -> dict[str, Any]:
        items = []
        for one in answer:
            item = {"text": one.text, "score": one.score, "normalised": one.normalised, "finished": one.finished}
            if one.alignment is not None:
                item |= one.alignment.as_json()
            items.append(item)
        return {"answers": items}

    def held_answers(self, passes: Passes, held: Held, how: Search, *, quick: bool) -> list[Conversions]:
        rows, targets = halves(passes.input, held.rows)
        if quick:  # at the beginning answers have no end, and how they go on is of no interest
            how = replace(how, longest=min(how.longest, 5 + round(1.2 * max(len(row[0]) for row in targets))))
        return self.search(passes, rows, replace(how, scored=False, beam=1 if quick else how.beam))

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """A model that writes no capitals is compared without them; the signatures say so."""
        kinds: dict[str, metrics.Kind] = {"symbols": "symbols", "characters": "characters"}
        kind = "closed" if self.closed else kinds.get(self.vocabulary.level, "text")
        kind = "speech" if self.metric == "wer" else kind
        references = [[unicodedata.normalize("NFC", text) for text in item.expected] for item in items]
        lowercase = self.vocabulary.lowercase
        return metrics.evaluate(answers, references, kind=kind, lowercase=lowercase, samples=samples)

    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, str]], held: Held, samples: int
    ) -> tuple[str, list[metrics.Score]]:
        """The most frequent answer."""
        del passes
        best = Counter(example.target for example in examples).most_common(1)[0][0]
        return "majority", self.score(held.items, [best] * len(held.items), samples)

    # ---- looking --------------------------------------------------------------------------------------------------

    def crossing(self, network: Network) -> list[str]:
        """Return the names of the layers through which the target looks at the source."""
        return [name for name in attentions(network) if name.endswith((".cross", ".glimpse"))]

    def _crossed(self, network: Network, seen: Mapping[str, Seen]) -> NDArray[np.float32]:
        """Return the weights (answer tokens and end, source vectors), a mean over heads.

        Of several layers the last but one is taken: it aligns best in deep decoders (Garg et al. 2019, 4.3).
        """
        layers = self.crossing(network)
        return np.asarray(seen[layers[max(0, len(layers) - 2)]].weights[0].mean(0).cpu())

    def _aligned(self, passes: Passes, source: Any, answer: Conversion, how: Search) -> Conversion:
        alignment = Alignment(np.zeros((0, 0), dtype=np.float32), [], [])
        if answer.ids:
            weights = answer.weights
            if weights is None:
                seen = passes.watched(self.known(passes, [source], [Conversions([answer])]))
                weights = self._crossed(passes.network, seen)
            alignment = self._in_words(passes, source, answer, weights)
        return replace(answer, alignment=replace(alignment, hard=how.alignment == "hard"))

    def _in_words(self, passes: Passes, source: Any, answer: Conversion, weights: NDArray[np.float32]) -> Alignment:
        """Return where an answer looked, sub-words and punctuation of both sides merged into words; marks are none, and
        the end looks somewhere too, but is no word."""
        view, target = passes.input.marked(Marks.NONE).view(source), self._target_view(answer.ids)
        first = int(Marks.FIRST in passes.input.marks)
        if view.picture is None:
            weights = view.filled(weights[:, first : first + len(view.names)])
        else:
            view = passes.view(source)
        weights, view = weights[: len(answer.ids)], replace(view, merged=True)
        found = target.rows(view.columns(weights))
        times = None if view.sound is None else view.sound.times(found)
        return Alignment(found, target.shown, view.shown, times=times)

    def _target_view(self, ids: list[int], *, end: bool = False) -> View:
        names = self.vocabulary.pieces_of(ids)
        last = [FINIS] * end
        if self.vocabulary.level not in PARTS:
            return View([*names, *last])
        groups = self.vocabulary.groups_of(ids)
        words = joined(names, groups)
        return View([*names, *last], [*groups, *(len(words) for _ in last)], [*words, *last])

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Conversions:
        if not self.crossing(passes.network):
            raise UserError("This model has no attention between target and source: there is no alignment to draw.")
        text = passes.input.text(source)
        refuse_unseeable(text, len(passes.input.encode([source])[0][0]), self.longest, why=LONGEST)
        if answer is None:
            one = self.answers(passes, [source], self.how)[0][0]
        else:
            one = Conversion(answer, 0.0, 0.0, True, self.vocabulary.encode(answer.strip()))
        if not one.ids and answer is None:
            raise UserError("The model's answer is empty: look at an answer of yours with --answer.")
        if not one.ids:
            raise UserError("--answer is empty, expected an answer to look at.")
        refuse_unseeable(text, len(one.ids), self.longest, why=LONGEST)
        return Conversions([one])

    def exhibit(self, passes: Passes, source: Any, answer: Conversions, looked: Looked) -> Exhibit:
        target = replace(self._target_view(answer[0].ids, end=True), merged=self.vocabulary.level in SUB_WORDS)
        layers = {name.replace("backbone.", "encoder.", 1): layer for name, layer in looked.seen.items()}
        view = passes.view(source)
        maps = page.maps(layers, _sides, view)
        shown = Exhibit.of(view, target, maps, passes.input.text(source))
        heads = shown.in_words(next(m for m in maps if m.columns == "source" and m.rows == "target"))
        found = self._in_words(passes, source, answer[0], self._crossed(passes.network, looked.seen))
        title = None if view.sound is None else f"{answer[0].text}  ({shown.text})"
        drawing = Drawing(found.weights, found.columns, found.rows, title, heads=heads, spoken=view.sound is not None)
        return replace(shown, drawing=drawing)

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        network, batch = passes.network, self.collate(passes.input, rows)
        head, ids, real = network.head, batch.target.ids, batch.target.real
        assert isinstance(head, ConvertHead)

        def scores(ids: Tensor) -> Tensor:
            return network.scores(batch._replace(target=batch.target._replace(ids=ids)))

        yield "causality: a later target token changes nothing earlier", causality(ids, real, scores)
        given = torch.cat((torch.full((len(rows), 1), START), ids[:, :-1]), 1)
        steps = stepwise(head.step, head.start(network, batch.source), given)
        yield "cache: step by step equals all at once", difference(scores(ids), steps, real)


def _sides(name: str) -> tuple[page.Side, page.Side]:
    """Return what looks at what in a layer of this name."""
    if name.endswith(("cross", "glimpse")):
        return "target", "source"
    return ("source", "source") if name.startswith("encoder") else ("target", "prefix")
