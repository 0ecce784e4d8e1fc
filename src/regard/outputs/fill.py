"""Fill: the hidden element. A network learns a language by filling in words that were hidden from it, and then fills
blanks, or gives vectors of words and sentences, or is where a training for tags or labels starts from."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from regard import metrics, page, pictures
from regard.config import Bert, Config, Layers, Level, Section
from regard.data.batches import by_budget, pad
from regard.data.reading import Pair
from regard.errors import UserError
from regard.inputs.scripts import mostly_unspaced
from regard.inputs.scripts import parts as parts_of
from regard.inputs.tokens import END, START, SUB_WORDS, UNKNOWN, Tokenizer, choose_level
from regard.models.bert import bert
from regard.models.xlnet import xlnet
from regard.outputs import hiding, invariance
from regard.outputs.aligning import joined, merged
from regard.outputs.blanks import Blanked, Candidates, parse
from regard.outputs.filler import Batch, Filler, Masked, Permuted, targets_of
from regard.outputs.task import LEARN_FROM, Item, Row, Shown, Survey, Task, Vocabularies
from regard.watching import watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGET = 8192  # tokens answered at once
RATES = {"bert": 0.15, "xlnet": 1 / 6}
Found = tuple[float, list[str]]  # log-probability, and a piece for each blank
Window = tuple[list[int], list[int]]  # tokens, and the places of hidden ones


class Tokens(Section):
    level: Level = Field("bpe", description="what a token is")
    lowercase: bool = Field(False, description="in lower case")
    size: int | None = Field(None, ge=5, description="largest number of tokens of the vocabulary (sub-words and words)")
    text: Literal["line", "paragraph"] = Field("line", description="a text is a line, or all lines up to an empty one")


class Hiding(Section):
    rate: float | None = Field(None, gt=0, lt=1, description="share of tokens hidden; empty: 0.15 (bert), 1/6 (xlnet)")
    whole: bool = Field(True, description="whole words are hidden, rather than single tokens")


class Xlnet(Layers):
    products: ClassVar[int] = 5

    kind: Literal["xlnet"] = Field("xlnet", description="which network")


class Settings(Config):
    task: Literal["fill"] = Field("fill", description="what comes out: what was hidden")
    tokens: Tokens = Tokens()
    hiding: Hiding = Hiding()
    model: Annotated[Bert | Xlnet, Field(discriminator="kind")] = Bert()

    def parameters(self) -> int:
        return self.model.parameters() + (self.tokens.size or 200) * self.model.width


class Fill(Task):
    """Texts with blanks in, full texts out. Rows have at most `longest` tokens; training hides `rate` of them."""

    settings = Settings
    reads = "continue"
    files = ("tokenizer.json",)
    fields = ("tokens",)
    does = "fills in hidden words"
    options = frozenset(("n_best", "embeddings"))
    contiguous = True
    network: Filler

    def __init__(
        self,
        network: Filler,
        vocabulary: Tokenizer,
        *,
        rate: float = 0.15,
        whole: bool = True,
        paragraphs: bool = False,
        longest: int = 256,
    ) -> None:
        self.network, self.vocabulary, self.vocabularies = network, vocabulary, (vocabulary,)
        self.rate, self.whole, self.paragraphs, self.longest = rate, whole, paragraphs, longest
        # The mask's id stands behind the vocabulary; two streams need none: nobody looks at what is hidden.
        self.mask = vocabulary.size if isinstance(network, Masked) else UNKNOWN
        self.words, self.candidates = hiding.Words(vocabulary), Candidates(vocabulary)

    @classmethod
    def learn(cls, config: Settings, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        tokens = config.tokens
        texts = (" ".join(pair.source.split()) for pair in islice(pairs(), LEARN_FROM))
        return (Tokenizer.train(texts, tokens.level, tokens.size, lowercase=tokens.lowercase),)

    @classmethod
    def design(cls, config: Settings, vocabularies: Vocabularies) -> Filler:
        parts: dict[str, Any] = config.model.model_dump(exclude={"kind"})
        size = vocabularies[0].size
        if isinstance(config.model, Bert):
            return Masked(*bert(size + 1, length=config.data.longest + 2, **parts))
        return Permuted(*xlnet(size, **parts))

    @classmethod
    def assemble(cls, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> Fill:
        assert isinstance(network, Filler)
        rate = config.hiding.rate or RATES[config.model.kind]
        return cls(
            network,
            vocabularies[0],
            rate=rate,
            whole=config.hiding.whole,
            paragraphs=config.tokens.text == "paragraph",
            longest=config.data.longest,
        )

    # ---- training -------------------------------------------------------------------------------------------------

    def texts(self, pairs: Iterable[Pair]) -> Iterator[str]:
        """The lines that are not blank, or what stands between blank ones."""
        lines = (" ".join(pair.source.split()) for pair in pairs)
        if not self.paragraphs:
            return filter(None, lines)
        return (" ".join(group) for filled, group in groupby(lines, bool) if filled)

    def rows(self, pairs: Sequence[Pair]) -> Iterator[Row]:
        for ids in self.vocabulary.encode_batch(list(self.texts(pairs))):
            yield from ((part,) for part in cut(ids, self.longest))

    def predictions(self, lengths: NDArray[np.int32]) -> int:
        """How many tokens shall be hidden; where words of several tokens are hidden whole, as many are on average."""
        return int(hiding.how_many(lengths[:, 0], self.rate).sum())

    def batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        """Other tokens are hidden each time."""
        truth = enclosed([row[0] for row in rows])
        hidden = self._hide(truth, [len(row[0]) for row in rows])
        if isinstance(self.network, Masked):
            seen = hiding.replace(truth, hidden, self.mask, self.vocabulary.size)
            return Batch(seen, truth, hidden, hidden.long())
        return Batch(truth, truth, hidden, hiding.ranks(hidden))

    def _hide(self, truth: Tensor, lengths: list[int], generator: torch.Generator | None = None) -> Tensor:
        words = self.words(truth) if self.whole else torch.arange(truth.shape[1]).expand(len(truth), -1)
        count = torch.from_numpy(hiding.how_many(np.array(lengths), self.rate))
        return hiding.hide(truth, words, count, generator)

    def items(self, pairs: Iterable[Pair]) -> list[Item]:
        return [(text, [text]) for text in self.texts(pairs)]

    # ---- what stands there ----------------------------------------------------------------------------------------

    def hidden(self, windows: Sequence[Window]) -> Batch:
        """Rows of which some places are hidden from the network, all at once."""
        truth = enclosed([ids for ids, _ in windows])
        hidden = torch.zeros_like(truth, dtype=torch.bool)
        for row, (_, places) in enumerate(windows):
            hidden[row, [place + 1 for place in places]] = True
        return Batch(truth.masked_fill(hidden, self.mask), truth, hidden, hidden.long())

    @torch.no_grad()
    def probabilities(self, windows: Sequence[Window]) -> Iterator[tuple[int, Tensor]]:
        """log p (hidden places, tokens) for each window, with its number; those of like lengths go together."""
        self.network.eval()
        order = sorted((i for i, (_, places) in enumerate(windows) if places), key=lambda i: len(windows[i][0]))
        for chosen in by_budget(order, [len(ids) + 2 for ids, _ in windows], BUDGET):
            logits = self.network(self.hidden([windows[i] for i in chosen]))
            found = logits[:, : self.vocabulary.size].log_softmax(-1)
            yield from zip(chosen, found.split([len(windows[i][1]) for i in chosen]), strict=True)

    def evaluate(
        self,
        items: Sequence[Item],
        *,
        quick: bool = False,  # noqa: ARG002
        samples: int = metrics.SAMPLES,
        **changes: Any,  # noqa: ARG002
    ) -> tuple[list[metrics.Score], list[str]]:
        """How many hidden words are found, and how surprising they are. The n-th item always hides the same ones."""
        encoded = self.vocabulary.encode_batch([source for source, _ in items])
        parts = [(n, k, part) for n, ids in enumerate(encoded) for k, part in enumerate(cut(ids, self.longest))]
        windows = [(part, self._fixed(1009 * n + k, part)) for n, k, part in parts]
        guesses, totals = [part for part, _ in windows], np.zeros((len(items), 4))
        for i, found in self.probabilities(windows):
            guesses[i], counts = self._compare(*windows[i], found)
            totals[parts[i][0]] += counts
        filled: list[list[int]] = [[] for _ in items]
        for (n, _, _), guess in zip(parts, guesses, strict=True):
            filled[n] += guess
        return hiding.scores(totals, self.rate, whole=self.whole, samples=samples), [
            self.vocabulary.decode(ids) for ids in filled
        ]

    def _fixed(self, number: int, ids: list[int]) -> list[int]:
        """Places that are hidden for an evaluation, whatever else was drawn before."""
        hidden = self._hide(enclosed([ids]), [len(ids)], torch.Generator().manual_seed(number))
        return (hidden[0].nonzero()[:, 0] - 1).tolist()

    def _compare(self, ids: list[int], places: list[int], found: Tensor) -> tuple[list[int], list[float]]:
        """The tokens with the best ones in the hidden places; how many words were found, words, tokens, and −log p."""
        truth, best = torch.tensor([ids[place] for place in places]), found.argmax(-1)
        names = self.words(enclosed([ids]))[0, 1:].tolist() if self.whole else range(len(ids))
        right: dict[int, bool] = {}
        guess = list(ids)
        for place, good, id in zip(places, (best == truth).tolist(), best.tolist(), strict=True):
            right[names[place]] = right.get(names[place], True) and good
            guess[place] = id
        surprise = -float(found.gather(1, truth[:, None]).double().sum())
        return guess, [sum(right.values()), len(right), len(places), surprise]

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:  # noqa: ARG002
        raise UserError("--by-length means nothing to a model that fills in hidden words: leave it out.")

    # ---- answers --------------------------------------------------------------------------------------------------

    def trial(self, text: str) -> str:
        """A text with a blank in place of the longest of its first words."""
        words = text.split()[:12]
        longest = max(words, key=len, default="")
        return " ".join("___" if place == words.index(longest) else word for place, word in enumerate(words))

    def refuse(self, text: str, changes: dict[str, Any]) -> None:
        if changes.get("n_best", 1) > 1:
            _refuse_several(self.parse(text))

    def parse(self, text: str) -> Blanked:
        return parse(text, self.vocabulary, self.mask)

    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:
        rows = [self.parse(text) for text in texts]
        return [row.filled(found[0][1]) for row, found in zip(rows, self.answers(rows, **changes), strict=True)]

    def answers(self, rows: Sequence[Blanked], n_best: int = 1, **_: Any) -> list[list[Found]]:
        """What stands in the blanks of each text: the n best where there is one, else the most certain, one by one."""
        if n_best == 1 or not any(row.blanks for row in rows):
            return [[found] for found in self.fill(rows)]
        for row in rows:
            _refuse_several(row)
        answers: list[list[Found]] = [[(0.0, [])] for _ in rows]
        windows = [(n, *near) for n, row in enumerate(rows) for near in self._near(row.ids, row.blanks)]
        for i, found in self.probabilities([(ids, places) for _, ids, places, _ in windows]):
            n = windows[i][0]
            allowed = self._allowed(rows[n], rows[n].blanks[0])
            best = found[0].masked_fill(~allowed, -math.inf).topk(min(n_best, int(allowed.sum())))
            pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            answers[n] = [(value, [self.candidates.texts[id]]) for value, id in pairs]
        return answers

    def fill(self, rows: Sequence[Blanked]) -> list[Found]:
        """Fill all blanks: of each text the one that is most certain, then the next with the first one known …"""
        ids, left = [list(row.ids) for row in rows], [list(row.blanks) for row in rows]
        scores: list[float] = [0.0 for _ in rows]
        while any(left):
            windows = [(n, *near) for n, blanks in enumerate(left) for near in self._near(ids[n], blanks)]
            best: dict[int, tuple[float, int, int]] = {}
            for i, found in self.probabilities([(some, places) for _, some, places, _ in windows]):
                n, _, places, start = windows[i]
                for place, row in zip(places, found, strict=True):
                    value, id = row.masked_fill(~self._allowed(rows[n], start + place), -math.inf).max(0)
                    best[n] = max(best.get(n, (-math.inf, 0, 0)), (float(value), -(start + place), int(id)))
            for n, (value, place, id) in best.items():
                ids[n][-place] = id
                left[n].remove(-place)
                scores[n] += value
        texts = self.candidates.texts
        return [
            (score, [texts[i[place]] for place in row.blanks]) for row, i, score in zip(rows, ids, scores, strict=True)
        ]

    def _near(self, ids: list[int], blanks: Sequence[int]) -> Iterator[tuple[list[int], list[int], int]]:
        """Parts of a row that fit the network, with the places of the blanks in them and where they start."""
        done = -1
        for blank in blanks:
            if blank > done:
                start = max(0, min(blank - self.longest // 2, len(ids) - self.longest))
                done = min(len(ids), start + self.longest) - 1
                yield ids[start : done + 1], [place - start for place in blanks if start <= place <= done], start

    def _allowed(self, row: Blanked, place: int) -> Tensor:
        return self.candidates.first if row.begins(place) else self.candidates.later

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:  # noqa: ARG002
        if shown.embeddings:
            yield from self._vectors(texts, shown)
            return
        rows = [self.parse(text) for text in texts]
        for text, row, found in zip(texts, rows, self.answers(rows, **changes), strict=True):
            if shown.as_json:
                answers = [{"text": row.filled(parts), "score": score, "words": parts} for score, parts in found]
                yield json.dumps({"source": text, "answers": answers}, ensure_ascii=False)
                continue
            for score, parts in found:
                yield (f"{score:.4f}\t" if shown.with_score else "") + (row.filled(parts) if row.blanks else text)
            for _ in range(changes.get("n_best", 1) - len(found)):  # so that each text has as many lines
                yield f"{-math.inf:.4f}\t" if shown.with_score else ""

    def _vectors(self, texts: Sequence[str], shown: Shown) -> Iterator[str]:
        for text, (words, vectors) in zip(texts, self.embeddings(texts), strict=True):
            whole = _rounded(vectors.mean(0)) if len(vectors) else []
            if shown.as_json:
                each = [{"word": word, "vector": _rounded(row)} for word, row in zip(words, vectors, strict=True)]
                yield json.dumps({"source": text, "embedding": whole, "words": each}, ensure_ascii=False)
            else:
                yield json.dumps(whole)

    @torch.no_grad()
    def embeddings(self, texts: Sequence[str]) -> list[tuple[list[str], NDArray[np.float32]]]:
        """For each text its words and their vectors (words, width): the mean of the last states of a word's tokens."""
        self.network.eval()
        rows = [self.parse(text) for text in texts]
        parts = [(n, part) for n, row in enumerate(rows) for part in cut(row.ids, self.longest)]
        found: list[Tensor] = [torch.empty(0)] * len(parts)
        order = sorted(range(len(parts)), key=lambda i: len(parts[i][1]))
        for chosen in by_budget(order, [len(part) + 2 for _, part in parts], BUDGET):
            states = self.network.states(enclosed([parts[i][1] for i in chosen]))
            for i, row in zip(chosen, states, strict=True):
                found[i] = row[1 : 1 + len(parts[i][1])]
        answers = []
        for n, row in enumerate(rows):
            states_of = [states.numpy() for (owner, _), states in zip(parts, found, strict=True) if owner == n]
            vectors = (
                merged(np.concatenate(states_of), row.groups, np.mean) if states_of else np.zeros((0, 0), np.float32)
            )
            answers.append((joined(row.pieces, row.groups), vectors))
        return answers

    # ---- looking --------------------------------------------------------------------------------------------------

    def _looked(self, text: str, answer: str | None) -> tuple[Blanked, NDArray[np.float32]]:
        """A text, and the weights (layers, heads, n + 2, n + 2) between START, its tokens and END."""
        row = self.parse(text)
        if answer is not None:
            raise UserError("--answer means nothing to a model that fills in hidden words: write it into the text.")
        if not row.ids or len(row.ids) > self.longest:
            raise UserError(
                f"The text {text[:30]!r} has {len(row.ids):,} tokens, expected 1 to {self.longest:,} (data.longest): "
                "show a part of it."
            )
        batch = self.hidden([(row.ids, row.blanks)])
        self.network.eval()
        with torch.no_grad(), watch(self.network) as seen:
            if row.blanks:
                self.network.looking(batch)
            else:
                self.network.states(batch.ids)
        weights = torch.stack([layer.weights[0] for layer in seen.values()])
        length = batch.ids.shape[1]
        if weights.shape[2] > length:  # a hidden place is looked from by the query stream
            weights[:, :, targets_of(batch.hidden)[0]] = weights[:, :, length:]
        return row, weights[:, :, :length].numpy()

    def example(self, text: str, answer: str | None) -> page.Example:
        row, weights = self._looked(text, answer)
        tokens = ["▶", *row.pieces, "■"]
        words = page.Words(joined(row.pieces, row.groups), row.groups).after("▶").then("■")
        maps = [page.Map("self-attention", "source", "source", weights)]
        merges = self.vocabulary.level in SUB_WORDS
        return page.Example(tokens, tokens, maps, text, {"source": words} if merges else {})

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:
        """The last layer's mean over heads, or all layers and heads, between whole words."""
        if grid:
            example = self.example(text, answer)
            return pictures.grid(*example.in_words(example.maps[0]))
        row, weights = self._looked(text, answer)
        groups = [0, *(group + 1 for group in row.groups), max(row.groups) + 2]
        mean = merged(weights[-1].mean(0), groups, np.mean)
        words = joined(row.pieces, row.groups)
        return pictures.alignment(merged(mean.T, groups, np.sum).T[1:-1], words, ["▶", *words, "■"])

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        windows = [(list(row[0]), self._fixed(n, list(row[0]))) for n, row in enumerate(rows)]
        batch = self.hidden(windows)
        logits = self.network(batch)
        wider = Batch(*(nn.functional.pad(part, (0, 5)) for part in batch))
        other = torch.where(batch.hidden, hiding.FIRST, batch.ids) if isinstance(self.network, Permuted) else batch.ids
        alone = torch.cat([self.network(self.hidden([window])) for window in windows if window[1]])
        every = torch.ones(len(logits), dtype=torch.bool)
        yield "padding: more of it changes nothing", invariance.difference(self.network(wider), logits, every)
        yield "batch: each row is the same alone", invariance.difference(alone, logits, every)
        changed = self.network(batch._replace(ids=other, truth=other))
        yield "hidden: what stands there changes nothing", invariance.difference(changed, logits, every)

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        lines = [text for text in seen.sources if text.strip()]
        level, why = choose_level(lines)
        if level == "bpe" and mostly_unspaced(lines):
            level, why = "characters", "The text is in a script without spaces: its words cannot be told apart."
        reasons = {"tokens.level": why}
        tokens: dict[str, Any] = {"level": level}
        sample = [word for line in lines for word in line.split()]
        words = round(len(sample) * seen.count / max(1, len(seen.sources)))
        if seen.level("level", level) in SUB_WORDS:
            most = 4_000 if words < 300_000 else 8_000 if words < 20_000_000 else 16_000
            tokens["size"] = min(most, max(300, len({part for line in lines for part in parts_of(line)})))
            reasons["tokens.size"] = f"{tokens['size']:,} sub-words: enough for {words:,} words to show each often"
        if 0.02 < 1 - len(lines) / max(1, len(seen.sources)) < 0.5:
            tokens["text"] = "paragraph"
            reasons["tokens.text"] = "empty lines set paragraphs apart: the lines of one belong together"
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
        return {"tokens": tokens, "model": model, "training": training, "data": {"longest": 128}}, reasons


def cut(ids: list[int], longest: int) -> list[list[int]]:
    """A long row as the fewest parts that fit, alike in length."""
    count = -(-len(ids) // longest)
    size = -(-len(ids) // max(1, count))
    return [ids[start : start + size] for start in range(0, len(ids), size)] if ids else []


def enclosed(rows: Sequence[Sequence[int]]) -> Tensor:
    """START, the tokens, END; padded."""
    return torch.from_numpy(pad([np.array([START, *row, END]) for row in rows]))


def _refuse_several(row: Blanked) -> None:
    if len(row.blanks) > 1:
        raise UserError(f"--n-best goes with one blank to a text, found {len(row.blanks)} in {row.text[:60]!r}.")


def _rounded(vector: NDArray[np.float32]) -> list[float]:
    return [round(float(x), 6) for x in vector]
