"""Several networks that search together, trained apart: p(y_t | y_<t, x) is the mean of what they say.

They err in different places, so their mean errs less than any of them (Sutskever et al. 2014, 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.inference.search import SearchState, Step


@dataclass(frozen=True)
class EnsembleState:
    """The state of each network."""

    each: tuple[SearchState, ...]

    def reorder(self, index: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.reorder(index) for state in self.each))


class Ensemble:
    """The step of several networks; log-probabilities take the place of logits."""

    def __init__(self, steps: Sequence[Step[Any]]) -> None:
        self.steps = tuple(steps)

    def step(self, tokens: Tensor, states: EnsembleState) -> tuple[Tensor, EnsembleState]:
        made = [step(tokens, state) for step, state in zip(self.steps, states.each, strict=True)]
        logs = torch.stack([logits.log_softmax(-1) for logits, _ in made]).logsumexp(0) - math.log(len(made))
        return logs, EnsembleState(tuple(state for _, state in made))
