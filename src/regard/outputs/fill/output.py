"""Fill: the hidden elements. A network learns a language by filling in words that were hidden from it, and then fills
blanks, or gives vectors of words and sentences, or is where a training for tags or labels starts from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field as Setting
from torch import Tensor

from regard import metrics
from regard.config import Config, Section
from regard.data.example import Example
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Chosen, Input, Row, Source, Use
from regard.inspection import page
from regard.inspection.invariants import difference
from regard.inspection.page import Exhibit
from regard.inspection.view import Drawing, View, joined
from regard.models.bert import bert
from regard.models.settings import BertKind, XlnetKind
from regard.models.xlnet import xlnet
from regard.network import Network
from regard.outputs.abilities import Believes, Invariant, Poses, Refuses
from regard.outputs.fill import masking
from regard.outputs.fill.head import FillHead, Hidden, MaskedHead, PermutedHead, targets_of
from regard.outputs.output import Held, Item, Lines, Looked, Output, paired
from regard.text.blanks import Blanked, Candidates, parse
from regard.text.labels import FIRST
from regard.text.tokenizer import SPACE, SUB_WORDS, UNKNOWN, Tokenizer

RATES = {"bert": 0.15, "xlnet": 1 / 6}
Guess = tuple[float, list[str]]  # log-probability, and a piece for each blank
Window = tuple[list[int], list[int]]  # elements, and the places of hidden ones


class TextSettings(Section):
    """Settings of the unit of text."""

    text: Literal["line", "paragraph"] = Setting(
        "line", description="a text is a line, or all lines up to an empty one"
    )


class HidingSettings(Section):
    """Settings of masking."""

    rate: float | None = Setting(
        None, gt=0, lt=1, description="share of tokens hidden; empty: 0.15 (bert), 1/6 (xlnet)"
    )
    whole: bool = Setting(True, description="whole words are hidden, rather than single tokens")


class FillSettings(Config):
    """All settings of a model that fills."""

    task: Literal["fill"] = Setting("fill", description="what comes out: what was hidden")
    hiding: HidingSettings = HidingSettings()
    model: Annotated[BertKind | XlnetKind, Setting(discriminator="kind")] = BertKind()
    output: TextSettings = TextSettings()


@dataclass(frozen=True)
class Asked:
    """Options of answers: the n best, or vectors instead."""

    n_best: int = 1
    embeddings: bool = False


@dataclass(frozen=True)
class Filled:
    """A text with its blanks filled, the best way first; or the vectors of its words."""

    blanked: Blanked
    guesses: list[Guess] = field(default_factory=list)
    asked: int = 1
    words: list[str] = field(default_factory=list)
    vectors: NDArray[np.float32] | None = None


class Fill(Output[Filled], Refuses, Poses, Invariant, Believes):
    """Full texts out. Rows have at most `longest` elements; training hides `rate` of them."""

    does, reads = "fills in blanks of", "continue"
    settings = FillSettings
    use = Use.BLANKS
    needs: ClassVar[frozenset[str]] = frozenset(("an alphabet",))
    options: ClassVar[frozenset[str]] = frozenset(("n_best", "embeddings"))
    printed: ClassVar[frozenset[str]] = frozenset(("embeddings",))
    contiguous = True
    how = Asked()

    def __init__(
        self,
        alphabet: Tokenizer,
        *,
        kind: str = "bert",
        rate: float = 0.15,
        whole: bool = True,
        paragraphs: bool = False,
        longest: int = 256,
    ) -> None:
        self.alphabet, self.kind = alphabet, kind
        self.rate, self.whole, self.paragraphs, self.longest = rate, whole, paragraphs, longest
        # The mask's id stands behind the alphabet; two streams need none: nobody looks at what is hidden.
        self.mask = alphabet.size if kind == "bert" else UNKNOWN
        self.starts, self.candidates = masking.WordStarts(alphabet), Candidates(alphabet)

    @classmethod
    def made(cls, config: FillSettings, input: Input[Any], learned: None) -> Self:
        del learned
        assert input.alphabet is not None
        return cls(
            input.alphabet,
            kind=config.model.kind,
            rate=config.hiding.rate or RATES[config.model.kind],
            whole=config.hiding.whole,
            paragraphs=config.output.text == "paragraph",
            longest=config.data.longest,
        )

    def network(self, config: FillSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        parts = config.model.model_dump(exclude={"kind"})
        size, smoothing = self.alphabet.size, config.training.smoothing
        head: FillHead
        if isinstance(config.model, BertKind):
            stem, backbone = bert(length=config.data.longest + 2, more=1, **parts)
            head = MaskedHead(size + 1, config.model.width, smoothing=smoothing)
        else:
            stem, backbone = xlnet(**parts)
            head = PermutedHead(size, smoothing)
        input = input.marked(stem.marks)
        return input, Network(input.module(stem), backbone, head)

    # ---- training -------------------------------------------------------------------------------------------------

    def texts(self, examples: Iterable[Example[str, Any]]) -> Iterator[Example[str, Any]]:
        """Yield the lines that are not blank, or what stands between blank ones."""
        if not self.paragraphs:
            return (example for example in examples if example.source.strip())
        groups = ([*group] for filled, group in groupby(examples, lambda e: bool(e.source.strip())) if filled)
        return (replace(group[0], source=" ".join(e.source for e in group), key="") for group in groups)

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, Any]]) -> Iterator[Row]:
        for row in paired(input, lambda some: [()] * len(some), self.texts(examples)):
            yield from ((part,) for part in cut(row[0], self.longest))

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        """Return how many elements shall be hidden; words of several that are hidden whole are as many on average."""
        return (float(masking.how_many(counts[:, 0], self.rate).sum()),)

    def collate(self, input: Input[Any], rows: Sequence[Row], extra: int = 0) -> Batch:
        """Hide other elements each time."""
        source = input.collate(rows, extra)
        truth = source.values[0]
        hidden = self._hide(truth, [len(row[0]) for row in rows])
        if self.kind != "bert":
            return Batch(source, Hidden(truth, hidden, masking.ranks(hidden)))
        seen = masking.replace(truth, hidden, self.mask, self.alphabet.size)
        return Batch(source._replace(values=(seen,)), Hidden(truth, hidden, hidden.long()))

    def _hide(self, truth: Tensor, lengths: list[int], generator: torch.Generator | None = None) -> Tensor:
        words = self.starts(truth) if self.whole else torch.arange(truth.shape[1]).expand(len(truth), -1)
        count = torch.from_numpy(masking.how_many(np.array(lengths), self.rate))
        return masking.hide(truth, words, count, generator)

    def items(self, examples: Iterable[Example[Any, Any]]) -> list[Item]:
        return [Item(example, None) for example in self.texts(examples)]

    # ---- what stands there ----------------------------------------------------------------------------------------

    def hidden(self, source: Source, windows: Sequence[Window]) -> Batch:
        """Return rows of which some places are hidden from the network, all at once."""
        truth = source.values[0]
        hidden = torch.zeros_like(truth, dtype=torch.bool)
        for row, (_, places) in enumerate(windows):
            hidden[row, [place + 1 for place in places]] = True
        given = source._replace(values=(truth.masked_fill(hidden, self.mask),))
        return Batch(given, Hidden(truth, hidden, hidden.long()))

    def probabilities(self, passes: Passes, windows: Sequence[Window]) -> list[Tensor]:
        """Return log p (hidden places, elements) for each window."""

        def work(source: Source, numbers: list[int]) -> Sequence[Tensor]:
            chosen = [windows[i] for i in numbers]
            logits = passes.network.scores(self.hidden(source, chosen))[:, 0]
            found = logits[:, : self.alphabet.size].log_softmax(-1).cpu()
            parts: Sequence[Tensor] = found.split([len(places) for _, places in chosen])
            return parts

        return passes.each([(ids if places else [],) for ids, places in windows], work)

    def evaluate(
        self, passes: Passes, held: Held, how: Any, *, quick: bool, samples: int, **measures: Any
    ) -> tuple[list[metrics.Score], list[str]]:
        """Score how many hidden words are found, and how surprising they are. The n-th item hides the same always."""
        del how, quick, measures
        encoded = passes.input.encode([item.example.source for item in held.items])
        parts = [(n, k, part) for n, row in enumerate(encoded) for k, part in enumerate(cut(row[0], self.longest))]
        windows = [(part, self._fixed(passes, 1009 * n + k, part)) for n, k, part in parts]
        guesses, totals = [part for part, _ in windows], np.zeros((len(held.items), 4))
        for i, found in enumerate(self.probabilities(passes, windows)):
            if found is not None:
                guesses[i], counts = self._compare(passes, *windows[i], found)
                totals[parts[i][0]] += counts
        filled: list[list[int]] = [[] for _ in held.items]
        for (n, _, _), guess in zip(parts, guesses, strict=True):
            filled[n] += guess
        scores = metrics.hidden_words(totals, self.rate, whole=self.whole, samples=samples)
        return scores, [self.alphabet.decode(ids) for ids in filled]

    def _fixed(self, passes: Passes, number: int, ids: list[int]) -> list[int]:
        """Return places that are hidden for an evaluation, whatever else was drawn before."""
        truth = passes.input.collate([(ids,)]).values[0]
        hidden = self._hide(truth, [len(ids)], torch.Generator().manual_seed(number))
        return (hidden[0].nonzero()[:, 0] - 1).tolist()

    def _compare(
        self, passes: Passes, ids: list[int], places: list[int], found: Tensor
    ) -> tuple[list[int], list[float]]:
        """Return the elements with the best ones in the hidden places; words found, words, elements, and −log p."""
        truth, best = torch.tensor([ids[place] for place in places]), found.argmax(-1)
        words = list(range(len(ids)))
        if self.whole:
            words = self.starts(passes.input.collate([(ids,)]).values[0])[0, 1:].tolist()
        right: dict[int, bool] = {}
        guess = list(ids)
        for place, good, id in zip(places, (best == truth).tolist(), best.tolist(), strict=True):
            right[words[place]] = right.get(words[place], True) and good
            guess[place] = id
        surprise = -float(found.gather(1, truth[:, None]).double().sum())
        return guess, [sum(right.values()), len(right), len(places), surprise]

    # ---- answers --------------------------------------------------------------------------------------------------

    def trial(self, source: Any) -> Any:
        """Return a text with a blank in place of the longest of its first words."""
        words = source.split()[:12]
        longest = max(words, key=len, default="")
        return " ".join("___" if place == words.index(longest) else word for place, word in enumerate(words))

    def refuse(self, passes: Passes, source: Any, how: Asked) -> None:  # noqa: ARG002
        row = self.parse(source)
        if how.n_best > 1 and len(row.blanks) > 1:
            raise UserError(f"--n-best goes with one blank to a text, found {len(row.blanks)}.")

    def parse(self, text: str) -> Blanked:
        return parse(text, self.alphabet, self.mask)

    def answers(self, passes: Passes, sources: Sequence[Any], how: Asked, first: int = 0) -> list[Filled]:
        """Fill the blanks of each text: the n best where there is one, else the most certain, one by one."""
        del first
        rows = [self.parse(text) for text in sources]
        if how.embeddings:
            return self.embedded(passes, rows)
        if how.n_best == 1 or not any(row.blanks for row in rows):
            return [Filled(row, [guess]) for row, guess in zip(rows, self._fill(passes, rows), strict=True)]
        found = [Filled(row, [(0.0, [])], how.n_best) for row in rows]
        windows = [(n, *near) for n, row in enumerate(rows) for near in self._near(row.ids, row.blanks)]
        logs = self.probabilities(passes, [(ids, places) for _, ids, places, _ in windows])
        for (n, _, _, _), log in zip(windows, logs, strict=True):
            allowed = self.candidates.at(rows[n], rows[n].blanks[0])
            best = log[0].masked_fill(~allowed, -math.inf).topk(min(how.n_best, int(allowed.sum())))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            found[n] = replace(found[n], guesses=[(value, [self.candidates.texts[id]]) for value, id in pairs])
        return found

    def _fill(self, passes: Passes, rows: Sequence[Blanked]) -> list[Guess]:
        """Fill all blanks: of each text the one that is most certain, then the next with the first one known …"""
        ids, left = [list(row.ids) for row in rows], [list(row.blanks) for row in rows]
        scores: list[float] = [0.0 for _ in rows]
        while any(left):
            windows = [(n, *near) for n, blanks in enumerate(left) for near in self._near(ids[n], blanks)]
            logs = self.probabilities(passes, [(some, places) for _, some, places, _ in windows])
            best: dict[int, tuple[float, int, int]] = {}
            for (n, _, places, start), log in zip(windows, logs, strict=True):
                for place, row in zip(places, log, strict=True):
                    value, id = row.masked_fill(~self.candidates.at(rows[n], start + place), -math.inf).max(0)
                    # Of equally certain blanks the first is taken.
                    if n not in best or (float(value), -(start + place)) > (best[n][0], -best[n][1]):
                        best[n] = float(value), start + place, int(id)
            for n, (value, place, id) in best.items():
                ids[n][place] = id
                left[n].remove(place)
                scores[n] += value
        texts = self.candidates.texts
        return [
            (score, [texts[i[place]] for place in row.blanks]) for row, i, score in zip(rows, ids, scores, strict=True)
        ]

    def _near(self, ids: list[int], blanks: Sequence[int]) -> Iterator[tuple[list[int], list[int], int]]:
        """Yield parts of a row that fit the network, with the places of the blanks in them and where they start."""
        done = -1
        for blank in blanks:
            if blank > done:
                start = max(0, min(blank - self.longest // 2, len(ids) - self.longest))
                done = min(len(ids), start + self.longest) - 1
                yield ids[start : done + 1], [place - start for place in blanks if start <= place <= done], start

    def embedded(self, passes: Passes, rows: Sequence[Blanked]) -> list[Filled]:
        """Return the vectors of the words of each text: the mean of the last states of a word's elements."""

        def work(source: Source, numbers: list[int]) -> Iterator[NDArray[np.float32]]:
            states = passes.network.features(source).values.cpu().numpy()
            return (states[i, 1 : 1 + len(parts[n][1])] for i, n in enumerate(numbers))

        parts = [(n, part) for n, row in enumerate(rows) for part in cut(row.ids, self.longest)]
        states_of: list[list[NDArray[np.float32]]] = [[] for _ in rows]
        for (n, _), states in zip(parts, passes.each([(part,) for _, part in parts], work), strict=True):
            states_of[n].append(states)
        answers = []
        for row, states in zip(rows, states_of, strict=True):
            words = joined(row.pieces, row.groups)
            vectors = np.zeros((0, 0), np.float32)
            if states:
                vectors = View(row.pieces, row.groups, words).rows(np.concatenate(states))
            answers.append(Filled(row, words=words, vectors=vectors))
        return answers

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Filled) -> NDArray[np.float64]:
        """Return the probability of each word that was found, the other blanks being blank."""
        rows, guesses = [self.parse(text) for text in sources], answer.guesses[0][1]
        found = np.zeros((len(rows), len(guesses)))
        windows = [(n, *near) for n, row in enumerate(rows) for near in self._near(row.ids, row.blanks)]
        logs = self.probabilities(passes, [(ids, places) for _, ids, places, _ in windows])
        for (n, _, places, start), log in zip(windows, logs, strict=True):
            for place, line in zip(places, log, strict=True):
                number, allowed = rows[n].blanks.index(start + place), self.candidates.at(rows[n], start + place)
                same = [
                    id for id in allowed.nonzero().flatten().tolist() if self.candidates.texts[id] == guesses[number]
                ]
                found[n, number] = sum(float(line[id].exp()) for id in same)
        return found

    def as_target(self, answer: Filled) -> str:
        return answer.blanked.filled(answer.guesses[0][1])

    def as_text(self, answer: Filled) -> Lines:
        if answer.vectors is not None:
            return [(None, json.dumps(_mean(answer.vectors)))]
        lines: Lines = [
            (score, answer.blanked.filled(parts) if answer.blanked.blanks else answer.blanked.given)
            for score, parts in answer.guesses
        ]
        return lines + [(-math.inf, "")] * (answer.asked - len(lines))

    def as_json(self, answer: Filled) -> dict[str, Any]:
        if answer.vectors is not None:
            pairs = zip(answer.words, answer.vectors, strict=True)
            each = [{"word": word, "vector": _rounded(row)} for word, row in pairs]
            return {"embedding": _mean(answer.vectors), "words": each}
        row = answer.blanked
        answers = [{"text": row.filled(parts), "score": score, "words": parts} for score, parts in answer.guesses]
        return {"answers": answers}

    # ---- looking --------------------------------------------------------------------------------------------------

    def known(self, passes: Passes, sources: Sequence[Any], answers: Sequence[Filled]) -> Batch:
        del sources
        cuts = [(a.blanked.ids[: self.longest], [b for b in a.blanked.blanks if b < self.longest]) for a in answers]
        return self.hidden(passes.input.collate([(ids,) for ids, _ in cuts]), cuts)

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Filled:
        row = self.parse(source)
        if answer is not None:
            raise UserError(
                f"--answer: a model that {self.does} {passes.input.noun} has no such option; write it into the text."
            )
        if not row.ids or len(row.ids) > self.longest:
            raise UserError(
                f"The text has {len(row.ids):,} tokens, expected 1 to {self.longest:,} (data.longest): "
                "show a part of it."
            )
        return Filled(row, self._fill(passes, [row]))

    def exhibit(self, passes: Passes, source: Any, answer: Filled, looked: Looked) -> Exhibit:
        """Show the last layer's mean over heads, or all layers and heads, between START, the elements and END."""
        del passes
        row, weights = answer.blanked, self._looked(looked)
        pieces, title = _with_guesses(answer)
        groups = [0, *(group + 1 for group in row.groups), max(row.groups) + 2]
        words = ["▶", *joined(pieces, row.groups), "■"]
        view = View(["▶", *pieces, "■"], groups, words)
        mixed = weights.shape[-1] != len(view.names)
        maps = [page.Map("self-attention", "source", "projected" if mixed else "source", weights)]
        sides = replace(view, merged=self.alphabet.level in SUB_WORDS)
        shown = replace(Exhibit.of(sides, sides, maps, source), elements=[place + 1 for place in row.blanks])
        mean = view.rows(weights[-1].mean(0))[1:-1]
        columns = page.projected_names(weights.shape[-1]) if mixed else words
        mean = mean if mixed else view.columns(mean)
        return replace(shown, drawing=Drawing(mean, columns, words[1:-1], title, heads=shown.in_words(maps[0])))

    def _looked(self, looked: Looked) -> NDArray[np.float32]:
        """Return the weights (layers, heads, n + 2, n + 2) between START, the elements and END; of Linformer its
        columns stand in the place of the last n + 2."""
        weights = torch.stack([torch.from_numpy(page.shown_weights(layer)) for layer in looked.seen.values()])
        length = looked.batch.target.truth.shape[1]
        if weights.shape[2] > length:  # a hidden place is looked from by the query stream
            weights[:, :, targets_of(looked.batch.target.hidden)[0]] = weights[:, :, length:]
        return np.asarray(weights[:, :, :length])

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        network = passes.network
        windows = [([*map(int, row[0])], self._fixed(passes, n, [*map(int, row[0])])) for n, row in enumerate(rows)]
        batch = self.hidden(passes.input.collate([(ids,) for ids, _ in windows]), windows)
        logits, hidden = network.scores(batch), batch.target.hidden
        every = torch.ones(logits.shape[:2], dtype=torch.bool)
        wide = self.hidden(passes.input.collate([(ids,) for ids, _ in windows], 5), windows)
        yield "padding: more of it changes nothing", difference(network.scores(wide), logits, every)
        alone = [
            network.scores(self.hidden(passes.input.collate([(ids,)]), [(ids, places)]))
            for ids, places in windows
            if places
        ]
        yield "batch: each row is the same alone", difference(torch.cat(alone), logits, every)
        ids = batch.source.values[0]
        other = torch.where(hidden, FIRST, ids) if self.kind != "bert" else ids
        changed = batch._replace(
            source=batch.source._replace(values=(other,)), target=batch.target._replace(truth=other)
        )
        yield "hidden: what stands there changes nothing", difference(network.scores(changed), logits, every)

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        del reading
        lines = [text for text in seen.sources if text.strip()]
        words = round(sum(len(line.split()) for line in lines) * seen.count / max(1, len(seen.sources)))
        reasons: dict[str, str] = {}
        output: dict[str, Any] = {}
        if 0.02 < 1 - len(lines) / max(1, len(seen.sources)) < 0.5:
            output["text"] = "paragraph"
            reasons["output.text"] = "empty lines set paragraphs apart: the lines of one belong together"
        model: dict[str, Any] = {"kind": "bert", "layers": 4, "width": 256, "hidden": 1024, "heads": 4}
        training = {"budget": 4096, "rate": 1e-3, "warmup": 400, "smoothing": 0.0, "decay": 0.01}
        if words < 1_000_000:
            model |= (
                {"layers": 3, "width": 192, "hidden": 768}
                if words > 100_000
                else {"layers": 2, "width": 128, "hidden": 512}
            )
            training["budget"] = 2048
            reasons["training.budget"] = "small batches: few words are hidden in each, but there are more steps"
        reasons["model.width"] = f"about {words:,} words: width {model['width']}, layers {model['layers']}"
        return {"output": output, "model": model, "training": training, "data": {"longest": 128}}, reasons


def cut(ids: Sequence[int] | NDArray[Any], longest: int) -> list[list[int]]:
    """Cut a long row into the fewest parts that fit, alike in length."""
    count = -(-len(ids) // longest)
    size = -(-len(ids) // max(1, count))
    return [list(ids[start : start + size]) for start in range(0, len(ids), size)] if len(ids) else []


def _with_guesses(answer: Filled) -> tuple[list[str], str | None]:
    """Return the elements of a text with the model's words in its blanks, in brackets, and what they make of it."""
    row, pieces = answer.blanked, list(answer.blanked.pieces)
    if not row.blanks:
        return pieces, None
    ((score, guesses),) = answer.guesses
    for place, guess in zip(row.blanks, guesses, strict=True):
        space = SPACE if pieces[place].startswith(SPACE) else ""
        pieces[place] = f"{space}[{guess.strip() or guess}]"
    return pieces, f"{row.filled(guesses)}  ({100 * math.exp(score):.0f} %)"


def _mean(vectors: NDArray[np.float32]) -> list[float]:
    return _rounded(vectors.mean(0)) if len(vectors) else []


def _rounded(vector: NDArray[np.float32]) -> list[float]:
    return [round(float(x), 6) for x in vector]
