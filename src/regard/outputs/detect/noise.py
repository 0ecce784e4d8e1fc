"""Denoising: things of the training data, spoilt, are given to extra queries that shall mend them (Li et al. 2022,
DN-DETR, 4). Nothing has to be matched there, so boxes and classes are learned long before the matching is steady.

A group holds each thing once. Queries look at their own group alone: nobody can read the answer off a neighbour.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.layers.boxes import centred, corners
from regard.outputs.detect.matching import Objects


class Noise(NamedTuple):
    """The number of groups, how far boxes are spoilt, in shares of their size, and how often labels are."""

    groups: int = 0
    boxes: float = 0.4
    labels: float = 0.2


class Spoilt(NamedTuple):
    """Spoilt things, all groups one after the other, and what they were: each (batch, groups · m, …)."""

    classes: Tensor
    boxes: Tensor
    was: Objects


def spoilt(things: Objects, how: Noise, count: int) -> Spoilt:
    """Return things with noise, drawn by torch; `count` is the number of classes.

    A middle moves by up to half of `boxes` sizes, so that it stays in the box, and a side changes by that share.
    """
    was = Objects(things.classes.repeat(1, how.groups), things.boxes.repeat(1, how.groups, 1))
    boxes, size = was.boxes, was.boxes[..., 2:]
    drawn = 2 * torch.rand_like(boxes) - 1
    middle = boxes[..., :2] + how.boxes / 2 * drawn[..., :2] * size
    edges = corners(torch.cat((middle, size * (1 + how.boxes * drawn[..., 2:])), -1)).clamp(0, 1)
    other = torch.randint(count, was.classes.shape, device=boxes.device)
    flipped = torch.rand(was.classes.shape, device=boxes.device) < how.labels
    return Spoilt(torch.where(flipped, other, was.classes).clamp(min=0), centred(edges), was)
