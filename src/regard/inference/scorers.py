"""Several scorers of one search: log p = Σ_i w_i · log p_i, each with a state of its own.

A scorer is what `search` calls a model: `step(tokens, state) -> (scores, state)`. An ensemble, a language model and CTC
prefix scores are scorers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.inference.search import Step

LOWEST = -1e5  # of a log-probability: what one scorer holds to be impossible stays comparable


@dataclass(frozen=True)
class ScorersState:
    """The state of each scorer."""

    each: tuple[Any, ...]

    def reorder(self, index: Tensor) -> ScorersState:
        return ScorersState(tuple(state.reorder(index) for state in self.each))


class Weighted:
    """The weighted sum of the log-probabilities of several scorers; search it with `summed=True`."""

    def __init__(self, scorers: Sequence[tuple[Step[Any], float]]) -> None:
        self.scorers = tuple(scorers)

    def step(self, tokens: Tensor, state: ScorersState) -> tuple[Tensor, ScorersState]:
        made = [step(tokens, own) for (step, _), own in zip(self.scorers, state.each, strict=True)]
        parts = [
            weight * scores.float().log_softmax(-1).clamp(min=LOWEST)
            for (scores, _), (_, weight) in zip(made, self.scorers, strict=True)
        ]
        return torch.stack(parts).sum(0), ScorersState(tuple(own for _, own in made))
