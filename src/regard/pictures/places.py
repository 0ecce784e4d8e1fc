"""Weights over the places of a picture, one small map for each head."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from regard.errors import UserError
from regard.pictures.style import FAINT, PAD, SERIES, STYLE, new_figure, ramp


@rc_context(STYLE)
def places(maps: Mapping[str, ArrayLike], query: tuple[int, int], *, columns: int = 3) -> Figure:
    """Draw named maps (rows, columns) of weights side by side; the place of the query has a frame."""
    if not maps:
        raise UserError("There is no map to draw: give at least one.")
    rows = math.ceil(len(maps) / columns)
    figure = new_figure(1.7 * columns, 1.9 * rows)
    figure.set_layout_engine("constrained", w_pad=PAD / 2, h_pad=PAD / 2)
    for number, (name, weights) in enumerate(maps.items()):
        values = np.asarray(weights, dtype=np.float64)
        axes = figure.add_subplot(rows, columns, number + 1)
        axes.imshow(values, cmap=ramp(), vmin=0, vmax=1, interpolation="nearest")
        axes.set_xticks(np.arange(-0.5, values.shape[1]), labels=[])
        axes.set_yticks(np.arange(-0.5, values.shape[0]), labels=[])
        axes.grid(color=FAINT, linewidth=0.6)
        axes.tick_params(length=0)
        axes.set_title(name, size=9)
        axes.add_patch(
            Rectangle((query[1] - 0.5, query[0] - 0.5), 1, 1, fill=False, edgecolor=SERIES[1], linewidth=2, zorder=3)
        )
    return figure
