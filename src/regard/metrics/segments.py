"""Scores of labels of frames: how many frames are right, and how many segments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from regard.metrics.labels import tag_rows
from regard.metrics.scores import (
    SAMPLES,
    SEED,
    References,
    Score,
    check_items,
    make_score,
    percentage,
    reference_counts,
)

OVERLAP = 0.5  # of two segments, intersection over union, that makes them one


def frame_accuracy(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of frames that got their label."""
    rows = tag_rows(hypotheses, references)
    signature = f"nrefs:{reference_counts(references)}|compare:frame"
    return make_score("frame_accuracy", np.asarray(rows), percentage, signature, samples, seed)


def segment_f1(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return F1 = 2 · hits / (answered + expected) of segments: frames in a row with one label.

    A segment is a hit if it overlaps one of the same label by half of their union, each counted once (F1@50, Lea et al.
    2017, 4.1).
    """
    check_items(hypotheses, references)
    rows = [
        max((_counts(answer, one) for one in allowed), key=lambda found: found[0])
        for answer, allowed in zip(hypotheses, references, strict=True)
    ]
    signature = f"nrefs:{reference_counts(references)}|overlap:{OVERLAP}"
    return make_score("segment_f1", np.asarray(rows), _f1, signature, samples, seed)


def _f1(sums: list[int]) -> float:
    hits, answered, expected = sums
    return 200 * hits / (answered + expected) if answered + expected else 100.0


def segments(tags: str) -> list[tuple[int, int, str]]:
    """Return first frame, the one behind the last, and label of each segment."""
    found, at = [], 0
    for label, run in groupby(tags.split(" ") if tags else []):
        length = len(list(run))
        found.append((at, at + length, label))
        at += length
    return found


def _counts(answer: str, reference: str) -> tuple[int, int, int]:
    answered, expected = segments(answer), segments(reference)
    free, hits = set(range(len(expected))), 0
    first = 0
    for start, end, label in answered:
        while first < len(expected) and expected[first][1] <= start:
            first += 1
        best, place = 0.0, -1
        for i in range(first, len(expected)):
            a, b, other = expected[i]
            if a >= end:
                break
            shared = min(end, b) - max(start, a)
            over = shared / (max(end, b) - min(start, a))
            if other == label and i in free and over > best:
                best, place = over, i
        if best >= OVERLAP:
            free.remove(place)
            hits += 1
    return hits, len(answered), len(expected)
