"""Boxes as tensors (…, 4): middle and size (x, y, w, h) as shares of a picture, or corners (left, top, right,
bottom).

    IoU(a, b) = |a ∩ b| / |a ∪ b|
    GIoU(a, b) = IoU(a, b) − |c \\ (a ∪ b)| / |c|        c the smallest box around both (Rezatofighi et al. 2019, 3)

GIoU is −1 to 1; unlike IoU it has a gradient where boxes do not touch.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-7  # of an area that something is divided by


def corners(boxes: Tensor) -> Tensor:
    """Return (x, y, w, h) as (left, top, right, bottom)."""
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat((middle - half, middle + half), -1)


def centred(edges: Tensor) -> Tensor:
    """Return (left, top, right, bottom) as (x, y, w, h)."""
    low, high = edges[..., :2], edges[..., 2:]
    return torch.cat(((low + high) / 2, high - low), -1)


def overlap(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return IoU and GIoU of boxes given by their corners; shapes broadcast: (…, n, 1, 4) and (…, 1, m, 4) are all
    pairs."""
    inside = (torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2])).clamp(min=0)
    around = torch.maximum(one[..., 2:], other[..., 2:]) - torch.minimum(one[..., :2], other[..., :2])
    shared, whole = inside.prod(-1), around.clamp(min=0).prod(-1)
    union = _area(one) + _area(other) - shared
    iou = shared / union.clamp(min=LEAST)
    return iou, iou - (whole - union) / whole.clamp(min=LEAST)


def _area(edges: Tensor) -> Tensor:
    return (edges[..., 2:] - edges[..., :2]).clamp(min=0).prod(-1)


def moved(boxes: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Return where boxes (batch, m, 4) are in pictures that were moved, mirrored or scaled, cut at the border, and the
    share of each that is still in the picture.

    `change` (batch, 2, 3) maps places (x, y) from −1 to 1 in the new picture to those in the old one, as
    `Source.change` has it: without a rotation, so that boxes stay boxes.
    """
    scale = change.diagonal(dim1=1, dim2=2)[:, None, :]  # (batch, 1, 2)
    shift = change[:, None, :, 2]
    ends = 2 * corners(boxes) - 1
    one, other = ((each - shift) / scale for each in (ends[..., :2], ends[..., 2:]))
    edges = (torch.cat((torch.minimum(one, other), torch.maximum(one, other)), -1) + 1) / 2
    inside = edges.clamp(0, 1)
    left = _area(inside) / _area(edges).clamp(min=LEAST)
    return centred(inside), left


def unique(edges: Tensor, scores: Tensor, most: float) -> Tensor:
    """Return True for each box that overlaps no better one by an IoU of more than `most` (non-maximum suppression)."""
    keep = torch.ones(len(edges), dtype=torch.bool)
    overlaps = overlap(edges[:, None], edges[None])[0] > most
    for number in scores.argsort(dim=0, descending=True, stable=True).tolist():
        if keep[number]:
            worse = overlaps[number].clone()
            worse[number] = False
            keep &= ~worse | (scores > scores[number])
    return keep
