"""The loss of a set: predictions and things are matched at the least cost, then compared one to one.

    cost(j, i) = −λ_c p_j(c_i) + λ_1 |b_j − b_i|₁ − λ_g GIoU(b_j, b_i)          σ = the assignment of least total cost
    loss = Σ_j −w_(c_σ(j)) log p_j(c_σ(j)) / Σ_j w  +  Σ_i (λ_1 |b_σ(i) − b_i|₁ + λ_g (1 − GIoU(b_σ(i), b_i))) / things

A query without a thing shall say "no object", which weighs `empty` (Carion et al. 2020, 3.1 and A.4). With `repeats`
each thing is matched with so many queries (Wang et al. 2022, DE-DETRs, 4.4).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from regard.layers.boxes import corners, overlap

FAR = 1e6  # the cost of what is not finite: it is matched last


class Objects(NamedTuple):
    """The things in pictures: classes (batch, m), −1 for none, and boxes (batch, m, 4) as x, y, w, h from 0 to 1."""

    classes: Tensor
    boxes: Tensor

    @property
    def real(self) -> Tensor:
        """True where a thing is, (batch, m)."""
        return self.classes >= 0


class SetWeights(NamedTuple):
    """λ_c, λ_1, λ_g, the weight of "no object", and with how many queries each thing is matched."""

    label: float = 1.0
    distance: float = 5.0
    overlap: float = 2.0
    empty: float = 0.1
    repeats: int = 1


class Matches(NamedTuple):
    """Pairs of a query and a thing, by row of the batch: each (pairs,)."""

    rows: Tensor
    queries: Tensor
    things: Tensor


@torch.no_grad()
def costs(logits: Tensor, boxes: Tensor, things: Objects, weights: SetWeights) -> Tensor:
    """Return the cost of each pair of a query and a thing, (batch, queries, things)."""
    chosen = things.classes.clamp(min=0)[:, None].expand(-1, logits.shape[1], -1)
    label = logits.softmax(-1).gather(-1, chosen)
    distance = (boxes[:, :, None] - things.boxes[:, None]).abs().sum(-1)
    giou = overlap(corners(boxes)[:, :, None], corners(things.boxes)[:, None])[1]
    return -weights.label * label + weights.distance * distance - weights.overlap * giou


def match(logits: Tensor, boxes: Tensor, things: Objects, weights: SetWeights) -> Matches:
    """Return the pairs of least total cost in each picture: every thing has its own query (the Hungarian method)."""
    cost = costs(logits, boxes, things, weights)
    # Where only shapes are computed, any matching is as large as the best.
    table = np.zeros(cost.shape, np.float32) if cost.is_meta else cost.nan_to_num(FAR, FAR, FAR).cpu().numpy()
    counts = things.real.sum(1).tolist()
    pairs = [(*_assigned(table[row, :, :count], weights.repeats), row) for row, count in enumerate(counts) if count]
    rows = [np.full(len(queries), row) for queries, _, row in pairs]
    found = (rows, [queries for queries, _, _ in pairs], [chosen for _, chosen, _ in pairs])
    joined = (np.concatenate(each) if pairs else np.zeros(0, np.int64) for each in found)
    return Matches(*(torch.from_numpy(each).to(logits.device) for each in joined))


def _assigned(table: NDArray[np.float32], repeats: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    from scipy.optimize import linear_sum_assignment  # answers need none of it

    queries, chosen = linear_sum_assignment(np.tile(table, repeats) if repeats > 1 else table)
    return queries, chosen % table.shape[1]


def set_loss(logits: Tensor, boxes: Tensor, things: Objects, found: Matches, weights: SetWeights) -> Tensor:
    """Return the sums of both terms, of classes and of boxes: (2,)."""
    none = logits.shape[-1] - 1
    wanted = torch.full(logits.shape[:2], none, device=logits.device)
    wanted[found.rows, found.queries] = things.classes[found.rows, found.things]
    each = logits.new_ones(none + 1)
    each[none] = weights.empty
    label = cross_entropy(logits.flatten(0, 1), wanted.flatten(), each, reduction="sum")
    box = box_loss(boxes[found.rows, found.queries], things.boxes[found.rows, found.things], weights)
    return torch.stack((weights.label * label, box))


def box_loss(boxes: Tensor, wanted: Tensor, weights: SetWeights) -> Tensor:
    """Return Σ λ_1 |b − b'|₁ + λ_g (1 − GIoU(b, b')) of boxes (n, 4)."""
    giou = overlap(corners(boxes), corners(wanted))[1]
    return weights.distance * (boxes - wanted).abs().sum() + weights.overlap * (1 - giou).sum()


def totals(counts: NDArray[np.int32], queries: int, weights: SetWeights) -> tuple[float, float]:
    """Return what both sums are divided by for rows with so many things: Σ w, and the number of matched things."""
    matched = np.minimum(weights.repeats * counts.astype(np.int64), queries).sum()
    return float(matched + weights.empty * (queries * len(counts) - matched)), float(matched)
