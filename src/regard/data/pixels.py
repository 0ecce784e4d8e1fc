"""Pictures as arrays of 8-bit pixels: files, members of archives, and entries of IDX and NPZ files.

Nothing is decoded before its header was looked at: a small file may claim to be a picture of gigabytes. What is allowed
is decoded within 1 GB of memory.
"""

from __future__ import annotations

import io
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from regard.data.folders import Handle
from regard.data.stored_arrays import WORDS, array_of, as_bytes, channels_first, scale_in, scale_of
from regard.errors import UserError

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (
    ".jpg", ".jpeg", ".jpe", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
)  # fmt: skip
MOST_PIXELS = 2**26  # of one picture: 8,192 × 8,192
MOST_SIDE = 2**16
MOST_BYTES = 2**28  # of one picture file
MOST_FRAMES, MOST_MOVING = 10_000, 2**29  # frames of an animated picture, and pixels of all of them
BAND = 256  # rows that are brought to bytes at a time
PADDED = 4  # times the wanted size that a large picture is brought to before it is filled up
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
        return rows, columns, 3 if channels and channels[0] > 2 else 1
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
        claimed = re.search(r"\((\d+) pixels\)", str(error))
        found = f", found {int(claimed[1]):,}" if claimed else ""
        raise UserError(f"{picture} is too large: expected at most {MOST_PIXELS:,} pixels{found}.") from error
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
        entry, scale = _entry(picture), scale_in(picture.path, picture.member)
        with _decoding(picture):
            return as_bytes(entry, scale)
    with _opened(picture) as image:
        if least is not None and image.format == "JPEG":
            image.draft(None, (2 * least, 2 * least))
        with _decoding(picture):
            ImageOps.exif_transpose(image, in_place=True)
            return _eight_bits(image)


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
                found.append(_eight_bits(image))
    return found


def _eight_bits(image: Image.Image) -> Pixels:
    """Return an image of any mode as grey or RGB, a few rows at a time: on the way some modes need eight times the
    memory."""
    columns, rows = image.size

    def bands() -> Iterator[Image.Image]:
        return (image.crop((0, top, columns, min(top + BAND, rows))) for top in range(0, rows, BAND))

    if not image.mode.startswith("I") and image.mode != "F":
        return np.concatenate([_plain(band) for band in bands()])
    scale = WORDS if ";16" in image.mode else scale_of(np.asarray(band) for band in bands())
    return np.concatenate([as_bytes(np.asarray(band), scale) for band in bands()])


def _plain(image: Image.Image) -> Pixels:
    """Return an image with bytes, of any mode, as grey or RGB over white."""
    mode = image.mode
    if "transparency" in image.info or mode in ("LA", "PA", "RGBA", "La", "RGBa"):
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image.convert("RGBA")).convert("L" if mode in ("LA", "La") else "RGB")
    elif mode == "1":
        image = image.convert("L")
    elif mode not in ("L", "RGB"):
        image = image.convert("RGB")
    found = np.asarray(image, dtype=np.uint8)
    return found[:, :, None] if found.ndim == 2 else found


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
        pixels = np.asarray(_image(pixels).convert("L" if channels == 1 else "RGB"), dtype=np.uint8).reshape(
            *pixels.shape[:2], channels
        )
    if fit == "pad" and (times := max(pixels.shape[:2]) // (PADDED * size)) > 1:
        pixels = _reduced(pixels, times)  # the square around a long strip may not fit into memory
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
    smaller = _image(pixels).resize((size, size), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return np.asarray(smaller, dtype=np.uint8).reshape(size, size, channels)


def _image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))


def _reduced(pixels: Pixels, times: int) -> Pixels:
    """Return pixels with each block of so many rows and columns as their mean."""
    found = np.asarray(_image(pixels).reduce(times), dtype=np.uint8)
    return found.reshape(*found.shape[:2], -1)


# ---- entries of arrays ---------------------------------------------------------------------------------------------


def _entry(picture: ImageHandle) -> NDArray[Any]:
    """Return one picture of an array."""
    array = array_of(picture.path, picture.member)
    if picture.index >= len(array):
        raise UserError(f"{picture}: expected a number below {len(array):,}, as there are so many pictures.")
    found: NDArray[Any] = array[picture.index]
    return found.transpose(1, 2, 0) if channels_first(array.shape) else found
