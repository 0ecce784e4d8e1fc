"""The picture of a recording by `regard show`, and the page that plays it."""

from __future__ import annotations

import base64
import html
import io
import re
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard import pictures
from regard.errors import UserError
from regard.inspection import page
from regard.inspection.page import Exhibit
from regard.inspection.sound import LONGEST, SoundView
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


def write(path: Path, exhibits: Sequence[Exhibit], title: str) -> Path:
    """Write the page that shows spectrograms, plays recordings, and lights up what is attended to meanwhile."""
    packed = [_packed(exhibit, f"Example {number}") for number, exhibit in enumerate(exhibits, 1)]
    template = Path(__file__).with_name("sound.html").read_text(encoding="utf-8")
    parts = {
        "title": html.escape(page.one_line(title)),
        "data": page.as_json({"examples": packed}),
        "style-hash": page.hash_of(template, "style"),
        "script-hash": page.hash_of(template, "script"),
    }
    filled = re.sub(r"\{\{([a-z-]+)\}\}", lambda match: parts[match[1]], template)
    try:
        path.write_text(filled, encoding="utf-8", newline="\n")
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written ({fault.strerror}): give a file in an existing folder you may write to."
        ) from fault
    return path


def _packed(exhibit: Exhibit, where: str) -> dict[str, Any]:
    sound, drawing = exhibit.sound, exhibit.drawing
    assert sound is not None
    if sound.seconds > LONGEST:
        raise UserError(
            f"{where} has {sound.seconds:.0f} s, expected at most {LONGEST:.0f} to show; name a part: FILE#0-30."
        )
    maps = [m for m in exhibit.maps if m.rows == "target" and m.columns == "source"]
    if not maps:
        raise UserError(f"{where} has no attention map from the answer to the recording to show.")
    frames = sound.heard.spectrogram
    low, high = np.percentile(frames, [5, 99.5]) if frames.size else (0.0, 1.0)
    shades = np.clip((frames - low) / max(1e-6, high - low) * 255, 0, 255).astype(np.uint8)
    words = [visible(token) for token in exhibit.target]
    given = [*drawing.spans] if drawing is not None else []
    mean = np.asarray(maps[0].weights, dtype=np.float64)[-1].mean(0)
    times = [(start, end) for start, end, _ in given] if len(given) == len(words) else sound.times(mean)
    return {
        "text": page.one_line(exhibit.text or ""),
        "start": sound.start,
        "seconds": sound.seconds,
        "frames": frames.shape[0],
        "bins": frames.shape[1],
        "spectrogram": base64.b64encode(shades.tobytes()).decode(),
        "sound": base64.b64encode(_wave(sound)).decode(),
        "source": [visible(name) for name in exhibit.source],
        "target": words,
        "times": [[round(start, 3), round(end, 3)] for start, end in times],
        "maps": [page.packed_map(exhibit, m, f"{where}, map {m.name!r}") for m in maps],
    }


def _wave(sound: SoundView) -> bytes:
    """Return the recording as a WAV file of 16-bit numbers, as loud as can be."""
    samples, file = sound.heard.samples, io.BytesIO()
    scale = 0.9 / max(1e-6, float(np.abs(samples).max(initial=0.0)))
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sound.heard.rate)
        out.writeframes((samples * scale * 32767).astype("<i2").tobytes())
    return file.getvalue()
