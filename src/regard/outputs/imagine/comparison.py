"""Made things beside real ones, in the features of a classifier or in principal components of the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.inference.passes import Passes
from regard.inputs.input import Restores, Row
from regard.metrics import likeness
from regard.outputs.abilities import FeatureSpace
from regard.outputs.output import Held, halves

MOST = 3000  # things of each set
FEWEST = 4  # things whose covariance says something


def spread_over(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most so many, from all over."""
    count = len(items)
    return list(items) if count <= most else [items[i * count // most] for i in range(most)]


def values_of(passes: Passes, rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return the values of rows, (rows, …shape)."""
    return np.asarray(passes.input.collate(rows).values[0], np.float64)


def compared(
    passes: Passes, held: Held, made: NDArray[Any], training: Sequence[Any] | None, space: FeatureSpace | None
) -> list[metrics.Score]:
    """Score made things against held-out ones; with the `training` sources the distance has a floor and a ceiling."""
    input = passes.input
    assert isinstance(input, Restores)
    numbers = spread_over(range(len(held.items)), MOST)
    if min(len(numbers), len(made)) < FEWEST:
        return []
    noise = _noise(input, made.shape) if training is not None else None
    sources = None if training is None else spread_over(training, MOST)
    if space is not None:
        real = space.of([held.items[i].example.source for i in numbers])
        others = [None if each is None else space.of([input.thing(one) for one in each]) for each in (made, noise)]
        trained = None if sources is None else space.of(sources)
        return likeness.likeness(likeness.Sets(real, others[0], trained, others[1]), space.name)  # type: ignore[arg-type]
    rows = halves(input, [held.rows[i] for i in numbers])[0]
    real = _flat(values_of(passes, rows))
    mean, directions = likeness.principal_components(real)
    trained = None if sources is None else values_of(passes, input.encode(sources))
    sets = [None if each is None else (_flat(each) - mean) @ directions for each in (real, made, trained, noise)]
    scale = max(1e-12, input.spread) ** 2 * real.shape[1]  # values of any unit give distances about 1
    sets = [None if each is None else each / np.sqrt(scale) for each in sets]
    return likeness.likeness(likeness.Sets(*sets), f"principal components {directions.shape[1]}")  # type: ignore[arg-type]


def _flat(values: NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(values, np.float64).reshape(len(values), -1)


def _noise(input: Restores[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    generator = torch.Generator().manual_seed(metrics.SEED)
    return input.restore(torch.randn(shape, generator=generator)).numpy()
