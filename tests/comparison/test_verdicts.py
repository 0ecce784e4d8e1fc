"""The verdict rule, on simulated trainings whose truth is known."""

import numpy as np
import pytest

from regard.comparison.verdicts import BETTER, OPEN, WORSE, Quality, judged
from regard.metrics import accuracy


def trainings(rate: float, luck: float, seeds: int, items: np.ndarray, draw: np.random.Generator) -> list[Quality]:
    """Accuracies of trainings that get `rate` of the items right, give or take the luck of each; some are harder."""
    found = []
    for _ in range(seeds):
        right = draw.random(len(items)) < np.clip(rate + luck * draw.standard_normal() - 0.3 * items, 0, 1)
        score = accuracy(["yes" if one else "no" for one in right], [["yes"]] * len(items), samples=200)
        assert score.draws is not None
        found.append(Quality(score.value, score.draws))
    return found


def verdicts(differ: float, times: int, seeds: int = 3, luck: float = 0.03) -> list[str]:
    draw = np.random.default_rng(0)
    found = []
    for _ in range(times):
        items = draw.random(300)
        one, other = (trainings(0.8 - gap, luck, seeds, items, draw) for gap in (0.0, differ))
        found.append(judged(other, one, higher_is_better=True).word)
    return found


def test_of_20_comparisons_of_a_variant_with_itself_at_most_3_give_a_verdict() -> None:
    found = verdicts(0.0, 60)
    assert sum(word != OPEN for word in found) <= 6  # 5 % of 60 are 3
    assert all(sum(word != OPEN for word in found[i : i + 20]) <= 3 for i in (0, 20, 40))


def test_a_worse_variant_is_found_worse_and_never_better() -> None:
    found = verdicts(0.35, 20)
    assert found.count(WORSE) >= 18
    assert BETTER not in found


def test_resampling_three_seeds_alone_would_call_too_many_different() -> None:
    """Why the interval has Student's t: a percentile bootstrap over 3 seeds misses the truth far too often."""
    draw, missed, ours = np.random.default_rng(0), 0, 0
    nothing = np.zeros(1000)
    for _ in range(200):
        luck = draw.standard_normal((2, 3))
        d = luck[0] - luck[1]
        means = d[draw.integers(3, size=(1000, 3))].mean(1)
        low, high = np.percentile(means, [2.5, 97.5])
        missed += not low <= 0 <= high
        one, other = ([Quality(value, nothing + value) for value in side] for side in luck)
        ours += judged(one, other, higher_is_better=True).word != OPEN
    assert missed > 30
    assert ours <= 16  # 5 % of 200 are 10


def test_the_interval_is_students_when_items_are_certain() -> None:
    """For n = 3 the 97.5th percentile of t with 2 degrees of freedom is 4.3027."""
    d = np.array([1.0, 2.0, 4.0])
    found = judged([Quality(x, np.full(1000, x)) for x in d], [Quality(0.0, np.zeros(1000))] * 3, higher_is_better=True)
    half = 4.3027 * d.std(ddof=1) / np.sqrt(3)
    assert found.difference == pytest.approx(d.mean())
    assert (found.low, found.high) == pytest.approx((d.mean() - half, d.mean() + half), rel=0.03)


def test_less_is_better_for_errors_and_one_seed_gives_no_verdict() -> None:
    low, high = [Quality(x, np.full(100, x)) for x in (1.0, 1.1, 1.05)], [Quality(9.0, np.full(100, 9.0))] * 3
    assert judged(low, high, higher_is_better=False).word == BETTER
    assert judged(low, high, higher_is_better=True).word == WORSE
    alone = judged(low[:1], high[:1], higher_is_better=True)
    assert (alone.word, alone.low) == (OPEN, -8.0)


def test_what_is_not_finite_has_no_verdict() -> None:
    broken = [Quality(float("inf"), np.full(100, np.inf))] * 3
    assert judged(broken, [Quality(1.0, np.ones(100))] * 3, higher_is_better=False).word == OPEN
