"""Pictures as arrays of 8-bit pixels: files, members of archives, and entries of IDX and NPZ files.

Nothing is decoded before its header was looked at: a small file may claim to be a picture of gigabytes.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from regard.data.folders import Handle, member_of
from regard.errors import UserError

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
)  # fmt: skip
MOST_PIXELS = 2**26  # of one picture: 8,192 × 8,192
MOST_SIDE = 2**16
MOST_BYTES = 2**28  # of one picture file
MOST_FRAMES, MOST_MOVING = 10_000, 2**29  # frames of an animated picture, and pixels of all of them
MOST_ARRAY = 2**34  # bytes of an array of pictures
GZIP = b"\x1f\x8b"
IDX_BYTES = 0x08  # the type of an IDX file whose numbers are bytes
Pixels = NDArray[np.uint8]  # (rows, columns, channels)


@dataclass(frozen=True, slots=True, order=True)
class ImageHandle:
    """A picture that is opened when its pixels are needed: a file, a member of a zip archive, or entry `index` of an
    array, which in an NPZ file has a name; or bytes that somebody sent. One without a path is empty."""

    path: str = ""
    member: str = ""
    index: int = -1
    content: bytes | None = None  # of a picture that is no file

    def __str__(self) -> str:
        whole = f"{self.path}/{self.member}" if self.member else self.path
        return whole if self.index < 0 else f"{whole}#{self.index}"

    @property
    def handle(self) -> Handle:
        return Handle(self.path, self.member)


def named(text: str) -> ImageHandle:
    """Return the picture that a text names: a file, `archive.zip/member`, or `array#number`."""
    path, hash_sign, number = text.rpartition("#")
    index = int(number) if hash_sign and number.isdecimal() and not os.path.exists(text) else -1
    path = path if index >= 0 else text
    if not path or os.path.exists(path):
        return ImageHandle(path, "", index)
    archive = next((parent for parent in Path(path).parents if parent.is_file()), None)
    if archive is None:
        return ImageHandle(path, "", index)
    return ImageHandle(str(archive), Path(path).relative_to(archive).as_posix(), index)


# ---- looking before decoding ---------------------------------------------------------------------------------------


def fault_of(picture: ImageHandle) -> str:
    """Return why a picture cannot be read, as far as its header says it, or nothing."""
    try:
        if picture.index >= 0:
            _entry(picture)
        elif picture.path:
            with _opened(picture):
                pass
    except UserError as error:
        return str(error)
    return ""


def size_of(picture: ImageHandle) -> tuple[int, int, int]:
    """Return rows, columns and channels (1 or 3) of a picture without decoding it."""
    if picture.index >= 0:
        rows, columns, *channels = _entry(picture).shape
        return rows, columns, 3 if channels and channels[0] > 1 else 1
    with _opened(picture) as image:
        columns, rows = image.size
        with _decoding(picture):  # the EXIF data of a PNG file may follow its pixels
            turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # it lies on its side
        if turned:
            rows, columns = columns, rows
        return rows, columns, 1 if image.mode in ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F") else 3


def pixels_of(picture: ImageHandle) -> int:
    """Return how many pixels the header of a picture file says there are."""
    with _opened(picture) as image:
        return image.size[0] * image.size[1]


def _opened(picture: ImageHandle) -> Image.Image:
    """Open a picture file and check its header; its pixels are not decoded yet."""
    handle, given = picture.handle, picture.content
    try:
        size = handle.size() if given is None else len(given)
    except OSError as error:
        raise UserError(f"{picture} cannot be read: {error.strerror or error}.") from error
    except (KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{picture} cannot be read: {error}.") from error
    if not size:
        raise UserError(f"{picture} is empty, expected a picture.")
    if size > MOST_BYTES:
        raise UserError(f"{picture} is too large: expected at most {MOST_BYTES:,} bytes, found {size:,}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of large sizes, which are judged here, and of odd tags
            content: Any = io.BytesIO(handle.read(MOST_BYTES)) if picture.member else picture.path
            content = content if given is None else io.BytesIO(given)
            image = Image.open(content, formats=FORMATS)
    except Image.DecompressionBombError as error:
        raise UserError(f"{picture} is too large: expected at most {MOST_PIXELS:,} pixels.") from error
    except UserError:
        raise
    except Exception as error:  # decoders raise what they like
        start = handle.start(512) if given is None else given[:512]
        raise UserError(f"{picture} is not a readable picture ({_reason(error, start)}).") from error
    columns, rows = image.size
    if rows * columns > MOST_PIXELS or max(rows, columns) > MOST_SIDE:
        found = f"{columns:,} × {rows:,}"
        raise UserError(f"{picture} is too large: expected at most {MOST_PIXELS:,} pixels, found {found}.")
    if rows < 1 or columns < 1:
        raise UserError(f"{picture} has no pixels: it is {columns} × {rows}.")
    return image


def _reason(error: Exception, content: bytes) -> str:
    if content.lstrip()[:1] == b"<":
        return "it is HTML, XML or SVG"
    if isinstance(error, UnidentifiedImageError):
        return f"expected one of {', '.join(FORMATS)}"
    return str(error) or type(error).__name__


# ---- decoding ------------------------------------------------------------------------------------------------------


def decoded(picture: ImageHandle, least: int | None = None) -> Pixels:
    """Return the pixels of a picture, upright, grey (1 channel) or RGB (3 channels); transparency becomes white.

    Of a JPEG file no more than needed is decoded for a picture whose sides are `least` pixels or more.
    """
    if picture.index >= 0:
        return _as_bytes(_entry(picture))
    with _opened(picture) as image:
        if least is not None and image.format == "JPEG":
            image.draft(None, (2 * least, 2 * least))
        with _decoding(picture):
            image.load()
            return _eight_bits(ImageOps.exif_transpose(image))


@contextmanager
def _decoding(picture: ImageHandle, frame: str = "") -> Iterator[None]:
    """Turn whatever a decoder raises into a sentence about the picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except MemoryError:
        raise
    except Exception as error:  # decoders raise what they like
        what = "truncated" if "truncated" in str(error).lower() else "damaged"
        raise UserError(f"{picture}{frame} is {what} ({error or type(error).__name__}).") from error


def frame_count(picture: ImageHandle) -> int:
    """Return the number of frames of a picture file: 1 unless it is animated."""
    if picture.index >= 0:
        return 1
    with _opened(picture) as image:
        with _decoding(picture):
            count = int(getattr(image, "n_frames", 1))
        if count > MOST_FRAMES or count * image.size[0] * image.size[1] > MOST_MOVING:
            raise UserError(
                f"{picture} is too long: expected at most {MOST_FRAMES:,} frames of {MOST_MOVING:,} pixels in all, "
                f"found {count:,} of {image.size[0]:,} × {image.size[1]:,}."
            )
        return count


def frames_at(picture: ImageHandle, numbers: Sequence[int]) -> list[Pixels]:
    """Return some frames of an animated picture, by number."""
    found = []
    with _opened(picture) as image:
        for number in numbers:
            with _decoding(picture, f": frame {number}"):
                image.seek(number)
                found.append(_eight_bits(image.copy()))
    return found


def _eight_bits(image: Image.Image) -> Pixels:
    """Return an image of any mode as grey or RGB."""
    mode = image.mode
    if mode.startswith("I") or mode == "F":
        return _as_bytes(np.asarray(image))
    if "transparency" in image.info or mode in ("LA", "PA", "RGBA", "La", "RGBa"):
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA")).convert("L" if mode in ("LA", "La") else "RGB")
    elif mode == "1":
        image = image.convert("L")
    elif mode not in ("L", "RGB"):
        image = image.convert("RGB")
    found = np.asarray(image, dtype=np.uint8)
    return found[:, :, None] if found.ndim == 2 else found


def _as_bytes(values: NDArray[Any]) -> Pixels:
    """Return numbers of any kind as bytes: 16 bits by the upper 8, numbers up to 1 times 255, others by their range."""
    values = values[:, :, None] if values.ndim == 2 else values
    if values.shape[-1] == 4:
        share = values[..., 3:] / (255 if values.dtype == np.uint8 else values[..., 3:].max() or 1)
        white = 255 if values.dtype.kind == "u" else 1
        values = (values[..., :3] * share + white * (1 - share)).astype(values.dtype)
    if values.shape[-1] == 2:
        values = values[..., :1]
    if values.dtype == np.uint8:
        return values
    if values.dtype == bool:
        return values.astype(np.uint8) * np.uint8(255)
    numbers = np.nan_to_num(values.astype(np.float64))
    low, high = float(numbers.min(initial=0)), float(numbers.max(initial=0))
    if low >= 0 and high <= 1 and values.dtype.kind == "f":
        numbers = numbers * 255
    elif low >= 0 and values.dtype.kind in "iu" and high > 255:
        numbers = numbers / 257 if high <= 65535 else numbers / high * 255
    elif low < 0 or high > 255:
        numbers = (numbers - low) / ((high - low) or 1) * 255
    return np.rint(numbers).astype(np.uint8)


def fitting(rows: int, columns: int, fit: str) -> tuple[int, int, int, int]:
    """Return left, top, width and height, in pixels, of what `fitted` reads of a picture."""
    if fit == "squash" or rows == columns:
        return 0, 0, columns, rows
    side = min(rows, columns) if fit == "crop" else max(rows, columns)
    if fit == "crop":
        return (columns - side) // 2, (rows - side) // 2, side, side
    return -((side - columns) // 2), -((side - rows) // 2), side, side


def fitted(pixels: Pixels, size: int, channels: int, fit: str) -> Pixels:
    """Return pixels as (size, size, channels): the middle is cut out (`crop`), the rest is filled with the mean colour
    of the border (`pad`), or the sides are stretched (`squash`)."""
    if pixels.shape[2] != channels:
        image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"), dtype=np.uint8).reshape(
            *pixels.shape[:2], channels
        )
    rows, columns = pixels.shape[:2]
    left, top, side, _ = fitting(rows, columns, fit)
    if fit == "crop" and rows != columns:
        pixels = pixels[top : top + side, left : left + side]
    elif fit == "pad" and rows != columns:
        edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]).mean(0)
        ground = np.empty((side, side, channels), np.uint8)
        ground[:] = np.rint(edge)
        ground[-top : rows - top, -left : columns - left] = pixels
        pixels = ground
    if pixels.shape[:2] == (size, size):
        return np.ascontiguousarray(pixels)
    image = Image.fromarray(pixels[:, :, 0] if channels == 1 else np.ascontiguousarray(pixels))
    smaller = image.resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(smaller, dtype=np.uint8).reshape(size, size, channels)


# ---- arrays --------------------------------------------------------------------------------------------------------


def _entry(picture: ImageHandle) -> NDArray[Any]:
    """Return one picture of an array."""
    array = array_of(picture.path, picture.member)
    if picture.index >= len(array):
        raise UserError(f"{picture}: expected a number below {len(array):,}, as there are so many pictures.")
    found: NDArray[Any] = array[picture.index]
    if found.ndim == 3 and found.shape[0] in (1, 3) and found.shape[2] not in (1, 3, 4):
        found = found.transpose(1, 2, 0)
    return found


def array_of(path: str, member: str = "") -> NDArray[Any]:
    """Return an array of pictures (number, rows, columns[, channels]): an IDX file, on the disk or a member of a zip
    archive, or an array of an NPZ file."""
    try:
        about = os.stat(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    found = _loaded(path, member, about.st_mtime_ns, about.st_size)
    if found.ndim not in (3, 4) or found.dtype.kind not in "biuf":
        where = f"{path}/{member}" if member else path
        raise UserError(
            f"{where}: expected pictures as numbers (number, rows, columns[, channels]), found {found.dtype} of shape "
            f"{found.shape}."
        )
    return found


@lru_cache(maxsize=4)
def _loaded(path: str, member: str, _changed: int, _size: int) -> NDArray[Any]:
    if member and path.lower().endswith(".npz"):
        return npz_array(path, member)
    return idx_array(Handle(path, member))


def located(path: str | Path) -> Handle:
    """Return the file that a path names: one on the disk, or a member of a zip archive."""
    return (None if os.path.exists(path) else member_of(path)) or Handle(str(path))


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
        with file.opened() as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if file.start(2) == GZIP else raw
            dimensions = stream.read(4)[3]
            shape = struct.unpack(f">{dimensions}I", stream.read(4 * dimensions))
            expected = int(np.prod([int(n) for n in shape], dtype=object))
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


def npz_shapes(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the arrays of an NPZ file; none of them is read."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".npy"):
                    with archive.open(name) as member:
                        found[name.removesuffix(".npy")] = _npy_header(member)[0]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} is a damaged NPZ file ({error}); save it again.") from error
    return found


def _npy_header(member: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype


def npz_array(path: str | Path, name: str) -> NDArray[Any]:
    """Return an array of an NPZ file; Python objects, which may run code, are refused."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as member:
            shape, dtype = _npy_header(member)
        if dtype.hasobject:
            raise UserError(f"{path}/{name} holds Python objects, which may run code: save numbers or texts.")
        if int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize > MOST_ARRAY:
            raise UserError(f"{path}/{name} claims a shape of {shape}, expected at most {MOST_ARRAY:,} bytes.")
        with np.load(path, allow_pickle=False) as arrays:
            found: NDArray[Any] = arrays[name]
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path}/{name} cannot be read ({error}); save it again.") from error
    return found
