"""Convert: a sequence in, a sequence out whose length the model decides (translation, pronunciation, inflection …)."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard import metrics, page, pictures, search
from regard.data.batches import in_shares, pad
from regard.data.reading import Pair
from regard.data.store import Store
from regard.errors import UserError
from regard.inputs.scripts import mostly_unspaced
from regard.inputs.tokens import END, PAD, START, SUB_WORDS, Tokenizer
from regard.outputs import aligning, converters, invariance
from regard.outputs.converter import Batch, Converter
from regard.outputs.converters import Settings
from regard.outputs.task import LEARN_FROM, PLACES, Item, Row, Shown, Survey, Task, Vocabularies
from regard.outputs.together import Together
from regard.watching import attentions, paused, watch, watched
from regard.workers import side_by_side

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINIS = "∎"  # the end in pictures: a sign that the font has which comes with matplotlib
FEWEST = 400  # tokens, read and written, that are worth a worker of their own


@dataclass(frozen=True)
class Answer:
    """One converted text, with its log-probability and what is needed to ask where the model looked."""

    text: str
    score: float
    normalised: float
    finished: bool
    ids: list[int]
    weights: NDArray[np.float32] | None = None  # (answer tokens, source tokens), where the engine gave them


@dataclass(frozen=True)
class Search:
    """How answers are looked for. Sampling if `seed` is given, greedy for a beam of 1, beam search otherwise."""

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
    budget: int = 14_000  # tokens of a batch, read and written, every hypothesis counted
    scored: bool = True  # False: nobody reads the scores, so an engine need not compute them
    looked: bool = False  # answers come with where they looked, from an engine that knows

    def limits(self, lengths: Sequence[int]) -> search.Limits:
        most = [min(self.longest, int(self.factor * (n + 3) + 3)) for n in lengths]
        return search.Limits(minimum=self.minimum, maximum=[max(self.minimum, n) for n in most])


# From rows of source ids, the search, and the place of each row among the texts to the best answers to each row.
Engine = Callable[[list[list[int]], Search, list[int]], list[list[Answer]]]


class Convert(Task):
    """Texts in, texts out. `how` is the run's own search, `longest` the most tokens of a text."""

    settings = Settings
    files = ("source.json", "target.json")
    fields = ("source", "target")
    does = "converts sequences"
    options = frozenset(
        ("beam", "n_best", "length_penalty", "minimum", "longest", "temperature", "top_k", "top_p", "seed", "alignment")
    )
    network: Converter
    engine: Engine | None = None  # what searches in place of torch
    others: tuple[Converter, ...] = ()  # networks that search together with this one

    def __init__(
        self, network: Converter, source: Tokenizer, target: Tokenizer, how: Search | None = None, longest: int = 1024
    ) -> None:
        self.network, self.source, self.target = network, source, target
        self.vocabularies = (source, target)
        self.how, self.longest = how or Search(), longest

    @classmethod
    def learn(cls, config: Settings, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        tokens = config.tokens
        learn = partial(Tokenizer.train, size=tokens.size, lowercase=tokens.lowercase)
        if not tokens.joint:
            source = learn((p.source for p in islice(pairs(), LEARN_FROM)), tokens.source_level)
            return source, learn((p.target for p in islice(pairs(), LEARN_FROM)), tokens.target_level)
        if tokens.source_level != tokens.target_level:
            raise UserError(
                f"tokens.joint needs one level for both sides, found {tokens.source_level} and {tokens.target_level}."
            )
        texts = (text for pair in islice(pairs(), LEARN_FROM) for text in (pair.source, pair.target))
        both = learn(texts, tokens.source_level)
        return both, both

    @classmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        return converters.choose(seen)

    @classmethod
    def design(cls, config: Settings, vocabularies: Vocabularies) -> Converter:
        source, target = (vocabulary.size for vocabulary in vocabularies)
        return converters.design(config, source, target)

    @classmethod
    def assemble(cls, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> Convert:
        assert isinstance(network, Converter)
        how = Search(**config.decoding.model_dump())
        source, target = vocabularies
        return cls(network, source, target, how, 4 * config.data.longest)

    def settle(self, config: Settings, store: Store) -> None:
        """How much longer than its source a target gets, and which n-grams are frequent enough to be learned."""
        lengths = store.lengths
        found = float((1.2 * lengths[:, 1] / (lengths[:, 0] + 3)).max())
        config.decoding.factor = round(max(0.5, found), 2)
        self.how = replace(self.how, factor=config.decoding.factor)
        if self.network.source.ngrams is not None:
            self.network.source.ngrams.know(store[row][0] for row in range(len(store)))

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, pairs: Sequence[Pair]) -> list[Row]:
        """Source ids, and target ids with the end."""
        sources = self.source.encode_batch([pair.source for pair in pairs])
        targets = self.target.encode_batch([pair.target for pair in pairs])
        return [(ids, [*target, END]) for ids, target in zip(sources, targets, strict=True)]

    def batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        source, target = (torch.from_numpy(pad([np.asarray(row[side]) for row in rows])) for side in (0, 1))
        return Batch(source, target)

    def items(self, pairs: Iterable[Pair]) -> list[Item]:
        """Pairs of the same source joined: their targets are alternatives."""
        found: dict[str, list[str]] = {}
        for pair in pairs:
            references = found.setdefault(pair.source, [])
            if pair.target not in references:
                references.append(pair.target)
        return list(found.items())

    # ---- answers --------------------------------------------------------------------------------------------------

    def quickly(self) -> dict[str, Any]:
        return {"beam": 1}

    def refuse(self, text: str, changes: dict[str, Any]) -> None:  # noqa: ARG002
        if len(text) > self.longest and (count := len(self.source.encode(text))) > self.longest:
            raise UserError(
                f"The text {text[:30]!r} … is too long: {count:,} tokens, expected at most {self.longest:,} "
                "(4 × data.longest)."
            )

    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:
        return [answers[0].text for answers in self.answers(texts, **{"scored": False} | changes)]

    def answers(self, texts: Sequence[str], **changes: Any) -> list[list[Answer]]:
        """The n best answers to each text with their scores, by the run's own search with changes."""
        texts = [text.strip() for text in texts]  # as the training data was
        for text in texts:
            self.refuse(text, changes)
        if changes.get("n_best", 1) > 1 and "beam" not in changes:
            changes = changes | {"beam": max(changes["n_best"], self.how.beam)}
        try:
            return self.predict(texts, replace(self.how, **changes))
        except ValueError as error:
            raise UserError(f"{error}.".replace("..", ".")) from error

    @torch.no_grad()
    def predict(self, texts: Sequence[str], how: Search) -> list[list[Answer]]:
        """The best answers to each text; an empty text has an empty answer."""
        if self.network.training:
            self.network.eval()
        ids = self.source.encode_batch(list(texts))
        numbers = [i for i, row in enumerate(ids) if row]
        answers: list[list[Answer]] = [[Answer("", 0.0, 0.0, True, [])] for _ in texts]
        found = (self.engine or self.by_torch)([ids[i] for i in numbers], how, numbers)
        for i, row in zip(numbers, found, strict=True):
            answers[i] = row
        if watched():
            self.look([(ids[i], answers[i][0].ids) for i in range(len(texts))])
        return answers

    def by_torch(self, rows: list[list[int]], how: Search, numbers: list[int]) -> list[list[Answer]]:
        """The engine that knows every model and every search. Long and short rows are searched apart."""
        # A row is read once and written at most to its end; how far it goes is guessed by its length.
        maxima = how.limits([len(row) for row in rows]).maxima(len(rows))
        sizes = [n + max(how.minimum, min(n, most)) for n, most in zip(map(len, rows), maxima, strict=True)]
        order = sorted(range(len(rows)), key=lambda i: (sizes[i], len(rows[i])))
        parts = in_shares(order, sizes, how.budget // how.beam, FEWEST, torch.get_num_threads())

        @torch.no_grad()
        def work(chosen: list[int]) -> list[list[Answer]]:
            with paused():
                found = self._search([rows[i] for i in chosen], how, [numbers[i] for i in chosen])
            return [[self._answer(h) for h in each] for each in found]

        answers: list[list[Answer]] = [[] for _ in rows]
        for chosen, some in zip(parts, side_by_side(work, parts), strict=True):
            for i, row in zip(chosen, some, strict=True):
                answers[i] = row
        return answers

    def _answer(self, found: search.Hypothesis) -> Answer:
        text = self.target.decode(found.tokens)
        return Answer(text, found.score, found.normalised, found.finished, found.tokens)

    def join(self, others: Sequence[Task], names: Sequence[str]) -> None:
        """Search with the networks of `others` too; alignments stay those of this one."""
        joined = []
        for other, name in zip(others, names, strict=True):
            if not isinstance(other, Convert):
                raise UserError(f"{name} {other.does}: --with joins it with models that do the same.")
            ours, theirs = ([each.as_bytes() for each in (task.source, task.target)] for task in (self, other))
            if ours != theirs:
                raise UserError(
                    f"{name} has another vocabulary: models answer together that were trained on the same data with "
                    "the same settings of tokens and other seeds or networks."
                )
            joined.append(other.network.eval())
        self.others = tuple(joined)

    def look(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> None:
        """One pass over known answers, for whoever is watching."""
        with torch.no_grad():
            self.network.features(self.batch([(s or [END], [*t, END]) for s, t in rows]))

    def _search(self, ids: list[list[int]], how: Search, numbers: list[int]) -> list[list[search.Hypothesis]]:
        source = torch.from_numpy(pad([np.array(row) for row in ids]))
        given: dict[str, Any] = {
            "start": START, "end": END, "pad": PAD, "limits": how.limits([len(row) for row in ids])
        }  # fmt: skip
        network = Together([self.network, *self.others]) if self.others else self.network
        step: search.Step[Any] = network.step
        state: Any = network.start(source)
        if how.seed is not None:
            draws: dict[str, Any] = {"temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
            seeds = [how.seed * 1_000_003 + number for number in numbers]
            return [[h] for h in search.sample(step, state, len(ids), seeds=seeds, **draws, **given)]
        if how.beam == 1:
            return [[h] for h in search.greedy(step, state, len(ids), scored=how.scored, **given)]
        size: dict[str, Any] = {"size": how.beam, "n_best": how.n_best, "length_penalty": how.length_penalty}
        return search.beam(step, state, len(ids), **size, **given)

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:
        asked = {"scored": shown.with_score or shown.as_json, "looked": shown.alignment is not None}
        for text, found in zip(texts, self._placed(texts, first, changes | asked), strict=True):
            if shown.as_json:
                items = [self._object(text, answer, shown) for answer in found]
                yield json.dumps({"source": text, "answers": items}, ensure_ascii=False)
                continue
            nothing = Answer("", -math.inf, -math.inf, False, [])  # so that each text has as many lines
            for answer in found + [nothing] * (changes.get("n_best", 1) - len(found)):
                parts = [f"{answer.score:.4f}"] if shown.with_score else []
                parts.append(" ".join(answer.text.split("\n")))
                if shown.alignment:
                    weights = self.aligned(text, answer.ids, answer.weights)[0]
                    soft = shown.alignment == "soft"
                    parts.append(json.dumps(aligning.rounded(weights)) if soft else aligning.pharaoh(weights))
                yield "\t".join(parts)

    def _placed(self, texts: Sequence[str], first: int, changes: dict[str, Any]) -> list[list[Answer]]:
        """A draw depends on the seed and on the text's place among those asked together. Lines come in chunks that
        depend on time, so each is put at its place in a block of lines: empty texts before it cost nothing."""
        if "seed" not in changes:
            return self.answers(texts, **changes)
        block, place = divmod(first, PLACES)
        seed = changes["seed"] + 1_000_003 * block
        return self.answers([""] * place + [*texts], **changes | {"seed": seed})[place:]

    def _object(self, text: str, answer: Answer, shown: Shown) -> dict[str, Any]:
        item: dict[str, Any] = {"text": answer.text, "score": answer.score, "normalised": answer.normalised}
        item["finished"] = answer.finished
        if shown.alignment:
            weights, rows, columns = self.aligned(text, answer.ids, answer.weights)
            item |= {"tokens": rows, "source_tokens": columns}
            soft = shown.alignment == "soft"
            item["alignment"] = aligning.rounded(weights) if soft else aligning.pharaoh(weights)
        return item

    def kind(self) -> metrics.Kind:
        """Which metrics fit: running text, space-separated symbols, or strings of characters."""
        kinds: dict[str, metrics.Kind] = {"symbols": "symbols", "characters": "characters"}
        return kinds.get(self.target.level, "text")

    def length(self, text: str) -> int:
        return metrics.count_words(text) if self.kind() == "text" and not mostly_unspaced([text]) else len(text)

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        """A model that writes no capitals is compared without them; the signatures say so."""
        references = [[unicodedata.normalize("NFC", text) for text in texts] for _, texts in items]
        return metrics.evaluate(answers, references, kind=self.kind(), lowercase=self.target.lowercase, samples=samples)

    # ---- looking --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def alignments(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[NDArray[np.float32]]:
        """For each (source ids, answer ids) the weights (answer tokens + end, source tokens), a mean over heads.

        Of several layers the last but one is taken: it aligns best in deep decoders (Garg et al. 2019, 4.3).
        """
        layers = self.crossing()
        if not layers:
            raise UserError("This model has no attention between target and source, so there is nothing to align.")
        with watch(self.network, layers[max(0, len(layers) - 2)]) as seen:
            self.look(rows)
        (layer,) = seen.values()
        weights = layer.weights.mean(1).numpy()
        return [weights[i, : len(target) + 1, : len(source)] for i, (source, target) in enumerate(rows)]

    def crossing(self) -> list[str]:
        """The names of the layers through which the target looks at the source."""
        return [name for name in attentions(self.network) if name.endswith((".cross", ".glimpse"))]

    def aligned(self, text: str, answer: list[int], weights: NDArray[np.float32] | None = None) -> aligning.Aligned:
        """Weights (answer units, source units) and the units' names; sub-words and punctuation are merged into words.

        `weights` by tokens, if they are known; else they are computed.
        """
        ids = self.source.encode(text)
        if not ids or not answer:
            return np.zeros((0, 0), dtype=np.float32), [], []
        if weights is None:
            weights = self.alignments([(ids, answer)])[0][:-1]  # the end looks somewhere too, but is no word
        return aligning.in_words(weights, text, answer, self.source, self.target)

    def example(self, text: str, answer: str | None) -> page.Example:
        target = self._answer_ids(text, answer)
        with watch(self.network) as seen:
            self.look([(self.source.encode(text), target)])
        source, answered = self.source.pieces(text), self.target.pieces_of(target)
        words: dict[page.Side, page.Words] = {}
        if self.source.level in SUB_WORDS:
            words["source"] = _words(source, self.source.groups(text))
        if self.target.level in SUB_WORDS:
            words["target"] = _words(answered, self.target.groups_of(target)).then(FINIS)
        if self.network.closed:
            source = [*source, FINIS]
            words |= {"source": words["source"].then(FINIS)} if "source" in words else {}
        return page.Example(source, [*answered, FINIS], page.maps(seen, _sides), text, words)

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:
        if not self.crossing():
            raise UserError("This model has no attention between target and source: there is no alignment to draw.")
        if grid:
            example = self.example(text, answer)
            crossing = next(m for m in example.maps if m.columns == "source" and m.rows == "target")
            return pictures.grid(*example.in_words(crossing))
        return pictures.alignment(*self.aligned(text, self._answer_ids(text, answer)))

    def _answer_ids(self, text: str, answer: str | None) -> list[int]:
        """The tokens of a given answer, or of the model's own."""
        source = self.source.encode(text)
        ids = self.answers([text])[0][0].ids if answer is None else self.target.encode(answer.strip())
        if not source:
            raise UserError(f"The text {text!r} is empty: there is nothing to look at.")
        if not ids and answer is None:
            raise UserError(f"The model's answer to {text!r} is empty: look at an answer of yours with --answer.")
        if not ids:
            raise UserError("--answer is empty, expected an answer to look at.")
        if max(len(source), len(ids)) > self.longest:
            raise UserError(
                f"The text or its answer is too long to show: {max(len(source), len(ids)):,} tokens, expected at most "
                f"{self.longest:,} (4 × data.longest)."
            )
        return ids

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        return invariance.of_converter(self.network, self.batch(rows))


def _words(pieces: list[str], groups: list[int]) -> page.Words:
    return page.Words(aligning.joined(pieces, groups), groups)


def _sides(name: str) -> tuple[page.Side, page.Side]:
    """What looks at what in a layer of this name."""
    if name.endswith(("cross", "glimpse")):
        return "target", "source"
    return ("source", "source") if name.startswith("encoder") else ("target", "prefix")
