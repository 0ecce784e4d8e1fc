"""Mean average precision of boxes, as COCO defines it (Lin et al. 2014), with a bootstrap over pictures.

Answers of a class are taken by falling score, over all pictures, at most 100 of each. One is right if its IoU with a
thing of its picture that no surer answer has taken is the threshold or more. With p(r) the greatest precision at a
recall of r or more,

    AP = mean of p(r) over r = 0, 0.01 … 1      mAP = mean over classes      mAP50:95 = mean over IoU 0.5, 0.55 … 0.95

A thing that is a crowd is not to be found; answers inside of it are neither right nor wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.metrics.scores import SAMPLES, SEED, Score

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
MOST = 100  # answers of a class in a picture
Floats = NDArray[np.float64]


class Detection(NamedTuple):
    """A thing or an answer: its label, left, top, right and bottom, and the score of an answer; 0: a crowd."""

    label: str
    left: float
    top: float
    right: float
    bottom: float
    score: float


class Graded(NamedTuple):
    """The answers of one class, the surest first: their pictures, scores, and for each threshold (t, n) whether they
    are right, or do not count; and how many things each picture has."""

    pictures: NDArray[np.int64]
    scores: Floats
    right: NDArray[np.bool_]
    void: NDArray[np.bool_]
    things: NDArray[np.int64]


def graded(answers: Sequence[Sequence[Detection]], expected: Sequence[Sequence[Detection]]) -> dict[str, Graded]:
    """Return the graded answers of each class that is expected anywhere; the lists have an entry for each picture."""
    labels = sorted({thing.label for things in expected for thing in things if thing.score})
    return {label: _graded(answers, expected, label) for label in labels}


def _graded(answers: Sequence[Sequence[Detection]], expected: Sequence[Sequence[Detection]], label: str) -> Graded:
    pictures, scores, right, void = [], [], [], []
    counts = np.zeros(len(expected), np.int64)
    for number, (given, wanted) in enumerate(zip(answers, expected, strict=True)):
        things = sorted((thing for thing in wanted if thing.label == label), key=lambda thing: thing.score == 0)
        mine = sorted((box for box in given if box.label == label), key=lambda box: -box.score)[:MOST]
        counts[number] = sum(thing.score > 0 for thing in things)
        one, other = _taken(_edges(mine), _edges(things), np.array([thing.score == 0 for thing in things], bool))
        pictures += [number] * len(mine)
        scores += [box.score for box in mine]
        right.append(one)
        void.append(other)
    order = np.argsort(-np.array(scores), kind="mergesort")
    one, other = (np.concatenate(each, 1)[:, order] for each in (right, void))
    return Graded(np.array(pictures, np.int64)[order], np.array(scores)[order], one, other, counts)


def _edges(boxes: Sequence[Detection]) -> Floats:
    return np.array([[box.left, box.top, box.right, box.bottom] for box in boxes], np.float64).reshape(-1, 4)


def _taken(answers: Floats, things: Floats, crowd: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each threshold (t, answers) which answers are right, and which fall into a crowd."""
    right = np.zeros((len(THRESHOLDS), len(answers)), bool)
    void = right.copy()
    overlaps = overlap(answers, things, crowd)
    for row, threshold in enumerate(THRESHOLDS):
        free = np.ones(len(things), bool)
        for number in range(len(answers)):
            fits = (overlaps[number] >= min(threshold, 1 - 1e-10)) & (free | crowd)
            single = fits & ~crowd
            if single.any():  # a crowd is asked only if there is nothing else; of equal ones the last, as COCO's tool
                best = np.where(single, overlaps[number], -1.0)
                chosen = len(best) - 1 - int(best[::-1].argmax())
                free[chosen], right[row, number] = False, True
            elif fits.any():
                void[row, number] = True
    return right, void


def overlap(answers: Floats, things: Floats, crowd: NDArray[np.bool_]) -> Floats:
    """Return the IoU of each pair, (answers, things); with a crowd, the share of the answer that lies in it."""
    low = np.maximum(answers[:, None, :2], things[None, :, :2])
    high = np.minimum(answers[:, None, 2:], things[None, :, 2:])
    shared = (high - low).clip(min=0).prod(-1)
    own, other = ((box[:, 2:] - box[:, :2]).clip(min=0).prod(-1) for box in (answers, things))
    union = np.where(crowd[None], own[:, None], own[:, None] + other[None] - shared)
    found: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return found


def precisions(found: Graded, times: NDArray[np.int64] | None = None) -> Floats:
    """Return the precision at each recall for each threshold, (t, 101); each picture counts so many times."""
    weight = np.ones(len(found.things)) if times is None else times.astype(np.float64)
    total = float(weight @ found.things)
    each = weight[found.pictures]
    hits = np.cumsum(found.right * each, 1)
    misses = np.cumsum((~found.right & ~found.void) * each, 1)
    recall, precision = hits / max(total, 1e-12), hits / np.maximum(hits + misses, np.spacing(1))
    precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    result = np.zeros((len(recall), len(RECALLS)))
    for row in range(len(recall)):
        where = np.searchsorted(recall[row], RECALLS, side="left")
        inside = where < recall.shape[1]
        result[row, inside] = precision[row, where[inside]]
    return result


def average_precisions(
    answers: Sequence[Sequence[Detection]],
    expected: Sequence[Sequence[Detection]],
    *,
    samples: int = SAMPLES,
    seed: int = SEED,
) -> list[Score]:
    """Return mAP50 and mAP50:95 in percent; without a thing that could be found, both are 0."""
    classes = [*graded(answers, expected).values()]
    value = _means(classes, None)
    bounds: list[tuple[float | None, float | None]] = [(None, None), (None, None)]
    draws: list[Floats | None] = [None, None]
    if samples and classes:
        generator = np.random.default_rng(seed)
        count = len(expected)
        drawn = [np.bincount(generator.integers(count, size=count), minlength=count) for _ in range(samples)]
        found = np.array([_means(classes, times) for times in drawn])
        bounds = [tuple(np.percentile(found[:, i], (2.5, 97.5))) for i in (0, 1)]
        draws = [found[:, i] for i in (0, 1)]
    names = (("map50", "IoU:0.50"), ("map50_95", "IoU:0.50-0.95"))
    return [
        Score(
            name,
            value[i],
            "%",
            *bounds[i],
            len(expected),
            True,
            f"COCO|{said}|area:all|dets:{MOST}|bs:{samples}",
            draws=draws[i],
        )
        for i, (name, said) in enumerate(names)
    ]


def _means(classes: Sequence[Graded], times: NDArray[np.int64] | None) -> tuple[float, float]:
    """Return both means over the classes that have a thing in these pictures."""
    there = [each for each in classes if times is None or float(times @ each.things) > 0]
    if not there:
        return 0.0, 0.0
    found = np.stack([precisions(each, times).mean(1) for each in there])
    return 100 * float(found[:, 0].mean()), 100 * float(found.mean())
