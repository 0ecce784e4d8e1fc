"""Fréchet distance, precision, recall and diversity beside their formulas, by another way."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from regard.metrics.likeness import Sets, diversity, frechet, likeness, principal_components, reached


def drawn(seed: int, shift: float = 0.0, count: int = 60, width: int = 5) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, width)) @ generator.normal(size=(width, width)) + shift


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_frechet_equals_scipys_square_root_of_a_matrix(shift: float) -> None:
    one, other = drawn(1), drawn(2, shift)
    first, second = np.cov(one, rowvar=False), np.cov(other, rowvar=False)
    gap = one.mean(0) - other.mean(0)
    expected = gap @ gap + np.trace(first + second - 2 * sqrtm(first @ second).real)
    assert frechet(one, other) == pytest.approx(expected, rel=1e-9)


def test_frechet_of_a_set_and_itself_is_zero_also_when_its_covariance_is_singular() -> None:
    flat = np.concatenate((drawn(1), drawn(1)[:, :2]), 1)
    assert frechet(flat, flat) == pytest.approx(0, abs=1e-6)
    assert frechet(flat, flat + 1) == pytest.approx(7, rel=1e-6)


def test_precision_and_recall_equal_loops_over_all_pairs() -> None:
    real, made = drawn(1, count=30), drawn(3, 0.7, count=25)

    def by_loops(asked: np.ndarray, manifold: np.ndarray) -> list[bool]:
        found = []
        for point in asked:
            inside = False
            for i, centre in enumerate(manifold):
                others = sorted(np.linalg.norm(centre - other) for j, other in enumerate(manifold) if j != i)
                inside = inside or bool(np.linalg.norm(point - centre) <= others[2])
            found.append(inside)
        return found

    assert reached(made, real).tolist() == by_loops(made, real)
    assert reached(real, made).tolist() == by_loops(real, made)
    assert 0 < np.mean(by_loops(made, real)) < 1


def test_reach_ends_behind_the_neighbour_that_sets_it() -> None:
    manifold = np.array([[0.0], [0.7], [1.6]])
    assert reached(np.array([[-0.7], [-0.71], [2.5], [2.51]]), manifold, 1).tolist() == [True, False, True, False]


def test_diversity_of_one_thing_again_and_again_is_zero() -> None:
    real = drawn(1)
    assert diversity(np.repeat(real[:1], 20, 0), real) == pytest.approx(0, abs=1e-5)
    assert diversity(real, real) == pytest.approx(100)
    assert diversity(real / 2, real) == pytest.approx(50)


def test_principal_components_are_those_of_the_covariance() -> None:
    vectors = drawn(4)
    mean, directions = principal_components(vectors, 2)
    values, axes = np.linalg.eigh(np.cov(vectors, rowvar=False))
    assert np.allclose(np.abs(directions.T @ axes[:, ::-1][:, :2]), np.eye(2), atol=1e-8)
    assert ((vectors - mean) @ directions).var(0, ddof=1) == pytest.approx(values[::-1][:2])


def test_scores_name_their_space_and_have_a_floor_and_a_ceiling() -> None:
    sets = Sets(drawn(1), drawn(1) + 0.5, drawn(1) + 0.1, drawn(9, 5.0))
    found = {score.name: score for score in likeness(sets, "clothes, sha256 abc")}
    assert found["frechet_floor"].value < found["frechet_distance"].value < found["frechet_ceiling"].value
    assert all("space:clothes, sha256 abc" in score.signature for score in found.values())
    assert "training data against held-out data" in found["frechet_floor"].signature
    assert not found["frechet_distance"].higher_is_better
    assert found["precision"].higher_is_better
    assert "frechet_floor" not in {score.name for score in likeness(Sets(drawn(1), drawn(2)), "x")}
