"""Scores of codes: the terms of the evidence lower bound, and how many numbers of a code say something.

The loss weighs Σ (x − x̂)² against w Σ (μ² + σ² − log σ² − 1) = 2 w KL (w = β n / m), as a decoder N(x̂, w I) does:

    −ELBO = Σ (x − x̂)² / 2w + (D / 2) log 2πw + KL       nats of a thing of D components
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from regard import metrics
from regard.inference.passes import Passes
from regard.inputs.input import Row
from regard.metrics.scores import make_score
from regard.outputs.imagine.codes import CodeHead
from regard.outputs.imagine.maker import Things, restored
from regard.outputs.imagine.settings import CodeSettings

ACTIVE = 0.01  # nats that a number of a code says at least, in the mean over things


class Coder(Protocol):
    """An output with codes."""

    things: Things
    code_settings: CodeSettings
    weight: float


def measured(output: Coder, passes: Passes, rows: Sequence[Row], samples: int) -> list[metrics.Score]:
    """Score the codes of stored things and what is made of them; codes are drawn with a seed, once for each thing."""
    head = passes.network.head
    assert isinstance(head, CodeHead)
    input, latent = restored(passes), output.code_settings.latent
    noise = torch.randn(len(rows), latent, generator=torch.Generator().manual_seed(metrics.SEED))

    def work(source: Any, numbers: list[int]) -> NDArray[np.float64]:
        code = head.code(passes.network.features(source))
        drawn = code.drawn(noise[numbers].to(code.mean))
        missed = [input.distance(source.values[0], head.decoded(z)).double() for z in (code.mean, drawn)]
        return np.asarray(torch.cat((torch.stack(missed, 1), code.divergence().double() / 2), 1).cpu())

    found = np.stack([one for one in passes.each(rows, work) if one is not None])
    ones = np.ones(len(found))

    def score(name: str, each: NDArray[Any], signature: str) -> metrics.Score:
        table = np.stack((each, ones), 1)
        return make_score(name, table, _mean, signature, samples, metrics.SEED, unit="", higher_is_better=False)

    missed, drawn, nats = found[:, 0], found[:, 1], found[:, 2:]
    components = math.prod(output.things.shape)
    error = score("reconstruction_error", missed, f"sum of squares over {components} components|code:mean")
    each = score("squared_error", missed / components, "mean over components|code:mean")
    if not head.variational:
        return [error, each]
    weight = output.weight or 1.0
    terms = drawn / (2 * weight) + components / 2 * math.log(2 * math.pi * weight) + nats.sum(1)
    active = float((nats.mean(0) > ACTIVE).sum())
    return [
        score("negative_elbo", terms, f"nats|decoder:normal, variance {weight:.4g}|code:one draw, seed {metrics.SEED}"),
        error,
        each,
        score("kl_divergence", nats.sum(1), "nats|half of the loss's second sum"),
        metrics.Score(
            "active_dimensions", active, "", None, None, len(found), True, f"of {latent}|more than {ACTIVE} nats each"
        ),
    ]


def _mean(sums: list[float]) -> float:
    return sums[0] / max(sums[1], 1e-12)
