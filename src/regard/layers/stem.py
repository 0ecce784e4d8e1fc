"""The stem of a network: how the elements of an input become vectors. Builders describe it, inputs make it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Flag
from typing import NamedTuple

from torch import nn


class Marks(Flag):
    """Marks that a network wants around the elements of each row."""

    NONE = 0
    FIRST = 1
    LAST = 2
    BOTH = 3


class Shape(NamedTuple):
    """Rows, columns and channels of pictures, the side of a patch, and the vectors that stand before the patches."""

    rows: int
    columns: int
    channels: int
    patch: int
    marks: int = 0


@dataclass(frozen=True)
class Stem:
    """A builder's description of the module that makes vectors of `width`.

    `place` adds positions, `scale` multiplies tables by √width, `ngrams` gives vectors to runs of elements in so many
    `buckets`. `whole(size)` takes the place of the table of an alphabet with so many elements (BERT has its own);
    `pixels(shape)` that of linear patches: a module from pixels (batch, channels, rows, columns) to a Context.
    """

    width: int
    place: nn.Module | None = None
    dropout: float = 0.0
    scale: bool = True
    std: float | None = None  # of the tables' first weights
    ngrams: int = 1
    buckets: int = 2**17
    whole: Callable[[int], nn.Module] | None = None
    pixels: Callable[[Shape], nn.Module] | None = None
    marks: Marks = Marks.NONE
    reach: int = 0  # layers along edges, where the network has such: as many hops away it sees
    edges: int = 0  # width of the features of edges that the network wants
