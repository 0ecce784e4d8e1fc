"""Attention over time: a spectrogram, and below it the weights on the same axis of seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.pictures.fonts import families
from regard.pictures.maps import LONGEST_LABEL, measure
from regard.pictures.style import (
    ACCENT,
    FAINT,
    INK,
    PAD,
    RAMP,
    SMALL_SIZE,
    STYLE,
    TITLE_SIZE,
    Picture,
    new_figure,
    quiet,
)
from regard.text.display import visible

TALL = 1.7  # inches of a spectrogram
WIDE = 8.0  # inches of its time
HERTZ = (125, 250, 500, 1000, 2000, 4000, 8000)
LABELLED = 60  # rows of weights that are named
SPAN = tuple[float, float, str]  # start, end and label


@rc_context(STYLE)
def spectrogram(
    sound: ArrayLike,
    rate: int,
    seconds: tuple[float, float],
    weights: ArrayLike,
    rows: Sequence[str] = (),
    *,
    title: str | None = None,
    what: str = "attention weight",
    spans: Sequence[SPAN] = (),
    step: float | None = None,
) -> Picture:
    """Draw a log-mel spectrogram (frames, bins) of samples at `rate` from `seconds[0]` to `seconds[1]`, under it
    `weights` (n,) as a curve or (m, n) as a heat map with named `rows`, and `spans` of time with their labels. Each of
    the n columns stands for `step` seconds; None: they share the time evenly."""
    values = np.asarray(weights, dtype=np.float64)
    names = [visible(row, LONGEST_LABEL) for row in rows]
    with rc_context({"font.family": families([*names, title or "", *(label for _, _, label in spans)])}), quiet():
        named = values.ndim == 2 and len(names) <= LABELLED
        left = PAD + 0.55 + (max((measure(name, SMALL_SIZE) for name in names), default=0.0) if named else 0.0)
        lower = 1.1 if values.ndim == 1 else min(6.0, max(0.9, 0.24 * len(values)))
        band = 0.34 if spans else 0.0
        top = PAD + (1.6 * TITLE_SIZE / 72 if title else 0.0)
        width, height = left + WIDE + 1.0, top + TALL + band + 0.12 + lower + 0.62
        figure = new_figure(width, height)
        if title:
            figure.text(left / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        upper = _axes(figure, left, top, TALL)
        _sound(upper, np.asarray(sound, dtype=np.float64), rate, seconds)
        if spans:
            _spans(_axes(figure, left, top + TALL, band), spans, seconds)
        below = _axes(figure, left, top + TALL + band + 0.12, lower)
        covered = seconds if step is None else (seconds[0], seconds[0] + step * values.shape[-1])
        place = (left, top + TALL + band + 0.12, lower)
        _weights(figure, below, values, names if named else [], seconds, covered, what, *place)
        below.set_xlabel("seconds", size=SMALL_SIZE)
    return figure


def _axes(figure: Figure, left: float, above: float, height: float) -> Axes:
    full_width, full_height = figure.get_size_inches()
    box = (left / full_width, 1 - (above + height) / full_height, WIDE / full_width, height / full_height)
    return figure.add_axes(box)


def _sound(axes: Axes, frames: NDArray[np.float64], rate: int, seconds: tuple[float, float]) -> None:
    low, high = np.percentile(frames, [5, 99.5]) if frames.size else (0.0, 1.0)
    bins = frames.shape[1]
    extent = (*seconds, -0.5, bins - 0.5)
    axes.imshow(
        frames.T, origin="lower", aspect="auto", cmap="magma", vmin=low, vmax=max(high, low + 1e-6), extent=extent
    )
    bottom, top = (1127 * math.log1p(hertz / 700) for hertz in (20.0, rate / 2))
    places = {h: (1127 * math.log1p(h / 700) - bottom) / (top - bottom) * (bins + 1) - 1 for h in HERTZ if h < rate / 2}
    shown = [h for h in places if 0 <= places[h] <= bins - 1][-4:]
    axes.set_yticks([places[h] for h in shown], [f"{h:,}" for h in shown], size=8)
    axes.set_ylabel("Hz", size=SMALL_SIZE)
    axes.tick_params(axis="x", labelbottom=False, length=2)


def _spans(axes: Axes, spans: Sequence[SPAN], seconds: tuple[float, float]) -> None:
    """Draw labels under the stretches of time that they name, where there is room for them."""
    axes.set_xlim(*seconds)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.tick_params(axis="x", labelbottom=False, length=0)
    each = WIDE / max(1e-9, seconds[1] - seconds[0])
    for number, (start, end, label) in enumerate(spans):
        axes.axvspan(start, end, color=FAINT if number % 2 else "white", lw=0)
        if measure(label, 8.0) < (end - start) * each + 0.04:
            axes.text((start + end) / 2, 0.5, label, size=8, ha="center", va="center", color=INK, clip_on=True)
        axes.axvline(start, color="#8a94a3", lw=0.5)


def _weights(
    figure: Figure,
    axes: Axes,
    values: NDArray[np.float64],
    names: Sequence[str],
    seconds: tuple[float, float],
    covered: tuple[float, float],
    what: str,
    left: float,
    above: float,
    height: float,
) -> None:
    axes.set_xlim(*seconds)
    if values.ndim == 1:
        edges = np.linspace(*covered, len(values) + 1)
        axes.stairs(values, edges, fill=True, color=ACCENT, alpha=0.25, lw=0)
        axes.stairs(values, edges, color=ACCENT, lw=1.2)
        axes.set_ylim(0, max(1e-9, float(values.max(initial=0.0))) * 1.05)
        axes.set_ylabel(what, size=SMALL_SIZE)
        axes.tick_params(labelsize=8, length=2)
        return
    extent, most = (*covered, len(values) - 0.5, -0.5), max(1e-9, float(values.max(initial=0.0)))
    image = axes.imshow(values, aspect="auto", cmap=RAMP, vmin=0, vmax=most, interpolation="nearest", extent=extent)
    axes.set_xlim(*seconds)
    axes.set_yticks(range(len(names)), names, size=min(SMALL_SIZE, max(5.0, 60 * height / max(1, len(values)))))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8, length=2)
    full_width, full_height = figure.get_size_inches()
    tall = min(height, 1.6)
    box = ((left + WIDE + 0.12) / full_width, 1 - (above + tall) / full_height, 0.12 / full_width, tall / full_height)
    bar = figure.colorbar(image, cax=figure.add_axes(box))
    bar.set_label(what, size=8, labelpad=4)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_linewidth(0.5)
