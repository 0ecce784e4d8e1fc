"""Token ids on disk, mapped into memory: a corpus larger than memory can be trained on.

A store is a folder: for each field `NAME.tokens` (all ids one after another, little-endian, 2 or 4 bytes each) and
`NAME.offsets` (int64: row i is tokens[offsets[i]:offsets[i+1]]), and `index.json` with the counts and SHA-256 sums.
The index is written last, so that a store that was cut short while being written has none.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError

INDEX = "index.json"
BUFFER = 1 << 18  # items held in memory for each field before they go to disk
REMEDY = "remove the folder and prepare the data again"


class Store:
    """Rows of token ids, read from a folder that `write_store` made; `store[i]` gives one array for each field."""

    def __init__(
        self,
        fields: tuple[str, ...],
        tokens: list[NDArray[Any]],
        offsets: list[NDArray[np.int64]],
        checksum: str,
    ) -> None:
        self.fields = fields
        self.checksum = checksum
        self._tokens = tokens
        self._offsets = offsets
        self.lengths: NDArray[np.int32] = np.empty((len(offsets[0]) - 1, len(offsets)), dtype=np.int32)
        for field, each in enumerate(offsets):
            for start, some in _differences(each):
                self.lengths[start : start + len(some), field] = some

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = True) -> Store:
        """Open a store; `verify` compares the content with its SHA-256 sums, which reads all of it once."""
        folder = Path(folder)
        index = _read_index(folder)
        tokens, offsets = [], []
        for name, entry in index["fields"].items():
            tokens.append(_map(folder / f"{name}.tokens", index["dtype"], entry["tokens"]))
            offsets.append(_map(folder / f"{name}.offsets", "<i8", index["rows"] + 1))
            if verify:
                for suffix in ("tokens", "offsets"):
                    _compare(folder / f"{name}.{suffix}", entry["sha256"][suffix])
            ends = offsets[-1]
            if ends[0] != 0 or ends[-1] != entry["tokens"] or any((some < 0).any() for _, some in _differences(ends)):
                raise UserError(
                    f"{folder / name}.offsets is damaged: its offsets do not rise to {entry['tokens']}; {REMEDY}."
                )
        return cls(tuple(index["fields"]), tokens, offsets, _checksum(index))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> tuple[NDArray[Any], ...]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a store with {len(self)} rows")
        row %= len(self)
        pairs = zip(self._tokens, self._offsets, strict=True)
        return tuple(tokens[offsets[row] : offsets[row + 1]] for tokens, offsets in pairs)


def write_store(
    folder: Path | str,
    rows: Iterable[Sequence[Sequence[int]]],
    fields: Sequence[str] = ("source", "target"),
    *,
    vocabulary: int,
) -> Store:
    """Stream rows (one sequence of ids for each field) to a folder and open it; `vocabulary` bounds the ids."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        writers = [_FieldWriter(folder, name, vocabulary) for name in fields]
        count = 0
        try:
            for row in rows:
                for writer, ids in zip(writers, row, strict=True):
                    writer.add(ids)
                count += 1
        finally:
            for writer in writers:
                writer.close()
        entries = {writer.name: writer.entry() for writer in writers}
        index = {"version": 1, "rows": count, "vocabulary": vocabulary, "dtype": _dtype(vocabulary), "fields": entries}
        partial = folder / (INDEX + ".partial")
        partial.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, folder / INDEX)
    except OSError as error:
        raise UserError(f"{folder}: tokens cannot be written: {error.strerror or error}.") from error
    return Store.open(folder, verify=False)


def _dtype(vocabulary: int) -> str:
    return "<u2" if vocabulary <= 1 << 16 else "<u4"


class _FieldWriter:
    """The two growing files of one field, with their sums."""

    def __init__(self, folder: Path, name: str, vocabulary: int) -> None:
        self.name = name
        self._vocabulary = vocabulary
        self._dtype = _dtype(vocabulary)
        self._tokens = _SummedFile(folder / f"{name}.tokens")
        self._offsets = _SummedFile(folder / f"{name}.offsets")
        self._ids = array("Q")
        self._ends = array("q", [0])
        self._total = 0

    def add(self, ids: Sequence[int]) -> None:
        self._ids.extend(ids)  # a negative id raises OverflowError here
        self._total += len(ids)
        self._ends.append(self._total)
        if len(self._ids) >= BUFFER or len(self._ends) >= BUFFER:
            self._flush()

    def _flush(self) -> None:
        ids = np.array(self._ids, dtype=np.uint64)
        if ids.size and int(ids.max()) >= self._vocabulary:
            raise ValueError(f"the id {ids.max()} is outside the vocabulary of {self._vocabulary}")
        self._tokens.write(ids.astype(self._dtype).tobytes())
        self._offsets.write(np.array(self._ends, dtype="<i8").tobytes())
        self._ids, self._ends = array("Q"), array("q")

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._tokens.stream.close()
            self._offsets.stream.close()

    def entry(self) -> dict[str, Any]:
        sums = {"tokens": self._tokens.sum.hexdigest(), "offsets": self._offsets.sum.hexdigest()}
        return {"tokens": self._total, "sha256": sums}


class _SummedFile:
    def __init__(self, path: Path) -> None:
        self.stream: BinaryIO = path.open("wb")
        self.sum = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self.stream.write(data)
        self.sum.update(data)


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / INDEX
    if not path.is_file():
        raise UserError(f"{folder} holds no complete token store ({INDEX} is missing); {REMEDY}.")
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sound = (
            index["version"] == 1
            and index["dtype"] == _dtype(index["vocabulary"])
            and _is_count(index["rows"])
            and len(index["fields"]) > 0
            and all(_is_field(name, entry) for name, entry in index["fields"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); {REMEDY}.") from error
    if not sound:
        raise UserError(f"{path} is damaged or from another version of regard; {REMEDY}.")
    return index


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_field(name: str, entry: Any) -> bool:
    """Names become file names, so they may not lead out of the folder."""
    sums = entry["sha256"]
    return bool(
        re.fullmatch(r"\w+", name)
        and _is_count(entry["tokens"])
        and all(isinstance(sums[suffix], str) for suffix in ("tokens", "offsets"))
    )


def _map(path: Path, dtype: str, items: int) -> NDArray[Any]:
    expected = items * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else -1
    if found != expected:
        state = "is missing" if found < 0 else f"has {found:,} bytes, expected {expected:,}"
        raise UserError(f"{path} {state}; {REMEDY}.")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r", shape=(items,)) if items else np.empty(0, dtype)


def _differences(ends: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """What lies between neighbours, in pieces with the place of each: all at once would be as large as the offsets."""
    for start in range(0, len(ends) - 1, BUFFER):
        yield start, np.diff(ends[start : start + BUFFER + 1])


def _compare(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise UserError(f"{path} is damaged: its SHA-256 sum is not the one in {INDEX}; {REMEDY}.")


def _checksum(index: dict[str, Any]) -> str:
    """One sum over the counts and the sums of the files: the same content gives the same, wherever it lies."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
