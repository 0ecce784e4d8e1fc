"""A text with its weights: every token on a background as dark as its weight, in lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import rc_context
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from regard.pictures.fonts import families
from regard.pictures.maps import LONGEST_LABEL, POINTS, checked, limits, measure
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

LINE = 0.42  # inches from one line to the next
WIDE = 8.0  # inches of a line
INSIDE = 0.09  # inches between a token and the edge of its ground
SHARES = 40  # tokens up to which each weight is written below its token


@dataclass(frozen=True)
class _Token:
    text: str
    weight: float
    left: float
    line: int
    width: float


@rc_context(STYLE)
def strip(weights: ArrayLike, tokens: Sequence[str], title: str, what: str = "attention weight") -> Picture:
    """Draw n `tokens` with their `weights` (n,) in lines of text under a `title`."""
    values = checked(np.atleast_2d(np.asarray(weights)), [title], tokens, 2)[0]
    labels = [visible(token, LONGEST_LABEL) for token in tokens]
    with rc_context({"font.family": families([*labels, title])}), quiet():
        shares = len(labels) <= SHARES
        placed = _lines(labels, [float(value) for value in values], shares)
        step = LINE + (0.16 if shares else 0.0)
        width = max(max(token.left + token.width for token in placed), measure(title, TITLE_SIZE), 3.6) + 2 * PAD
        top = PAD + 1.6 * TITLE_SIZE / POINTS
        height = top + (placed[-1].line + 1) * step + 0.55 + PAD
        figure = new_figure(width, height)
        figure.text(PAD / width, 1 - PAD / height, title, size=TITLE_SIZE, ha="left", va="top")
        colours = ScalarMappable(Normalize(*limits(values)), ramp())
        for token in placed:
            _draw(figure, token, top + token.line * step, colours, shares)
        axes = figure.add_axes(((PAD + 0.12) / width, 0.36 / height, 1.8 / width, 0.1 / height))
        bar = figure.colorbar(colours, cax=axes, orientation="horizontal")
        bar.ax.tick_params(labelsize=7.5, length=2.0, width=0.6, color=FAINT, pad=1.5)
        bar.outline.set_linewidth(0.5)
        figure.text((PAD + 2.1) / width, 0.41 / height, what, size=SMALL_SIZE, ha="left", va="center")
    return figure


def _lines(labels: Sequence[str], weights: Sequence[float], shares: bool) -> list[_Token]:
    """Return the place of each token, from left to right, in as many lines as needed."""
    placed: list[_Token] = []
    left, line = 0.0, 0
    for text, weight in zip(labels, weights, strict=True):
        least = measure("0.00", 7.0) if shares else 0.0
        width = max(measure(text, LABEL_SIZE), least) + 2 * INSIDE
        if left and left + width > WIDE:
            left, line = 0.0, line + 1
        placed.append(_Token(text, weight, left, line, width))
        left += width + 0.03
    return placed


def _draw(figure: Figure, token: _Token, above: float, colours: ScalarMappable, shares: bool) -> None:
    full_width, full_height = figure.get_size_inches()
    ground = colours.to_rgba(token.weight)  # type: ignore[arg-type]
    corner = ((PAD + token.left) / full_width, 1 - (above + 0.32) / full_height)
    size = (token.width / full_width, 0.32 / full_height)
    figure.add_artist(Rectangle(corner, *size, facecolor=ground, edgecolor=FAINT, linewidth=0.5))
    middle = (PAD + token.left + token.width / 2) / full_width
    figure.text(
        middle,
        1 - (above + 0.17) / full_height,
        token.text,
        size=LABEL_SIZE,
        ha="center",
        va="center_baseline",
        color=legible(ground),
    )
    if shares:
        figure.text(middle, 1 - (above + 0.35) / full_height, f"{token.weight:.2f}", size=7.0, ha="center", va="top")
