"""Line plots: training curves, scores against length, and sinusoidal positions."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.style import ACCENT, DIVERGING, PAD, RAMP, SERIES, SMALL_SIZE, STYLE, new_figure

_DASHES = ("-", "--", "-.", ":")
_MARKED = 24  # points get a mark while they are few enough to be seen singly


@rc_context(STYLE)
def curves(
    x: Sequence[float] | NDArray[np.float64],
    series: Mapping[str, ArrayLike],
    x_label: str,
    y_label: str,
    *,
    bands: Mapping[str, tuple[ArrayLike, ArrayLike]] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw named lines over one x, such as losses over steps or BLEU against sentence length.

    A value that is not finite is left out and the line joins its neighbours, so a score measured every hundredth
    step may stand beside a loss measured at each. `bands` gives some of the lines a low and a high edge.
    """
    across = np.asarray(x, dtype=np.float64)
    values = {name: _like(across, numbers, name) for name, numbers in series.items()}
    edges = {name: [_like(across, edge, name) for edge in pair] for name, pair in (bands or {}).items()}
    if not values:
        raise UserError("There is no curve to draw: give at least one named series.")
    if not edges.keys() <= values.keys():
        raise UserError(f"Bands are given for {sorted(edges.keys() - values.keys())}, which are not among the series.")
    with rc_context({"font.family": families([*values, x_label, y_label, title or ""])}):
        figure, axes = _plot(x_label, y_label, title)
        for index, (name, numbers) in enumerate(values.items()):
            colour, dash = SERIES[index % len(SERIES)], _DASHES[index // len(SERIES) % len(_DASHES)]
            kept = np.isfinite(across) & np.isfinite(numbers)
            mark = "o" if kept.sum() <= _MARKED else ""
            axes.plot(
                across[kept], numbers[kept], label=name, color=colour, linestyle=dash, marker=mark, markersize=4.5
            )
            if name in edges:
                low, high = edges[name]
                axes.fill_between(across, low, high, color=colour, alpha=0.16, linewidth=0)
        if len(values) > 1:
            axes.legend(loc="best")
    return figure


def _like(across: NDArray[np.float64], numbers: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(numbers, dtype=np.float64)
    if across.ndim != 1 or array.shape != across.shape:
        raise UserError(
            f"Curve {name!r} has shape {array.shape} but x has shape {across.shape}: give one y for each x."
        )
    return array


def _plot(x_label: str, y_label: str, title: str | None, height: float = 4.0) -> tuple[Figure, Axes]:
    figure = new_figure(6.6, height)
    figure.set_layout_engine("constrained", w_pad=PAD, h_pad=PAD)
    axes = figure.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(length=3)
    if title:
        axes.set_title(title, wrap=True)
    return figure, axes


def _sinusoids(positions: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    import torch

    from regard.attention.positions import sinusoidal

    if width < 2 or width % 2:
        raise UserError(f"Sinusoidal positions need an even width of at least 2, found {width}.")
    table = sinusoidal(torch.from_numpy(positions), width)
    return np.asarray(table.double().numpy(), dtype=np.float64)


def _at_least(value: int, least: int, name: str) -> int:
    if value < least:
        raise UserError(f"The {name} must be at least {least} to be drawn, found {value}.")
    return value


@rc_context(STYLE)
def sinusoidal_table(width: int = 128, length: int = 50) -> Figure:
    """Draw the vectors pₜ of the first `length` positions.

    p[2i] = sin(t/10000^(2i/d)), p[2i+1] = cos(t/10000^(2i/d)).
    """
    table = _sinusoids(np.arange(_at_least(length, 1, "length")), width)
    figure, axes = _plot("component", "position t", f"Sinusoidal positions, width {width}")
    axes.grid(False)
    image = axes.imshow(table, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.ax.tick_params(labelsize=8, length=2.5)
    return figure


@rc_context(STYLE)
def sinusoidal_products(width: int = 128, distance: int = 50) -> Figure:
    """Draw ⟨pₜ, pₜ₊ₖ⟩ = Σᵢ cos(k/10000^(2i/d)) against the distance k for several t: the lines coincide."""
    steps = np.arange(_at_least(distance, 1, "distance") + 1)
    figure, axes = _plot("distance k", "⟨pₜ, pₜ₊ₖ⟩", f"The product depends only on the distance (width {width})")
    starts = (0, 10, 100, 1000)
    for index, start in enumerate(starts):
        first, others = _sinusoids(np.array([start]), width), _sinusoids(start + steps, width)
        # thick and pale below thin and dark, so that lines on top of one another can all be seen
        look = RAMP((index + 1) / len(starts))
        axes.plot(steps, others @ first[0], color=look, linewidth=12 - 3.5 * index, label=f"t = {start}")
    axes.legend()
    return figure


@rc_context(STYLE)
def sinusoidal_variance(width: int = 128, distance: int = 50) -> Figure:
    """Draw the variance over k = 0…`distance` of each component's part of ⟨pₜ, pₜ₊ₖ⟩: what it says about distance.

    Only the sum of a sine and its cosine does not depend on t: sin·sin + cos·cos = cos(k/10000^(2i/d)); each of the two
    components gets half of it.
    """
    parts = _component_parts(width, _at_least(distance, 1, "distance"))
    variance = parts.var(axis=0)
    first = min(50, width)
    share = variance[:first].sum() / variance.sum()
    figure, axes = _plot(
        "component", "variance over distances", f"Where distances up to {distance} are told apart (width {width})"
    )
    axes.bar(np.arange(width), variance, width=1.0, color=ACCENT, linewidth=0)
    axes.set_xlim(-1, width)
    axes.axvline(first - 0.5, color=SERIES[1], linewidth=1.4, linestyle="--")
    note = f"the first {first} of {width} components\nhold {100 * share:.1f} % of the variance"
    axes.annotate(
        note,
        (first, 0.93),
        (8, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        ha="left",
        size=SMALL_SIZE + 1,
    )
    return figure


def _component_parts(width: int, distance: int) -> NDArray[np.float64]:
    """Return the part of each component in ⟨p₀, pₖ⟩, (distance + 1, width), shared equally within each pair."""
    table = _sinusoids(np.arange(distance + 1), width)
    pairs = (table[0] * table).reshape(distance + 1, width // 2, 2).sum(axis=2)
    return np.repeat(pairs / 2, 2, axis=1)
