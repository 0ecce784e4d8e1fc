"""The picture of a recording by `regard show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard import pictures
from regard.inspection.sound import SoundView
from regard.inspection.view import Drawing
from regard.text.display import visible

if TYPE_CHECKING:
    from regard.pictures.style import Picture


def figure(sound: SoundView, drawing: Drawing, *, grid: bool) -> Picture:
    """Draw weights under the spectrogram, on one axis of seconds; `grid` draws all layers and heads."""
    if grid and drawing.heads is not None:
        return pictures.grid(*drawing.heads)
    spans = list(drawing.spans)
    if not spans and drawing.rows and drawing.weights.ndim == 2 and drawing.spoken:
        times = sound.times(drawing.weights)
        spans = [(start, end, visible(name)) for (start, end), name in zip(times, drawing.rows, strict=True)]
    span = (sound.start, sound.start + sound.seconds)
    return pictures.spectrogram(
        sound.heard.spectrogram, sound.heard.rate, span, drawing.weights, drawing.rows, title=drawing.title,
        what=drawing.what, spans=spans, step=sound.step,
    )  # fmt: skip
