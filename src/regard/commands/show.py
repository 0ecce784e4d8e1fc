"""`regard show`: a heat map, a grid of heads, an interactive page, or the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard import pictures
from regard.commands.predict import listed
from regard.errors import UserError
from regard.inputs.input import readable
from regard.inspection import bundle, page
from regard.inspection.figure import figure_of
from regard.inspection.positions import position_tables
from regard.outputs.abilities import Portrays
from regard.runs.model import Model, load
from regard.training.split import held_out

SUFFIXES = (".png", ".svg", ".html", ".npz")


def show_positions(model: Model, path: Path) -> Path:
    """Draw the tables of positions of a model, or write them as .npz."""
    tables = position_tables(model.network)
    if path.suffix.lower() == ".npz":
        return _saved(path, tables)
    names = {
        name.removesuffix(".place").removeprefix("stem.").replace("embedding", "input"): table
        for name, table in tables.items()
    }
    return pictures.save(pictures.position_tables(names, f"{model.folder.name}: positions"), path)


def show(
    model: Model,
    texts: Sequence[str],
    path: Path,
    *,
    answer: str | None = None,
    grid: bool = False,
    nodes: Sequence[str] = (),
    cover: bool = False,
) -> Path:
    """Answer each text (or take `answer`), and write what the suffix of `path` says. `nodes` are units to look at;
    `cover` adds what the answer becomes without each part of the input."""
    named = [text for line in texts for text in (listed(model, line, nodes) if nodes else [line])]
    sources = [model.task.input.read(text) for text in named]
    answer = None if answer is None else readable(answer)
    _refuse(sources, path, answer, grid)
    if cover and path.suffix.lower() not in (".html", ".npz"):
        raise UserError(f"{path}: --cover goes with .html and .npz, which hold what the answer becomes.")
    kind = path.suffix.lower()
    if kind == ".html":
        exhibits = [model.task.exhibit(source, answer, "each" if cover else ()) for source in sources]
        return bundle.write(path, exhibits, title=f"{model.folder.name}: where it looked")
    exhibit = model.task.exhibit(sources[0], answer, "each" if cover else ())
    if kind == ".npz":
        return _numbers(path, exhibit)
    return pictures.save(figure_of(exhibit, grid=grid), path)


def show_answered(model: Model, right: Mapping[str, str], path: Path, *, grid: bool = False) -> Path:
    """Show sources by their right answers: those that a model answers, or the first with its right answer if it writes
    nothing yet, as after a few steps. A picture shows one of them."""
    shown = [source for source, answer in zip(right, model.predict(list(right)), strict=True) if answer]
    answer = None if shown else next(iter(right.values()))
    shown = shown or list(right)[:1]
    return show(model, shown if path.suffix == ".html" else shown[:1], path, answer=answer, grid=grid)


def show_many(
    model: Model, others: Sequence[Path], name: str, data: Sequence[str], path: Path, *, answer: str | None = None
) -> Path:
    """Draw a portrait of a model and others beside it, over data; its own validation data if none is given."""
    output = model.task.output
    if not isinstance(output, Portrays):
        raise UserError(f"--draw {name}: a model that {model.task.does} has no such option; leave it out.")
    if name not in output.portraits:
        raise UserError(f"--draw {name}: expected one of {', '.join(output.portraits)}.")
    named = {model.folder.name: model.task.passes}
    for each in others:
        other = load(each)
        if not output.alike(other.task.output):
            raise UserError(f"--with {each}: expected a run that makes the same things as {model.folder}.")
        named[other.folder.name] = other.task.passes
    held = model.held(data) if data else model.task.held_items(held_out(model.config, output))
    return pictures.save(output.portray(name, named, held, answer), path)


def _refuse(texts: Sequence[object], path: Path, answer: str | None, grid: bool) -> None:
    """Refuse what cannot be drawn, before anything is computed."""
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


def _numbers(path: Path, exhibit: page.Exhibit) -> Path:
    arrays = {m.name: np.asarray(m.weights) for m in exhibit.maps}
    if exhibit.drawing is not None and exhibit.drawing.boxes:
        arrays["boxes"] = np.array(exhibit.drawing.boxes)  # of the targets: left, top, right, bottom, from 0 to 1
    arrays |= {side: np.array(tokens) for side, tokens in exhibit.tokens().items()}
    return _saved(path, arrays)


def _saved(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    try:
        with path.open("wb") as file:  # by its name, .NPZ would become .NPZ.npz
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}.") from error
    return path
