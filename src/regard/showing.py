"""Showing where a model looked: a heat map, a grid of heads, an interactive page, or the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from regard import page, pictures
from regard.errors import UserError
from regard.outputs.task import readable
from regard.running import Model

SUFFIXES = (".png", ".svg", ".html", ".npz")


def show(model: Model, texts: Sequence[str], path: Path, *, answer: str | None = None, grid: bool = False) -> Path:
    """Answer each text (or take `answer`), and write what the suffix of `path` says."""
    texts = [model.task.cleaned(text) for text in texts]
    answer = None if answer is None else readable(answer)
    _refuse(texts, path, answer, grid)
    kind = path.suffix.lower()
    if kind == ".html":
        examples = [model.task.example(text, answer) for text in texts]
        return page.write(path, examples, title=f"{model.folder.name}: where it looked")
    if kind == ".npz":
        return _numbers(path, model.task.example(texts[0], answer))
    return pictures.save(model.task.picture(texts[0], answer, grid=grid), path)


def _refuse(texts: Sequence[str], path: Path, answer: str | None, grid: bool) -> None:
    """What cannot be drawn, before anything is computed."""
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{path}: the suffix {path.suffix!r} is unknown, expected one of {', '.join(SUFFIXES)}.")
    if grid and kind not in (".png", ".svg"):
        raise UserError(f"{path}: --grid goes with .png and .svg; .html and .npz hold every layer and head anyway.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}.")
    if answer is not None and len(texts) > 1:
        raise UserError(f"--answer goes with one text, found {len(texts)}.")
    if len(texts) > 1 and kind != ".html":
        raise UserError(f"{path}: a picture shows one text, found {len(texts)}; an .html page shows several.")


def _numbers(path: Path, example: page.Example) -> Path:
    arrays = {m.name: np.asarray(m.weights) for m in example.maps}
    arrays |= {side: np.array(tokens) for side, tokens in example.tokens().items()}
    try:
        with path.open("wb") as file:  # by its name, .NPZ would become .NPZ.npz
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from error
    return path
