"""The exhibit of a picture in which things were found: the boxes, and where the query of each looked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.boxes import Box
from regard.inference.passes import Passes
from regard.inspection import page
from regard.inspection.page import Exhibit, Map
from regard.inspection.recording import Seen
from regard.inspection.view import Drawing, View

GAZE, OWN = ".gaze.", ".own"


def exhibit_of(
    passes: Passes,
    source: Any,
    boxes: Sequence[Box],
    places: NDArray[np.float32],
    queries: Sequence[int],
    seen: Mapping[str, Seen],
) -> Exhibit:
    """Return an exhibit whose target are the boxes; `places` are their shares of the picture, x, y, w, h."""
    view = passes.view(source)
    gaze = _layers(seen, GAZE)[:, :, queries]
    maps = [Map("where each query looked", "target", "source", gaze)]
    own = _layers(seen, OWN)[:, :, queries][..., queries]
    maps.append(Map("queries among themselves", "target", "target", own))
    inside = {name: layer for name, layer in seen.items() if name.startswith("backbone")}
    maps += page.maps(inside, lambda _: ("source", "source"), view)
    names = [f"{box.label} {100 * box.score:.0f} %" for box in boxes]
    edges = np.concatenate((places[:, :2] - places[:, 2:] / 2, places[:, :2] + places[:, 2:] / 2), 1).clip(0, 1)
    tokens = [f"{box.label}:{box.score:.2f}" for box in boxes]  # a page writes blanks out
    shown = Exhibit.of(view, View(tokens), maps, passes.input.text(source))
    mean = gaze.mean((0, 1))
    drawing = Drawing(
        np.asarray(mean, np.float32), view.shown, names, title=summary(boxes), what="attention weight",
        boxes=[(float(a), float(b), float(c), float(d)) for a, b, c, d in edges],
    )  # fmt: skip
    return replace(shown, drawing=drawing)


def _layers(seen: Mapping[str, Seen], part: str) -> NDArray[np.float32]:
    """Return the weights of the decoder's layers of one kind, (layers, heads, m, n)."""
    found = [
        page.shown_weights(layer) for name, layer in seen.items() if name.startswith("head") and part in f"{name}."
    ]
    return np.stack(found)


def summary(boxes: Sequence[Box]) -> str:
    """Return how many things of each class there are."""
    counts: dict[str, int] = {}
    for box in boxes:
        counts[box.label] = counts.get(box.label, 0) + 1
    return ", ".join(f"{count} {label}" for label, count in counts.items())
