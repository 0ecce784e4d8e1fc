"""`regard predict --n`, `--near`, `--between`: new things, written to a file or printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray

from regard import pictures
from regard.errors import UserError
from regard.inputs.input import Restores
from regard.outputs.abilities import Invents
from regard.runs.model import Model

MOST = 10_000
USUAL = 16  # things near another, or between two


class Wish(NamedTuple):
    """The new things that somebody wants: `n` of them, near a thing by `noise`, or between two."""

    n: int | None
    near: str | None
    noise: float
    between: tuple[str, str] | None
    label: str | None
    seed: int


def refuse_texts(texts: Sequence[str] | None, file: Path | None) -> None:
    """Refuse texts to answer beside a wish for new things."""
    if texts or file is not None:
        raise UserError("--n, --near and --between make new things, and answer no texts: leave the texts out.")


def invent(model: Model, wish: Wish, path: Path | None, out: TextIO, *, as_json: bool) -> None:
    """Make new things. A .png holds pictures side by side, .npz numbers; a text is a line for each."""
    task = model.task
    if not isinstance(task.output, Invents) or not isinstance(task.input, Restores):
        raise UserError(f"--n: a model that {task.does} makes nothing new; leave it out.")
    if path is not None and not path.parent.is_dir():
        raise UserError(f"{path}: cannot be written: there is no folder {path.parent}.")
    values = _made(model, task.output, wish)
    input = task.input
    if as_json:
        out.writelines(json.dumps(input.written(one), ensure_ascii=False) + "\n" for one in values)
        return
    if path is not None and path.suffix.lower() == ".npz":
        with path.open("wb") as file:
            np.savez_compressed(file, things=values)
        out.write(f"{path}\n")
        return
    things = [input.thing(one) for one in values]
    shown = [task.input.view(thing).picture for thing in things]
    if shown[0] is None:
        lines = "".join(f"{task.input.text(thing)}\n" for thing in things)
        out.write(lines if path is None else f"{path}\n")
        if path is not None:
            path.write_text(lines, encoding="utf-8")
        return
    if path is None:
        raise UserError("Pictures cannot be printed: name a file for them, such as -o new.png.")
    out.write(f"{pictures.tile_sheet([one for one in shown if one is not None], path)}\n")


def _made(model: Model, output: Invents, wish: Wish) -> NDArray[Any]:
    count = USUAL if wish.n is None else wish.n
    if not 1 <= count <= MOST:
        raise UserError(f"--n is {count}, expected 1 to {MOST:,}.")
    if not 0 <= wish.noise <= 1000:
        raise UserError(f"--noise is {wish.noise:g}, expected 0 to 1,000.")
    if wish.near is not None and wish.between is not None:
        raise UserError("--near and --between make different things: give one of them.")
    passes = model.task.passes
    named = [*(() if wish.near is None else (wish.near,)), *(wish.between or ())]
    if named and wish.label is not None:
        raise UserError(
            "--label chooses a class of new things, and --near and --between begin with a thing: leave it out."
        )
    sources = [model.task.input.read(name) for name in named]
    for name, source in zip(named, sources, strict=True):
        if not name.strip():
            raise UserError("--near and --between begin with a thing, found an empty name.")
        model.task.refuse(source, {})
    if wish.near is not None:
        return output.near(passes, sources[0], count, wish.noise, wish.seed)
    if wish.between is not None:
        return output.between(passes, sources[0], sources[1], count)
    return output.new(passes, count, wish.seed, wish.label)
