"""Exhibits as JSON for the page: names, weights as 16-bit steps, and the picture, recording or graph below them."""

from __future__ import annotations

import base64
import io
import wave
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.inspection.page import Effects, Exhibit, Map
from regard.inspection.scenes import WHOLE, sketch
from regard.inspection.sound import LONGEST, SoundView
from regard.inspection.view import Drawing, View
from regard.pictures.sketch import Sketch
from regard.text.display import visible

HEARD = 1_000_000  # weights within a recording that a page holds


def packed(exhibit: Exhibit, where: str) -> dict[str, Any]:
    """Return an exhibit as the page takes it; `where` is for complaints."""
    maps = exhibit.maps if exhibit.sound is None else _on_sound(exhibit, exhibit.sound, where)
    if not maps:
        raise UserError(f"{where} has no attention map to show.")
    found: dict[str, Any] = {
        **{side: [visible(token) for token in tokens] for side, tokens in exhibit.tokens().items()},
        "text": None if exhibit.text is None else one_line(exhibit.text),
        "words": {
            side: {"names": [visible(name) for name in words.names], "of": [*words.of]}
            for side, words in exhibit.all_words().items()
        },
        "maps": [packed_map(exhibit, a_map, f"{where}, map {a_map.name!r}") for a_map in maps],
    }
    if exhibit.parts:
        found["parts"] = [
            {"name": one_line(part.name) or visible(part.name), "columns": [*part.vectors], "receiver": part.receiver}
            for part in exhibit.parts
        ]
    if exhibit.effects is not None:
        found["effects"] = _effects(exhibit, exhibit.effects)
    view = exhibit.view
    if view is not None and view.picture is not None:
        found["picture"] = _picture(view, exhibit.drawing)
    drawn = exhibit.sketch
    if drawn is None and view is not None and view.scene is not None and len(view.names) <= WHOLE:
        title = (exhibit.text or "").rpartition("/")[2]  # where a file lies on the server is nobody's business
        drawn = sketch(replace(view, scene=replace(view.scene, centres=())), [], title)
    if drawn is not None and len(drawn.names) == len(exhibit.source):
        found["scene"] = _scene(drawn)
    if exhibit.sound is not None:
        found |= {"sound": _sound(exhibit.sound), "times": _times(exhibit, exhibit.sound, maps[0])}
    return found


def _effects(exhibit: Exhibit, effects: Effects) -> dict[str, Any]:
    """Return what answers become without parts, and the probability of each element of the first one."""
    covered = {
        str(number): {"answer": None if text is None else one_line(text), "each": each}
        for number, (text, each) in effects.covered.items()
    }
    rows = exhibit.element_rows(None if effects.each is None else len(effects.each))
    return {"answer": one_line(effects.answer), "each": effects.each, "rows": rows, "covered": covered}


def one_line(title: str) -> str:
    """Return a title on one line: blanks stay blanks, and what cannot be written in UTF-8 is replaced."""
    return " ".join(visible(word) for word in title.split())


def _on_sound(exhibit: Exhibit, sound: SoundView, where: str) -> list[Map]:
    """Return the maps of a recording that a page can hold, from the answer to the recording first."""
    if sound.seconds > LONGEST:
        raise UserError(
            f"{where} has {sound.seconds:.0f} s, expected at most {LONGEST:.0f} to show; name a part: FILE#0-30."
        )
    asked = [m for m in exhibit.maps if m.rows == "target" and m.columns == "source"]
    if not asked:
        raise UserError(f"{where} has no attention map from the answer to the recording to show.")
    return asked + [m for m in exhibit.maps if m not in asked and np.size(m.weights) <= HEARD]


def _picture(view: View, drawing: Drawing | None) -> dict[str, Any]:
    """Return a picture as PNG, the grid of its places, and the boxes of the targets in it."""
    from PIL import Image

    assert view.picture is not None
    assert view.grid is not None
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(view.picture)).save(file, "PNG")
    rows, columns = view.grid
    tall, wide = view.picture.shape[:2]
    boxes = [[round(edge, 4) for edge in box] for box in (drawing.boxes if drawing is not None else ())]
    size = {"rows": rows, "columns": columns, "ratio": wide / tall, "frames": view.frames}
    return {"png": _text(file.getvalue()), **size, "boxes": boxes}


def _scene(drawn: Sketch) -> dict[str, Any]:
    """Return the places of nodes, edges, and what is known of each node."""
    return {
        "places": np.round(drawn.places, 4).tolist(),
        "edges": drawn.edges.tolist(),
        "groups": [None if group is None else visible(group) for group in drawn.groups],
        "centres": [*drawn.centres],
        "title": one_line(drawn.title),
    }


def _sound(sound: SoundView) -> dict[str, Any]:
    """Return the spectrogram as 8-bit shades, and the recording as a WAV file."""
    frames = sound.heard.spectrogram
    low, high = np.percentile(frames, [5, 99.5]) if frames.size else (0.0, 1.0)
    shades = np.clip((frames - low) / max(1e-6, high - low) * 255, 0, 255).astype(np.uint8)
    return {
        "start": sound.start,
        "seconds": sound.seconds,
        "frames": frames.shape[0],
        "bins": frames.shape[1],
        "spectrogram": _text(shades.tobytes()),
        "wav": _text(wave_of(sound.heard.samples, sound.heard.rate)),
    }


def _times(exhibit: Exhibit, sound: SoundView, a_map: Map) -> list[list[float]]:
    """Return start and end of each element of the answer: those that are known, or those that attention tells."""
    given: Sequence[tuple[float, float, str]] = [] if exhibit.drawing is None else exhibit.drawing.spans
    times = [(start, end) for start, end, _ in given]
    if len(times) != len(exhibit.target):
        times = sound.times(np.asarray(a_map.weights, dtype=np.float64)[-1].mean(0))
    return [[round(start, 3), round(end, 3)] for start, end in times]


def wave_of(samples: NDArray[np.float32], rate: int) -> bytes:
    """Return a recording as a WAV file of 16-bit numbers, as loud as can be."""
    file, scale = io.BytesIO(), 0.9 / max(1e-6, float(np.abs(samples).max(initial=0.0)))
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples * scale * 32767).astype("<i2").tobytes())
    return file.getvalue()


def packed_map(exhibit: Exhibit, a_map: Map, where: str) -> dict[str, Any]:
    """Return weights as 16-bit steps from the least (or 0) to the greatest: half a step of softmax is below 0.00001."""
    weights = _checked(exhibit, a_map, where)
    low, high = min(float(weights.min()), 0.0), float(weights.max())
    span = high - low or 1.0
    steps = np.rint((weights - low) / span * 65535).astype("<u2")
    return {
        "name": a_map.name,
        "rows": a_map.rows,
        "columns": a_map.columns,
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "low": low,
        "span": span,
        "data": _text(steps.tobytes()),
    }


def _checked(exhibit: Exhibit, a_map: Map, where: str) -> NDArray[np.float64]:
    tokens = exhibit.tokens()
    for side in (a_map.rows, a_map.columns):
        if side not in tokens:
            raise UserError(f"{where}: rows and columns are 'source', 'target' or 'prefix', found {side!r}.")
    weights = np.asarray(a_map.weights, dtype=np.float64)
    expected = (len(tokens[a_map.rows]), len(tokens[a_map.columns]))
    if weights.ndim != 4 or weights.shape[2:] != expected or 0 in weights.shape:
        raise UserError(
            f"{where}: expected weights (layers, heads, {expected[0]}, {expected[1]}) for {expected[0]} {a_map.rows} "
            f"and {expected[1]} {a_map.columns} tokens, at least one of each, found shape {weights.shape}."
        )
    if not np.isfinite(weights).all():
        bad = int((~np.isfinite(weights)).sum())
        raise UserError(f"{where}: the weights hold {bad} NaN or infinite values, only finite ones can be shown.")
    return weights


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
