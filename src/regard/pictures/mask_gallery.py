"""Masks as boolean matrices: which query may attend to which key."""

import math
import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.pictures.fonts import families
from regard.pictures.style import ACCENT, FAINT, STYLE, new_figure

_COLOURS = ListedColormap(["white", ACCENT])
_SEPARATED = 40


def mask(matrix: ArrayLike, title: str | None = None) -> Figure:
    """Draw one mask (m, n): queries down, keys across, a filled cell where the query may attend to the key."""
    return masks({title or "": matrix})


@rc_context(STYLE)
def masks(matrices: Mapping[str, ArrayLike]) -> Figure:
    """Draw a gallery of masks by title, each as in `mask`."""
    checked = {title: _booleans(matrix, title) for title, matrix in matrices.items()}
    if not checked:
        raise UserError("There is no mask to draw: give at least one.")
    across = min(len(checked), 4 if len(checked) > 6 else 3)
    down = math.ceil(len(checked) / across)
    side = 3.6 if len(checked) == 1 else 2.6
    with rc_context({"font.family": families(checked)}):
        figure = new_figure(across * side, down * (side + (0.2 if any(checked) else 0.0)))
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
        for index, (title, allowed) in enumerate(checked.items()):
            axes = figure.add_subplot(down, across, index + 1)
            _draw(axes, allowed)
            axes.set_title(textwrap.fill(title, 24 if len(checked) > 1 else 34), size=10.5)
            axes.set_xlabel("key position", size=9)
            axes.set_ylabel("query position", size=9)
    return figure


def _booleans(matrix: ArrayLike, title: str) -> NDArray[np.bool_]:
    allowed = np.asarray(matrix)
    if allowed.dtype != np.bool_ or allowed.ndim != 2 or 0 in allowed.shape:
        raise UserError(
            f"Mask {title!r} must be a boolean matrix (queries, keys), found {allowed.dtype} of shape {allowed.shape}."
        )
    return allowed


def _draw(axes: Axes, allowed: NDArray[np.bool_]) -> None:
    m, n = allowed.shape
    axes.imshow(allowed, cmap=_COLOURS, vmin=0, vmax=1, interpolation="nearest")
    if max(m, n) <= _SEPARATED:
        axes.hlines(np.arange(1, m) - 0.5, -0.5, n - 0.5, colors=FAINT, linewidth=0.6)
        axes.vlines(np.arange(1, n) - 0.5, -0.5, m - 0.5, colors=FAINT, linewidth=0.6)
        axes.set_xlim(-0.5, n - 0.5)
        axes.set_ylim(m - 0.5, -0.5)
    axes.tick_params(length=0, labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
