"""Line plots: training curves, scores against length, and sinusoidal positions."""

from collections.abc import Collection, Mapping, Sequence

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
        figure, axes = plot(x_label, y_label, title)
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


def plot(x_label: str, y_label: str, title: str | None, height: float = 4.0) -> tuple[Figure, Axes]:
    """Return a figure and its axes, with labels, a title and faint lines across."""
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
    figure, axes = plot("component", "position t", f"Sinusoidal positions, width {width}")
    axes.grid(False)
    image = axes.imshow(table, cmap=DIVERGING, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.05, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.ax.tick_params(labelsize=8, length=2.5)
    return figure


@rc_context(STYLE)
def sinusoidal_products(width: int = 128, distance: int = 50) -> Figure:
    """Draw ⟨pₜ, pₜ₊ₖ⟩ = Σᵢ cos(k/10000^(2i/d)) against the distance k for several t: the lines coincide."""
    steps = np.arange(_at_least(distance, 1, "distance") + 1)
    figure, axes = plot("distance k", "⟨pₜ, pₜ₊ₖ⟩", f"The product depends only on the distance (width {width})")
    starts = (0, 10, 100, 1000)
    for index, start in enumerate(starts):
        first, others = _sinusoids(np.array([start]), width), _sinusoids(start + steps, width)
        # thick and pale below thin and dark, so that lines on top of one another can all be seen
        look = RAMP((index + 1) / len(starts))
        axes.plot(steps, others @ first[0], color=look, linewidth=12 - 3.5 * index, label=f"t = {start}")
    axes.legend(handlelength=2.4, handletextpad=1.4, labelspacing=0.9)  # thick lines end beyond their length
    return figure


@rc_context(STYLE)
def sinusoidal_variance(width: int = 128, distance: int = 50) -> Figure:
    """Draw the variance over τ = 0…`distance` of the prefix product ⟨pₜ^{1…k}, pₜ₊τ^{1…k}⟩ against k, as a share of
    that of the whole product: how many components are needed to tell distances apart.

    Only the sum of a sine and its cosine does not depend on t: sin·sin + cos·cos = cos(τ/10000^(2i/d)); of an odd k the
    last sine counts half of it.
    """
    prefixes = _component_parts(width, _at_least(distance, 1, "distance")).cumsum(axis=1)
    shares = 100 * prefixes.var(axis=0) / prefixes[:, -1].var()
    marked = min(50, width)
    figure, axes = plot(
        "k, the number of first components",
        "variance of their product, % of k = d",
        f"What the first k components tell of distances up to {distance} (width {width})",
    )
    axes.plot(np.arange(1, width + 1), shares, color=ACCENT)
    axes.set_xlim(0, width)
    axes.set_ylim(0, 104)
    axes.plot([marked, marked], [0, shares[marked - 1]], color=SERIES[1], linewidth=1.4, linestyle="--")
    note = f"{shares[marked - 1]:.0f} % at k = {marked}"
    axes.annotate(
        note,
        (marked, shares[marked - 1]),
        (8, -4),
        textcoords="offset points",
        va="top",
        ha="left",
        size=SMALL_SIZE + 1,
    )
    return figure


@rc_context(STYLE)
def position_tables(
    tables: Mapping[str, ArrayLike], title: str | None = None, *, pairs: Collection[str] = ()
) -> Figure:
    """Draw tables of positions (positions, width) side by side, position down, component across.

    Those named in `pairs` have a number for two positions each: across is a position too.
    Each has a scale of its own, the same on both sides of 0: tables differ in size by orders of magnitude.
    """
    arrays = {name: np.asarray(table, dtype=np.float64) for name, table in tables.items()}
    if not arrays or any(array.ndim != 2 or 0 in array.shape for array in arrays.values()):
        raise UserError("There is no table of positions to draw: expected named arrays of positions × components.")
    figure = new_figure(0.6 + 2.9 * len(arrays), 3.6)
    figure.set_layout_engine("constrained", w_pad=PAD, h_pad=PAD)
    for number, (name, array) in enumerate(arrays.items()):
        axes = figure.add_subplot(1, len(arrays), number + 1)
        most = max(float(np.abs(array).max()), 1e-12)
        image = axes.imshow(array, cmap=DIVERGING, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set_title(name, size=10)
        axes.set_xlabel("position t′" if name in pairs else "component")
        axes.set_ylabel("position t" if number == 0 else "")
        axes.tick_params(length=3)
        bar = figure.colorbar(image, ax=axes, pad=0.03, fraction=0.06)
        bar.ax.tick_params(labelsize=7, length=2.0)
    if title:
        figure.suptitle(title, size=12)
    return figure


def _component_parts(width: int, distance: int) -> NDArray[np.float64]:
    """Return the part of each component in ⟨p₀, pₖ⟩, (distance + 1, width), shared equally within each pair."""
    table = _sinusoids(np.arange(distance + 1), width)
    pairs = (table[0] * table).reshape(distance + 1, width // 2, 2).sum(axis=2)
    return np.repeat(pairs / 2, 2, axis=1)
