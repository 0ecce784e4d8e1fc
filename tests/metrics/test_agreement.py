"""Matthews, F1 of one class, Pearson and Spearman against scikit-learn and scipy."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as theirs

from regard import metrics
from regard.errors import UserError


@pytest.mark.parametrize("labels", [2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_are_scored_as_scikit_learn_scores_them(labels: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    expected = drawn.integers(labels, size=200)
    answered = np.where(drawn.random(200) < 0.5, expected, drawn.integers(labels, size=200))
    one, other = ([f"l{i}" for i in side] for side in (answered, expected))
    references = [[label] for label in other]
    ours = metrics.matthews(one, references, samples=50)
    assert ours.value == pytest.approx(100 * theirs.matthews_corrcoef(other, one))
    assert ours.low is not None
    assert ours.low < ours.value < ours.high
    for label in range(labels):
        found = metrics.class_f1(one, references, label=f"l{label}", samples=0).value
        assert found == pytest.approx(100 * theirs.f1_score(expected == label, answered == label))


def test_one_answer_for_all_has_no_correlation() -> None:
    assert metrics.matthews(["a"] * 4, [["a"], ["b"], ["a"], ["b"]], samples=5).value == 0
    assert metrics.class_f1(["a"], [["a"]], label="b", samples=0).value == 0
    assert metrics.pearson(["1", "1"], [["1"], ["2"]], samples=5).value == 0
    assert metrics.spearman(["1", "1"], [["1"], ["2"]], samples=5).value == 0


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_numbers_are_correlated_as_scipy_correlates_them(shift: float) -> None:
    drawn = np.random.default_rng(3)
    y = drawn.normal(size=150).round(1) + shift  # with equal ones
    x = (y + drawn.normal(size=150)).round(1)
    texts, references = [str(v) for v in x], [[str(v)] for v in y]
    assert metrics.pearson(texts, references, samples=0).value == pytest.approx(100 * stats.pearsonr(x, y)[0])
    assert metrics.spearman(texts, references, samples=0).value == pytest.approx(100 * stats.spearmanr(x, y)[0])
    error = metrics.mean_error(texts, references, samples=20)
    assert error.value == pytest.approx(np.abs(x - y).mean())
    assert not error.higher_is_better
    low, high = (
        metrics.pearson(texts, references, samples=300).low,
        metrics.pearson(texts, references, samples=300).high,
    )
    known = stats.pearsonr(x, y).confidence_interval()
    assert low == pytest.approx(100 * known.low, abs=6)
    assert high == pytest.approx(100 * known.high, abs=6)


def test_what_is_no_number_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"expected one such as 3\.5, found 'many'"):
        metrics.pearson(["1"], [["many"]])
