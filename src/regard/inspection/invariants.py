"""Invariants of every network, measured: the largest difference between two answers that should be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.text.labels import FIRST
from regard.text.tokenizer import PAD


def difference(one: Tensor, other: Tensor, where: Tensor) -> float:
    """Return the largest difference of (batch, n, width) where (batch, n) says it counts."""
    return float((one - other).abs().amax(-1)[where].max()) if bool(where.any()) else 0.0


def causality(ids: Tensor, real: Tensor, scores: Callable[[Tensor], Tensor]) -> float:
    """Return how much other elements in the second half of rows (batch, n) change the scores of the first half."""
    middle = ids.shape[1] // 2
    others = max(1, min(4, int(ids.max()) - FIRST + 1))  # elements that are known to be in the vocabulary
    changed = ids.clone()
    changed[:, middle:] = torch.where(real[:, middle:], FIRST + (ids[:, middle:] + 1) % others, PAD)
    return difference(scores(ids)[:, :middle], scores(changed)[:, :middle], real[:, :middle])


def stepwise(step: Callable[[Tensor, Any], tuple[Tensor, Any]], state: Any, ids: Tensor) -> Tensor:
    """Return the logits of a search's steps over rows (batch, n), joined as one pass gives them."""
    logits = []
    for tokens in ids.unbind(1):
        scores, state = step(tokens, state)
        logits.append(scores)
    return torch.stack(logits, 1)
