"""What must hold for every network, measured: the largest difference between two answers that should be one."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.inputs.tokens import START
from regard.outputs.converter import Batch, Converter


def of_converter(network: Converter, batch: Batch) -> Iterator[tuple[str, float]]:
    yield "causality: a later target token changes nothing earlier", _causality(network, batch)
    yield "padding: more of it changes nothing", _padding(network, batch)
    yield "batch: each row is the same alone", _alone(network, batch)
    yield "cache: step by step equals all at once", _cache(network, batch)


def _causality(network: Converter, batch: Batch) -> float:
    real = batch.target != 0
    middle = batch.target.shape[1] // 2
    changed = batch.target.clone()
    changed[:, middle:] = torch.where(real[:, middle:], 4 + (changed[:, middle:] + 1) % 4, 0)
    before, after = network(batch), network(Batch(batch.source, changed))
    return difference(before[:, :middle], after[:, :middle], real[:, :middle])


def _padding(network: Converter, batch: Batch) -> float:
    wider = Batch(*(pad(side, (0, 5)) for side in batch))
    return difference(network(batch), network(wider)[:, : batch.target.shape[1]], batch.target != 0)


def _alone(network: Converter, batch: Batch) -> float:
    together = network(batch)
    rows = [network(Batch(s[None, s != 0], t[None, t != 0]))[0] for s, t in zip(*batch, strict=True)]
    return max(float((together[i, : len(row)] - row).abs().max()) for i, row in enumerate(rows))


def _cache(network: Converter, batch: Batch) -> float:
    state, tokens, steps = network.start(batch.source), torch.full((len(batch.source),), START), []
    for t in range(batch.target.shape[1]):
        logits, state = network.step(tokens, state)
        steps.append(logits)
        tokens = batch.target[:, t]
    return difference(network(batch), torch.stack(steps, 1), batch.target != 0)


def difference(one: Tensor, other: Tensor, where: Tensor) -> float:
    """The largest of (batch, n, width) where (batch, n) says it counts."""
    return float((one - other).abs().amax(-1)[where].max()) if bool(where.any()) else 0.0
