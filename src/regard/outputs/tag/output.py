"""Tag: a label for every unit of the input (parts of speech, names, slots …), and what each tag looked at."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import tee
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field as Setting

from regard import metrics
from regard.config import Config, Section
from regard.data.example import Example
from regard.data.intervals import UNLABELLED
from regard.data.store import Field
from regard.data.survey import Survey
from regard.data.tagged import NO_BREAK, split_words
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Chosen, Input, Row, Source, Use
from regard.inspection import page
from regard.inspection.page import Exhibit
from regard.inspection.scenes import refuse_crowd, sketch
from regard.inspection.sound import SoundView, runs
from regard.inspection.view import Drawing, View, refuse_unseeable
from regard.layers.crf import CRF
from regard.models.encoders import encoder_of
from regard.models.settings import (
    AlongEdges,
    BertKind,
    ConformerKind,
    ConvolutionEncoderKind,
    DeepSetsKind,
    PyramidKind,
    RecurrentEncoderKind,
    TransformerEncoderKind,
    WindowKind,
)
from regard.network import Network
from regard.outputs.abilities import Believes, Chooses, Details, Guesses
from regard.outputs.documents import are_documents, document_network, tokens_of
from regard.outputs.output import Held, Item, Lines, Looked, Supervised, halves, paired
from regard.outputs.tag.head import Choice, Independent, Tagged, TagHead
from regard.text import labels
from regard.text.classes import Classes
from regard.text.spans import is_span_tag

SHOWN = 200  # units that a picture can hold
CHUNK = 3000  # units that are read at once, where what is further away changes nothing
FRAMES = 3000  # of a recording that a picture can hold
CONFUSED = 40  # tags whose confusions can be taken in


class ChoiceSettings(Section):
    """Settings of the choice of tags."""

    kind: Literal["softmax", "crf"] = Setting("softmax", description="each tag by itself, or a chain of them (CRF)")
    metric: Literal["auto", "segments"] = Setting(
        "auto", description="auto: tags and spans; segments: labels of frames"
    )


class TagSettings(Config):
    """All settings of a model that tags."""

    task: Literal["tag"] = Setting("tag", description="what comes out: a tag for each word")
    model: Annotated[
        RecurrentEncoderKind
        | TransformerEncoderKind
        | ConformerKind
        | PyramidKind
        | WindowKind
        | ConvolutionEncoderKind
        | BertKind
        | DeepSetsKind
        | AlongEdges,
        Setting(discriminator="kind"),
    ] = RecurrentEncoderKind()
    output: ChoiceSettings = ChoiceSettings()


@dataclass(frozen=True)
class Tagging:
    """The units of an input with their tags, the probability of each, and log p of all of them together."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    score: float
    listed: bool = False  # each unit stands on a line of its own

    def __add__(self, other: Tagging) -> Tagging:
        """Join the taggings of two parts."""
        words, tags = self.words + other.words, self.tags + other.tags
        return Tagging(words, tags, self.probabilities + other.probabilities, self.score + other.score)


class Tag(Supervised[Tagging], Chooses, Details, Believes, Guesses):
    """Rows of tags out. A row that is too long is tagged in parts."""

    does, reads = "tags parts of", "tag"
    settings = TagSettings
    use = Use.UNITS
    needs: ClassVar[frozenset[str]] = frozenset(("units to label",))
    files: ClassVar[tuple[str, ...]] = ("tags.json",)
    fields = (Field("tags", "<u2"), Field("labelled", "<u4", tokens=0))  # units that have a tag; none: all
    blank = NO_BREAK

    def __init__(self, classes: Classes, metric: str = "auto") -> None:
        self.classes, self.metric = classes, metric

    @staticmethod
    def names(target: str) -> list[str]:
        return [tag for tag in split_words(target) if tag != UNLABELLED]

    @classmethod
    def made(cls, config: TagSettings, input: Input[Any], learned: Classes) -> Self:
        del input
        return cls(learned, config.output.metric)

    def network(self, config: TagSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        model = config.model
        stem, backbone = encoder_of(model, config.data.longest)
        input = input.marked(stem.marks)
        choice: Choice = CRF.of(self.classes.names) if config.output.kind == "crf" else Independent()
        smoothing = config.training.smoothing
        dropout = model.dropout if model.drops_last else 0.0
        head = TagHead(model.width, len(self.classes), choice, dropout=dropout, smoothing=smoothing)
        if not model.drops_last:  # the head's matrix is the last of the network's own, and begins as these do
            torch.nn.init.xavier_uniform_(head.output.weight)
            torch.nn.init.zeros_(head.output.bias)
        return input, Network(input.module(stem), backbone, head)

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, str]]) -> Iterator[Row]:
        def targets(some: Sequence[Example[Any, str]]) -> Iterator[Row]:
            tags = [[*map(labels.closed, split_words(example.target))] for example in some]
            known = [[tag for tag in row if tag != UNLABELLED] for row in tags]
            for row, classes in zip(tags, self.classes.encode(" ".join(names) for names in known), strict=True):
                where = [i for i, tag in enumerate(row) if tag != UNLABELLED] if len(classes) < len(row) else []
                yield classes, where

        several, others = tee(examples)
        for row, example in zip(paired(input, targets, several), others, strict=True):
            units, tags = input.units(row), len(split_words(example.target))
            if units != tags:
                raise UserError(
                    f"{example.file}:{example.line}: {units} words have {tags} tags, expected one for each."
                )
            yield row

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        return (float(counts[:, -2].sum()),)

    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Tagged:
        """Return the classes of units, (batch, m), and where there are some."""
        del extra
        real = source.real.clone()
        classes = torch.zeros(real.shape, dtype=torch.long)
        for i, (names, where) in enumerate(rows):
            found = torch.from_numpy(np.asarray(names, dtype=np.int64))[: real.shape[1]]
            if not len(where):
                classes[i, : len(found)] = found
                continue
            places = torch.from_numpy(np.asarray(where, dtype=np.int64))
            classes[i, places] = found
            labelled = torch.zeros_like(real[i])
            labelled[places] = True
            real[i] &= labelled
        return Tagged(classes, real)

    def row(self, answer: Tagging) -> Row:
        return [self.classes.names.index(tag) for tag in answer.tags], []

    # ---- answers --------------------------------------------------------------------------------------------------

    def answers(self, passes: Passes, sources: Sequence[Any], how: Any, first: int = 0) -> list[Tagging]:
        del how, first
        found = self.tagged(passes, passes.input.encode(sources))
        views = [passes.input.view(source) for source in sources]
        return [replace(one, words=v.unit_names(), listed=v.listed) for one, v in zip(found, views, strict=True)]

    def held_answers(self, passes: Passes, held: Held, how: Any, *, quick: bool) -> list[Tagging]:
        del how, quick
        return self.tagged(passes, halves(passes.input, held.rows)[0])

    def tagged(self, passes: Passes, rows: Sequence[Row]) -> list[Tagging]:
        """Return the most probable tags of each row."""

        def work(source: Source, numbers: list[int]) -> Iterator[Tagging]:
            return self._tag(passes.network, source, len(numbers))

        assert isinstance(passes.network.head, TagHead)
        chunked = passes.network.reach is not None and isinstance(passes.network.head.choice, Independent)
        long = [i for i, row in enumerate(rows) if chunked and len(row[0]) > CHUNK]
        short = [row if i not in long else tuple(field[:0] for field in row) for i, row in enumerate(rows)]
        parts = passes.in_parts(short, work)
        for i in long:
            parts[i] = list(self._in_chunks(passes, rows[i]))
        return [sum(some, Tagging([], [], [], 0.0)) for some in parts]

    @torch.no_grad()
    def _in_chunks(self, passes: Passes, row: Row) -> Iterator[Tagging]:
        """Yield the tags of a long recording chunk by chunk, in the memory of one: those of the whole."""
        passes.network.eval()
        for source, own in passes.in_chunks(row, CHUNK):
            logs = passes.network.scores(Batch(source, None))[0, own].log_softmax(-1)
            best, place = logs.max(-1)
            tags = [self.classes.names[c] for c in place.tolist()]
            yield Tagging([], tags, best.exp().tolist(), float(best.sum()))

    def _tag(self, network: Network, source: Source, count: int) -> Iterator[Tagging]:
        head = network.head
        assert isinstance(head, TagHead)
        scores, real = network.scores(Batch(source, None)), source.real
        best = head.choice.best(scores, real)
        shares = head.choice.probabilities(scores, real).gather(-1, best.unsqueeze(-1)).squeeze(-1)
        for i in range(count):
            m = int(real[i].sum())
            own = slice(i, i + 1), slice(0, m)
            lost = head.choice.loss(scores[own], best[own], real[own], 0.0)
            tags = [self.classes.names[c] for c in best[i, :m].tolist()]
            yield Tagging([], tags, shares[i, :m].tolist(), -float(lost))

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Tagging) -> NDArray[np.float64]:
        """Return the probability of each tag of an answer, whatever the others are."""
        head, found = passes.network.head, []
        assert isinstance(head, TagHead)
        for source in sources:  # which are as long as each other, but graphs are not laid side by side
            batch = self.known(passes, [source], [answer])
            shares = head.choice.probabilities(passes.scores(batch), batch.source.real.to(passes.network.device))
            classes = batch.target.classes.to(shares.device).clamp(min=0).unsqueeze(-1)
            found.append(shares.gather(-1, classes)[0, :, 0].double().cpu())
        return np.asarray(torch.stack(found))

    def as_target(self, answer: Tagging) -> str:
        return " ".join(answer.tags)

    def as_text(self, answer: Tagging) -> Lines:
        if self.metric == "segments" and answer.words:
            return [(answer.score, " ".join(f"{label}@{a}-{b}" for a, b, label in _stretches(answer)))]
        if answer.listed:
            units = zip(answer.words, answer.tags, answer.probabilities, strict=True)
            return [(math.log(max(share, 1e-300)), f"{word}\t{tag}") for word, tag, share in units]
        line = " ".join(f"{word}/{tag}" for word, tag in zip(answer.words, answer.tags, strict=True))
        return [(answer.score if answer.words else None, line)]

    def as_json(self, answer: Tagging) -> dict[str, Any]:
        shares = [round(share, 6) for share in answer.probabilities]
        found = {"words": answer.words, "tags": answer.tags, "probabilities": shares, "score": answer.score}
        return found | {"segments": _stretches(answer)} if self.metric == "segments" else found

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        kind: metrics.Kind = "segments" if self.metric == "segments" else "tags"
        found, expected = _labelled(answers, items)
        if len(items) == 1 and kind == "tags":  # there is one row: its units are drawn in its place
            tags = zip(split_words(found[0]), split_words(expected[0][0]), strict=True)
            rows = [(own, [right]) for own, right in tags]
            found, expected = [own for own, _ in rows], [right for _, right in rows]
        return metrics.evaluate(found, expected, kind=kind, samples=samples)

    def guessed(
        self, passes: Passes, examples: Sequence[Example[Any, str]], held: Held, samples: int
    ) -> tuple[str, list[metrics.Score]]:
        """The most frequent tag of each word, where units are words; of all units for others and unknown words."""
        spoken = passes.input.alphabet is not None

        def units(example: Example[Any, str]) -> list[str]:
            tags = split_words(example.target)
            return passes.input.view(example.source).unit_names() if spoken else [""] * len(tags)

        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for example in examples:
            for word, tag in zip(units(example), split_words(example.target), strict=True):
                if tag != UNLABELLED:
                    counts[word][tag] += 1
        overall = sum(counts.values(), Counter()).most_common(1)[0][0]
        best = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
        answers = [" ".join(best.get(word, overall) for word in units(item.example)) for item in held.items]
        return "unigram" if spoken else "majority", self.score(held.items, answers, samples)

    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:  # noqa: ARG002
        """Return the confusion matrix, where tags are few enough to look at."""
        if len(self.classes) > CONFUSED:
            return ""
        found = metrics.single_tags(*_labelled(answers, items))
        return metrics.render_confusion(*metrics.confusion(*found))

    # ---- looking --------------------------------------------------------------------------------------------------

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Tagging:
        view = passes.input.view(source)
        words = view.unit_names()
        if view.scene is None:
            most = SHOWN if view.sound is None else FRAMES
            refuse_unseeable(passes.input.text(source), len(words), most, "words")
            refuse_unseeable(passes.input.text(source), len(view.names), passes.most)
        else:
            refuse_crowd(view, passes.input.text(source))
        if answer is None:
            return self.answers(passes, [source], self.how)[0]
        tags = split_words(answer)
        if len(tags) != len(words):
            raise UserError(f"--answer has {len(tags)} tags, expected one for each of {len(words)} words.")
        for tag in tags:
            self.classes.number(tag, "tag", "holds", "some of")
        return Tagging(words, tags, [], 0.0)

    def exhibit(self, passes: Passes, source: Any, answer: Tagging, looked: Looked) -> Exhibit:
        view, batch = passes.input.view(source), looked.batch
        if view.scene is not None:
            found = page.maps(looked.seen, lambda _: ("source", "source"))
            return _sketched(view, answer, found, passes.input.text(source))
        rows = np.asarray(range(len(view.names)) if view.units is None else view.units)
        maps = []
        for m in page.maps(looked.seen, lambda _: ("source", "source")):
            weights = np.asarray(m.weights)[..., rows, :]
            weights = weights if m.columns == "projected" else view.columns(weights)
            maps.append(page.Map(m.name, "target", m.columns, weights))
        title = "which words each tag looked at"
        if not maps:
            maps = [page.influence(view.columns(passes.influence(batch, batch.target.classes[0])))]
            title = "which words each tag depends on (gradient)"
        if view.sound is not None:
            return self._segments(view, view.sound, answer, maps, passes.input.text(source))
        weights = np.asarray(maps[0].weights)
        names = [f"{word}/{tag}" for word, tag in zip(answer.words, answer.tags, strict=True)]
        columns = view.shown
        if maps[0].columns == "projected":
            columns, title = page.projected_names(weights.shape[-1]), "which mixtures of all words each tag looked at"
        drawing = Drawing(weights[-1].mean(0), columns, names, title, heads=(weights, names, columns))
        return Exhibit(view.shown, answer.tags, maps, passes.input.text(source), drawing=drawing)

    def _segments(self, view: View, sound: SoundView, answer: Tagging, maps: Sequence[page.Map], text: str) -> Exhibit:
        """Return what a recording's segments looked at: frames in a row with one label, their weights averaged."""
        found = runs(answer.tags)
        mean = np.zeros((len(found), len(answer.tags)), dtype=np.float32)
        for row, (start, end, _) in enumerate(found):
            mean[row, start:end] = 1 / (end - start)
        merged = [replace(m, weights=mean @ view.filled(np.asarray(m.weights, dtype=np.float32))) for m in maps]
        weights, names = np.asarray(merged[0].weights), [label for _, _, label in found]
        frame = sound.seconds / max(1, len(answer.tags))
        spans = [(sound.start + start * frame, sound.start + end * frame, label) for start, end, label in found]
        heads = (weights, names, view.shown)
        drawing = Drawing(weights[-1].mean(0), view.shown, names, text, heads=heads, spans=spans)
        elements = [row for row, (start, end, _) in enumerate(found) for _ in range(start, end)]
        return Exhibit(view.shown, names, merged, text, drawing=drawing, elements=elements)

    # ---- choosing -------------------------------------------------------------------------------------------------

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        tags = {tag for text in seen.targets for tag in split_words(text)}
        spans = all(map(is_span_tag, tags))
        few = seen.count < 5_000
        layers = 1 if few else 2
        model = {"kind": "recurrent", "layers": layers, "width": 256, "heads": 4, "dropout": 0.5 if few else 0.4}
        reasons = {
            "model.kind": "a bidirectional LSTM with self-attention over its states: good at tags from scratch",
            "model.width": f"{seen.count:,} sentences and {len(tags)} tags: {layers} layers of 256",
            "output.kind": "the tags are spans (B-, I-, O): a chain keeps them whole"
            if spans
            else "each tag is chosen by itself: they follow no strict order",
        }
        training = {"budget": 4096, "rate": 2e-3, "warmup": 200}
        chosen: dict[str, Any] = {"model": model, "output": {"kind": "crf" if spans else "softmax"}}
        if "level" in reading and are_documents(lengths := tokens_of(seen, "words")):
            chosen["model"], chosen["data"], why = document_network(lengths)
            reasons |= why | {"model.width": f"{seen.count:,} texts and {len(tags)} tags: width 128"}
            training |= {"budget": 8192, "rate": 1e-3}
        return {**chosen, "training": training}, reasons


def _stretches(answer: Tagging) -> list[tuple[str, str, str]]:
    """Return the first unit, the one behind the last, and the label of each run of units with one label."""
    ends = [*answer.words, "end"]
    return [(ends[start], ends[end], label) for start, end, label in runs(answer.tags)]


def _sketched(view: View, tagging: Tagging, found: Sequence[page.Map], text: str) -> Exhibit:
    """Return the exhibit of units that are nodes of a graph: drawn with the weights along their edges."""
    units = range(len(view.names)) if view.units is None else view.units
    tags = dict(zip(units, tagging.tags, strict=True))
    layers = [layer for one in found for layer in np.asarray(one.weights)]
    asked = [f"{view.names[i]} → {tags[i]}" for i in (view.scene.centres if view.scene else ()) if i in tags]
    title = f"{', '.join(asked[:3])}   ({text.rpartition('/')[2]})" if asked else text
    groups = [tags.get(i) for i in range(len(view.names))] if len(tags) == len(view.names) and not asked else None
    drawn = sketch(view, layers, title, groups, legend="answer" if groups else "label in the file")
    kept = np.asarray(drawn.kept)
    maps = [replace(one, weights=np.asarray(one.weights)[..., kept, :][..., kept]) for one in found]
    if not maps:
        maps = [page.Map("no attention", "source", "source", np.zeros((1, 1, len(kept), len(kept))))]
    return Exhibit(drawn.names, tagging.tags, maps, text, sketch=drawn)


def _labelled(answers: Sequence[str], items: Sequence[Item]) -> tuple[list[str], list[list[str]]]:
    """Return answers and expected tags without the units that have no label."""
    if not any(UNLABELLED in item.expected[0] for item in items):
        return [*answers], [item.expected for item in items]
    kept: list[tuple[str, list[str]]] = []
    for answer, item in zip(answers, items, strict=True):
        pairs = zip(split_words(answer), split_words(item.expected[0]), strict=True)
        known = [(own, right) for own, right in pairs if right != UNLABELLED]
        kept.append((" ".join(own for own, _ in known), [" ".join(right for _, right in known)]))
    return [own for own, _ in kept], [right for _, right in kept]
