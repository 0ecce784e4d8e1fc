"""Galleries: many small things side by side, and codes on a plane with things in it.

A thing is a picture (rows, columns, 3), or a series (steps, channels), which is drawn as lines.
"""

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from numpy.typing import NDArray

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.maps import measure
from regard.pictures.style import (
    FAINT,
    INK,
    PAD,
    SERIES,
    SMALL_SIZE,
    STYLE,
    TITLE_SIZE,
    Picture,
    new_figure,
    origin,
    quiet,
)

CELL = 0.62  # inches
GAP = 0.06
MANY = 20  # colours of a legend, at most
LIMIT = 8192  # pixels of a side of a sheet


def tile_sheet(things: Sequence[NDArray[np.uint8]], path: Path) -> Path:
    """Write pictures as they are, pixel by pixel, in a square of tiles with a line between them."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    if path.suffix.lower() != ".png":
        raise UserError(f"{path}: new pictures are written as .png, not as {path.suffix or 'a file without suffix'}.")
    tall, wide = things[0].shape[:2]
    across = math.ceil(math.sqrt(len(things)))
    down = math.ceil(len(things) / across)
    times = max(1, min(4, 96 // max(tall, wide)))
    sheet = np.full((down * (tall + 1) + 1, across * (wide + 1) + 1, 3), 255, np.uint8)
    for number, thing in enumerate(things):
        y, x = 1 + number // across * (tall + 1), 1 + number % across * (wide + 1)
        sheet[y : y + tall, x : x + wide] = thing
    if max(sheet.shape) > LIMIT:
        raise UserError(f"{path}: {len(things)} pictures of {wide} × {tall} pixels do not fit: make --n less.")
    buffer = io.BytesIO()
    about = PngInfo()
    for key, text in origin().items():
        about.add_text(key, text)
    Image.fromarray(sheet.repeat(times, 0).repeat(times, 1)).save(buffer, "PNG", pnginfo=about)
    try:
        path.write_bytes(buffer.getvalue())
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from error
    return path


@rc_context(STYLE)
def gallery(
    cells: Sequence[Sequence[NDArray[Any] | None]],
    *,
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    title: str = "",
) -> Picture:
    """Draw rows of small things, with a name for each row and each column where they have one."""
    with rc_context({"font.family": families([*rows, *columns, title])}), quiet():
        across, down = max(map(len, cells)), len(cells)
        left = PAD + max((measure(name, SMALL_SIZE) + 0.1 for name in rows), default=0.0)
        above = PAD + (0.3 if title else 0.0) + (0.22 if columns else 0.0)
        width = max(left + across * (CELL + GAP) + PAD, measure(title, TITLE_SIZE) + 2 * PAD)
        height = above + down * (CELL + GAP) + PAD
        figure = new_figure(width, height)
        if title:
            figure.text(PAD / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        for column, name in enumerate(columns):
            x = left + column * (CELL + GAP) + CELL / 2
            figure.text(x / width, 1 - (above - 0.05) / height, name, size=SMALL_SIZE, ha="center", va="bottom")
        for row, things in enumerate(cells):
            y = above + row * (CELL + GAP)
            if rows:
                where = ((left - 0.08) / width, 1 - (y + CELL / 2) / height)
                figure.text(*where, rows[row], size=SMALL_SIZE, ha="right", va="center")
            for column, thing in enumerate(things):
                if thing is not None:
                    x = left + column * (CELL + GAP)
                    _draw(figure.add_axes((x / width, 1 - (y + CELL) / height, CELL / width, CELL / height)), thing)
    return figure


def _draw(axes: Axes, thing: NDArray[Any]) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color(FAINT)
    if thing.ndim == 3:
        axes.imshow(thing, interpolation="nearest", aspect="equal")
        return
    for number, line in enumerate(thing.T):
        axes.plot(line, color=SERIES[number % len(SERIES)], linewidth=1.0)


@rc_context(STYLE)
def latent_space(
    points: NDArray[Any],
    labels: Sequence[str],
    thumbnails: Sequence[tuple[int, NDArray[Any]]],
    title: str,
    axes_names: tuple[str, str],
) -> Picture:
    """Draw points (n, 2) in the colours of their labels, and small things where some of the points are."""
    names = list(dict.fromkeys(labels))
    names = sorted(names) if 1 < len(names) <= MANY else []
    with rc_context({"font.family": families([*names, title])}), quiet():
        figure = new_figure(8.6 if names else 7.4, 7.2)
        axes = figure.add_axes((0.08, 0.08, 0.74 if names else 0.88, 0.84))
        axes.set_title(title, loc="left")
        axes.set_xlabel(axes_names[0])
        axes.set_ylabel(axes_names[1])
        colours = _colours(len(names))
        for number, name in enumerate(names or [""]):
            chosen = np.array([label == name for label in labels]) if names else np.ones(len(points), bool)
            axes.scatter(
                points[chosen, 0], points[chosen, 1], s=7, color=colours[number], alpha=0.55, linewidths=0, label=name
            )
        if names:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=2.5)
        low, high = np.percentile(points, [0.5, 99.5], axis=0)
        room = 0.06 * (high - low) + 1e-9
        axes.set(xlim=(low[0] - room[0], high[0] + room[0]), ylim=(low[1] - room[1], high[1] + room[1]))
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        for number, thing in thumbnails:
            _inset(axes, points[number], thing)
    return figure


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    if count <= len(SERIES):
        return list(SERIES)
    return [colormaps["tab10" if count <= 10 else "tab20"](i) for i in range(count)]


def _inset(axes: Axes, at: NDArray[Any], thing: NDArray[Any]) -> None:
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    if thing.ndim != 3:
        return
    image = OffsetImage(thing, zoom=24 / max(thing.shape[:2]), interpolation="nearest")
    axes.add_artist(AnnotationBbox(image, tuple(at), frameon=True, pad=0.05, bboxprops={"edgecolor": INK, "lw": 0.4}))


def apart(points: NDArray[Any], most: int) -> list[int]:
    """Return the numbers of points that lie apart from each other, the farthest one from all others first and next."""
    scale = points.std(0) + 1e-9
    scaled = points / scale
    chosen = [int(np.abs(scaled - np.median(scaled, 0)).sum(1).argmin())]
    nearest = ((scaled - scaled[chosen[0]]) ** 2).sum(1)
    central = (np.abs(scaled - scaled.mean(0)) < 2.4).all(1)  # far ones would lie outside of the picture
    while len(chosen) < min(most, int(central.sum())):
        chosen.append(int(np.where(central, nearest, -1).argmax()))
        nearest = np.minimum(nearest, ((scaled - scaled[chosen[-1]]) ** 2).sum(1))
    return chosen


@rc_context(STYLE)
def bars(values: Sequence[float], names: Sequence[str], title: str, y_label: str, line: tuple[float, str]) -> Picture:
    """Draw a bar for each value, and a dashed line to compare them with."""
    with rc_context({"font.family": families([*names, title])}), quiet():
        width = max(4.2, 1.2 + 1.3 * len(values), measure(title, TITLE_SIZE) + 0.8)
        figure = new_figure(width, 3.6)
        axes = figure.add_axes((0.9 / width, 0.14, 1 - 1.1 / width, 0.72))
        axes.bar(range(len(values)), values, color=SERIES[0], width=0.55)
        for x, value in enumerate(values):
            axes.text(x, value, f"{value:.1f}", ha="center", va="bottom", size=SMALL_SIZE)
        axes.axhline(line[0], color=SERIES[1], linestyle="--", linewidth=1.2, label=line[1])
        axes.set_xticks(range(len(values)), names)
        axes.set_ylabel(y_label)
        axes.set_ylim(0, 1.18 * max([*values, line[0]]))
        axes.set_title(title, loc="left")
        axes.legend(loc="upper right")
    return figure
