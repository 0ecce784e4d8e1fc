"""The folder of a run: made, locked, and compared with the settings of whoever resumes it."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.data.store import INDEX
from regard.errors import UserError
from regard.runs import checkpoint, locations

CACHE, ORIGIN = "cache", "origin.json"  # the stored rows of a run, and in it: what they were made from
STORES = ("train", "valid")  # in the cache
WEIGHTS = "model.safetensors"  # the model of a run
CHECKED = (ORIGIN, *(f"{store}/{INDEX}" for store in STORES))  # by the cache's sums; the rows are by those in an index
# Settings that may differ when a run is resumed: those that say where files lie, and those that change what comes out.
MOVABLE = {
    "data": ("train", "valid", "test"),
    "decoding": ("beam", "length_penalty", "factor"),
    "loss": ("rows",),  # follows from the data
}
RECOGNISED = {"data": ("format", "columns")}  # from the data, which is the same
CHANGEABLE = {"training": ("minutes", "steps", "patience", "every", "validated", "ceiling"), "decoding": ("longest",)}


def quoted(path: str | Path) -> str:
    """Return a path as a shell takes it."""
    return shlex.quote(str(path))


def refuse_unwritable(*names: str | Path) -> None:
    """Refuse names that settings and cards, which are UTF-8, could not hold: better now than after a training."""
    for name in map(str, names):
        shown = name.encode("utf-8", "backslashreplace").decode()
        if shown == name:
            continue
        if sys.getfilesystemencoding() != "utf-8":
            raise UserError(f"{shown}: this name cannot be read in your locale: set LC_ALL=C.UTF-8.")
        raise UserError(f"{shown}: this name is not UTF-8, and would be written to files that are: rename it.")


def make(run: Path) -> None:
    """Make the folder of a run; refuse one that holds something else."""
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file: name a folder with -o.")
    if run.is_dir() and any(run.iterdir()) and not (run / "config.yaml").exists() and not (run / ".lock").exists():
        raise UserError(f"{run} is not empty and not a run folder: name another with -o.")
    if (run / WEIGHTS).exists() and not checkpoint.states(run):
        raise UserError(
            f"{run} holds a model but no state to resume from (it was imported or averaged, or its state/ was removed) "
            f"and training there would overwrite it. {instead(run)}"
        )
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{run}: the run folder cannot be made: {error.strerror}.") from error


def instead(run: Path) -> str:
    """Return the advice for a folder whose model must not be overwritten."""
    return f"Name another folder with -o, and start from this model with --from {quoted(run)} if you want its weights."


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold a run for one process; the lock goes with the process, however it ends."""
    try:
        handle = os.open(run / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UserError(f"{run}: cannot be written to: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise UserError(f"{run} is in use by another training: wait for it, or name another folder with -o.") from error
    except OSError as error:
        os.close(handle)
        raise UserError(f"{run} cannot be locked: {error.strerror}. Name a folder on another disk with -o.") from error
    try:
        yield
    finally:
        os.close(handle)


def refuse_other_run(run: Path, config: Config, files: str, say: Callable[[str], None]) -> None:
    """Let the same command resume a run; refuse another one. `files` is the checksum of the data."""
    facts = checkpoint.newest_facts(run)
    if facts is None or not isinstance(facts.get("settings"), dict):
        return
    then = facts["settings"]
    if "input" not in then:
        raise UserError(f"{run} was begun by version 0.1: finish it with that version, or name another folder with -o.")
    if then.get("task") != config.task or then["input"] != config.input:
        raise UserError(
            f"{run} holds a training of the task {then.get('task')} on {then['input']}, found {config.task} on "
            f"{config.input}: name another folder with -o."
        )
    if _files_before(run, files) != files:
        raise UserError(
            f"{run}: the data has changed since this run began: restore it, or name another folder with -o."
        )
    now = locations.portable(config, run).model_dump(mode="json")
    if then.get("training", {}).get("start") == config.training.start:  # paths were relative to the working directory
        then = then | {"training": then["training"] | {"start": now["training"]["start"]}}
    for section, values in now.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            new = value if key in RECOGNISED.get(section, ()) else _default(config, section, key)
            old = then.get(section, {}).get(key, new)  # a setting may be newer than a run
            if old == value or key in MOVABLE.get(section, ()):
                continue
            if (section, key) == ("training", "start"):
                begun, is_now = ("without --from" if each is None else f"with --from {each}" for each in (old, value))
                raise UserError(f"{run} was begun {begun}, now it is {is_now}: name another folder with -o.")
            if key not in CHANGEABLE.get(section, ()):
                raise UserError(
                    f"{run} was begun with {section}.{key}={old}, now it is {value}: "
                    "use the same settings to resume, or name another folder with -o."
                )
            say(f"{section}.{key} was {old}, is {value}: the result will not be bit-for-bit the same")


def _files_before(run: Path, files: str) -> str:
    """Return the checksum of the data that the run was begun with; `files` where that is not known."""
    try:
        found = json.loads((run / CACHE / ORIGIN).read_text(encoding="utf-8"))["origin"]["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return files  # gone or damaged: made anew, and compared then
    return str(found)


def _default(config: Config, section: str, key: str) -> Any:
    return type(getattr(config, section)).model_fields[key].default
