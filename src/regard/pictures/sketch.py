"""A graph to be drawn: its nodes, where they lie, and the weights along its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sketch:
    """Nodes and edges to be drawn. Each of `panels` has a title and a weight for each edge, NaN where nobody looks."""

    names: Sequence[str]
    places: Matrix  # (n, 2)
    edges: NDArray[np.int64]  # (e, 2): sender and receiver
    panels: Sequence[tuple[str, Matrix]]
    groups: Sequence[str | None]  # the label of each node
    legend: str  # what the groups are
    title: str
    centres: Sequence[int] = ()
    shades: Matrix | None = None  # (n,) how much each node had to do with the answer
    loops: Sequence[tuple[int, float]] = field(default=())  # how much a node looked at itself
    kept: Sequence[int] = ()  # the numbers of the nodes among all
    what: str = "weight along an edge"


def rings(count: int, edges: NDArray[np.int64], centre: int) -> Matrix:
    """Return places (count, 2) on rings by the number of hops from a node, near those that each is reached through."""
    hop = np.full(count, -1)
    angle = np.zeros(count)
    hop[centre] = 0
    frontier, places = [centre], np.zeros((count, 2))
    ring = 0
    while frontier:
        ring += 1
        found: dict[int, list[float]] = {}
        for node in frontier:
            for other in edges[edges[:, 1] == node, 0].tolist():
                if hop[other] < 0:
                    found.setdefault(other, []).append(angle[node])
        frontier = sorted(found, key=lambda node: (float(np.mean(found[node])), node))
        for place, node in enumerate(frontier):
            hop[node], angle[node] = ring, 2 * np.pi * (place + 0.5 * (ring % 2)) / len(frontier)
            places[node] = ring * np.array([np.cos(angle[node]), np.sin(angle[node])])
    left = np.flatnonzero(hop < 0)
    for place, node in enumerate(left.tolist()):
        turn = 2 * np.pi * place / len(left)
        places[node] = (ring + 0.5) * np.array([np.cos(turn), np.sin(turn)])
    scaled: Matrix = places / max(1.0, float(np.abs(places).max()))
    return scaled


def springs(count: int, edges: NDArray[np.int64], rounds: int = 300) -> Matrix:
    """Return places (count, 2) in −1 … 1: nodes repel each other, edges pull (Fruchterman and Reingold 1991)."""
    places = np.random.default_rng(0).uniform(-1, 1, (count, 2))
    if count < 2:
        return np.zeros((count, 2))
    length = 1.2 / np.sqrt(count)
    for heat in np.linspace(0.2, 0.005, rounds):
        apart = places[:, None] - places[None]
        distance = np.maximum(np.linalg.norm(apart, axis=-1), 1e-3)
        force = (apart * (length**2 / distance**2)[..., None]).sum(1)
        if len(edges):
            along = places[edges[:, 0]] - places[edges[:, 1]]
            pull = along * (np.linalg.norm(along, axis=1) / length)[:, None] / 2
            np.add.at(force, edges[:, 0], -pull)
            np.add.at(force, edges[:, 1], pull)
        force -= 0.4 * places * length  # parts that hang together with nothing do not fly away
        size = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-9)
        places += force / size * np.minimum(size, heat)
    places -= np.median(places, 0)
    reach = np.maximum(
        np.quantile(np.abs(places), 0.98, axis=0), 1e-9
    )  # a few that lie far out do not squeeze the rest
    scaled: Matrix = np.clip(0.95 * places / reach, -1.1, 1.1)
    return scaled
