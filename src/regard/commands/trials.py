"""A text to try a new model on: one of its own data that fits on a line of a terminal."""

from __future__ import annotations

import shlex
from itertools import islice
from typing import Any

from regard.runs.build import read
from regard.runs.folder import quoted
from regard.runs.model import Model
from regard.task import Task

LOOKED_AT = 1000  # examples
MANY = 50  # units of a thing, such as nodes of a graph, that are too many to look at
COLUMNS = 80  # of a terminal
AROUND = len("     regard show  '' -o alignment.png")


def example(model: Model) -> str:
    """Return the first source of the validation data that is short enough for a line, or else the beginning of one."""
    task, data = model.task, model.config.data
    room = max(20, COLUMNS - AROUND - len(quoted(model.folder)))
    examples = islice(read(model.config, data.valid or data.train, lambda _: None), LOOKED_AT)
    sources = [found.source for found in examples if _telling(task.input.text(found.source))]

    def tried(source: Any) -> str:
        return task.input.text(task.trial(source))

    fitting = (text for source in sources if _few(task, source) and len(shlex.quote(text := tried(source))) <= room)
    if (first := next(fitting, None)) is not None or not sources:
        return first or ""
    shortest = min(sources, key=lambda source: len(task.input.text(source)))
    if task.input.naming is not None and len(names := task.input.view(shortest).unit_names()) > MANY:
        return task.input.naming.units(task.input.text(shortest), names[:1])  # a thing of many is looked at by one
    if "an alphabet" not in task.input.offers:  # such as the path of an image, which cannot be cut
        return tried(shortest)
    return tried(task.input.read(_cut(task.input.text(shortest), room)))


def _few(task: Task, source: Any) -> bool:
    """Return True for a thing that can be looked at whole."""
    return task.input.naming is None or len(task.input.view(source).unit_names()) <= MANY


def _telling(text: str) -> bool:
    """Return True for a text worth trying: it has letters or digits."""
    return any(character.isalnum() for character in text)


def _cut(text: str, room: int) -> str:
    """Return the words of a text that fit, or the characters if not even the first word does."""
    whole: list[str] = []
    for word in text.split():
        if len(" ".join([*whole, word])) > room:
            break
        whole.append(word)
    return " ".join(whole) or text[:room]
