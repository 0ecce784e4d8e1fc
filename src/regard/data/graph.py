"""A graph in memory: its nodes with features and labels, its edges, and who is a neighbour of whom.

Edges go from a sender to a receiver. An undirected edge is two of them; each is there once, without loops, sorted by
receiver. Large lists of edges are mapped into memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

MAPPED = 2_000_000  # edges beyond which their sorted list lies in a file that is mapped into memory
Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class Sparse(NamedTuple):
    """Rows of which most numbers are 0: how many of each row are not, their columns and amounts, and the width."""

    counts: Ints
    columns: Ints
    amounts: Floats
    width: int

    def of(self, nodes: Ints) -> Sparse:
        """Return some of the rows."""
        starts = np.concatenate(([0], np.cumsum(self.counts)))
        where = spans(starts[nodes], self.counts[nodes])
        return Sparse(self.counts[nodes], self.columns[where], self.amounts[where], self.width)


@dataclass(frozen=True, eq=False)
class Graph:
    """One graph. What it does not have is None or empty."""

    count: int  # nodes
    edges: Ints  # (e, 2): sender and receiver
    numbers: Floats | Sparse | None = None  # (n, f) features of nodes
    words: Sequence[Sequence[str]] | None = None  # features that are names, "colour=red"
    names: Sequence[str] | None = None  # of nodes; None: 0, 1, 2 …
    labels: Sequence[str | None] | None = None  # of nodes
    label: str | None = None  # of the graph: a class, or a text about it
    splits: Mapping[str, Ints] = field(default_factory=dict)  # nodes to train, validate and test on
    part: str = ""  # train, valid, test or fold3: what the whole graph is for
    strength: Floats | None = None  # (e,) weights of edges
    carried: Floats | None = None  # (e, g) features of edges

    def name(self, node: int) -> str:
        return str(node) if self.names is None else self.names[node]

    @cached_property
    def numbered(self) -> dict[str, int]:
        """The number of the node of each name."""
        return {self.name(i): i for i in range(self.count)}

    @cached_property
    def labelled(self) -> Ints:
        """The nodes that have a label."""
        if self.labels is None:
            return np.empty(0, np.int64)
        return np.array([i for i, label in enumerate(self.labels) if label is not None], dtype=np.int64)

    @cached_property
    def offsets(self) -> Ints:
        """The edges into node j are offsets[j] … offsets[j + 1]."""
        found = np.zeros(self.count + 1, np.int64)
        np.cumsum(np.bincount(self.edges[:, 1], minlength=self.count), out=found[1:])
        return found

    @cached_property
    def degrees(self) -> Ints:
        return np.diff(self.offsets)

    def around(
        self, nodes: Ints, hops: int, most: int = 0, draw: np.random.Generator | None = None
    ) -> tuple[Ints, Ints]:
        """Return the nodes that these can see within so many hops, themselves first, and the numbers of the edges.

        With `most` > 0 at most so many edges into each node are drawn at each hop; else all are there.
        """
        known = np.full(self.count, -1, np.int64)
        known[nodes] = np.arange(len(nodes))
        found, edges, frontier = [nodes], [], nodes
        size = len(nodes)
        for _ in range(hops):
            if not len(frontier):
                break
            taken = self.into(frontier, most, draw)
            senders = np.unique(self.edges[taken, 0])
            new = senders[known[senders] < 0]
            known[new] = np.arange(size, size + len(new))
            size += len(new)
            edges.append(taken)
            found.append(new)
            frontier = new
        return np.concatenate(found), np.concatenate(edges) if edges else np.empty(0, np.int64)

    def into(self, nodes: Ints, most: int = 0, draw: np.random.Generator | None = None) -> Ints:
        """Return the numbers of the edges into nodes; of each at most `most`, drawn without repetition."""
        counts = self.degrees[nodes]
        taken = spans(self.offsets[nodes], counts)
        if not most or draw is None or not len(counts) or counts.max() <= most:
            return taken
        owner = np.repeat(np.arange(len(nodes)), counts)
        order = np.lexsort((draw.random(len(taken)), owner))  # each node's edges in a random order
        rank = np.arange(len(taken)) - np.repeat(np.cumsum(counts) - counts, counts)
        return taken[np.sort(order[rank < most])]

    def within(self, nodes: Ints, edges: Ints) -> Graph:
        """Return the graph of these nodes and these edges between them."""
        place = np.full(self.count, -1, np.int64)
        place[nodes] = np.arange(len(nodes))
        moved = place[self.edges[edges]]
        order = np.lexsort((moved[:, 0], moved[:, 1]))
        numbers = self.numbers.of(nodes) if isinstance(self.numbers, Sparse) else _some(self.numbers, nodes)
        return Graph(
            len(nodes),
            moved[order],
            numbers,
            None if self.words is None else [self.words[i] for i in nodes],
            [self.name(int(i)) for i in nodes],
            None if self.labels is None else [self.labels[i] for i in nodes],
            self.label,
            strength=_some(self.strength, edges[order]),
            carried=_some(self.carried, edges[order]),
        )


def _some(values: Any, chosen: Ints) -> Any:
    return None if values is None else values[chosen]


def spans(starts: Ints, counts: Ints) -> Ints:
    """Return starts[0], starts[0] + 1 … (counts[0] of them), then the same from starts[1] …"""
    ends = np.cumsum(counts)
    found: Ints = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)
    return found


def make_graph(
    where: str,
    count: int,
    pairs: Any,
    *,
    directed: bool = False,
    numbers: Any = None,
    labels: Sequence[str | None] | None = None,
    strength: Any = None,
    carried: Any = None,
    splits: Mapping[str, Any] | None = None,
    **others: Any,
) -> Graph:
    """Return a graph of checked parts; every fault is a sentence that begins with `where`."""
    if count < 1:
        raise UserError(f"{where}: the graph has no nodes, expected at least one.")
    pairs = _pairs(where, count, pairs)
    if not isinstance(numbers, Sparse) and numbers is not None:
        numbers = _matrix(where, "nodes", numbers, count)
    elif numbers is not None:
        _finite(where, numbers.amounts, lambda i: f"node {int(np.searchsorted(np.cumsum(numbers.counts), i, 'right'))}")
    if labels is not None and len(labels) != count:
        raise UserError(f"{where}: {len(labels):,} labels for {count:,} nodes, expected one for each.")
    if strength is not None:
        strength = _matrix(where, "edges", np.asarray(strength).reshape(-1, 1), len(pairs))[:, 0]
        if (strength < 0).any():
            edge = int((strength < 0).argmax())
            raise UserError(f"{where}: edge {edge} has the weight {strength[edge]:g}, expected 0 or more.")
    if carried is not None:
        carried = _matrix(where, "edges", carried, len(pairs))
    edges, order = _both_ways(count, pairs, directed)
    return Graph(
        count,
        edges,
        numbers,
        labels=labels,
        strength=_some(strength, order),
        carried=_some(carried, order),
        splits={name: _nodes(where, name, nodes, count) for name, nodes in (splits or {}).items()},
        **others,
    )


def _pairs(where: str, count: int, pairs: Any) -> Ints:
    pairs = np.asarray(pairs)
    if not pairs.size:
        return np.empty((0, 2), np.int64)
    if pairs.ndim == 2 and pairs.shape[0] == 2 and pairs.shape[1] != 2:
        pairs = pairs.T
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise UserError(
            f"{where}: edges are {pairs.dtype} of the shape {pairs.shape}, expected pairs of whole numbers, (edges, 2)."
        )
    found: Ints = pairs.astype(np.int64, copy=False)
    if pairs.min() < 0 or pairs.max() >= count:
        edge = int(((pairs < 0) | (pairs >= count)).any(1).argmax())
        bad = next(int(node) for node in pairs[edge] if not 0 <= node < count)
        raise UserError(f"{where}: edge {edge} leads to node {bad}, expected nodes 0 to {count - 1}.")
    return found


def _matrix(where: str, noun: str, values: Any, count: int) -> Floats:
    try:
        found = np.asarray(values)
        found = found if found.dtype == np.float32 else found.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: features of {noun} are not numbers: {error}.") from error
    if found.ndim == 1:
        found = found.reshape(-1, 1)
    if found.ndim != 2 or len(found) != count:
        raise UserError(
            f"{where}: features of {noun} have the shape {found.shape}, expected a row for each of {count:,} {noun}."
        )
    _finite(where, found, lambda i: f"{noun[:-1]} {i // max(1, found.shape[1])}")
    return found


def _finite(where: str, values: Floats, who: Any) -> None:
    good = np.isfinite(values)
    if not good.all():
        place = int((~good).ravel().argmax())
        raise UserError(f"{where}: {who(place)} has the feature {values.ravel()[place]}, expected a finite number.")


def _nodes(where: str, name: str, nodes: Any, count: int) -> Ints:
    nodes = np.asarray(nodes)
    if nodes.dtype == bool:
        if nodes.shape != (count,):
            raise UserError(f"{where}: the mask {name} has the shape {nodes.shape}, expected ({count},).")
        nodes = np.flatnonzero(nodes)
    if nodes.ndim != 1 or nodes.dtype.kind not in "iu":
        raise UserError(f"{where}: the nodes of {name} are {nodes.dtype} {nodes.shape}, expected a row of numbers.")
    if nodes.size and (nodes.min() < 0 or nodes.max() >= count):
        wrong = nodes.min() if nodes.min() < 0 else nodes.max()
        raise UserError(f"{where}: {name} names node {wrong}, expected nodes 0 to {count - 1}.")
    found: Ints = nodes.astype(np.int64)
    return found


def _both_ways(count: int, pairs: Ints, directed: bool) -> tuple[Ints, Ints]:
    """Return edges sorted by receiver, each once and without loops, and the number of the pair that each comes from."""
    numbers = np.arange(len(pairs))
    sender, receiver = pairs[:, 0], pairs[:, 1]
    if not directed:
        sender, receiver, numbers = np.r_[sender, receiver], np.r_[receiver, sender], np.r_[numbers, numbers]
    keys, first = np.unique(receiver * count + sender, return_index=True)
    kept = keys // count != keys % count
    keys, first = keys[kept], first[kept]
    edges = np.empty((len(keys), 2), np.int64) if len(keys) <= MAPPED else _mapped((len(keys), 2))
    edges[:, 0], edges[:, 1] = keys % count, keys // count
    return edges, numbers[first]


def _mapped(shape: tuple[int, ...]) -> Any:
    """Return an array in a file without a name, which is gone with the array."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the array)
    return np.memmap(file, np.int64, "w+", shape=shape)
