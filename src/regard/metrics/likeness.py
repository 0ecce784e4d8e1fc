"""Likeness of two sets of vectors: how near made things are to real ones, and how much of them they cover.

| score | definition |
|---|---|
| Fréchet distance | |m₁ − m₂|² + tr(C₁ + C₂ − 2 (C₁ C₂)^½), by means and covariances (Heusel et al. 2017) |
| precision | share of made vectors within reach of a real one (Kynkäänniemi et al. 2019, eq. 1–2) |
| recall | share of real vectors within reach of a made one; a vector reaches to its third neighbour in its own set |
| diversity | mean distance of two made vectors ÷ that of two real ones |
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.metrics.scores import Score

Vectors = NDArray[np.float64]
NEIGHBOURS = 3
COMPONENTS = 32


def frechet(one: Vectors, other: Vectors) -> float:
    """Return the Fréchet distance of the normal distributions with the means and covariances of two sets."""
    gap = one.mean(0) - other.mean(0)
    first, second = (np.atleast_2d(np.cov(each, rowvar=False)) for each in (one, other))
    # tr (C_1 C_2)^½ by the symmetric C_1^½ C_2 C_1^½, which has the same eigenvalues and no imaginary rest
    values, axes = np.linalg.eigh(first)
    root = (axes * np.sqrt(np.maximum(values, 0))) @ axes.T
    mixed = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ second @ root), 0)).sum()
    return float(gap @ gap + np.trace(first) + np.trace(second) - 2 * mixed)


def squared_distances(one: Vectors, other: Vectors) -> Vectors:
    """Return the squared distance of each vector of one set from each of the other."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    return np.asarray(np.maximum(squares, 0))


def reached(asked: Vectors, manifold: Vectors, neighbours: int = NEIGHBOURS) -> NDArray[np.bool_]:
    """Return True for each asked vector that lies within reach of some vector of the manifold."""
    neighbours = min(neighbours, len(manifold) - 1)
    reach = np.partition(squared_distances(manifold, manifold), neighbours, axis=1)[:, neighbours]  # itself is the 0th
    return np.asarray((squared_distances(asked, manifold) <= reach[None] * (1 + 1e-12)).any(1))


def diversity(made: Vectors, real: Vectors) -> float:
    """Return the mean distance of two made vectors as a percentage of that of two real ones."""
    return 100 * _apart(made) / max(_apart(real), 1e-12)


def _apart(vectors: Vectors) -> float:
    count = len(vectors)
    return float(np.sqrt(squared_distances(vectors, vectors)).sum() / max(1, count * (count - 1)))


def principal_components(vectors: Vectors, count: int = COMPONENTS) -> tuple[Vectors, Vectors]:
    """Return the mean of vectors and their first principal directions, (width, count)."""
    mean = vectors.mean(0)
    _, _, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    return mean, directions[:count].T


class Sets(NamedTuple):
    """Vectors of things that are held out, made, trained on (for the floor), and of noise (for the ceiling)."""

    real: Vectors
    made: Vectors
    trained: Vectors | None = None
    noise: Vectors | None = None


def likeness(sets: Sets, space: str) -> list[Score]:
    """Score made things against real ones in a space of this name, with floor and ceiling where these are known."""
    count = min(len(sets.real), len(sets.made))
    signature = f"space:{space}|made:{len(sets.made)}|real:{len(sets.real)}"

    def score(name: str, value: float, unit: str, more: str = "", *, higher: bool) -> Score:
        return Score(name, value, unit, None, None, count, higher, signature + more)

    found = [score("frechet_distance", frechet(sets.made, sets.real), "", higher=False)]
    for name, other, what in (("floor", sets.trained, "training data"), ("ceiling", sets.noise, "noise")):
        if other is not None:
            more = f"|{what} against held-out data"
            found.append(score(f"frechet_{name}", frechet(other, sets.real), "", more, higher=False))
    manifold = f"|neighbours:{NEIGHBOURS}"
    precision, recall = (100 * float(reached(a, b).mean()) for a, b in ((sets.made, sets.real), (sets.real, sets.made)))
    found.append(score("precision", precision, "%", manifold, higher=True))
    found.append(score("recall", recall, "%", manifold, higher=True))
    found.append(score("diversity", diversity(sets.made, sets.real), "%", higher=True))
    return found
