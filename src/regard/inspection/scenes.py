"""A graph as it is drawn: the nodes that matter, where they lie, and the weights along their edges, hop by hop.

The answer for node c comes from the last layer's weights of c; what its neighbours knew then comes from the layer
before. So hop h of a picture shows layer L − h + 1 at the nodes that hop h − 1 reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.inspection.view import GraphView, View
from regard.pictures.sketch import Matrix, Sketch, rings, springs

SAME = 1e-6  # weights that differ by less are the same
LEAST = 1e-3  # share of an answer that makes a node worth drawing
DRAWN = 40  # nodes around one that somebody asked about
WHOLE = 200  # nodes of a graph that is drawn whole
MOST = 2500  # nodes that are looked at to find those that matter


def refuse_crowd(view: View, text: str) -> None:
    """Refuse a graph that nobody could look at."""
    scene = view.scene
    if scene is None:
        return
    if not scene.centres and len(view.names) > WHOLE:
        raise UserError(
            f"{text} has {len(view.names):,} nodes, expected at most {WHOLE} in a picture: choose some with --node."
        )
    if len(view.names) > MOST:
        raise UserError(
            f"{text} has {len(view.names):,} nodes that the answer depends on, expected at most {MOST:,}: choose "
            "another --node."
        )


def sketch(
    view: View,
    layers: Sequence[Any],
    title: str,
    groups: Sequence[str | None] | None = None,
    shades: Any = None,
    legend: str = "label in the file",
) -> Sketch:
    """Return what to draw of a view whose vectors are nodes; `layers` are weights (heads, n, n), the last one last."""
    scene = view.scene
    assert scene is not None
    means: list[Matrix] = [np.asarray(layer, np.float64).mean(0) for layer in layers]
    kept = _kept(scene, means, len(view.names))
    edges, hops = _drawn_edges(scene.edges, kept), []
    for title_of, reached, matrix in _panels(scene, means):
        weights = matrix[kept[edges[:, 1]], kept[edges[:, 0]]]
        if len(weights) and np.ptp(weights) < SAME:  # nothing was chosen: a plain line says as much
            weights = np.full(len(weights), np.nan)
        hops.append((title_of, np.where(reached[kept[edges[:, 1]]], weights, np.nan)))
    own = [(place, float(means[-1][i, i])) for place, i in enumerate(kept) if means and i in scene.centres]
    centres = [place for place, i in enumerate(kept) if i in scene.centres]
    known = groups or scene.known or [None] * len(view.names)
    return Sketch(
        [view.names[i] for i in kept],
        _places(len(kept), edges, centres),
        edges,
        hops or [("", np.full(len(edges), np.nan))],
        [known[i] for i in kept],
        legend,
        title,
        centres,
        None if shades is None else np.asarray(shades, np.float64)[kept],
        own,
        kept.tolist(),
    )


def _kept(scene: GraphView, means: Sequence[Matrix], count: int) -> NDArray[np.int64]:
    """Return the nodes to draw: all, or those that the centres looked at most, directly and through others."""
    if not scene.centres:
        return np.arange(count)
    reach = np.zeros(count)
    reach[list(scene.centres)] = 1.0
    total = reach * 1e6  # the centres themselves are always there
    for matrix in reversed(means):
        reach = reach @ matrix
        total += reach
    if not means:
        total[scene.edges[np.isin(scene.edges[:, 1], scene.centres), 0]] += 1
    chosen = np.argsort(-total, kind="stable")[:DRAWN]
    return np.sort(chosen[total[chosen] > LEAST])


def _panels(scene: GraphView, means: Sequence[Matrix]) -> list[tuple[str, NDArray[np.bool_], Matrix]]:
    """Return title, the nodes that look, and the weights of each panel."""
    count = len(means)
    if not means:
        return []
    everyone = np.ones(len(means[0]), dtype=bool)
    if not scene.centres:
        return [(f"layer {i + 1}" if count > 1 else "", everyone, matrix) for i, matrix in enumerate(means)]
    looking = ~everyone
    looking[list(scene.centres)] = True
    found = []
    for hop, matrix in enumerate(reversed(means)):
        found.append((f"hop {hop + 1} (layer {count - hop})" if count > 1 else "", looking, matrix))
        looking = looking | (matrix[looking] > 1e-3).any(0)
    return found


def _drawn_edges(edges: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    place = np.full(int(max(edges.max(initial=0), kept.max(initial=0))) + 1, -1)
    place[kept] = np.arange(len(kept))
    moved = place[edges]
    return moved[(moved >= 0).all(1)].reshape(-1, 2)


def _places(count: int, edges: NDArray[np.int64], centres: Sequence[int]) -> Matrix:
    return rings(count, edges, centres[0]) if len(centres) == 1 else springs(count, edges)
