"""Showing where a model looked: a heat map, a grid of heads, an interactive page, or the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard import page, pictures
from regard.errors import UserError
from regard.inputs.tokens import END
from regard.predicting import aligned
from regard.running import Model
from regard.watching import attentions, watch

SUFFIXES = (".png", ".svg", ".html", ".npz")


def show(model: Model, texts: Sequence[str], path: Path, *, answer: str | None = None, grid: bool = False) -> Path:
    """Convert each text (or take `answer`), and write what the suffix of `path` says."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: the suffix {path.suffix!r} is unknown, expected one of {', '.join(SUFFIXES)}.")
    for text in texts:
        if not model.task.source.encode(text):
            raise UserError(f"The text {text!r} is empty: there is nothing to look at.")
    if answer is not None and len(texts) > 1:
        raise UserError(f"--answer goes with one text, found {len(texts)}.")
    examples = [looked(model, text, answer) for text in texts]
    if path.suffix == ".html":
        return page.write(path, examples, title=f"{model.folder.name}: where it looked")
    if len(texts) > 1:
        raise UserError(f"{path}: a picture shows one text, found {len(texts)}; an .html page shows several.")
    if path.suffix == ".npz":
        return _numbers(path, examples[0])
    crossing = next((m for m in examples[0].maps if m.rows != m.columns), None)
    if crossing is None:
        raise UserError("This model has no attention between target and source: there is no alignment to draw.")
    if grid:
        return pictures.save(pictures.grid(crossing.weights, examples[0].target, examples[0].source), path)
    weights, rows, columns = aligned(model, texts[0], answer_ids(model, texts[0], answer))
    return pictures.save(pictures.alignment(weights, rows, columns), path)


def looked(model: Model, text: str, answer: str | None) -> page.Example:
    """One text with all attention of all layers and heads."""
    task = model.task
    ids = task.source.encode(text)
    target = answer_ids(model, text, answer)
    with watch(task.network) as seen:
        task.look([(ids, target)])
    source_names = task.source.pieces(text)
    target_names = [*task.target.pieces_of(target), "⏹"]
    maps = []
    for name, (rows, columns) in _kinds(model).items():
        layers = [layer.weights[0].numpy() for key, layer in seen.items() if _kind(key) == name]
        most = max(len(layer) for layer in layers)
        weights = np.stack([np.broadcast_to(layer, (most, *layer.shape[1:])) for layer in layers])
        if (
            rows == columns == "target"
        ):  # row i predicts token i from the tokens before it: START takes the place of END
            weights = np.concatenate((weights[..., 1:], weights[..., :1]), -1)
        maps.append(page.Map(name, rows, columns, weights))
    assert len(target_names) == len([*target, END])
    return page.Example(source_names, target_names, maps)


def answer_ids(model: Model, text: str, answer: str | None) -> list[int]:
    """The tokens of a given answer, or of the model's own."""
    return model.task.target.encode(answer) if answer is not None else model.answers([text])[0][0].ids


def _kind(key: str) -> str:
    """encoder.layers.1.attention → encoder.attention."""
    return ".".join(part for part in key.split(".") if not part.isdigit() and part != "layers")


def _kinds(model: Model) -> dict[str, tuple[page.Side, page.Side]]:
    """The kinds of attention in a model, those across first, and what looks at what."""
    kinds = list(dict.fromkeys(_kind(key) for key in attentions(model.network)))
    sides: dict[str, tuple[page.Side, page.Side]] = {}
    for name in sorted(kinds, key=lambda kind: not kind.endswith(("cross", "glimpse"))):
        if name.endswith(("cross", "glimpse")):
            sides[name] = ("target", "source")
        else:
            sides[name] = ("source", "source") if name.startswith("encoder") else ("target", "target")
    return sides


def _numbers(path: Path, example: page.Example) -> Path:
    arrays = {m.name: np.asarray(m.weights) for m in example.maps}
    arrays |= {"source": np.array(example.source), "target": np.array(example.target)}
    try:
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from error
    return path
