"""Weights on a picture: each place of a grid is as dark as its weight, over the picture in light grey.

The picture is brought into the light half of grey and multiplied by the colour of the weight: weights are seen on light
and on dark pictures alike, and the colour bar means the same on both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.maps import POINTS, measure
from regard.pictures.style import FAINT, PAD, RAMP, SMALL_SIZE, STYLE, TITLE_SIZE, Picture, new_figure, quiet
from regard.text.display import visible

SIDE, SMALL = 2.1, 1.15  # inches of a panel, and of one among many
ACROSS = 6  # panels in a row
STRIP = 1.5  # sides of a picture that is not wide
MOST = 160  # panels of a sheet
LIGHT = 0.55  # the darkest grey that a picture is drawn in
RULED = 16  # places of a side up to which they are ruled
EVEN = 4.0  # times an equal share, which the colours reach at least
LONGEST = 22  # letters of a panel's title
BOX = "#0072b2"


Corners = tuple[float, float, float, float]  # left, top, right, bottom, from 0 to 1


@dataclass(frozen=True)
class Panel:
    """One picture: the weights (places,) on it, or None for the picture itself, and boxes in it."""

    title: str
    weights: NDArray[np.float64] | None = None
    boxes: Sequence[Corners] = ()


def shaded(
    picture: NDArray[np.uint8], weights: NDArray[Any], grid: tuple[int, int], most: float
) -> NDArray[np.float64]:
    """Return a picture (rows, columns, 3) with weights (places,) on it, as colours from 0 to 1."""
    rows, columns = picture.shape[:2]
    grey = LIGHT + (1 - LIGHT) * (picture.astype(np.float64) @ np.array([0.299, 0.587, 0.114])) / 255
    down, along = np.arange(rows) * grid[0] // rows, np.arange(columns) * grid[1] // columns
    heat = RAMP(np.clip(np.asarray(weights, np.float64).reshape(grid) / most, 0, 1))[..., :3]
    shade: NDArray[np.float64] = grey[..., None] * heat[down[:, None], along[None]]
    return shade


@rc_context(STYLE)
def overlay(
    picture: NDArray[np.uint8],
    grid: tuple[int, int],
    panels: Sequence[tuple[str, ArrayLike | None] | None],
    *,
    title: str | None = None,
    what: str = "attention weight",
    across: int | None = None,
    small: bool = False,
    rows: Sequence[str] = (),
    boxes: Sequence[Sequence[Corners]] = (),
) -> Picture:
    """Draw panels, each a name and the weights of the places of a grid (None: the picture as it is), on one scale; in
    place of a panel None leaves its room empty.

    `across` panels stand in a row, fewer of wide pictures; `rows` are names at the left of the rows; `boxes` are those
    of each panel.
    """
    drawn = boxes or [()] * len(panels)
    made = [panel and _panel(*panel, grid, own) for panel, own in zip(panels, drawn, strict=True)]
    if not made or len(made) > MOST:
        raise UserError(f"A sheet shows 1 to {MOST} pictures, found {len(made)}: look at fewer words, or at a page.")
    strip = max(1.0, picture.shape[1] / picture.shape[0] / STRIP)  # a film strip is wide: larger, and fewer in a row
    across = min(len(made), across or max(1, int(ACROSS / strip)))
    down, side = math.ceil(len(made) / across), (SMALL if small else SIDE) * strip
    values = [panel.weights for panel in made if panel is not None and panel.weights is not None]
    # Weights that hardly differ are all light: dark is what has several times its equal share.
    most = max([min(1.0, EVEN / (grid[0] * grid[1])), *(float(each.max()) for each in values)])
    with (
        rc_context({"font.family": families([*(panel.title for panel in made if panel), title or "", *rows])}),
        quiet(),
    ):
        left = PAD + (max(measure(name, SMALL_SIZE) for name in rows) + 0.1 if rows else 0.0)
        tall, label = side * picture.shape[0] / picture.shape[1], 0.24
        head = (1.5 * TITLE_SIZE / POINTS) + 0.04 if title else 0.0
        width = left + across * (side + 0.12) + (0.95 if values else 0.0) + PAD
        width = max(width, measure(title or "", TITLE_SIZE) + 2 * PAD)
        height = PAD + head + down * (tall + label + 0.06) + PAD
        figure = new_figure(width, height)
        if title:
            figure.text(PAD / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        for number, panel in ((number, panel) for number, panel in enumerate(made) if panel is not None):
            x, y = left + number % across * (side + 0.12), PAD + head + number // across * (tall + label + 0.06) + label
            axes = figure.add_axes((x / width, 1 - (y + tall) / height, side / width, tall / height))
            _draw(axes, picture, grid, panel, most)
            _title(figure, panel.title, x + side / 2, y - 0.05, side)
            if rows and number % across == 0:
                name = rows[number // across]
                figure.text(
                    (x - 0.08) / width, 1 - (y + tall / 2) / height, name, size=SMALL_SIZE, ha="right", va="center"
                )
        if values:
            bar_height = min(max(tall, 1.2), 4.0)
            box = (left + across * (side + 0.12) + 0.06, PAD + head + label)
            _bar(figure, box, bar_height, most, grid[0] * grid[1], what)
    return figure


def _panel(name: str, weights: ArrayLike | None, grid: tuple[int, int], boxes: Sequence[Corners]) -> Panel:
    return Panel(_plain(name), None if weights is None else _checked(weights, grid), boxes)


def _plain(text: str) -> str:
    """Return a text on one line, without signs that no font has."""
    found = " ".join(visible(word) for word in text.split())
    return found if len(found) <= LONGEST else found[: LONGEST - 1] + "…"


def _checked(weights: ArrayLike, grid: tuple[int, int]) -> NDArray[np.float64]:
    found = np.asarray(weights, dtype=np.float64).ravel()
    if found.size != grid[0] * grid[1]:
        rows, columns = grid
        raise UserError(f"A grid of {rows} × {columns} places needs {rows * columns} weights, found {found.size}.")
    if not np.isfinite(found).all():
        raise UserError("The weights hold NaN or infinite values: nothing to draw.")
    return found


def _draw(axes: Axes, picture: NDArray[np.uint8], grid: tuple[int, int], panel: Panel, most: float) -> None:
    shown: NDArray[Any] = picture if panel.weights is None else shaded(picture, panel.weights, grid, most)
    axes.imshow(shown, interpolation="nearest", aspect="auto", extent=(0, grid[1], grid[0], 0))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(color=FAINT, linewidth=0.6)
    if panel.weights is not None and max(grid) <= RULED:
        axes.hlines(np.arange(1, grid[0]), 0, grid[1], colors="white", linewidth=0.35, alpha=0.7)
        axes.vlines(np.arange(1, grid[1]), 0, grid[0], colors="white", linewidth=0.35, alpha=0.7)
        axes.set(xlim=(0, grid[1]), ylim=(grid[0], 0))
    for left, top, right, bottom in panel.boxes:
        corner = (left * grid[1], top * grid[0])
        size = ((right - left) * grid[1], (bottom - top) * grid[0])
        for colour, width in (("white", 2.6), (BOX, 1.3)):  # seen on light and on dark pictures
            axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=width))


def _title(figure: Figure, text: str, middle: float, bottom: float, room: float) -> None:
    width, height = figure.get_size_inches()
    size = min(SMALL_SIZE + 1, (SMALL_SIZE + 1) * (room + 0.08) / max(measure(text, SMALL_SIZE + 1), 1e-6))
    figure.text(middle / width, 1 - bottom / height, text, size=max(size, 4.5), ha="center", va="bottom")


def _bar(figure: Figure, corner: tuple[float, float], bar_height: float, most: float, places: int, what: str) -> None:
    """Draw the colour bar, with a line at the weight that every place has if all have the same."""
    width, height = figure.get_size_inches()
    box = (corner[0] / width, 1 - (corner[1] + bar_height) / height, 0.13 / width, bar_height / height)
    axes = figure.add_axes(box)
    bar = figure.colorbar(ScalarMappable(Normalize(0, most), RAMP), cax=axes)
    bar.set_label(what, size=SMALL_SIZE, labelpad=4)
    bar.ax.tick_params(labelsize=7.5, length=2.5, width=0.6, color=FAINT)
    bar.outline.set_linewidth(0.5)
    bar.ax.axhline(1 / places, color="#d55e00", linewidth=1.2)


@rc_context(STYLE)
def contact_sheet(pictures: Sequence[NDArray[np.uint8]], titles: Sequence[str], title: str, across: int = 8) -> Picture:
    """Draw small pictures with a title of up to two lines each."""
    across = min(across, max(1, len(pictures)))
    down = math.ceil(len(pictures) / across)
    with rc_context({"font.family": families([*titles, title])}), quiet():
        width, height = 2 * PAD + across * (SMALL + 0.12), 2 * PAD + 0.32 + down * (SMALL + 0.42)
        width = max(width, measure(title, TITLE_SIZE) + 2 * PAD)
        figure = new_figure(width, height)
        figure.text(PAD / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        for number, (picture, text) in enumerate(zip(pictures, titles, strict=True)):
            x = PAD + number % across * (SMALL + 0.12)
            y = PAD + 0.32 + number // across * (SMALL + 0.42) + 0.34
            axes = figure.add_axes((x / width, 1 - (y + SMALL) / height, SMALL / width, SMALL / height))
            axes.imshow(picture, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            for line, part in enumerate(text.split("\n")[:2]):
                _title(figure, _plain(part), x + SMALL / 2, y - 0.19 + 0.15 * line, SMALL - 0.08)
    return figure


@rc_context(STYLE)
def confusion(counts: NDArray[np.int64], names: Sequence[str], title: str = "Confusion matrix") -> Picture:
    """Draw how often each class (a row) was answered as each (a column); colours are shares of the row."""
    count = len(names)
    labels = [_plain(name) for name in names]
    with rc_context({"font.family": families([*labels, title])}), quiet():
        cell = min(0.5, max(0.16, 7.0 / count))
        room = max(measure(name, SMALL_SIZE) for name in labels) + 0.2
        width, height = room + count * cell + 1.2 + 2 * PAD, room + count * cell + 0.6 + 2 * PAD
        width = max(width, measure(title, TITLE_SIZE) + 2 * PAD)
        figure = new_figure(width, height)
        figure.text(PAD / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        left, above = PAD + room + 0.22, PAD + 0.38
        box = (left / width, 1 - (above + count * cell) / height, count * cell / width, count * cell / height)
        axes = figure.add_axes(box)
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        image = axes.imshow(shares, cmap=RAMP, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_xticks(range(count), labels, rotation=90)
        axes.set_yticks(range(count), labels)
        axes.tick_params(length=0)
        axes.set_xlabel("answered")
        axes.set_ylabel("expected")
        if count <= 20:
            for (row, column), number in np.ndenumerate(counts):
                if number:
                    ink = "white" if shares[row, column] > 0.5 else STYLE["text.color"]
                    axes.text(column, row, f"{number:,}", size=6.5, ha="center", va="center", color=ink)
        bar_box = ((left + count * cell + 0.14) / width, box[1], 0.13 / width, box[3])
        bar = figure.colorbar(image, cax=figure.add_axes(bar_box))
        bar.set_label("share of the class", size=SMALL_SIZE)
        bar.ax.tick_params(labelsize=7.5, length=2.5)
        bar.outline.set_linewidth(0.5)
    return figure
