"""Rows of arrays on disk, mapped into memory: a corpus larger than memory can be trained on.

A row holds one array for each field, such as token ids, 8-bit pixels, frames or boxes. A store is a folder. Each field
has `NAME.values` (the elements of all rows one after another, little-endian) and `NAME.offsets` (int64: row i is
values[offsets[i]:offsets[i+1]]). `index.json` holds dtypes, shapes, counts and SHA-256 sums. It is written last, so a
store that was cut short while being written has none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError

INDEX = "index.json"
VERSION = 2
BUFFER = 1 << 18  # numbers held in memory for each field before they go to disk
DTYPES = ("<u2", "<u4", "|u1", "<f2", "<f4")
REMEDY = "remove this cache: training makes it again from the data"


class Field(NamedTuple):
    """One array of a stored row: `count` elements of a dtype and a shape."""

    name: str
    dtype: str  # one of DTYPES
    shape: tuple[int, ...] = ()  # of one element: () an id, (80,) a frame, (32, 32, 3) a picture
    tokens: float = 1  # the cost of an element in a batch's budget


def id_dtype(vocabulary_size: int) -> str:
    """Return the smallest dtype that holds every id of a vocabulary."""
    return "<u2" if vocabulary_size <= 1 << 16 else "<u4"


class Store:
    """Rows read from a folder that `write_store` made; `store[i]` gives an array (count, *shape) for each field."""

    def __init__(
        self,
        fields: tuple[Field, ...],
        values: list[NDArray[Any]],
        offsets: list[NDArray[np.int64]],
        checksum: str,
    ) -> None:
        self.fields = fields
        self.checksum = checksum
        self._values = values
        self._offsets = offsets
        # How many elements each row has in each field.
        self.lengths: NDArray[np.int32] = np.empty((len(offsets[0]) - 1, len(offsets)), dtype=np.int32)
        for field, each in enumerate(offsets):
            for start, some in _differences(each):
                self.lengths[start : start + len(some), field] = some

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = True) -> Store:
        """Open a store; `verify` compares the content with its SHA-256 sums, which reads all of it once."""
        folder = Path(folder)
        index = _read_index(folder)
        fields, values, offsets = [], [], []
        for name, entry in index["fields"].items():
            field = Field(name, entry["dtype"], tuple(entry["shape"]), entry["tokens"])
            fields.append(field)
            values.append(_map(folder / f"{name}.values", field.dtype, (entry["count"], *field.shape)))
            offsets.append(_map(folder / f"{name}.offsets", "<i8", (index["rows"] + 1,)))
            if verify:
                for suffix in ("values", "offsets"):
                    _compare(folder / f"{name}.{suffix}", entry["sha256"][suffix])
            ends = offsets[-1]
            if ends[0] != 0 or ends[-1] != entry["count"] or any((some < 0).any() for _, some in _differences(ends)):
                raise UserError(
                    f"{folder / name}.offsets is damaged: its offsets do not rise to {entry['count']}; {REMEDY}."
                )
        return cls(tuple(fields), values, offsets, _checksum(index))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: int) -> tuple[NDArray[Any], ...]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a store with {len(self)} rows")
        row %= len(self)
        pairs = zip(self._values, self._offsets, strict=True)
        return tuple(values[offsets[row] : offsets[row + 1]] for values, offsets in pairs)


def write_store(folder: Path | str, rows: Iterable[Sequence[ArrayLike]], fields: Sequence[Field]) -> Store:
    """Stream rows (an array-like of shape (count, *shape) for each field) to a folder, and open it."""
    folder = Path(folder)
    _check_fields(fields)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
        writers = [_writer(folder, field) for field in fields]
        adding = [writer.add for writer in writers]  # looked up once, not for every row
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                try:
                    for add, values in zip(adding, row, strict=True):
                        add(values)
                except ValueError:
                    _refuse_width(folder, count, row, len(writers))
                    raise
        finally:
            for writer in writers:
                writer.close()
        entries = {writer.field.name: writer.entry() for writer in writers}
        index = {"version": VERSION, "rows": count, "fields": entries}
        partial = folder / (INDEX + ".partial")
        partial.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, folder / INDEX)
    except OSError as error:
        raise UserError(f"{folder}: the rows cannot be written: {error.strerror or error}.") from error
    return Store.open(folder, verify=False)


def _refuse_width(folder: Path, count: int, row: Sequence[Any], expected: int) -> None:
    if len(row) != expected:
        raise UserError(f"{folder}: row {count - 1}: expected {expected} fields, found {len(row)}.")


def _check_fields(fields: Sequence[Field]) -> None:
    for field in fields:
        if not _is_field(*field):
            raise ValueError(f"{field} is not a field: expected a plain name, a dtype of {DTYPES} and a positive shape")
    if not fields or len({field.name for field in fields}) < len(fields):
        raise ValueError(f"{[field.name for field in fields]}: expected at least one field, each with its own name")


class _FieldWriter(ABC):
    """The two growing files of one field, with their sums."""

    def __init__(self, folder: Path, field: Field) -> None:
        self.field = field
        self._path = folder / field.name
        self._values = _SummedFile(folder / f"{field.name}.values")
        self._offsets = _SummedFile(folder / f"{field.name}.offsets")
        self._offsets.write(np.zeros(1, "<i8").tobytes())
        self._ends = array("q")  # of the rows that are still in memory
        self._rows = 0  # on disk
        self._total = 0  # elements of all rows

    @abstractmethod
    def add(self, values: Any) -> None:
        """Add the elements of one row."""

    @abstractmethod
    def _take(self) -> Iterator[bytes]:
        """Hand out the elements in memory and forget them."""

    def _flush(self) -> None:
        for some in self._take():
            self._values.write(some)
        self._offsets.write(np.array(self._ends, dtype="<i8").tobytes())
        self._rows += len(self._ends)
        self._ends = array("q")

    def _checked(self, values: Any) -> NDArray[Any]:
        """Return the elements of a row in the field's dtype; refuse what does not fit it."""
        row, shape, dtype = self._rows + len(self._ends), self.field.shape, np.dtype(self.field.dtype)
        try:
            found = np.asarray(values)
        except ValueError:  # lists of different lengths
            self._refuse(row, f"elements of the shape {shape}", "elements of different shapes")
        if found.size == 0 and len(found) == 0:
            return np.empty((0, *shape), dtype)
        if found.ndim == 0 or found.shape[1:] != shape:
            self._refuse(row, f"elements of the shape {shape}", found.shape[1:] if found.ndim else "a single number")
        if found.dtype.kind not in ("biuf" if dtype.kind == "f" else "biu"):
            self._refuse(row, self._range(), found.dtype)
        if dtype.kind == "u":
            if found.dtype != dtype and (found.min() < 0 or found.max() > np.iinfo(dtype).max):
                self._refuse(row, self._range(), found.min() if found.min() < 0 else found.max())
            return found.astype(dtype, copy=False)
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            block = found.astype(dtype, copy=False)
        if not np.isfinite(block).all():
            self._refuse(row, self._range(), found[~np.isfinite(block)][0])
        return block

    def _range(self) -> str:
        """Return the numbers that the dtype holds, in words."""
        dtype = np.dtype(self.field.dtype)
        if dtype.kind == "f":
            return f"finite numbers of {dtype.itemsize} bytes"
        return f"whole numbers from 0 to {np.iinfo(dtype).max}"

    def _refuse(self, row: int, expected: str, got: object) -> NoReturn:
        raise UserError(f"{self._path}: row {row}: expected {expected}, found {got}.")

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._values.stream.close()
            self._offsets.stream.close()

    def entry(self) -> dict[str, Any]:
        """Return what the index says of the field."""
        _, dtype, shape, tokens = self.field
        sums = {"values": self._values.sum.hexdigest(), "offsets": self._offsets.sum.hexdigest()}
        return {"dtype": dtype, "shape": [*shape], "tokens": tokens, "count": self._total, "sha256": sums}


class _IdWriter(_FieldWriter):
    """A field of plain integers. Most rows are lists of them, which `array` takes faster than numpy does."""

    def __init__(self, folder: Path, field: Field) -> None:
        super().__init__(folder, field)
        self._ids = array("Q")

    def add(self, values: Any) -> None:
        if type(values) is not list:
            values = self._checked(values).tolist()
        try:
            self._ids.extend(values)
        except (OverflowError, TypeError):
            self._refuse(self._rows + len(self._ends), self._range(), f"{values!r:.60}")
        self._total += len(values)
        self._ends.append(self._total)
        if len(self._ids) >= BUFFER:
            self._flush()

    def _take(self) -> Iterator[bytes]:
        ids, self._ids = np.frombuffer(self._ids, dtype=np.uint64), array("Q")
        if ids.size and int(ids.max()) > np.iinfo(self.field.dtype).max:
            worst = int(ids.argmax())
            row = int(np.searchsorted(self._ends, self._total - len(ids) + worst, side="right"))
            self._refuse(self._rows + row, self._range(), ids[worst])
        yield ids.astype(self.field.dtype).tobytes()


class _BlockWriter(_FieldWriter):
    """A field whose elements are floats or have a shape of their own."""

    def __init__(self, folder: Path, field: Field) -> None:
        super().__init__(folder, field)
        self._blocks: list[bytes] = []
        self._size = 0  # numbers in memory

    def add(self, values: Any) -> None:
        block = self._checked(values)
        self._blocks.append(block.tobytes())
        self._size += block.size
        self._total += len(block)
        self._ends.append(self._total)
        if self._size >= BUFFER or len(self._ends) >= BUFFER:
            self._flush()

    def _take(self) -> Iterator[bytes]:
        blocks, self._blocks, self._size = self._blocks, [], 0
        yield from blocks


def _writer(folder: Path, field: Field) -> _FieldWriter:
    return (
        _IdWriter(folder, field)
        if np.dtype(field.dtype).kind == "u" and not field.shape
        else _BlockWriter(folder, field)
    )


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
        raise UserError(f"{folder} holds no complete store ({INDEX} is missing); {REMEDY}.")
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        sound = (
            index["version"] == VERSION
            and _is_count(index["rows"])
            and len(index["fields"]) > 0
            and all(_is_entry(name, entry) for name, entry in index["fields"].items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {error}); {REMEDY}.") from error
    if not sound:
        raise UserError(f"{path} is damaged or from another version of regard; {REMEDY}.")
    return index


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_field(name: Any, dtype: Any, shape: Sequence[Any], tokens: Any) -> bool:
    """Check the parts of a field. Its name becomes a file name, so it may not lead out of the folder."""
    return bool(
        re.fullmatch(r"\w+", name)
        and dtype in DTYPES
        and all(type(size) is int and size > 0 for size in shape)
        and type(tokens) in (int, float)
        and 0 <= tokens < math.inf
    )


def _is_entry(name: str, entry: Any) -> bool:
    sums = entry["sha256"]
    return (
        _is_field(name, entry["dtype"], entry["shape"], entry["tokens"])
        and _is_count(entry["count"])
        and all(isinstance(sums[suffix], str) for suffix in ("values", "offsets"))
    )


def _map(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    found = path.stat().st_size if path.is_file() else -1
    if found != expected:
        state = "is missing" if found < 0 else f"has {found:,} bytes, expected {expected:,}"
        raise UserError(f"{path} {state}; {REMEDY}.")
    # An empty file cannot be mapped.
    return np.memmap(path, dtype=dtype, mode="r", shape=shape) if expected else np.empty(shape, dtype)


def _differences(ends: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the differences of neighbours in blocks with their starts: all at once would be as large as the offsets."""
    for start in range(0, len(ends) - 1, BUFFER):
        yield start, np.diff(ends[start : start + BUFFER + 1])


def _compare(path: Path, expected: str) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise UserError(f"{path} is damaged: its SHA-256 sum is not the one in {INDEX}; {REMEDY}.")


def _checksum(index: dict[str, Any]) -> str:
    """Return one sum over the counts and the sums of the files: the same content gives the same anywhere."""
    return hashlib.sha256(json.dumps(index, sort_keys=True).encode()).hexdigest()
