"""The position of a run: everything that a state holds besides tensors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Window = list[tuple[float, int, float]]  # loss, tokens and seconds of the steps since the last validation


@dataclass
class Position:
    """Everything about a run that is not a tensor."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # within the epoch
    steps: int | None = None  # in all, once settled
    seconds: float = 0.0  # trained so far
    best: list[float] | None = None  # all metrics of the best validation, higher is better; empty without metrics
    best_step: int = 0
    better_step: int = 0  # when the score last improved, whether or not its weights could be kept
    better_seconds: float = 0.0
    items: int | None = None  # that a validation looks at, once that is decided
    whole: int = 1  # every how many validations look at all items
    bad: int = 0  # steps in a row whose loss was not finite
    kept: dict[str, str] = field(default_factory=dict)  # checkpoints by file name, with their SHA-256
    history: list[dict[str, Any]] = field(default_factory=list)
