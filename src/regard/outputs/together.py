"""Several networks that search together, trained apart: p(y_t | y_<t, x) is the mean of what they say.

They err in different places, so their mean errs less than any of them (Sutskever et al. 2014, 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.outputs.converter import Converter, State


@dataclass(frozen=True)
class States:
    """The state of each network."""

    each: tuple[State, ...]

    def reorder(self, index: Tensor) -> States:
        return States(tuple(state.reorder(index) for state in self.each))


class Together:
    """The `start` and `step` of a Converter, for several of them; log-probabilities take the place of logits."""

    def __init__(self, networks: Sequence[Converter]) -> None:
        self.networks = tuple(networks)

    def start(self, source: Tensor) -> States:
        return States(tuple(network.start(source) for network in self.networks))

    def step(self, tokens: Tensor, states: States) -> tuple[Tensor, States]:
        found = [network.step(tokens, state) for network, state in zip(self.networks, states.each, strict=True)]
        logs = torch.stack([logits.log_softmax(-1) for logits, _ in found]).logsumexp(0) - math.log(len(found))
        return logs, States(tuple(state for _, state in found))
