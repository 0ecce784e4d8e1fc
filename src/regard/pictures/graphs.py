"""Graphs with weights along their edges: width and colour of an edge say how much its receiver looked along it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from regard.pictures.fonts import families
from regard.pictures.sketch import Sketch
from regard.pictures.style import (
    FAINT,
    INK,
    PAD,
    RAMP,
    SERIES,
    SMALL_SIZE,
    STYLE,
    TITLE_SIZE,
    Picture,
    new_figure,
    quiet,
)
from regard.text.display import visible

SIDE = 4.6  # inches of a panel
NAMED = 60  # nodes whose names are written
OTHER = "#aab2bd"  # nodes of no group
HALO = [withStroke(linewidth=2.2, foreground="white")]
SMALL: dict[str, Any] = {"textcoords": "offset points", "size": 7, "zorder": 4, "path_effects": HALO}


@rc_context(STYLE)
def graph(drawn: Sketch) -> Picture:
    """Draw the panels of a sketch side by side, on one colour scale."""
    colours = _colours(drawn.groups)
    names = [visible(name, 14) if name else "" for name in drawn.names]
    texts = [*names, drawn.title, *(str(group) for group in colours)]
    count = len(drawn.panels)
    with rc_context({"font.family": families(texts)}), quiet():
        wide, below = count * SIDE + 2 * PAD, 0.75 if colours else 0.5
        high = SIDE + 0.75 + below
        figure = new_figure(wide, high)
        figure.text(PAD / wide, 1 - PAD / high, drawn.title, size=TITLE_SIZE, ha="left", va="top")
        most = max((float(np.nanmax(w)) for _, w in drawn.panels if np.isfinite(w).any()), default=1.0)
        scale = ScalarMappable(Normalize(0.0, max(most, 1e-9)), RAMP)
        for number, (title, weights) in enumerate(drawn.panels):
            box = ((PAD + number * SIDE) / wide, below / high, (SIDE - 0.1) / wide, SIDE / high)
            axes = figure.add_axes(box)
            _panel(axes, drawn, weights, names, colours, scale)
            if number == 0:
                _loops(axes, drawn)
            axes.set_title(title, size=SMALL_SIZE, pad=2)
        if any(np.isfinite(w).any() for _, w in drawn.panels):
            _bar(figure, scale, drawn.what)
        if colours:
            marks = [
                Line2D([], [], marker="o", linestyle="", markersize=6, color=colour, label=visible(str(group), 18))
                for group, colour in colours.items()
            ]
            figure.legend(
                handles=marks, title=drawn.legend, title_fontsize=SMALL_SIZE, ncols=min(len(marks), 7),
                loc="lower right", borderaxespad=0.2, handletextpad=0.1, columnspacing=0.8,
            )  # fmt: skip
    return figure


def _colours(groups: Sequence[str | None]) -> dict[str, str]:
    known = sorted({group for group in groups if group is not None})
    return dict(zip(known, SERIES, strict=False)) if 0 < len(known) <= len(SERIES) else {}


def _panel(
    axes: Axes,
    drawn: Sketch,
    weights: NDArray[np.float64],
    names: Sequence[str],
    colours: dict[str, str],
    scale: ScalarMappable,
) -> None:
    axes.set_axis_off()
    axes.set_xlim(-1.16, 1.16)
    axes.set_ylim(-1.16, 1.16)
    axes.set_aspect("equal")
    places = drawn.places
    _edges(axes, places, drawn.edges, weights, scale)
    filled = [OTHER if group is None else colours.get(group, OTHER) for group in drawn.groups]
    sizes = np.full(len(names), 90.0 if len(names) <= NAMED else 28.0)
    if drawn.shades is not None:
        filled = [RAMP(0.15 + 0.85 * float(x)) for x in drawn.shades / max(float(drawn.shades.max()), 1e-9)]  # type: ignore[misc]
        sizes = sizes * 1.6
    sizes[list(drawn.centres)] *= 2.4
    rim = [INK if i in {*drawn.centres} else "white" for i in range(len(names))]
    axes.scatter(places[:, 0], places[:, 1], s=sizes, c=filled, edgecolors=rim, linewidths=1.2, zorder=3)
    if len(names) <= NAMED:
        for (x, y), name in zip(places, names, strict=True):
            if name:
                axes.annotate(name, (x, y), (0, 7), ha="center", va="bottom", **SMALL)


def _loops(axes: Axes, drawn: Sketch) -> None:
    """Write how much a node looked at itself."""
    for node, weight in drawn.loops:
        axes.annotate(f"itself {weight:.2f}", tuple(drawn.places[node]), (0, -9), ha="center", va="top", **SMALL)


def _edges(
    axes: Axes,
    places: NDArray[np.float64],
    edges: NDArray[np.int64],
    weights: NDArray[np.float64],
    scale: ScalarMappable,
) -> None:
    """Draw edges as arcs, so that both directions can be seen; those that nobody looked along are faint lines."""
    known = np.isfinite(weights)
    if (~known).any():
        lines = places[edges[~known]]
        axes.add_collection(LineCollection(list(lines), colors=FAINT, linewidths=0.7, zorder=1))
    order = np.flatnonzero(known)
    order = order[np.argsort(weights[order])]
    thick = 4.5 * min(1.0, (300 / max(1, len(order))) ** 0.5)
    high = max(float(scale.get_clim()[1] or 1.0), 1e-9)
    for edge in order:
        share = float(weights[edge]) / high
        points = _arc(*places[edges[edge]])
        colour = RAMP(0.18 + 0.82 * share) if len(order) <= 300 else RAMP(0.05 + 0.95 * share)
        curve = LineCollection(
            [points], capstyle="round", colors=[colour], linewidths=0.1 * thick + thick * share, zorder=2
        )
        axes.add_collection(curve)


def _arc(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points of a curve from one place to another, bent to its left."""
    middle = (start + end) / 2 + 0.12 * np.array([-(end - start)[1], (end - start)[0]])
    t = np.linspace(0, 1, 13)[:, None]
    return (1 - t) ** 2 * start + 2 * t * (1 - t) * middle + t**2 * end


def _bar(figure: Figure, scale: ScalarMappable, what: str) -> None:
    wide, high = figure.get_size_inches()
    axes = figure.add_axes(((PAD + 0.1) / wide, 0.3 / high, 1.5 / wide, 0.09 / high))
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal", ticks=MaxNLocator(4))
    bar.ax.tick_params(labelsize=7, length=2.0, width=0.6, color=FAINT, pad=1.5)
    bar.outline.set_linewidth(0.5)
    figure.text((PAD + 0.1) / wide, 0.42 / high, what, size=7.5, ha="left", va="bottom")
