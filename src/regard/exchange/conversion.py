"""Conversions of a run for another program: written whole or not at all, kept behind checksums, and compared."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from regard.data.store import Store
from regard.errors import UserError
from regard.inputs.input import Row
from regard.outputs.output import Item
from regard.runs import checksums
from regard.runs.folder import CACHE
from regard.runs.model import Model, loaded
from regard.training.split import held_out

ORIGIN, LOSS = "origin.json", "int8.json"  # in the folder of a conversion that a run keeps
COMPARED = 300  # answers in int8 that are compared with those in float32
T = TypeVar("T")


def refuse_taken(folder: Path) -> None:
    """Refuse to export into a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists already: name another folder with -o.")
    with checksums.writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)


def write(folder: Path, fill: Callable[[Path], T]) -> T:
    """Write a conversion and its checksums; return what `fill` returns, which writes it into a folder and compares it
    with the torch model. It gets its name when all of it is on disk, and replaces one that was there."""
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        with checksums.writing(folder):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
        found = fill(partial)
        with checksums.writing(folder):
            for path in partial.iterdir():
                checksums.sync(path)
            checksums.write_sums(partial, {path.name: [checksums.sha256(path)] for path in sorted(partial.iterdir())})
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(partial, folder)
            checksums.sync(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Let one process at a time make a conversion; the others wait for it."""
    handle = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def origin(model: Model) -> bytes:
    """Return the checksums of all files that a conversion depends on. They were checked when the run was loaded."""
    listed = checksums.read_sums(model.folder)
    made = {"files": {name: listed.get(name) for name in loaded(model.config)}, "version": 1}
    return json.dumps(made, indent=1, sort_keys=True).encode()


def sound(folder: Path, made_of: bytes, needed: str) -> bool:
    """Return True if there is a conversion of these files with the file `needed`, and every byte of it is what was
    written."""
    try:
        listed = checksums.parse_sums(folder)
        checksums.check(folder, listed)
        return (folder / ORIGIN).read_bytes() == made_of and needed in listed
    except (OSError, ValueError, RecursionError):
        return False


def keep_loss(folder: Path, line: str) -> None:
    """Keep what is known of the cost of int8 beside a conversion."""
    checksums.publish(folder, {LOSS: json.dumps({"says": line}, ensure_ascii=False).encode()})


def has_loss(folder: Path) -> bool:
    return LOSS in checksums.read_sums(folder)


def compared(model: Model) -> tuple[Sequence[Item], Sequence[Row], str]:
    """Return what was held out of the training, else some rows that were trained on, without items."""
    try:
        held = model.task.held_items(held_out(model.config, model.task.output)[:COMPARED])
        return held.items, held.rows, "held-out"
    except (OSError, UserError):
        pass
    try:
        store = Store.open(model.folder / CACHE / "train")
        return [], [store[i] for i in range(min(COMPARED, len(store)))], "training"
    except (OSError, UserError):
        return [], [], ""
