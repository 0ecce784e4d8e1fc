"""Boxes out: things of a picture with their classes, as a set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.data.boxes import Box, parsed, written
from regard.data.example import Example
from regard.data.store import Field
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Batch, Chosen, Framed, Input, Row, Source, Use, Window
from regard.inspection.invariants import difference
from regard.inspection.page import Exhibit
from regard.inspection.view import refuse_unseeable
from regard.layers import boxes as geometry
from regard.models.detr import detr
from regard.models.encoders import encoder_of
from regard.models.pair import Bridge
from regard.network import Network
from regard.outputs.abilities import Believes, Chooses, Details, Invariant, Summarises, Warns
from regard.outputs.detect.exhibit import exhibit_of, summary
from regard.outputs.detect.head import DetectHead
from regard.outputs.detect.matching import Objects, SetWeights, totals
from regard.outputs.detect.noise import Noise
from regard.outputs.detect.settings import BoxSettings, DetectSettings, DetrKind, choose
from regard.outputs.output import Held, Item, Lines, Looked, Supervised, halves, paired
from regard.text.classes import Classes

SAME = 0.7  # IoU of boxes of one class that are one thing, where queries are matched several times
STILL = 0.004  # deviation over pictures, as a share of the picture, of boxes that do not depend on it
LEAST, SEEN = 8, 32  # pictures that show this, and that are looked at for it
WHOLE = Window(0, 0, 1, 1)
COLLAPSED = (
    "every picture has the same answer: the queries have collapsed and do not look at it. Train longer or with a lower "
    "training.rate, or set model.anchors=true and model.denoising=3"
)


@dataclass(frozen=True)
class Finding:
    """The probability from which a thing counts as found."""

    threshold: float = 0.5


class Found(NamedTuple):
    """The guess of each query: boxes in pixels, their shares of the picture as it is read (queries, 4) as x, y, w, h,
    and the threshold from which a thing counts as found."""

    boxes: list[Box]
    places: NDArray[np.float32]
    threshold: float

    @property
    def kept(self) -> list[int]:
        """The queries that found something, the surest first."""
        order = sorted(range(len(self.boxes)), key=lambda i: -self.boxes[i].score)
        return [i for i in order if self.boxes[i].score >= self.threshold]

    @property
    def shown(self) -> list[int]:
        """The queries to look at: those that found something, or else the surest."""
        return self.kept or sorted(range(len(self.boxes)), key=lambda i: -self.boxes[i].score)[:1]


class Detect(Supervised[Found], Chooses, Details, Invariant, Believes, Summarises, Warns):
    """Boxes out. A row has the boxes of its picture, as shares of the picture as it is read, and their classes."""

    does, reads = "finds things in", "detect"
    settings = DetectSettings
    use = Use.PLACES
    needs: ClassVar[frozenset[str]] = frozenset(("a grid",))
    files: ClassVar[tuple[str, ...]] = ("labels.json",)
    options: ClassVar[frozenset[str]] = frozenset(("threshold",))
    fields = (Field("boxes", "<f4", (4,)), Field("classes", "<u2", tokens=0))

    def __init__(self, classes: Classes, model: DetrKind | None = None, how: BoxSettings | None = None) -> None:
        self.classes, self.model = classes, model or DetrKind()
        self.asked = how or BoxSettings()
        self.how = Finding(self.asked.threshold)

    @property
    def weights(self) -> SetWeights:
        how = self.asked
        return SetWeights(how.label, how.distance, how.overlap, how.empty, self.model.repeats)

    @staticmethod
    def names(target: str) -> list[str]:
        return [box.label for box in parsed(target)]

    @classmethod
    def choose(cls, seen: Survey, reading: dict[str, Any]) -> Chosen:
        return choose(seen, reading)

    @classmethod
    def made(cls, config: DetectSettings, input: Input[Any], learned: Classes) -> Detect:
        del input
        return cls(learned, config.model, config.output)

    def network(self, config: DetectSettings, input: Input[Any]) -> tuple[Input[Any], Network]:
        model = config.model
        stem, encoder = encoder_of(config.encoder, config.data.longest)
        parts = model.model_dump(include={"layers", "encoder_layers", "width", "hidden", "heads", "dropout", "anchors"})
        places, decoder = detr(**parts)
        noise = Noise(model.denoising, model.box_noise, model.label_noise)
        head = DetectHead(
            decoder, model.width, len(self.classes), model.queries, weights=self.weights, noise=noise,
            auxiliary=model.auxiliary, dense=model.dense,
        )  # fmt: skip
        bridge = Bridge(encoder, config.encoder.width, model.width)
        return input, Network(input.module(stem), torch.nn.Sequential(bridge, places), head)

    # ---- training -------------------------------------------------------------------------------------------------

    def rows(self, input: Input[Any], examples: Iterator[Example[Any, str]]) -> Iterator[Row]:
        def targets(some: Sequence[Example[Any, str]]) -> Iterable[Row]:
            return (self._row(parsed(example.target), window_of(input, example.source)) for example in some)

        return paired(input, targets, examples)

    def _row(self, boxes: Sequence[Box], window: Window) -> Row:
        """Return boxes as shares of what is read of their picture; those outside of it, crowds and unknown classes are
        not to be found."""
        known = {name: number for number, name in enumerate(self.classes.names)}
        kept = [box for box in boxes if box.score and box.label in known]
        edges = torch.from_numpy(window.shares(np.array([box[1:5] for box in kept], np.float64).reshape(-1, 4)))
        inside = edges.clamp(0, 1)
        seen = ((inside[:, 2:] - inside[:, :2]) > 1e-6).all(-1).numpy()
        places = geometry.centred(inside).numpy().astype(np.float32)[seen]
        return places, np.array([known[box.label] for box in kept], np.uint16)[seen]

    def predictions(self, counts: NDArray[np.int32]) -> tuple[float, ...]:
        """Return Σ w of the classes and the number of matched things, over all layers the same; of denoising the number
        of spoilt things; and of the places the number of pictures."""
        things = counts[:, -1]
        found = [*totals(things, self.model.queries, self.weights)]
        if self.model.denoising:
            found.append(float(self.model.denoising * things.sum()))
        if self.model.dense:
            found.append(float(len(counts)))
        return tuple(found)

    def target(self, source: Source, rows: Sequence[Row], extra: int = 0) -> Objects:
        del source, extra
        most = max((len(row[1]) for row in rows), default=0)
        classes, boxes = torch.full((len(rows), most), -1), torch.zeros(len(rows), most, 4)
        for i, (places, names) in enumerate(rows):
            classes[i, : len(names)] = torch.from_numpy(np.asarray(names, np.int64))
            boxes[i, : len(names)] = torch.from_numpy(np.asarray(places, np.float32).reshape(-1, 4))
        return Objects(classes, boxes)

    def row(self, answer: Found) -> Row:
        names = self.classes.names
        return answer.places[answer.kept], np.array(
            [names.index(answer.boxes[i].label) for i in answer.kept], np.uint16
        )

    # ---- answers --------------------------------------------------------------------------------------------------

    def answers(self, passes: Passes, sources: Sequence[Any], how: Finding, first: int = 0) -> list[Found]:
        del first
        windows = [window_of(passes.input, source) for source in sources]
        return self._found(passes, passes.input.encode(sources), windows, how.threshold)

    def held_answers(self, passes: Passes, held: Held, how: Finding, *, quick: bool) -> list[Found]:
        del how, quick
        windows = [window_of(passes.input, item.example.source) for item in held.items]
        return self._found(passes, halves(passes.input, held.rows)[0], windows, 0.0)

    def _found(self, passes: Passes, rows: Sequence[Row], windows: Sequence[Window], threshold: float) -> list[Found]:
        count = len(self.classes)

        def work(source: Any, numbers: list[int]) -> Iterator[Any]:
            del numbers
            scores = passes.network.scores(Batch(source, None)).float().cpu()
            best, which = scores[..., : count + 1].softmax(-1)[..., :count].max(-1)
            if self.model.repeats > 1:
                best = torch.stack([_alone(*each) for each in zip(best, which, scores[..., count + 1 :], strict=True)])
            return zip(best.double().numpy(), which.numpy(), scores[..., count + 1 :].numpy(), strict=True)

        found = passes.each(rows, work)
        return [
            self._one(each, window, threshold) if each is not None else Found([], np.zeros((0, 4), np.float32), 0.5)
            for each, window in zip(found, windows, strict=True)
        ]

    def _one(self, guess: Any, window: Window, threshold: float) -> Found:
        scores, classes, places = guess
        edges = window.pixels(geometry.corners(torch.from_numpy(places)).clamp(0, 1).double().numpy())
        names = self.classes.names
        rounded = edges.round(2).tolist()
        boxes = [
            Box(names[c], left, top, right, bottom, round(float(s), 6))
            for s, c, (left, top, right, bottom) in zip(scores, classes, rounded, strict=True)
        ]
        return Found(boxes, places, threshold)

    def beliefs(self, passes: Passes, sources: Sequence[Any], answer: Found) -> NDArray[np.float64]:
        """Return the probability that the query of each thing gives to its class."""
        queries, count = answer.shown, len(self.classes)
        classes = [self.classes.names.index(answer.boxes[i].label) for i in queries]

        def work(source: Any, numbers: list[int]) -> NDArray[np.float64]:
            del numbers
            scores = passes.network.scores(Batch(source, None))[..., : count + 1].double()
            return np.asarray(scores.softmax(-1)[:, queries, classes].cpu())

        nothing = np.zeros(len(queries))
        return np.stack([nothing if x is None else x for x in passes.each(passes.input.encode(sources), work)])

    def summary(self, target: str) -> str:
        return summary([box for box in parsed(target) if box.score >= self.how.threshold]) or "nothing"

    def as_target(self, answer: Found) -> str:
        """Return what was found, the surest first, each with its score."""
        return written(answer.boxes[i] for i in answer.kept)

    def as_text(self, answer: Found) -> Lines:
        kept = [answer.boxes[i] for i in answer.kept]
        each = (f"{b.label} {b.score:.2f} [{b.left:.0f} {b.top:.0f} {b.right:.0f} {b.bottom:.0f}]" for b in kept)
        return [(None, "; ".join(each))]

    def as_json(self, answer: Found) -> dict[str, Any]:
        """Return the things as COCO's annotations: a box is [x, y, width, height]."""
        names = self.classes.names
        found = []
        for i in answer.kept:
            label, left, top, right, bottom, score = answer.boxes[i]
            box = [round(x, 2) for x in (left, top, right - left, bottom - top)]
            entry = {"category_id": names.index(label) + 1, "category": label, "bbox": box}
            found.append(entry | {"area": round((right - left) * (bottom - top), 2), "score": score})
        return {"annotations": found}

    def score(self, items: Sequence[Item], answers: Sequence[str], samples: int) -> list[metrics.Score]:
        return metrics.average_precisions(*detections(items, answers), samples=samples)

    def details(self, passes: Passes, items: Sequence[Item], answers: Sequence[str]) -> str:
        """Return AP of each class."""
        del passes
        lines = [f"{'class':20} {'things':>7} {'AP50':>7} {'AP50:95':>8}"]
        for label, graded in metrics.graded(*detections(items, answers)).items():
            found = 100 * metrics.precisions(graded).mean(1)
            lines.append(f"{label[:20]:20} {int(graded.things.sum()):7,} {found[0]:6.1f}% {found.mean():7.1f}%")
        return "\n".join(lines)

    def warnings(self, passes: Passes, held: Held, scores: Sequence[metrics.Score]) -> list[str]:
        """Warn of queries that say the same of every picture."""
        del scores
        found = self._found(passes, halves(passes.input, held.rows[:SEEN])[0], [WHOLE] * len(held.items[:SEEN]), 0.0)
        return [COLLAPSED] if collapsed([one for one in found if one.boxes]) else []

    # ---- looking --------------------------------------------------------------------------------------------------

    def looked_at(self, passes: Passes, source: Any, answer: str | None) -> Found:
        if answer is not None:
            raise UserError("--answer: the boxes that are shown are the model's own; leave it out.")
        refuse_unseeable(passes.input.text(source), len(passes.input.encode([source])[0][0]), passes.most)
        return self.answers(passes, [source], self.how)[0]

    def exhibit(self, passes: Passes, source: Any, answer: Found, looked: Looked) -> Exhibit:
        shown = answer.shown
        return exhibit_of(passes, source, [answer.boxes[i] for i in shown], answer.places[shown], shown, looked.seen)

    # ---- what must hold -------------------------------------------------------------------------------------------

    def invariances(self, passes: Passes, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        together = passes.network.scores(self.collate(passes.input, rows))
        alone = torch.cat([passes.network.scores(self.collate(passes.input, [row])) for row in rows])
        everywhere = torch.ones(together.shape[:2], dtype=torch.bool)
        yield "padding and batch: each picture is the same alone", difference(together, alone, everywhere)


def _alone(scores: torch.Tensor, classes: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return scores in which those of boxes that a surer one of the same class covers are 0."""
    edges = geometry.corners(places)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    for one in classes.unique().tolist():
        own = classes == one
        kept[own] = geometry.unique(edges[own], scores[own], SAME)
    return scores * kept


def collapsed(found: Sequence[Found]) -> bool:
    """Return True if neither boxes nor probabilities depend on the picture (facebookresearch/detr, issue 179)."""
    if len(found) < LEAST:
        return False
    boxes = np.stack([one.places for one in found])
    scores = np.array([[box.score for box in one.boxes] for one in found])
    return bool(boxes.std(0).max() < STILL and scores.std(0).max() < STILL)


def detections(items: Sequence[Item], answers: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Return answers and what is expected as the metrics take them."""
    expected = [[metrics.Detection(*box) for box in parsed(item.expected[0])] for item in items]
    return [[metrics.Detection(*box) for box in parsed(answer)] for answer in answers], expected


def window_of(input: Input[Any], source: Any) -> Window:
    """Return the part of a picture that is read."""
    assert isinstance(input, Framed)
    return input.window(source)
