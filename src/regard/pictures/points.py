"""Named points with an error bar each, such as the quality of models against their speed."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.plots import plot
from regard.pictures.style import SERIES, SMALL_SIZE, STYLE

FAR = 4.0  # x is logarithmic if the largest is more than so many times the least


@dataclass(frozen=True)
class Point:
    """A point with its name and half the height of its bar; a hollow one stands back."""

    name: str
    x: float
    y: float
    spread: float = 0.0
    hollow: bool = False


@rc_context(STYLE)
def scatter(found: Sequence[Point], x_label: str, y_label: str, *, title: str | None = None) -> Figure:
    """Draw named points; a legend names them, so that points may lie close together."""
    if not found:
        raise UserError("There is no point to draw: give at least one.")
    if any(point.x <= 0 for point in found):
        raise UserError("x may be drawn on a logarithmic scale: expected positive values.")
    with rc_context({"font.family": families([*(point.name for point in found), x_label, y_label, title or ""])}):
        figure, axes = plot(x_label, y_label, title)
        for index, point in enumerate(found):
            colour = SERIES[index % len(SERIES)]
            face = "white" if point.hollow else colour
            marker = "os^Dv"[index // len(SERIES) % 5]
            axes.errorbar(
                [point.x], [point.y], [point.spread], color=colour, fmt=marker, markerfacecolor=face, markersize=7,
                capsize=3, linewidth=1.2, label=point.name,
            )  # fmt: skip
        if max(point.x for point in found) > FAR * min(point.x for point in found):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:.2g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.margins(x=0.15, y=0.15)
        axes.grid(axis="x")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL_SIZE)
    return figure
