"""Scores of labels and tags.

A label is one string for an item; tags are a row of strings separated by single blanks, one for each word. Items have
references as everywhere here, usually one; of several, the one nearest to the answer counts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.metrics.scores import (
    SAMPLES,
    SEED,
    Formula,
    References,
    Score,
    check_items,
    make_score,
    percentage,
    reference_counts,
)
from regard.text.spans import OUTSIDE, SpanTag, are_span_tags, parse_span_tag

Span = tuple[int, int, str]  # first word, last word, type


# ---------------------------------------------------------------------------------------------- labels


def accuracy(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return the share of items that got (one of) their labels."""
    check_items(hypotheses, references)
    rows = [(int(answer in allowed), 1) for answer, allowed in zip(hypotheses, references, strict=True)]
    signature = f"nrefs:{reference_counts(references)}|compare:label"
    return make_score("accuracy", np.asarray(rows), percentage, signature, samples, seed)


def macro_f1(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return the mean over labels of F1_l = 2 · right_l / (answered_l + expected_l).

    Rare labels count as much as frequent ones. The mean is over all labels that were answered or expected; in a
    resample, over those that occur in it.
    """
    labels, cells, where = confusion_pairs(hypotheses, references)
    count = len(labels)
    rows = np.arange(len(cells))
    statistics = np.zeros((len(cells), 3 * count), dtype=np.int64)
    expected, answered = cells.T
    statistics[rows[expected == answered], expected[expected == answered]] = 1
    statistics[rows, count + answered] += 1
    statistics[rows, 2 * count + expected] += 1
    signature = f"labels:{count}|average:macro"
    return make_score("macro_f1", statistics, _mean_f1, signature, samples, seed, rows=where)


def _mean_f1(sums: list[int]) -> float:
    right, answered, expected = np.asarray(sums, dtype=np.float64).reshape(3, -1)
    occurs = answered + expected > 0
    return float(100 * np.mean(2 * right[occurs] / (answered + expected)[occurs]))


def confusion_pairs(
    hypotheses: Sequence[str], references: References
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return all labels, the distinct (expected, answered) pairs of their indices, and the pair of each item."""
    check_items(hypotheses, references)
    pairs = [
        (answer if answer in allowed else allowed[0], answer)
        for answer, allowed in zip(hypotheses, references, strict=True)
    ]
    labels = sorted({label for pair in pairs for label in pair})
    number = {label: index for index, label in enumerate(labels)}
    numbered = np.array([(number[expected], number[answer]) for expected, answer in pairs], dtype=np.int64)
    cells, where = np.unique(numbered, axis=0, return_inverse=True)
    return labels, cells, where.reshape(-1)


def confusion(hypotheses: Sequence[str], references: References) -> tuple[list[str], NDArray[np.int64]]:
    """Return all labels in order, and the confusion matrix: expected labels down, answers across.

    For tags: `single_tags`.
    """
    labels, cells, where = confusion_pairs(hypotheses, references)
    matrix = np.zeros((len(labels), len(labels)), dtype=np.int64)
    matrix[cells[:, 0], cells[:, 1]] = np.bincount(where)
    return labels, matrix


def render_confusion(labels: Sequence[str], matrix: NDArray[np.int64], *, width: int = 100) -> str:
    """Return the confusion matrix as plain text: whole if it fits into `width`, else the worst cells of each label."""
    for longest in (max(map(len, labels)), 8, 5):
        names = [_shortened(label, longest) for label in labels]
        table = _whole(names, matrix)
        if len(table[0]) <= width:
            note = "expected ↓  answered →"
            return "\n".join([note, *table])
    return "\n".join(_worst(labels, matrix, width))


def _shortened(label: str, longest: int) -> str:
    return label if len(label) <= longest else label[: longest - 1] + "…"


def _whole(names: Sequence[str], matrix: NDArray[np.int64]) -> list[str]:
    """Return one row and one column for each label; zero is a dot, so that confusions stand out."""
    body = [[f"{count:,}" if count else "·" for count in row] for row in matrix.tolist()]
    head = max(map(len, names))
    widths = [max(len(names[column]), *(len(row[column]) for row in body)) for column in range(len(names))]
    lines = [" " * head + "".join(f"  {name:>{size}}" for name, size in zip(names, widths, strict=True))]
    for name, row in zip(names, body, strict=True):
        lines.append(f"{name:<{head}}" + "".join(f"  {cell:>{size}}" for cell, size in zip(row, widths, strict=True)))
    return lines


def _worst(labels: Sequence[str], matrix: NDArray[np.int64], width: int) -> list[str]:
    """Return one row for each label: its count, recall, precision, and its most frequent wrong answers."""
    head = min(max(map(len, labels)), 24)
    lines = [f"{'label':<{head}}  {'expected':>8}  {'recall':>7}  {'precision':>9}  confused with"]
    for index, label in enumerate(labels):
        row, expected, answered = matrix[index], int(matrix[index].sum()), int(matrix[:, index].sum())
        right = int(row[index])
        recall = f"{100 * right / expected:.1f} %" if expected else "–"
        precision = f"{100 * right / answered:.1f} %" if answered else "–"
        order = [other for other in np.argsort(-row, kind="stable").tolist() if other != index and row[other]]
        line = f"{_shortened(label, head):<{head}}  {expected:>8,}  {recall:>7}  {precision:>9}  "
        for place, other in enumerate(order):
            more = ("" if not place else ", ") + f"{labels[other]} {row[other]:,}"
            if place and len(line) + len(more) > width - 2:
                line += ", …"
                break
            line += more
        lines.append(line.rstrip())
    return lines


# ---------------------------------------------------------------------------------------------- tags


def _rows_of_tags(hypotheses: Sequence[str], references: References) -> list[tuple[list[str], list[str]]]:
    """Return the answered and the expected tags of each item, as many of each."""
    check_items(hypotheses, references)
    rows = []
    for number, (answer, allowed) in enumerate(zip(hypotheses, references, strict=True), start=1):
        answered = _split(answer)
        expected = max((_split(reference) for reference in allowed), key=lambda tags: _equal(answered, tags))
        if len(answered) != len(expected):
            raise UserError(
                f"Item {number} has {len(answered)} tags, expected {len(expected)}: one for each word of its sentence."
            )
        rows.append((answered, expected))
    return rows


def _split(tags: str) -> list[str]:
    return tags.split(" ") if tags else []


def _equal(one: list[str], other: list[str]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=False)) if len(one) == len(other) else -1


def single_tags(hypotheses: Sequence[str], references: References) -> tuple[list[str], list[list[str]]]:
    """Return rows of tags as single labels, for `confusion` or `macro_f1` over words."""
    rows = _rows_of_tags(hypotheses, references)
    return [tag for answered, _ in rows for tag in answered], [[tag] for _, expected in rows for tag in expected]


def tag_rows(hypotheses: Sequence[str], references: References) -> list[tuple[int, int]]:
    """Return how many tags of each row are right, and how many there are."""
    return [(_equal(answered, expected), len(expected)) for answered, expected in _rows_of_tags(hypotheses, references)]


def tag_accuracy(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of words that got their tag; resampled by sentences."""
    rows = tag_rows(hypotheses, references)
    signature = f"nrefs:{reference_counts(references)}|compare:tag"
    return make_score("tag_accuracy", np.asarray(rows), percentage, signature, samples, seed)


# ---------------------------------------------------------------------------------------------- spans


def are_spans(references: References) -> bool:
    """Return True if the tags of the references mark spans."""
    return are_span_tags(tag for allowed in references for reference in allowed for tag in _split(reference))


def spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence by the rules of conlleval, which understand IOB1, IOB2 and BIOES alike.

    A span begins at B or S, at any tag of another type than the one before, and at I or E after O, E or S. It goes on
    with I and E of its type, and E and S end it.
    """
    result: list[Span] = []
    before, start = SpanTag(OUTSIDE, ""), -1
    for place, tag in enumerate(map(parse_span_tag, [*tags, OUTSIDE])):
        if start >= 0 and (tag.prefix in "OBS" or before.prefix in "ES" or tag.type != before.type):
            result.append((start, place - 1, before.type))
            start = -1
        if start < 0 and tag.prefix != OUTSIDE:
            start = place
        before = tag
    return result


def span_f1(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return F1 of spans: 2 · right / (answered + expected); a span is right if its words and its type are."""
    return _span_score("span_f1", _f1, hypotheses, references, samples, seed)


def span_precision(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of the answered spans that are right."""
    return _span_score("span_precision", _precision, hypotheses, references, samples, seed)


def span_recall(
    hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return the share of the expected spans that were found."""
    return _span_score("span_recall", _recall, hypotheses, references, samples, seed)


def _span_score(
    name: str, formula: Formula, hypotheses: Sequence[str], references: References, samples: int, seed: int
) -> Score:
    rows = []
    for answered, expected in _rows_of_tags(hypotheses, references):
        marked, wanted = set(spans(answered)), set(spans(expected))
        rows.append((len(marked & wanted), len(marked), len(wanted)))
    return make_score(name, np.asarray(rows), formula, "rules:conlleval|level:span", samples, seed)


def _f1(sums: list[int]) -> float:
    right, answered, expected = sums
    return 200 * right / max(answered + expected, 1)


def _precision(sums: list[int]) -> float:
    right, answered, _ = sums
    return percentage([right, answered])


def _recall(sums: list[int]) -> float:
    right, _, expected = sums
    return percentage([right, expected])
