"""Classify: one label for a whole text (sentiment, intent, topic, language …), and which words decided."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard import metrics, page, pictures
from regard.config import Bert, Config, Level, Section
from regard.data.batches import by_budget, pad
from regard.data.reading import Pair
from regard.errors import UserError
from regard.inputs.embedding import positions_of
from regard.inputs.scripts import mostly_unspaced
from regard.inputs.tokens import END, START, SUB_WORDS, Tokenizer, choose_level
from regard.outputs import names
from regard.outputs.aligning import joined, merged
from regard.outputs.classifier import Batch, Classifier, Place, pool
from regard.outputs.influence import influence
from regard.outputs.invariance import difference
from regard.outputs.readers import ENCLOSED, DeepSets, Gpt, Recurrent, Transformer, limit, network
from regard.outputs.task import LEARN_FROM, Item, Row, Shown, Survey, Task, Vocabularies
from regard.watching import attentions, watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGET = 8192  # tokens answered at once
SHOWN = 500  # tokens that a picture can hold
Kind = Annotated[Recurrent | Transformer | DeepSets | Bert | Gpt, Field(discriminator="kind")]


class Tokens(Section):
    level: Level = Field("words", description="what a token is")
    lowercase: bool = Field(False, description="in lower case")
    size: int | None = Field(None, ge=5, description="largest number of tokens of the vocabulary (sub-words and words)")
    unknown: float = Field(0.1, ge=0, lt=1, description="share of tokens made unknown in training")


class Output(Section):
    pooling: Literal["attention", "mean", "sum", "first", "last"] = Field(
        "attention", description="how states become one: attention, mean, sum, or the first or last state alone"
    )


class Settings(Config):
    task: Literal["classify"] = Field("classify", description="what comes out: one label")
    tokens: Tokens = Tokens()
    model: Kind = Recurrent()
    output: Output = Output()

    def parameters(self) -> int:
        return self.model.parameters() + (self.tokens.size or 200) * self.model.width

    @property
    def enclosed(self) -> bool:
        """Whether rows are read as START, the tokens, END."""
        return self.model.kind in ENCLOSED or self.output.pooling in ("first", "last")


class Classify(Task):
    """Texts in, labels out. A text of more than `most` tokens is read in parts, whose probabilities are averaged."""

    settings = Settings
    reads = "classify"
    files = ("tokenizer.json", "labels.json")
    fields = ("text", "label")
    does = "labels texts"
    network: Classifier
    others: tuple[Classify, ...] = ()  # models that answer together with this one

    def __init__(
        self, network: Classifier, source: Tokenizer, labels: Tokenizer, *, enclosed: bool = False, most: int = 1024
    ) -> None:
        self.network, self.source = network, source
        self.vocabularies, self.labels = (source, labels), names.classes(labels)
        self.enclosed, self.most = enclosed, most

    @classmethod
    def learn(cls, config: Settings, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        tokens = config.tokens
        texts = (pair.source for pair in islice(pairs(), LEARN_FROM))
        source = Tokenizer.train(texts, tokens.level, tokens.size, lowercase=tokens.lowercase)
        return source, names.learn(pair.target for pair in pairs())

    @classmethod
    def design(cls, config: Settings, vocabularies: Vocabularies) -> Classifier:
        model, pooling = config.model, config.output.pooling
        _refuse_blind(model, pooling)
        source, labels = vocabularies
        embedding, backbone = network(model, source.size, config.data.longest)
        head = nn.Linear(model.width, max(1, labels.size - names.FIRST))
        return Classifier(
            embedding,
            backbone,
            pool(pooling, model.width),
            head,
            dropout=model.dropout,
            forget=config.tokens.unknown,
            language=model.language if isinstance(model, Gpt) else 0.0,
        )

    @classmethod
    def assemble(cls, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> Classify:
        assert isinstance(network, Classifier)
        most = limit(config.model, config.data.longest)
        return cls(network, *vocabularies, enclosed=config.enclosed, most=most)

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, pairs: Sequence[Pair]) -> Iterable[Row]:
        ids = self.source.encode_batch([pair.source for pair in pairs])
        labels = self.vocabularies[1].encode_batch([names.closed(pair.target) for pair in pairs])
        return zip(ids, labels, strict=True)

    def batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        labels = [names.class_of(row[1][0]) for row in rows]
        return Batch(self._ids([row[0] for row in rows]), torch.tensor(labels))

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        arrays = [np.asarray([START, *row, END] if self.enclosed else row) for row in rows]
        return torch.from_numpy(pad(arrays))

    # ---- answers --------------------------------------------------------------------------------------------------

    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:  # noqa: ARG002
        found = self.probabilities(texts)
        return ["" if row is None else self.labels[int(row.argmax())] for row in found]

    def join(self, others: Sequence[Task], names: Sequence[str]) -> None:
        """Answer by the mean of what all say; what decided is shown of this one."""
        joined = []
        for other, name in zip(others, names, strict=True):
            if not isinstance(other, Classify):
                raise UserError(f"{name} {other.does}: --with joins it with models that do the same.")
            if other.labels != self.labels:
                raise UserError(f"{name} has other labels: models answer together that choose from the same ones.")
            joined.append(other)
        self.others = tuple(joined)

    def probabilities(self, texts: Sequence[str]) -> list[NDArray[np.float64] | None]:
        """The probability of each label for each text, in the order of `labels`; None for an empty text."""
        each = zip(*(task._own(texts) for task in (self, *self.others)), strict=True)
        return [None if row[0] is None else np.mean([found for found in row if found is not None], 0) for row in each]

    @torch.no_grad()
    def _own(self, texts: Sequence[str]) -> list[NDArray[np.float64] | None]:
        self.network.eval()
        parts = [(i, part) for i, row in enumerate(self.encoded(texts)) for part in _parts(row, self.most)]
        sums = np.zeros((len(texts), len(self.labels)))
        counts = np.zeros(len(texts))
        order = sorted(range(len(parts)), key=lambda j: len(parts[j][1]))
        for chosen in by_budget(order, [len(part) + 2 for _, part in parts], BUDGET):
            ids = self._ids([parts[j][1] for j in chosen])
            logits = self.network(Batch(ids, torch.zeros(len(chosen), dtype=torch.long)))
            for j, found in zip(chosen, logits.double().softmax(-1).numpy(), strict=True):
                sums[parts[j][0]] += found
                counts[parts[j][0]] += 1
        return [row / count if count else None for row, count in zip(sums, counts, strict=True)]

    def encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return self.source.encode_batch([text.strip() for text in texts])

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:  # noqa: ARG002
        for text, found in zip(texts, self.probabilities(texts), strict=True):
            best = None if found is None else int(found.argmax())
            label = "" if best is None else self.labels[best]
            if shown.as_json:
                named = {} if found is None else dict(zip(self.labels, map(_rounded, found), strict=True))
                ordered = dict(sorted(named.items(), key=lambda item: -item[1]))
                yield json.dumps({"source": text, "label": label, "probabilities": ordered}, ensure_ascii=False)
            elif shown.with_score and found is not None:
                yield f"{found[best]:.4f}\t{label}"
            else:
                yield label

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        return metrics.evaluate(answers, _references(items), kind="labels", samples=samples)

    def details(self, items: Sequence[Item], answers: Sequence[str]) -> str:
        return metrics.render_confusion(*metrics.confusion(answers, _references(items)))

    # ---- looking --------------------------------------------------------------------------------------------------

    def example(self, text: str, answer: str | None) -> page.Example:
        ids, label = self._looked_at(text, answer)
        with torch.no_grad(), watch(self.network) as seen:
            self.network(Batch(ids, torch.tensor([label])))
        maps = page.maps({name: layer for name, layer in seen.items() if layer.calls}, _sides)
        if not any(m.rows == "target" for m in maps):
            weights = self._influence(ids, label)[None, None, None]
            maps.insert(0, page.Map("influence (by the gradient)", "target", "source", weights))
        tokens, words = self._tokens(text), dict[page.Side, page.Words]()
        if self.source.level in SUB_WORDS and not self.enclosed:
            groups = self.source.groups(text)
            words = {"source": page.Words(joined(tokens, groups), groups)}
        return page.Example(tokens, [self.labels[label]], maps, text, words)

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:
        if grid:
            example = self.example(text, answer)
            drawn = next((m for m in example.maps if m.rows == "source"), example.maps[0])
            return pictures.grid(*example.in_words(drawn))
        ids, label = self._looked_at(text, answer)
        weights, what = self._decided(ids, label)
        tokens = self._tokens(text)
        if self.source.level in SUB_WORDS and not self.enclosed:
            groups = self.source.groups(text)
            weights, tokens = merged(weights[:, None], groups, np.sum)[:, 0], joined(tokens, groups)
        found = self.probabilities([text])[0]
        assert found is not None
        return pictures.strip(weights, tokens, f"{self.labels[label]}  ({100 * found[label]:.0f} %)", what)

    @torch.no_grad()
    def _decided(self, ids: Tensor, label: int) -> tuple[NDArray[np.float32], str]:
        """How much each token had to do with the label, and how that was found out.

        The weights of content attention; those of the last layer where one state stands for all; else the gradient.
        """
        inside = [name for name in attentions(self.network) if name.startswith("backbone")]
        looks = self.network.pool
        wanted = None
        if not isinstance(looks, Place) and looks.query is not None:
            wanted, row = "pool.glimpse", 0
        elif isinstance(looks, Place) and inside:
            wanted, row = inside[-1], ids.shape[1] - 1 if looks.last else 0
        if wanted is None:
            return self._influence(ids, label), "influence: size of the gradient"
        with watch(self.network, wanted) as seen:
            self.network(Batch(ids, torch.tensor([label])))
        weights: NDArray[np.float32] = seen[wanted].weights[0].mean(0)[row].numpy()
        return weights, "attention weight"

    def _influence(self, ids: Tensor, label: int) -> NDArray[np.float32]:
        self.network.eval()
        with torch.enable_grad():
            positions = positions_of(ids)
            x = self.network.embed(ids).detach().requires_grad_()
            logits = self.network.logits(self.network.states(x, positions), positions)
            found: NDArray[np.float32] = influence(logits[0, label : label + 1], x)[0]
        return found

    def _looked_at(self, text: str, answer: str | None) -> tuple[Tensor, int]:
        """The ids of one text, and the class to look at: the model's own, or the given one."""
        (row,) = self.encoded([text])
        if not row:
            raise UserError(f"The text {text!r} is empty: there is nothing to look at.")
        if len(row) > min(self.most, SHOWN):
            raise UserError(
                f"The text is too long to show: {len(row):,} tokens, expected at most {min(self.most, SHOWN):,}."
            )
        label = self.answer([text])[0] if answer is None else answer.strip()
        if label not in self.labels:
            known = ", ".join(self.labels[:8]) + (" …" if len(self.labels) > 8 else "")
            raise UserError(f"--answer is {label!r}, which is no label of this model, expected one of {known}.")
        return self._ids([row]), self.labels.index(label)

    def _tokens(self, text: str) -> list[str]:
        pieces = self.source.pieces(text.strip())
        return ["▶", *pieces, "■"] if self.enclosed else pieces

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        rows = [row for row in rows if len(row[0]) <= self.most] or rows[:1]
        batch = self.batch(rows)
        together = self.network(batch)
        real = torch.ones(len(together), 1, dtype=torch.bool)

        def compare(name: str, other: Tensor) -> tuple[str, float]:
            return name, difference(together[:, None], other[:, None], real)

        yield compare(
            "padding: more of it changes nothing", self.network(Batch(widened(batch.ids, (0, 5)), batch.labels))
        )
        alone = torch.cat([self.network(self.batch([row])) for row in rows])
        yield compare("batch: each row is the same alone", alone)
        if type(self.network.backbone).__name__ == "Each":
            turned = self.batch([(list(row[0])[::-1], row[1]) for row in rows])
            yield compare("order: turning a text round changes nothing", self.network(turned))

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        tokens, reasons = _tokens(seen)
        few = seen.count < 20_000
        long = sorted(len(text.split()) for text in seen.sources)[len(seen.sources) // 2] > 100
        model: dict[str, Any] = {"kind": "recurrent", "width": 128 if few else 256, "dropout": 0.5 if few else 0.3}
        if long:
            model = {"kind": "deepsets", "width": 256, "dropout": 0.5}
        kinds = len(set(seen.targets))
        reasons |= {
            "model.kind": "half of the texts have more than 100 words: each word alone says enough, and is read fast"
            if long
            else "an LSTM learns labels of short texts from few examples better than a Transformer",
            "model.width": f"{seen.count:,} texts, {kinds} labels: width {model['width']}",
            "model.dropout": f"{seen.count:,} texts are {'few: much' if few else 'many: less'} is dropped in training",
            "output.pooling": "a learned query weighs the words, so that `regard show` tells which ones decided",
        }
        training = {"budget": 1024 if few else 4096, "rate": 1e-3, "warmup": 100}
        longest = 2 * max(128, max(map(len, seen.sources)) if tokens["level"] == "characters" else 256)
        sections = {"tokens": tokens, "model": model, "training": training}
        return sections | {"data": {"longest": min(longest, 2048)}}, reasons


def _refuse_blind(model: Section, pooling: str) -> None:
    """A label that would come from one mark alone, because the network does not look from there at the text."""
    if isinstance(model, DeepSets) and pooling in ("first", "last"):
        fitting, why = "attention, mean or sum", "looks at each token alone"
    elif isinstance(model, Gpt) and pooling == "first":
        fitting, why = "last, attention, mean or sum", "only looks back"
    else:
        return
    raise ValueError(
        f"model.kind={getattr(model, 'kind', '')} {why}, so output.pooling={pooling} would see nothing of a text, "
        f"expected {fitting}"
    )


def _references(items: Sequence[Item]) -> list[list[str]]:
    return [[names.opened(names.closed(label)) for label in labels] for _, labels in items]


def _rounded(value: float) -> float:
    return round(float(value), 6)


def _parts(row: list[int], most: int) -> list[list[int]]:
    """A row that is too long, in parts of about equal length; none of an empty one."""
    count = -(-len(row) // most)
    return [row[i * len(row) // count : (i + 1) * len(row) // count] for i in range(count)]


def _sides(name: str) -> tuple[page.Side, page.Side]:
    return ("target", "source") if name.startswith("pool") else ("source", "source")


def _tokens(seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    level, why = choose_level(seen.sources)
    if level == "bpe" and mostly_unspaced(seen.sources):
        level, why = "characters", "The texts are in a script without spaces: their words cannot be told apart."
    if level != "bpe":
        return {"level": level, "unknown": 0.0 if level == "characters" else 0.1}, {"tokens.level": why}
    if (used := seen.level("level", "words")) != "words":
        return {"level": "words", "lowercase": True, "unknown": 0.0 if used == "characters" else 0.1}, {}
    counts = Counter(word for text in seen.sources for word in text.lower().split())
    size = max(300, min(30_000, sum(count > 1 for count in counts.values())))
    return {"level": "words", "lowercase": True, "size": size, "unknown": 0.1}, {
        "tokens.level": f"{why} Whole words are labelled best from scratch",
        "tokens.size": f"{size:,} words: about those seen twice or more; the others teach what an unknown word is",
        "tokens.unknown": "some words are unknown at random in training, so that no single one is relied on",
    }
