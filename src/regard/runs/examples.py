"""Six examples of a run for its page: sources of the validation data, half of them answered wrongly where there are
such. They are kept in `examples.json`, so that the page needs no data."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from regard.data.tagged import split_words
from regard.errors import UserError
from regard.outputs.abilities import in_short
from regard.outputs.output import Held
from regard.runs import checksums
from regard.runs.examples_file import COUNT, FILE
from regard.runs.model import Model
from regard.task import Task
from regard.text.display import visible

LARGEST = 1 << 20  # bytes of one example
LONGEST = 2000  # characters of a text
SHOWN = 300  # milliseconds of a frame


def write_examples(model: Model, held: Held, answers: Sequence[str]) -> None:
    """Write some items that were answered, wrong ones among them."""
    found = list(_chosen(model.task, held, answers))
    content = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
    checksums.publish(model.folder, {FILE: content})


def _chosen(task: Task, held: Held, answers: Sequence[str]) -> Iterator[dict[str, Any]]:
    cases = list(_nodes(task, held, answers)) or list(_cases(task, held, answers))
    wrong = [case for case in cases if case[2] is False]
    right = [case for case in cases if case[2] is not False]
    half = min(len(wrong), max(COUNT // 2, COUNT - len(right)))
    for source, expected, correct in [*right[: COUNT - half], *wrong[:half]]:
        sent = _sent(task, source)
        if sent is not None:
            yield {**sent, "expected": expected, "right": correct}


def _cases(task: Task, held: Held, answers: Sequence[str]) -> Iterator[tuple[Any, str, bool | None]]:
    """Yield source, what is expected, and whether the answer is that; None where answers cannot be compared."""
    several, output = len(answers) == len(held.items), task.output
    for number, item in enumerate(held.items):
        expected = [in_short(output, str(x)) for x in item.expected] if isinstance(item.expected, list) else []
        right = in_short(output, answers[number]) in expected if several and expected else None
        yield task.trial(item.example.source), expected[0] if expected else "", right


def _nodes(task: Task, held: Held, answers: Sequence[str]) -> Iterator[tuple[Any, str, bool | None]]:
    """Yield nodes of a graph whose nodes are labelled, each a source of its own."""
    naming = task.input.naming
    if naming is None or task.output.reads != "tag" or len(answers) != len(held.items):
        return
    for item, answer in zip(held.items, answers, strict=True):
        names = task.input.view(item.example.source).unit_names()
        tags = zip(names, split_words(answer), split_words(str(item.expected[0])), strict=False)
        for name, own, expected in tags:
            text = naming.units(task.input.text(item.example.source), [name])
            yield text, expected, own == expected


def _sent(task: Task, source: Any) -> dict[str, Any] | None:
    """Return a source as a page may send it: a text, bytes, or for what is in a file its name."""
    if task.input.alphabet is not None:
        text = task.input.text(source)
        return {"text": text, "name": text} if 0 < len(text) <= LONGEST and _readable(task, text) else None
    if isinstance(source, str):
        return {"file": source, "name": source.rpartition("/")[2]}
    try:
        view, name = task.input.view(source), task.input.text(source)
    except UserError:
        return None
    shown = visible(name.rpartition("/")[2])
    if view.picture is not None:
        return _bytes(_png(np.split(view.picture, view.frames, 1)), "image/png", shown)
    if view.sound is not None:
        return _bytes(_wav(view.sound.heard.samples, view.sound.heard.rate), "audio/wav", shown)
    return {"file": name, "name": shown} if task.input.naming is not None else None


def _readable(task: Task, text: str) -> bool:
    try:
        task.refuse(task.input.read(text), {})
    except UserError:
        return False
    return True


def _bytes(content: bytes, media: str, name: str) -> dict[str, Any] | None:
    if len(content) > LARGEST:
        return None
    return {"content": base64.b64encode(content).decode(), "media_type": media, "name": name}


def _png(frames: Sequence[Any]) -> bytes:
    """Return a picture, or a film of several: frames that are the same are one unless they are blended otherwise."""
    from PIL import Image

    file, (first, *others) = io.BytesIO(), [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]
    film = {"save_all": True, "append_images": others, "duration": SHOWN, "blend": [i % 2 for i in range(len(frames))]}
    first.save(file, "PNG", **(film if others else {}))
    return file.getvalue()


def _wav(samples: Any, rate: int) -> bytes:
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()
