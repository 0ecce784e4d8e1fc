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
    texts = [text.strip() for text in texts]  # as the training data was read
    _refuse(texts, path, answer, grid)
    answers = [answer_ids(model, text, answer) for text in texts]
    if path.suffix == ".html":
        examples = [looked(model, text, ids) for text, ids in zip(texts, answers, strict=True)]
        return page.write(path, examples, title=f"{model.folder.name}: where it looked")
    if path.suffix == ".npz":
        return _numbers(path, looked(model, texts[0], answers[0]))
    if not model.task.crossing():
        raise UserError("This model has no attention between target and source: there is no alignment to draw.")
    if grid:
        example = looked(model, texts[0], answers[0])
        crossing = next(m for m in example.maps if m.rows != m.columns)
        return pictures.save(pictures.grid(crossing.weights, example.target, example.source), path)
    return pictures.save(pictures.alignment(*aligned(model, texts[0], answers[0])), path)


def _refuse(texts: Sequence[str], path: Path, answer: str | None, grid: bool) -> None:
    """What cannot be drawn, before anything is computed."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: the suffix {path.suffix!r} is unknown, expected one of {', '.join(SUFFIXES)}.")
    if grid and path.suffix not in (".png", ".svg"):
        raise UserError(f"{path}: --grid goes with .png and .svg; .html and .npz hold every layer and head anyway.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}.")
    if answer is not None and len(texts) > 1:
        raise UserError(f"--answer goes with one text, found {len(texts)}.")
    if len(texts) > 1 and path.suffix != ".html":
        raise UserError(f"{path}: a picture shows one text, found {len(texts)}; an .html page shows several.")


def looked(model: Model, text: str, target: list[int]) -> page.Example:
    """One text and the tokens of its answer, with all attention of all layers and heads."""
    task = model.task
    ids = task.source.encode(text)
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
    source, limit = model.task.source.encode(text), 4 * model.config.data.longest
    ids = model.answers([text])[0][0].ids if answer is None else model.task.target.encode(answer.strip())
    if not source:
        raise UserError(f"The text {text!r} is empty: there is nothing to look at.")
    if not ids and answer is None:
        raise UserError(f"The model's answer to {text!r} is empty: look at an answer of yours with --answer.")
    if not ids:
        raise UserError("--answer is empty, expected an answer to look at.")
    if max(len(source), len(ids)) > limit:
        raise UserError(
            f"The text or its answer is too long to show: {max(len(source), len(ids)):,} tokens, expected at most "
            f"{limit:,} (4 × data.longest)."
        )
    return ids


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
