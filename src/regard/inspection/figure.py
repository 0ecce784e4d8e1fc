"""The figure of an exhibit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard import pictures
from regard.errors import UserError
from regard.inspection import on_picture, on_sound
from regard.inspection.page import Exhibit

if TYPE_CHECKING:
    from regard.pictures.style import Picture


def figure_of(exhibit: Exhibit, *, grid: bool) -> Picture:
    """Draw a graph, weights between two sides as a heat map, weights on one side as a strip, or all heads as a grid."""
    if exhibit.sketch is not None:
        return pictures.graph(exhibit.sketch)
    drawing = exhibit.drawing
    if drawing is None:
        raise UserError("This model has no attention between target and source: there is no alignment to draw.")
    if exhibit.view is not None and exhibit.view.picture is not None:
        return on_picture.figure(exhibit, exhibit.view, drawing, grid=grid)
    if exhibit.sound is not None:
        return on_sound.figure(exhibit.sound, drawing, grid=grid)
    if grid and drawing.heads is not None:
        return pictures.grid(*drawing.heads)
    if drawing.weights.ndim == 1:
        return pictures.strip(drawing.weights, drawing.columns, drawing.title or "", drawing.what)
    return pictures.alignment(drawing.weights, drawing.rows, drawing.columns, drawing.title)
