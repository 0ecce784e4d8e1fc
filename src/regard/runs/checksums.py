"""Files written whole or not at all, and the SHA-256 sums by which damage is noticed.

A folder's `sums.json` names its files and the sum of each. A file is replaced in four moves, so that whoever reads the
folder at any moment, also after a power cut, finds a file and a sum that fit:

1. the new content is written beside the old and forced to disk;
2. `sums.json` allows the old and the new sum;
3. one rename puts the new content in place;
4. `sums.json` allows the new sum only.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from regard.errors import UserError

SUMS = "sums.json"
LARGEST = 1 << 20  # bytes of a sums.json
Sums = dict[str, list[str]]  # for each file the sums it may have


class Unwritable(UserError):
    """The disk is full or read-only, or the permission is gone; what was there before is unharmed."""


@contextmanager
def writing(where: Path) -> Iterator[None]:
    """Whatever the system says against writing, as one sentence."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{where} cannot be written: {error.strerror or error}.") from error


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes | Path) -> None:
    """A file with this content, or a copy of another, under its name only when it is complete and on disk."""
    with writing(path):
        _replace(_partial(path, content), path)


def inside(folder: Path, name: str) -> Path:
    """The file of a folder that a name read from disk means; no name leads out of the folder."""
    path = folder / name
    plain = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) is not None
    if not plain or not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder}: the name {name!r} leads out of the folder: only its own files are read.")
    return path


def publish(folder: Path, files: Mapping[str, bytes | Path]) -> None:
    """Replace files of a folder together with their sums (the four moves above)."""
    with writing(folder):
        try:
            before = read_sums(folder)
        except UserError:
            before = {}  # none yet, or damaged: what is written now is sound
        partials = _partials(folder, files)
        after = {name: [sha256(partial)] for name, partial in partials.items()}
        write_sums(folder, before | {name: [*before.get(name, []), *sums] for name, sums in after.items()})
        for name, partial in partials.items():
            _replace(partial, folder / name)
        write_sums(folder, before | after)


def write_sums(folder: Path, sums: Sums) -> None:
    write_whole(folder / SUMS, render(sums))


def read_sums(folder: Path) -> Sums:
    """The sums of a folder's files; a damaged list is never taken for a good one."""
    try:
        return parse_sums(folder)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{folder / SUMS} is damaged ({reason}): {remedy(folder)}.") from error


def parse_sums(folder: Path) -> Sums:
    """The same, raising what the fault is."""
    path = inside(folder, SUMS)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{SUMS} has {path.stat().st_size:,} bytes")
    raw = path.read_bytes()
    found = json.loads(raw)
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or not all(isinstance(sums, list) for sums in files.values()):
        raise ValueError(f"{SUMS} is not a list of checksums")
    if raw != render(files):
        raise ValueError(f"{SUMS} is not as it was written")
    return files


def check(folder: Path, names: Iterable[str]) -> None:
    """Refuse a folder in which one of these files has changed since it was written."""
    sums = read_sums(folder)
    for name in names:
        fault = fault_of(folder, name, sums)
        if fault:
            raise UserError(fault)


def fault_of(folder: Path, name: str, sums: Mapping[str, list[str]]) -> str | None:
    """Return the fault of one file of a folder, as a sentence."""
    path = inside(folder, name)
    try:
        found = sha256(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}."
    if found in sums.get(name, []):
        return None
    return f"{path} has changed since it was written (its SHA-256 sum differs): {remedy(folder)}."


def remedy(folder: Path) -> str:
    """Return the remedy for a file that has changed: people edit runs, never the tokens that a run keeps."""
    if not (folder / "config.yaml").exists():
        return "it is rebuilt when training resumes"
    run = shlex.quote(str(folder))
    return f"restore it; if you changed it on purpose, accept it with `regard check {run} --accept`"


def render(sums: Sums) -> bytes:
    """The text of a sums.json; it holds a sum of itself, so that a change anywhere in it shows."""
    own = hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()
    return (json.dumps({"files": sums, "own": own}, indent=1, sort_keys=True) + "\n").encode()


def _partials(folder: Path, files: Mapping[str, bytes | Path]) -> dict[str, Path]:
    """All of them, or none: on a full disk what is left of an attempt would be in the way of the next."""
    partials: dict[str, Path] = {}
    try:
        for name, content in files.items():
            partials[name] = _partial(folder / name, content)
    except OSError:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise
    return partials


def _partial(path: Path, content: bytes | Path) -> Path:
    partial = path.with_name(path.name + ".partial")
    try:
        if isinstance(content, Path):
            shutil.copyfile(content, partial)
        else:
            partial.write_bytes(content)
        sync(partial)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    return partial


def _replace(partial: Path, path: Path) -> None:
    os.replace(partial, path)
    sync(path.parent)
