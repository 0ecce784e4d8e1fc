"""Tag: a label for every word (parts of speech, names, slots …), and which words each tag looked at."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad as widened

from regard import metrics, page, pictures
from regard.backbones.dropout import Dropout
from regard.config import Bert, Config, Section
from regard.data.batches import by_budget, pad
from regard.data.reading import Pair, split_words
from regard.data.tagged import NO_BREAK, SPAN_TAG
from regard.errors import UserError
from regard.inputs.tokens import Tokenizer
from regard.inputs.words import SPELLINGS, Words
from regard.models.places import place
from regard.outputs import names
from regard.outputs.crf import CRF
from regard.outputs.influence import influence
from regard.outputs.invariance import difference
from regard.outputs.readers import ENCLOSED, Recurrent, Transformer, limit, network
from regard.outputs.sentences import Sentence, Sentences
from regard.outputs.tagger import Batch, Choice, Independent, Tagger
from regard.outputs.task import LEARN_FROM, Item, Row, Shown, Survey, Task, Vocabularies
from regard.watching import watch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGET = 8192  # tokens answered at once
SHOWN = 200  # words that a picture can hold
CONFUSED = 40  # tags whose confusions can be taken in


class Tokens(Section):
    level: Literal["words", "bpe", "unigram"] = Field(
        "words", description="words with their characters, or sub-words of which the first speaks for its word"
    )
    lowercase: bool = Field(False, description="tokens in lower case; a word's characters keep theirs")
    size: int | None = Field(None, ge=5, description="largest number of words or sub-words of the vocabulary")
    unknown: float = Field(0.1, ge=0, lt=1, description="share of tokens made unknown in training")
    spelling: Literal["cnn", "lstm"] = Field("cnn", description="what reads a word's characters")
    spelling_width: int = Field(64, ge=2, le=65536, description="share of the width that tells of a word's characters")


class Output(Section):
    kind: Literal["softmax", "crf"] = Field("softmax", description="each tag by itself, or a chain of them (CRF)")


class Settings(Config):
    task: Literal["tag"] = Field("tag", description="what comes out: a tag for each word")
    tokens: Tokens = Tokens()
    model: Annotated[Recurrent | Transformer | Bert, Field(discriminator="kind")] = Recurrent()
    output: Output = Output()

    def parameters(self) -> int:
        return self.model.parameters() + (self.tokens.size or 200) * self.model.width


@dataclass(frozen=True)
class Answer:
    """The words of a text with their tags, the probability of each, and log p of all of them together."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    score: float


class Tag(Task):
    """Texts in, rows of tags out. A text of more than `most` tokens is tagged in parts."""

    settings = Settings
    reads = "tag"
    files = ("tokenizer.json", "characters.json", "tags.json")
    fields = ("tokens", "inside", "tags")
    does = "tags words"
    network: Tagger

    def __init__(self, network: Tagger, sentences: Sentences, tags: Tokenizer, *, most: int = 1024) -> None:
        self.network, self.sentences, self.most = network, sentences, most
        self.vocabularies = (sentences.tokens, sentences.characters, tags)
        self.tags = names.classes(tags, NO_BREAK)

    @classmethod
    def learn(cls, config: Settings, pairs: Callable[[], Iterator[Pair]]) -> Vocabularies:
        how = config.tokens
        level = "symbols" if how.level == "words" else how.level
        texts = (_closed(pair.source) for pair in islice(pairs(), LEARN_FROM))
        tokens = Tokenizer.train(texts, level, how.size, lowercase=how.lowercase)
        words = (word for pair in islice(pairs(), LEARN_FROM) for word in split_words(pair.source))
        characters = Tokenizer.train(words, "characters")
        return tokens, characters, names.learn(tag for pair in pairs() for tag in split_words(pair.target))

    @classmethod
    def design(cls, config: Settings, vocabularies: Vocabularies) -> Tagger:
        model, how, longest = config.model, config.tokens, config.data.longest
        tokens, characters, tags = vocabularies
        spelled = how.level == "words"
        if spelled and isinstance(model, Bert):
            raise ValueError("model.kind=bert reads sub-words: set tokens.level to bpe or unigram")
        embedding, backbone = network(model, 1 if spelled else tokens.size, longest)
        if spelled:  # in place of the table that the network would have
            where = place(model.position, longest, model.width) if isinstance(model, Transformer) else None
            spelling = SPELLINGS[how.spelling](characters.size, how.spelling_width, Dropout(model.dropout))
            embedding = Words(tokens.size, model.width, spelling, where, Dropout(model.dropout))
        classes = names.classes(tags, NO_BREAK)
        head = nn.Linear(model.width, max(1, len(classes)))
        choice: Choice = CRF.of(classes) if config.output.kind == "crf" else Independent()
        return Tagger(embedding, backbone, head, choice, dropout=model.dropout, forget=how.unknown)

    @classmethod
    def assemble(cls, config: Settings, vocabularies: Vocabularies, network: nn.Module) -> Tag:
        assert isinstance(network, Tagger)
        tokens, characters, tags = vocabularies
        sentences = Sentences(tokens, characters, enclosed=config.model.kind in ENCLOSED)
        return cls(network, sentences, tags, most=limit(config.model, config.data.longest))

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, pairs: Sequence[Pair]) -> Iterator[Row]:
        encoded = self.sentences.encode([split_words(pair.source) for pair in pairs])
        tags = self.vocabularies[2].encode_batch([_closed(pair.target) for pair in pairs])
        for pair, sentence, row in zip(pairs, encoded, tags, strict=True):
            if len(sentence.words) != len(row):
                raise UserError(
                    f"{pair.file}:{pair.line}: {len(sentence.words)} words have {len(row)} tags, expected one for each."
                )
            yield sentence.ids, sentence.inside, row

    def batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        tags = [np.array([names.class_of(id) for id in row[2]]) for row in rows]
        return self.sentences.batch([(row[0], row[1]) for row in rows], torch.from_numpy(pad(tags)))

    # ---- answers --------------------------------------------------------------------------------------------------

    def answer(self, texts: Sequence[str], **changes: Any) -> list[str]:  # noqa: ARG002
        return [" ".join(answer.tags) for answer in self.answers(texts)]

    @torch.no_grad()
    def answers(self, texts: Sequence[str]) -> list[Answer]:
        """The most probable tags of each text."""
        self.network.eval()
        given = self.sentences.encode([split_words(unicodedata.normalize("NFC", text)) for text in texts])
        parts = [(i, part) for i, sentence in enumerate(given) for part in self.sentences.parts(sentence, self.most)]
        found: list[Answer | None] = [None] * len(parts)
        order = sorted(range(len(parts)), key=lambda j: len(parts[j][1].ids))
        for chosen in by_budget(order, [len(part.ids) + 2 for _, part in parts], BUDGET):
            for j, answer in zip(chosen, self._tagged([parts[j][1] for j in chosen]), strict=True):
                found[j] = answer
        answers = [Answer([], [], [], 0.0) for _ in texts]
        for (i, _), part in zip(parts, found, strict=True):
            assert part is not None
            whole = answers[i]
            answers[i] = Answer(
                whole.words + part.words,
                whole.tags + part.tags,
                whole.probabilities + part.probabilities,
                whole.score + part.score,
            )
        return answers

    def _tagged(self, sentences: Sequence[Sentence]) -> Iterator[Answer]:
        """The answers to some sentences in one pass."""
        batch = self._unknown(sentences)
        scores, real = self.network(batch), batch.real
        best = self.network.choice.best(scores, real)
        shares = self.network.choice.probabilities(scores, real).gather(-1, best.unsqueeze(-1)).squeeze(-1)
        for i, sentence in enumerate(sentences):
            m = len(sentence.words)
            own = slice(i, i + 1), slice(0, m)
            lost = self.network.choice.loss(scores[own], best[own], real[own], 0.0)
            tags = [self.tags[c] for c in best[i, :m].tolist()]
            yield Answer(sentence.words, tags, shares[i, :m].tolist(), -float(lost))

    def _unknown(self, sentences: Sequence[Sentence]) -> Batch:
        """Sentences whose tags are still to be found."""
        most = max(len(sentence.words) for sentence in sentences)
        tags = torch.zeros(len(sentences), most, dtype=torch.long)
        return self.sentences.batch([(sentence.ids, sentence.inside) for sentence in sentences], tags)

    def lines(self, texts: Sequence[str], first: int, changes: dict[str, Any], shown: Shown) -> Iterator[str]:  # noqa: ARG002
        for text, answer in zip(texts, self.answers(texts), strict=True):
            if shown.as_json:
                shares = [round(share, 6) for share in answer.probabilities]
                item = {"source": text, "words": answer.words, "tags": answer.tags, "probabilities": shares}
                yield json.dumps(item | {"score": answer.score}, ensure_ascii=False)
                continue
            line = " ".join(f"{word}/{tag}" for word, tag in zip(answer.words, answer.tags, strict=True))
            yield f"{answer.score:.4f}\t{line}" if shown.with_score and answer.words else line

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        return metrics.evaluate(answers, [references for _, references in items], kind="tags", samples=samples)

    def details(self, items: Sequence[Item], answers: Sequence[str]) -> str:
        """What was taken for what, where tags are few enough to look at."""
        if len(self.tags) > CONFUSED:
            return ""
        found = metrics.single_tags(answers, [references for _, references in items])
        return metrics.render_confusion(*metrics.confusion(*found))

    # ---- looking --------------------------------------------------------------------------------------------------

    def example(self, text: str, answer: str | None) -> page.Example:
        sentence, tags = self._looked_at(text, answer)
        batch = self._unknown([sentence])
        with torch.no_grad(), watch(self.network) as seen:
            self.network(batch)
        maps = [
            page.Map(m.name, "target", "source", self.sentences.in_words(np.asarray(m.weights), sentence))
            for m in page.maps(seen, lambda _: ("source", "source"))
        ]
        if not maps:
            weights = self._influence(batch, tags, sentence)[None, None]
            maps = [page.Map("influence (by the gradient)", "target", "source", weights)]
        return page.Example(self.sentences.shown(sentence), tags, maps, text)

    def picture(self, text: str, answer: str | None, *, grid: bool) -> Figure:
        example = self.example(text, answer)
        weights = np.asarray(example.maps[0].weights)
        words = (
            [word for word in example.source if word not in ("▶", "■")] if self.sentences.enclosed else example.source
        )
        rows = [f"{word}/{tag}" for word, tag in zip(words, example.target, strict=True)]
        if grid:
            return pictures.grid(weights, rows, example.source)
        title = "which words each tag looked at" if attended(example) else "which words each tag depends on (gradient)"
        return pictures.alignment(weights[-1].mean(0), rows, example.source, title)

    def _influence(self, batch: Batch, tags: Sequence[str], sentence: Sentence) -> NDArray[np.float32]:
        """How much the score of each word's tag depends on each word."""
        self.network.eval()
        with torch.enable_grad():
            x = self.network.embed(batch).detach().requires_grad_()
            scores = self.network.scores(x, batch)[0]
            wanted = torch.tensor([self.tags.index(tag) for tag in tags])
            found = influence(scores.gather(-1, wanted.unsqueeze(-1)).squeeze(-1), x)
        return self.sentences.columns(found, sentence)

    def _looked_at(self, text: str, answer: str | None) -> tuple[Sentence, list[str]]:
        """One sentence, and the tags to look at: the model's own, or the given ones."""
        (sentence,) = self.sentences.encode([split_words(unicodedata.normalize("NFC", text))])
        if not sentence.words:
            raise UserError(f"The text {text!r} is empty: there is nothing to look at.")
        if len(sentence.words) > SHOWN or len(sentence.ids) > self.most:
            raise UserError(
                f"The text is too long to show: {len(sentence.words):,} words, expected at most {SHOWN:,} "
                f"and {self.most:,} tokens."
            )
        tags = self.answers([text])[0].tags if answer is None else split_words(answer)
        if len(tags) != len(sentence.words):
            raise UserError(f"--answer has {len(tags)} tags, expected one for each of {len(sentence.words)} words.")
        for tag in tags:
            if tag not in self.tags:
                known = ", ".join(self.tags[:8]) + (" …" if len(self.tags) > 8 else "")
                raise UserError(f"--answer holds {tag!r}, which is no tag of this model, expected some of {known}.")
        return sentence, tags

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        rows = [row for row in rows if len(row[0]) <= self.most] or rows[:1]
        batch = self.batch(rows)
        together, real = self.network(batch), batch.real
        wider = batch._replace(ids=widened(batch.ids, (0, 5)), more=_wider(batch.more))
        other = self.network(wider)[:, : together.shape[1]]
        yield "padding: more of it changes nothing", difference(together, other, real)
        alone = torch.zeros_like(together)
        for i, row in enumerate(rows):
            own = self.network(self.batch([row]))[0]
            alone[i, : len(own)] = own
        yield "batch: each row is the same alone", difference(together, alone, real)

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
        counts = Counter(word for text in seen.sources for word in split_words(text.lower()))
        size = max(300, min(50_000, sum(count > 1 for count in counts.values()) + names.FIRST))
        tags = {tag for text in seen.targets for tag in split_words(text)}
        spans = all(SPAN_TAG.fullmatch(tag) for tag in tags)
        few = seen.count < 5_000
        model = {
            "kind": "recurrent",
            "layers": 1 if few else 2,
            "width": 256,
            "heads": 4,
            "dropout": 0.5 if few else 0.4,
        }
        reasons = {
            "tokens.size": f"{size:,} words: about those seen twice or more; of the others the characters tell",
            "tokens.unknown": "some words are unknown at random in training, so that their characters are learned from",
            "model.kind": "an LSTM both ways, with self-attention over its states: good at tags from scratch",
            "model.width": f"{seen.count:,} sentences and {len(tags)} tags: {model['layers']} layers of 256",
            "output.kind": "the tags are spans (B-, I-, O): a chain keeps them whole"
            if spans
            else "each tag is chosen by itself: they follow no strict order",
        }
        tokens = {"level": "words", "lowercase": True, "size": size, "unknown": 0.2 if few else 0.1}
        if seen.level("level", "words") != "words":
            tokens["size"] = None
            del reasons["tokens.size"]
        training = {"budget": 4096, "rate": 2e-3, "warmup": 200}
        output = {"kind": "crf" if spans else "softmax"}
        return {"tokens": tokens, "model": model, "output": output, "training": training}, reasons


def attended(example: page.Example) -> bool:
    return not example.maps[0].name.startswith("influence")


def _closed(text: str) -> str:
    """Words joined by blanks, with no blank inside of a word."""
    return " ".join(map(names.closed, split_words(text)))


def _wider(more: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(widened(each, (0, 5)) for each in more)
