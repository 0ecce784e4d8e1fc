"""Views: an input as people see it, for weights to be drawn on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.inspection.sound import SoundView

CLASS = "▷"  # the class token, which has no place


class Coverable(NamedTuple):
    """A part of an input that can be covered: its name, and the vectors that stand for it; of an edge its sender, and
    the receiver."""

    name: str
    vectors: tuple[int, ...]
    receiver: int | None = None


@dataclass(frozen=True, eq=False)
class GraphView:
    """Vectors that are nodes of a graph: edges (e, 2) from senders to receivers, what is known of each node, and the
    nodes that somebody asked about; none: all."""

    edges: NDArray[np.int64]
    known: Sequence[str | None] | None = None
    centres: Sequence[int] = ()


@dataclass(frozen=True)
class View:
    """A name for each vector that a network looks at. Where several vectors make up one thing that people read, as
    sub-words make up a word, `groups` has the number of its thing for each vector, and `labels` the things' names.

    `units` are the vectors that speak for what is labelled; None: each for itself. `merged`: show things, not vectors.
    """

    names: Sequence[str]
    groups: Sequence[int] | None = None
    labels: Sequence[str] = field(default=())
    units: Sequence[int] | None = None
    merged: bool = True
    sound: SoundView | None = None  # of a recording: its vectors are columns of its spectrogram
    picture: NDArray[np.uint8] | None = None  # (rows, columns, 3)
    grid: tuple[int, int] | None = None  # the last vectors are its places, row by row; those before have no place
    frames: int = 1  # of a film strip: pictures side by side in the picture
    listed: bool = False  # units have no order to read them in: each stands on a line of its own
    scene: GraphView | None = None

    @classmethod
    def of_picture(
        cls, picture: NDArray[np.uint8] | None, grid: tuple[int, int], marks: int = 0, frames: int = 1
    ) -> View:
        """Return the view of a picture whose vectors are the places of a grid, after some `marks`."""
        (rows, columns), wide = grid if picture is not None else (0, 0), grid[1] // frames
        frame = [f"f{c // wide + 1}" if frames > 1 else "" for c in range(columns)]
        names = [f"{frame[c]}r{r + 1}c{c % wide + 1}" for r in range(rows) for c in range(columns)]
        return cls([*[CLASS] * marks, *names], picture=picture, grid=grid, frames=frames)

    def laid(self, count: int, grid: tuple[int, int, int] | None) -> View:
        """Return the view for a network whose stem makes `count` vectors, the last of them the places of a grid."""
        if self.picture is None or grid is None:
            return self
        return View.of_picture(self.picture, grid[1:], count - grid[1] * grid[2], self.frames)

    def spread(self, weights: NDArray[Any], axis: int = -1) -> NDArray[Any]:
        """Return weights over the places of a coarser grid (Swin's later stages) over those of this one: what a place
        gets is shared by the places that it is made of; of queries (axis −2) each has the whole."""
        count = weights.shape[axis]
        if self.grid is None or count == len(self.names):
            return weights
        (rows, columns), marks = self.grid, len(self.names) - self.grid[0] * self.grid[1]
        halved = (1 << n for n in range(1, rows.bit_length() + 1))  # each stage joins 2 × 2 places of the one before
        times = next((t for t in halved if -(-rows // t) * -(-columns // t) == count), None)
        if marks or times is None:
            return weights
        place = np.arange(rows * columns)
        coarse = place // columns // times * -(-columns // times) + place % columns // times
        taken = np.take(weights, coarse, axis)
        return taken if axis == -2 else taken / np.bincount(coarse)[coarse]

    @property
    def shown(self) -> list[str]:
        """The names of the columns of `columns`."""
        return list(self.names if self.groups is None or not self.merged else self.labels)

    def filled(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return weights (…, n) with a column for each vector: a pyramid of states looks at fewer, each at the place of
        the first that it stands for."""
        missing = len(self.names) - weights.shape[-1]
        if self.sound is None or missing <= 0:
            return weights
        return np.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])

    def unit_names(self) -> list[str]:
        """Return the name of each unit."""
        if self.units is None:
            return list(self.names)
        return [self.labels[self.groups[i]] if self.groups is not None else self.names[i] for i in self.units]

    def columns(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Sum weights (…, vectors) over the vectors of each thing: rows that add to 1 still do."""
        if self.groups is None or not self.merged:
            return np.asarray(self.spread(weights), dtype=np.float32)
        return np.asarray(weights @ self._members(), dtype=np.float32)

    def rows(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """Average weights (…, vectors, n) over the vectors of each thing."""
        if self.groups is None or not self.merged:
            return weights
        members = self._members()
        return np.asarray((members / members.sum(0)).T @ weights, dtype=np.float32)

    def _members(self) -> NDArray[np.float32]:
        groups = np.asarray(self.groups)
        return np.asarray(np.equal.outer(groups, np.arange(len(self.labels))), dtype=np.float32)


def joined(pieces: Sequence[str], groups: Sequence[int]) -> list[str]:
    """Return the words that pieces make up."""
    words: dict[int, str] = {}
    for piece, group in zip(pieces, groups, strict=True):
        words[group] = words.get(group, "") + piece.removeprefix("▁")
    return [words[group] for group in sorted(words)]


def refuse_unseeable(text: str, count: int, most: int, of: str = "tokens", why: str = "") -> None:
    """Refuse a text that is empty, or has more than the `most` tokens that can be shown."""
    if not count:
        raise UserError(f"The text {f'{text!r} ' if text else ''}is empty: there is nothing to look at.")
    if count > most:
        raise UserError(f"The text is too long to show: {count:,} {of}, expected at most {most:,}{why}.")


@dataclass(frozen=True)
class Drawing:
    """The picture that is shown first: `weights` (m, n) with the names of their rows and columns, or (n,) on the
    columns alone; and `heads` (layers, heads, …) for a grid, with names of their own."""

    weights: NDArray[np.float32]
    columns: Sequence[str]
    rows: Sequence[str] = ()
    title: str | None = None
    what: str = "attention weight"
    heads: tuple[NDArray[Any], Sequence[str], Sequence[str]] | None = None
    spans: Sequence[tuple[float, float, str]] = ()  # of a recording: start, end and label of what is said
    spoken: bool = False  # the rows are said one after the other
    boxes: Sequence[
        tuple[float, float, float, float]
    ] = ()  # of the rows: left, top, right, bottom in a picture, 0 to 1
