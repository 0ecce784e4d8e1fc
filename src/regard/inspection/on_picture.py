"""Drawings of `regard show` on a picture: what decided, attention rollout, a panel for each word, or all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard import pictures
from regard.inspection.page import Exhibit, Map
from regard.inspection.view import Drawing, View

if TYPE_CHECKING:
    from regard.pictures.style import Picture

WORDS = 40  # panels for words
ROLLOUT = "attention rollout"


def figure(exhibit: Exhibit, view: View, drawing: Drawing, *, grid: bool) -> Picture:
    """Draw the weights of an exhibit on the picture that its source is."""
    assert view.picture is not None
    assert view.grid is not None
    if grid:
        return _heads(exhibit, view)
    weights = np.asarray(drawing.weights)
    panels: list[tuple[str, Any]] = [("picture", None)]
    if weights.ndim == 1:
        panels.append(("what decided" if "gradient" in drawing.what else "where it looked", on_places(view, weights)))
        inside = self_attention(exhibit)
        if inside is not None:
            arrived = rollout(np.asarray(inside.weights))
            panels.append((ROLLOUT, on_places(view, answered(view, drawing, arrived))))
        panels = [panels[0], *((name, _shares(w)) for name, w in panels[1:])]
        return pictures.overlay(view.picture, view.grid, panels, title=drawing.title, what=_what(drawing.what))
    words = [(name, on_places(view, row)) for name, row in zip(drawing.rows, weights, strict=True)][:WORDS]
    title, boxes = drawing.title or " ".join(drawing.rows), drawing.boxes
    marked = [list(boxes), *([box] for box in boxes[:WORDS])] if boxes else []
    return pictures.overlay(
        view.picture, view.grid, [*panels, *words], title=title[:90], what=drawing.what, boxes=marked
    )


def _what(what: str) -> str:
    return "share of the influence" if "gradient" in what else what


def _shares(weights: NDArray[Any]) -> NDArray[Any]:
    return weights / max(float(weights.sum()), 1e-12)


def _heads(exhibit: Exhibit, view: View) -> Picture:
    """Draw every layer (a row) and head (a column): from the class token or as a mean over all that look."""
    assert view.picture is not None
    assert view.grid is not None
    chosen = next((m for m in exhibit.maps if m.rows == "target" and np.shape(m.weights)[1] > 1), None)
    chosen = chosen or self_attention(exhibit) or exhibit.maps[0]
    weights = np.asarray(chosen.weights)
    layers, heads = weights.shape[:2]
    looked = asked(view, weights) if chosen.rows == "source" else weights.mean(-2)
    panels: list[tuple[str, Any] | None] = []
    for layer in range(layers):
        own = chosen.heads[layer] if chosen.heads else heads
        each = ((f"head {h + 1}", on_places(view, looked[layer, h * heads // own])) for h in range(own))
        panels += [*each, *[None] * (heads - own)]
    names = [f"layer {layer + 1}" for layer in range(layers)]
    who = "from the class token" if chosen.rows == "source" and marks_of(view) else "mean over all that look"
    title = f"{chosen.name}, {who}"
    return pictures.overlay(view.picture, view.grid, panels, title=title, across=heads, small=True, rows=names)


def marks_of(view: View) -> int:
    """Return the number of vectors without a place, which stand first."""
    assert view.grid is not None
    return len(view.names) - view.grid[0] * view.grid[1]


def on_places(view: View, weights: NDArray[Any]) -> NDArray[Any]:
    """Return the weights of the places alone, (…, places)."""
    found: NDArray[Any] = view.spread(np.asarray(weights))[..., marks_of(view) :]
    return found


def asked(view: View, weights: NDArray[Any]) -> NDArray[Any]:
    """Return where the class token looked, or the mean of where all places looked: (…, m, n) to (…, n)."""
    found: NDArray[Any] = weights[..., 0, :] if marks_of(view) else weights.mean(-2)
    return found


def answered(view: View, drawing: Drawing, arrived: NDArray[Any]) -> NDArray[Any]:
    """Return how much of each vector arrives at the answer, of how much arrives at each vector (n, n): through the
    class token, or by the weights with which the answer looked."""
    weights = np.asarray(drawing.weights, np.float64)
    if marks_of(view) or "gradient" in drawing.what or len(weights) != len(arrived):
        return asked(view, arrived)
    found: NDArray[Any] = weights @ arrived
    return found


def self_attention(exhibit: Exhibit) -> Map | None:
    """Return the self-attention of the encoder, if there is any."""
    return next((m for m in exhibit.maps if m.rows == m.columns == "source" and m.name != ROLLOUT), None)


def rollout(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Return Ã_L … Ã_1, Ã_l = (mean over heads of A_l + I) / 2: how much each vector has of each input vector, if
    half of every layer's output came around it (Abnar and Zuidema 2020, 3). (layers, heads, n, n) to (n, n)."""
    mixed = np.eye(weights.shape[-1])
    for layer in np.asarray(weights, np.float64).mean(1):
        own = (layer + np.eye(len(layer))) / 2
        mixed = own / own.sum(-1, keepdims=True) @ mixed
    return mixed
