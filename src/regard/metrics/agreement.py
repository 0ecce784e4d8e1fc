"""Scores of the language-understanding tables: Matthews and F1 of one class, Pearson and Spearman for numbers.

All are on a scale of −100 to 100, or 0 to 100 for F1.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.metrics.labels import confusion_pairs
from regard.metrics.scores import SAMPLES, SEED, References, Score, check_items, make_score


def matthews(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return Matthews' correlation, for any number of labels (Gorodkin 2004):

        (s c − Σ_l a_l e_l) / √((s² − Σ_l a_l²) (s² − Σ_l e_l²))

    s items, c of them right, a_l and e_l how often label l was answered and expected. Chance gives 0.
    """
    labels, cells, where = confusion_pairs(hypotheses, references)
    count, rows = len(labels), np.arange(len(cells))
    statistics = np.zeros((len(cells), 1 + 2 * count), dtype=np.int64)
    expected, answered = cells.T
    statistics[:, 0] = expected == answered
    statistics[rows, 1 + answered] += 1
    statistics[rows, 1 + count + expected] += 1
    return make_score("matthews", statistics, _matthews, f"labels:{count}", samples, seed, rows=where, unit="")


def _matthews(sums: list[int]) -> float:
    right, both = sums[0], np.asarray(sums[1:], dtype=np.float64).reshape(2, -1)
    answered, expected = both
    total = float(answered.sum())
    room = (total**2 - float(answered @ answered)) * (total**2 - float(expected @ expected))
    return 100 * (right * total - float(answered @ expected)) / math.sqrt(room) if room > 0 else 0.0


def class_f1(
    hypotheses: Sequence[str], references: References, *, label: str, samples: int = SAMPLES, seed: int = SEED
) -> Score:
    """Return F1 of one label: 2 · right / (answered + expected), of items where it was answered or expected."""
    check_items(hypotheses, references)
    rows = [
        (int(answer == label and label in allowed), int(answer == label) + int(label in allowed))
        for answer, allowed in zip(hypotheses, references, strict=True)
    ]
    return make_score("f1", np.asarray(rows), _f1, f"label:{label}", samples, seed)


def _f1(sums: list[int]) -> float:
    right, both = sums
    return 200 * right / both if both else 0.0


def pearson(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return the correlation of answered and expected numbers; 0 where one side does not vary."""
    x, y = _numbers(hypotheses, references)
    return make_score("pearson", _moments(x, y), _correlation, "numbers", samples, seed, unit="")


def spearman(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return the correlation of ranks, equal numbers having the mean of theirs. Resamples keep the ranks among all."""
    x, y = (_ranks(values) for values in _numbers(hypotheses, references))
    return make_score("spearman", _moments(x, y), _correlation, "ranks among all", samples, seed, unit="")


def mean_error(hypotheses: Sequence[str], references: References, *, samples: int = SAMPLES, seed: int = SEED) -> Score:
    """Return the mean of |answered − expected|."""
    x, y = _numbers(hypotheses, references)
    statistics = np.stack((np.abs(x - y), np.ones_like(x)), 1)
    return make_score(
        "mean_error", statistics, lambda s: s[0] / s[1], "absolute", samples, seed, unit="", higher_is_better=False
    )


def _numbers(hypotheses: Sequence[str], references: References) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return answers and expected numbers; of several, the nearest."""
    check_items(hypotheses, references)
    x = np.array([number_of(answer) for answer in hypotheses])
    nearest = (min(map(number_of, allowed), key=lambda y: abs(y - a)) for a, allowed in zip(x, references, strict=True))
    return x, np.array(list(nearest))


def number_of(text: str) -> float:
    """Return the number that a text is; 0 for an empty one, which has no answer."""
    try:
        value = float(text) if text else 0.0
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"Numbers are compared here: expected one such as 3.5, found {text[:40]!r}.")
    return value


def _moments(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y = x - x.mean(), y - y.mean()  # the correlation is the same, and large means lose no digits
    return np.stack((np.ones_like(x), x, y, x * x, y * y, x * y), 1)


def _correlation(sums: list[float]) -> float:
    n, x, y, xx, yy, xy = sums
    spread_x, spread_y = xx - x * x / n, yy - y * y / n
    tiny = 1e-12 * (xx + yy + 1e-300)
    if spread_x <= tiny or spread_y <= tiny:
        return 0.0
    return 100 * (xy - x * y / n) / math.sqrt(spread_x * spread_y)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    mean: NDArray[np.float64] = (ends - (counts - 1) / 2)[where.reshape(-1)]
    return mean
