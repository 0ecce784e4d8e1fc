"""Attention weights as heat maps: one alignment with its words, or all layers and heads on one sheet."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.style import (
    FAINT,
    LABEL_SIZE,
    PAD,
    SMALL_SIZE,
    STYLE,
    TITLE_SIZE,
    Picture,
    legible,
    new_figure,
    quiet,
    ramp,
)
from regard.text.display import visible

POINTS = 72  # to an inch
LONGEST_LABEL = 24
PRINTED = 8  # weights are written into the cells up to this many rows and columns
SEPARATED = 64  # cells are ruled up to this many
_RULER: Any = RendererAgg(8, 8, 4 * POINTS)  # type: ignore[no-untyped-call]  # measures text only, so its canvas is tiny
LABELLED = 40  # tokens of a side up to which they are written on a sheet of many maps
LARGEST = 36.0  # inches of cells; more tokens than fit get smaller cells and fewer labels


@rc_context(STYLE)
def alignment(weights: ArrayLike, rows: Sequence[str], columns: Sequence[str], title: str | None = None) -> Picture:
    """Draw the weights of each output token (a row) over the input tokens (the columns), as in Bahdanau et al. Fig. 3.

    `weights` is (m, n) for m `rows` and n `columns`. Tokens keep their order, also in right-to-left scripts:
    the first input token is the leftmost column.
    """
    values = checked(weights, rows, columns, 2)
    row_labels = [visible(token, LONGEST_LABEL) for token in rows]
    column_labels = [visible(token, LONGEST_LABEL) for token in columns]
    cell = _cell(max(values.shape))
    with rc_context({"font.family": families([*row_labels, *column_labels, title or ""])}), quiet():
        room = _Room(row_labels, column_labels, cell)
        m, n = values.shape
        bar_height = min(max(m * cell, 1.3), 10.0)
        width = max(room.left + n * cell + max(room.overhang, 1.1) + PAD, 3.2)
        heading = _wrapped(title, width - 2 * PAD)
        heading_height = (1.35 * TITLE_SIZE / POINTS) * (heading.count("\n") + 1) + 0.08 if heading else 0.0
        height = PAD + heading_height + room.top + max(m * cell, bar_height) + 0.12 + PAD
        figure = new_figure(width, height)
        if heading:
            figure.text(0.5, 1 - PAD / height, heading, size=TITLE_SIZE, ha="center", va="top", linespacing=1.25)
        above = PAD + heading_height + room.top
        axes = _place(figure, room.left, above, n * cell, m * cell)
        image = _heat(axes, values, limits(values))
        _label_tokens(axes, row_labels, column_labels, room)
        if max(m, n) <= PRINTED:
            _print_weights(axes, values, image)
        _bar(figure, image, room.left + n * cell + 0.16, above, bar_height)
    return figure


@rc_context(STYLE)
def grid(
    weights: ArrayLike, rows: Sequence[str], columns: Sequence[str], names: Sequence[str] | None = None
) -> Picture:
    """Draw all layers (down) and heads (across) of `weights` (layers, heads, m, n), on the colour scale from 0 to 1.

    `names` are the layers' names. Tokens are written at the left and top edges, each while they are few enough to read.
    """
    values = checked(weights, rows, columns, 4)
    layers, heads, m, n = values.shape
    names = [f"layer {index + 1}" for index in range(layers)] if names is None else list(names)
    if len(names) != layers:
        raise UserError(f"The weights have {layers} layers but {len(names)} names are given: name each layer once.")
    labels = [[visible(token, 12) for token in tokens] if len(tokens) <= LABELLED else [] for tokens in (rows, columns)]
    cell = _small_cell(max(len(labels[0]), len(labels[1])))
    tall, wide = (cell if labels[side] else 2.0 / count for side, count in enumerate((m, n)))
    with rc_context({"font.family": families([*labels[0], *labels[1], *names])}), quiet():
        room = _Room(labels[0], labels[1], cell, largest=8.0)
        left, top = room.left + 0.3, room.top + 0.32
        longest_name = max(measure(name, SMALL_SIZE) for name in names)
        step_x, step_y = max(n * wide, 0.55) + 0.14, max(m * tall, longest_name) + 0.14
        note = _unlabelled(labels, m, n)
        width = left + max(heads * step_x + max(1.1, room.overhang), measure(note, SMALL_SIZE)) + PAD
        height = top + max(layers * step_y, 1.5) + 0.35
        figure = new_figure(width, height)
        for layer, head in np.ndindex(layers, heads):
            axes = _place(figure, left + head * step_x, top + layer * step_y, n * wide, m * tall)
            image = _heat(axes, values[layer, head], limits(values))
            edge = _Edge(first_row=layer == 0, first_column=head == 0)
            _label_edge(axes, labels, room, edge, f"head {head + 1}", names[layer])
        figure.text(left / width, 0.08 / height, note, size=SMALL_SIZE, va="bottom")
        _bar(figure, image, left + heads * step_x + 0.04, top, min(max(layers * step_y - 0.14, 1.3), 10.0))
    return figure


def _small_cell(count: int) -> float:
    """Return the side of a cell in inches on a sheet of many maps: just wide enough for a small label."""
    count = max(count, 1)
    return min(max(1.4 / count, min(0.125, 2.5 / count), 0.1), 0.3)


def _unlabelled(labels: list[list[str]], m: int, n: int) -> str:
    """Return a note with the number of tokens on the sides that have no labels."""
    counts = [
        f"{count} {what}" for side, count, what in zip(labels, (m, n), ("rows", "columns"), strict=True) if not side
    ]
    return f"each map: {', '.join(counts)} of tokens" if counts else ""


def checked(weights: ArrayLike, rows: Sequence[str], columns: Sequence[str], dimensions: int) -> NDArray[np.float64]:
    """Return `weights` as numbers with `dimensions` axes, the last two as long as `rows` and `columns`."""
    values = np.asarray(weights, dtype=np.float64)
    if values.ndim != dimensions or 0 in values.shape:
        raise UserError(f"Expected weights with {dimensions} axes and at least one value, found shape {values.shape}.")
    if values.shape[-2:] != (len(rows), len(columns)):
        raise UserError(
            f"Weights of shape {values.shape} need {values.shape[-2]} row tokens and {values.shape[-1]} column "
            f"tokens, found {len(rows)} and {len(columns)}."
        )
    if not np.isfinite(values).all():
        raise UserError(
            f"The weights hold {int((~np.isfinite(values)).sum())} NaN or infinite values: nothing to draw."
        )
    return values


def _cell(count: int) -> float:
    """Return the side of a cell in inches: generous for few tokens, just legible for many."""
    return min(max(min(9.0 / count, 0.55), 0.165), LARGEST / count)


class _Room:
    """The space in inches that labels need beside the cells, measured with the fonts that will draw them."""

    def __init__(self, rows: Sequence[str], columns: Sequence[str], cell: float, largest: float = LABEL_SIZE) -> None:
        self.size = min(largest, max(0.7 * cell * POINTS, 5.0))
        self.stride = math.ceil(1.2 * self.size / (cell * POINTS))
        line = 1.25 * self.size / POINTS
        row_widths = [measure(text, self.size) for text in rows[:: self.stride]]
        widths = np.array([measure(text, self.size) for text in columns[:: self.stride]])
        widest = float(widths.max(initial=0.0))
        self.left = PAD + max(row_widths, default=0.0) + 0.08
        self.angle, self.overhang, self.top = 0, 0.0, line + 0.05
        if widest <= 0.9 * cell * self.stride:
            return
        if cell * self.stride * POINTS * math.sin(math.pi / 4) >= 1.15 * self.size:
            self.angle = 45
            reach = widths * math.cos(math.pi / 4) - (len(widths) - np.arange(len(widths)) - 0.5) * cell * self.stride
            self.overhang = max(float(reach.max()) + 0.05, 0.0)
            self.top = (widest + line) * math.sin(math.pi / 4) + 0.05
        else:
            self.angle = 90
            self.top = widest + 0.1


def measure(text: str, size: float) -> float:
    """Return the width of `text` in inches at `size` points."""
    font = FontProperties(size=size)
    width, _, _ = _RULER.get_text_width_height_descent(text, font, ismath=False)
    return float(width / _RULER.dpi)


def _wrapped(title: str | None, inches: float) -> str:
    if not title:
        return ""
    title = " ".join(title.split())
    each = measure(title, TITLE_SIZE) / max(len(title), 1)
    return "\n".join(textwrap.wrap(title, max(int(0.95 * inches / each), 8))) if title else ""


def _place(figure: Figure, left: float, above: float, width: float, height: float) -> Axes:
    """Return axes at inches from the left and top edges of the figure."""
    full_width, full_height = figure.get_size_inches()
    box = (left / full_width, 1 - (above + height) / full_height, width / full_width, height / full_height)
    return figure.add_axes(box)


def limits(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the values of the lightest and the darkest colour: 0 and 1, so that pictures can be compared.

    Only numbers that are no shares, below 0 or above 1, widen the scale.
    """
    return min(float(values.min()), 0.0), max(float(values.max()), 1.0)


def _heat(axes: Axes, values: NDArray[np.float64], scale: tuple[float, float]) -> AxesImage:
    """Draw one map with the colours of this scale."""
    low, high = scale
    image = axes.imshow(values, cmap=ramp(), vmin=low, vmax=high, aspect="auto", interpolation="nearest")
    axes.tick_params(length=0, which="both", top=False, bottom=False, left=False, right=False)
    axes.set_xticks([])
    axes.set_yticks([])
    m, n = values.shape
    if max(m, n) <= SEPARATED:
        axes.hlines(np.arange(1, m) - 0.5, -0.5, n - 0.5, colors=FAINT, linewidth=0.5)
        axes.vlines(np.arange(1, n) - 0.5, -0.5, m - 0.5, colors=FAINT, linewidth=0.5)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(m - 0.5, -0.5)
    return image


def _label_tokens(axes: Axes, rows: Sequence[str], columns: Sequence[str], room: _Room) -> None:
    if rows:
        axes.set_yticks(range(0, len(rows), room.stride), rows[:: room.stride], size=room.size)
        axes.tick_params(axis="y", pad=4)
    if columns:
        axes.xaxis.tick_top()
        axes.set_xticks(range(0, len(columns), room.stride), columns[:: room.stride], size=room.size)
        axes.tick_params(axis="x", length=0, pad=4)
        for label in axes.get_xticklabels():
            label.set(rotation=room.angle, rotation_mode="anchor", va="baseline", ha="left" if room.angle else "center")
            if room.angle == 90:
                label.set(va="center_baseline")


@dataclass(frozen=True)
class _Edge:
    first_row: bool
    first_column: bool


def _label_edge(axes: Axes, labels: list[list[str]], room: _Room, edge: _Edge, head: str, layer: str) -> None:
    """Write tokens, head and layer names at the outer edges of the sheet."""
    _label_tokens(axes, labels[0] if edge.first_column else [], labels[1] if edge.first_row else [], room)
    if edge.first_row:
        gap = (room.top if labels[1] else 0.0) * POINTS + 4
        axes.annotate(
            head,
            (0.5, 1),
            (0, gap),
            xycoords="axes fraction",
            textcoords="offset points",
            size=SMALL_SIZE,
            ha="center",
            va="bottom",
        )
    if edge.first_column:
        gap = room.left * POINTS if labels[0] else 6
        axes.annotate(
            layer,
            (0, 0.5),
            (-gap, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            size=SMALL_SIZE,
            rotation=90,
            ha="right",
            va="center",
        )


def _print_weights(axes: Axes, values: NDArray[np.float64], image: AxesImage) -> None:
    for (row, column), value in np.ndenumerate(values):
        colour = legible(image.to_rgba(value))  # type: ignore[arg-type]
        axes.text(column, row, f"{value:.2f}", size=8.5, ha="center", va="center", color=colour)


def _bar(figure: Figure, image: AxesImage, left: float, above: float, height: float) -> Colorbar:
    bar = figure.colorbar(image, cax=_place(figure, left, above, 0.14, height))
    bar.set_label("attention weight", size=SMALL_SIZE, labelpad=6)
    bar.ax.tick_params(labelsize=8, length=2.5, width=0.6, color=FAINT)
    bar.outline.set_linewidth(0.5)
    return bar
