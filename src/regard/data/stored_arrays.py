"""Arrays of IDX and NPZ files, on the disk or in a zip archive. What is not packed is mapped into memory, so that an
array may be larger than it."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.folders import Handle, member_of
from regard.errors import UserError

MOST_ARRAY = 2**34  # bytes of an array that is unpacked
GZIP = b"\x1f\x8b"
IDX_BYTES = 0x08  # the type of an IDX file whose numbers are bytes
NPZ = ".npz"
PIECE = 2**20  # bytes that are read at a time
CHANNELS = (1, 2, 3, 4)  # grey, grey with transparency, RGB, RGB with transparency


def located(path: str | Path) -> Handle:
    """Return the file that a path names: one on the disk, or a member of a zip archive."""
    return (None if os.path.exists(path) else member_of(path)) or Handle(str(path))


def array_of(path: str, member: str = "") -> NDArray[Any]:
    """Return an array of pictures (number, rows, columns[, channels]): an IDX file, on the disk or a member of a zip
    archive, or an array of an NPZ file: `numbers.npz` and `images`, or `all.zip` and `numbers.npz/images`."""
    found = _loaded(*_version(path, member))
    channels = found.shape[1 if channels_first(found.shape) else 3] if found.ndim == 4 else 1
    if found.ndim not in (3, 4) or found.dtype.kind not in "biuf" or channels not in CHANNELS:
        where = f"{path}/{member}" if member else path
        raise UserError(
            f"{where}: expected pictures as numbers (number, rows, columns[, 1 to 4 channels]), found {found.dtype} of "
            f"shape {found.shape}."
        )
    return found


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return True if the pictures of an array are (channels, rows, columns)."""
    return len(shape) == 4 and shape[1] in (1, 3) and shape[3] not in (1, 3, 4)


def _version(path: str, member: str) -> tuple[str, str, int, int]:
    """Return what an array is kept by while its file stays as it is."""
    try:
        about = os.stat(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    return path, member, about.st_mtime_ns, about.st_size


@lru_cache(maxsize=4)
def _loaded(path: str, member: str, _changed: int, _size: int) -> NDArray[Any]:
    if member and path.lower().endswith(NPZ):
        return npz_array(Handle(path), member)
    file, _, name = member.rpartition("/")
    return npz_array(Handle(path, file), name) if file.lower().endswith(NPZ) else idx_array(Handle(path, member))


# ---- the scale of numbers ------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """The numbers that are black and white."""

    black: float
    white: float


BYTES, WORDS, SHARES = Scale(0, 255), Scale(0, 65535), Scale(0, 1)


def scale_in(path: str, member: str = "") -> Scale:
    """Return the scale of all pictures of an array: one that happens to be dark stays dark."""
    return _scale(*_version(path, member))


@lru_cache(maxsize=16)
def _scale(path: str, member: str, changed: int, size: int) -> Scale:
    array = _loaded(path, member, changed, size)
    return scale_of(array[i : i + 256] for i in range(0, len(array), 256)) if array.dtype != np.uint8 else BYTES


def scale_of(parts: Iterable[NDArray[Any]]) -> Scale:
    """Return the scale of numbers: up to 1, 255 or 65,535, or their own range."""
    low, high, kind = 0.0, 0.0, "u"
    for part in parts:
        finite = {"where": np.isfinite(part)} if part.dtype.kind == "f" else {}
        low, high = float(part.min(initial=low, **finite)), float(part.max(initial=high, **finite))
        kind = part.dtype.kind
    if kind == "b" or (kind == "f" and low >= 0 and high <= 1):
        return SHARES
    if low >= 0 and high <= 255:
        return BYTES
    if low >= 0 and kind in "iu":
        return Scale(0, max(high, WORDS.white))
    return Scale(low, high)


def as_bytes(values: NDArray[Any], scale: Scale) -> NDArray[np.uint8]:
    """Return numbers (rows, columns[, channels]) as grey or RGB bytes (rows, columns, channels) over white; NaN and
    infinite ones are a ValueError."""
    values = values[:, :, None] if values.ndim == 2 else values
    if values.dtype == np.uint8 and values.shape[2] in (1, 3):
        return values
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it holds NaN or infinite numbers")
    shares = (values.astype(np.float64) - scale.black) / ((scale.white - scale.black) or 1)
    if values.shape[2] in (2, 4):
        seen = shares[..., -1:]
        shares = shares[..., :-1] * seen + (1 - seen)
    return np.rint(255 * shares).clip(0, 255).astype(np.uint8)


# ---- IDX -----------------------------------------------------------------------------------------------------------


def idx_start(file: Handle) -> bytes:
    """Return the first bytes of a file, unpacked if it is gzipped; nothing of one that cannot be read."""
    try:
        start = file.start(512)
        return zlib.decompressobj(31).decompress(start, 4) if start[:2] == GZIP else start[:4]
    except (UserError, zlib.error):
        return b""


def is_idx(file: Handle) -> int:
    """Return the number of dimensions of an IDX file of bytes; 0 for any other file."""
    start = idx_start(file)
    return start[3] if len(start) == 4 and start[:3] == bytes((0, 0, IDX_BYTES)) and 1 <= start[3] <= 4 else 0


def idx_array(file: Handle) -> NDArray[np.uint8]:
    """Return an IDX file as an array; a file that does not hold what its header says is refused."""
    try:
        packed = file.start(2) == GZIP
        with file.opened() as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            dimensions = stream.read(4)[3]
            shape = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions))
            expected = int(np.prod([int(n) for n in shape], dtype=object))
            begins = 4 + 4 * dimensions
            if not packed and not file.member and file.size() == begins + expected > begins:
                return np.memmap(file.path, np.uint8, "r", begins, shape)
            if expected > MOST_ARRAY:
                raise UserError(f"{file} claims to hold {expected:,} bytes, expected at most {MOST_ARRAY:,}.")
            content = stream.read(expected + 1)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{file} is a damaged IDX file ({error}); fetch it again.") from error
    if len(content) != expected:
        found = "more" if len(content) > expected else f"{len(content):,}"
        raise UserError(f"{file} is a damaged IDX file: expected {expected:,} bytes of shape {shape}, found {found}.")
    return np.frombuffer(content, np.uint8).reshape(shape)


# ---- NPZ -----------------------------------------------------------------------------------------------------------


def npz_shapes(file: Handle) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the arrays of an NPZ file; none of them is read."""
    found = {}
    try:
        with file.opened() as raw, zipfile.ZipFile(raw) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as member:
                        found[name.removesuffix(".npy")] = _npy_header(member)[0]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{file} is a damaged NPZ file ({error}); save it again.") from error
    return found


def _npy_header(member: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(member)
    return shape, by_columns, dtype


def npz_array(file: Handle, name: str) -> NDArray[Any]:
    """Return an array of an NPZ file; Python objects, which may run code, are refused."""
    try:
        with file.opened() as raw, zipfile.ZipFile(raw) as archive:
            about = archive.getinfo(f"{name}.npy")
            with archive.open(about) as member:
                shape, by_columns, dtype = _npy_header(member)
                begins = member.tell()
                size = int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize
                if dtype.hasobject:
                    raise UserError(f"{file}/{name} holds Python objects, which may run code: save numbers or texts.")
                plain = about.compress_type == zipfile.ZIP_STORED and not file.member
                plain = plain and about.file_size == begins + size > begins
                while plain and member.read(PIECE):  # it is compared with its sum at its end
                    pass
            if plain:
                raw.seek(about.header_offset)
                begins += about.header_offset + 30 + sum(struct.unpack("<26x2H", raw.read(30)))
                return np.memmap(file.path, dtype, "r", begins, shape, "F" if by_columns else "C")
            if size > MOST_ARRAY:
                raise UserError(f"{file}/{name} claims a shape of {shape}, expected at most {MOST_ARRAY:,} bytes.")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as arrays:
                found: NDArray[Any] = arrays[name]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{file}/{name} cannot be read ({error}); save it again.") from error
    return found
