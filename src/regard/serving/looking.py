"""Looking, in a worker: an answer, where the model looked, and what the answer becomes without a part of the input.

The question of a look is JSON in place of a text: {"input" or "content" and "media_type", or "example" or "node", and
perhaps "answer" and "cover"}.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.errors import UserError

if TYPE_CHECKING:
    from regard.runs.model import Model

MEDIA = "application/vnd.regard.look+json"
BEST = 4  # answers that are shown


def facts(model: Model) -> dict[str, Any]:
    """Return what the page has to know of a model."""
    from regard.inputs.input import Opens
    from regard.outputs.abilities import Streams

    task = model.task
    return {
        "accepts": task.input.accepts if isinstance(task.input, Opens) else None,
        "streams": isinstance(task.output, Streams),
        "picks": _graph(model) is not None,
    }


def _graph(model: Model) -> str | None:
    """Return the graph whose nodes a model labels, as its input names it, where that is the only one of a file."""
    naming, files = model.task.input.naming, model.config.data.train
    if naming is None or model.task.output.reads != "tag" or len(files) != 1:
        return None
    path = Path(files[0])
    home = path if path.exists() else path.parent  # cora.npz/train
    try:
        return str(home) if home.is_file() and len(naming.things(str(home))) == 1 else None
    except UserError:  # the file is another one by now
        return None


def source_of(model: Model, question: Mapping[str, Any], longest: int) -> Any:
    """Return the thing that is asked about. Files are opened only by names that the run itself knows."""
    from regard.inputs.input import Opens
    from regard.runs.examples_file import examples_in

    task = model.task
    if question.get("example") is not None:
        found = dict(enumerate(examples_in(model.folder))).get(question["example"])
        if found is None:
            raise UserError("There is no such example.")
        if "file" in found:
            return task.input.read(str(found["file"]))
        question = {"input": found["text"]} if "text" in found else found
    if question.get("node") is not None:
        home = _graph(model)
        if home is None or task.input.naming is None:
            raise UserError("This model has no graph of its own to pick a node from.")
        try:
            return task.input.read(task.input.naming.units(home, [question["node"]]))
        except UserError:
            raise UserError("The graph has no node of this name.") from None
    if question.get("content") is not None:
        if not isinstance(task.input, Opens):
            raise UserError(f"This model reads {task.input.noun}, and these are bytes.")
        return task.input.open(base64.b64decode(question["content"]), question["media_type"])
    if task.input.alphabet is None:
        raise UserError(f"This model reads {task.input.noun}, and this is a text.")
    if len(question["input"]) > longest:
        raise UserError(f"The text is too long: expected at most {longest:,} characters.")
    return task.input.read(question["input"])


def look(model: Model, source: Any, content: str) -> dict[str, Any]:
    """Return the answer, and the exhibit as the page takes it; or why there is none."""
    from regard.inspection.packing import packed
    from regard.outputs.abilities import Streams

    task, question = model.task, json.loads(content)
    given, cover = question.get("answer"), question.get("cover")
    found: dict[str, Any] = {"answer": _answer(model, source)}
    wanted: Any = () if cover is None else "each" if cover == "each" else [cover]
    while True:
        try:
            return {**found, "example": packed(task.exhibit(source, given, wanted), "This")}
        except UserError as error:
            if given and isinstance(task.output, Streams):  # a continuation may be longer than what can be shown
                given = given[: len(given) // 2] or None
                continue
            if given is not None or cover is not None:
                raise
            return {**found, "fault": str(error)}


def _answer(model: Model, source: Any) -> dict[str, Any]:
    """Return an answer with alternatives, where there are any."""
    task = model.task
    if "n_best" in task.output.options:
        try:
            task.refuse(source, {"n_best": BEST})
            return task.output.as_json(task.answers([source], n_best=BEST)[0])
        except UserError:
            pass  # there is one answer only
    options = {"longest": 1} if task.output.draws and "longest" in task.output.options else {}
    return task.output.as_json(task.answers([source], **options)[0])
