"""Verdicts: is one variant better than another, or can the data not tell?

For seed s, v_s and b_s are the scores of a variant and of the baseline on the same items, d_s = v_s − b_s. Two things
make d uncertain: which items there are, and the luck of a training. The interval has both:

    d*_b = mean_s (v_sb − b_sb) + t_b · sd(d_s) / √n

v_sb is the score of bootstrap resample b of the items (Koehn 2004: the same resample for both), t_b a draw from
Student's t with n − 1 degrees of freedom. Three seeds are too few to be resampled themselves: a percentile interval of
them would hold the truth in three cases of four, Student's in 95 of 100.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from regard.metrics import SEED, interval

BETTER, WORSE, OPEN = "better", "worse", "not distinguishable"


@dataclass(frozen=True)
class Quality:
    """A score, and those of its bootstrap resamples."""

    value: float
    draws: NDArray[np.float64]


@dataclass(frozen=True)
class Verdict:
    """The difference of a variant to the baseline, its 95 % interval, and what follows."""

    difference: float
    low: float | None
    high: float | None
    word: str


def judged(variant: Sequence[Quality], baseline: Sequence[Quality], *, higher_is_better: bool) -> Verdict:
    """Compare a variant with the baseline, seed by seed; one seed alone gives an interval but no verdict."""
    differences = np.array([one.value - other.value for one, other in zip(variant, baseline, strict=True)])
    count, mean = len(differences), float(differences.mean())
    draws = np.mean([one.draws - other.draws for one, other in zip(variant, baseline, strict=True)], axis=0)
    draws = draws[np.isfinite(draws)]
    if not math.isfinite(mean) or not len(draws):
        return Verdict(mean, None, None, OPEN)
    if count > 1:
        draws = draws + _student(count - 1, len(draws)) * differences.std(ddof=1) / math.sqrt(count)
    low, high = interval(draws)
    if count == 1 or low <= 0 <= high:
        return Verdict(mean, low, high, OPEN)
    return Verdict(mean, low, high, BETTER if (low > 0) == higher_is_better else WORSE)


def _student(freedom: int, count: int) -> NDArray[np.float64]:
    """Return draws from Student's t, one from each of `count` equal shares of it, in random order: free draws would
    leave the ends of the interval to chance."""
    shares = (np.random.default_rng(SEED).permutation(count) + 0.5) / count
    found: NDArray[np.float64] = stdtrit(freedom, shares)
    return found
