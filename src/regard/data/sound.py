"""Recordings: their headers and samples, from files and members of archives, by libsndfile.

A header is believed only as far as the file is long: nothing is allocated by what a header promises.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.folders import Handle, is_zip
from regard.errors import UserError

SUFFIXES = (".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".sph", ".caf", ".w64")
SOUND = re.compile(rf"\S.*({'|'.join(map(re.escape, SUFFIXES))})", re.IGNORECASE)
PART = re.compile(r"(.+)#(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)?")  # file.wav#1.5-3
HOP = 0.01  # seconds from one frame to the next
MOST_SECONDS = 4 * 3600.0  # of what is read at once
MOST_HOURS = 100.0  # of a recording that parts are read from
MOST_BYTES = 2**30  # of a recording in an archive, which is unpacked in memory
LEAST_RATE, MOST_RATE, MOST_CHANNELS = 1_000, 768_000, 64
BLOCK = 1 << 18  # samples read at once
CLIPPED = 0.999  # of full scale
SILENT = 10 ** (-70 / 20)  # the loudest sample of a silent recording, −70 dB


@dataclass(frozen=True, slots=True, order=True)
class Clip:
    """A recording, or the part of one from `start` to `end` seconds."""

    handle: Handle
    start: float = 0.0
    end: float | None = None

    def __str__(self) -> str:
        part = f"#{self.start:g}-{'' if self.end is None else f'{self.end:g}'}"
        return f"{self.handle}{part if self.start or self.end is not None else ''}"

    def __bool__(self) -> bool:
        return bool(self.handle.path)


@dataclass(frozen=True, slots=True)
class Header:
    """Samples a second, channels, and samples of each channel."""

    rate: int
    channels: int
    samples: int

    @property
    def seconds(self) -> float:
        return self.samples / self.rate


def clip_at(text: str) -> Clip:
    """Return the clip that a text names: a file, a member of an archive (`a.zip/b.wav`), or a part (`a.wav#1.5-3`)."""
    text = text.strip()
    found = PART.fullmatch(text)
    if found is None or Path(text).exists():
        return Clip(handle_at(text) if text else Handle(""))
    return Clip(handle_at(found[1]), float(found[2]), float(found[3]) if found[3] else None)


def handle_at(text: str) -> Handle:
    """Return the handle of a path, which may lead into an archive."""
    path = Path(text)
    if not path.exists():
        archive = next((parent for parent in path.parents if parent.is_file() and is_zip(parent)), None)
        if archive is not None:
            return Handle(str(archive), path.relative_to(archive).as_posix())
    return Handle(text)


@contextmanager
def _opened(handle: Handle) -> Iterator[Any]:
    """Open a recording. Every failure is one sentence."""
    import soundfile

    loose = handle.member or handle.content is not None  # no file of its own
    if not loose:
        path = Path(handle.path)
        if not path.exists():
            raise UserError(f"{handle}: there is no such file; check the name and the folder.")
        if not path.is_file():
            raise UserError(f"{handle} is a folder, expected a recording; name a file inside it.")
    try:
        size = handle.size()
        if size == 0:
            raise UserError(f"{handle} is empty: it has 0 bytes, expected a recording.")
        with soundfile.SoundFile(io.BytesIO(handle.read(MOST_BYTES)) if loose else handle.path) as file:
            yield file
    except KeyError as error:
        raise UserError(f"{handle}: there is no such recording in the archive.") from error
    except OSError as error:
        raise UserError(f"{handle} cannot be read: {error.strerror or error}.") from error
    except (soundfile.SoundFileError, RuntimeError, ValueError, TypeError) as error:
        raise UserError(f"{handle} is not a readable recording: {_why(handle, error)}.") from error


def _why(handle: Handle, error: Exception) -> str:
    start = handle.start(512)
    if start[:4] == b"PK\x03\x04":
        return "it is a zip archive"
    if start[4:8] == b"ftyp":
        return "it is MP4 or M4A, expected WAV, FLAC, OGG or MP3; convert it (ffmpeg -i in.m4a out.flac)"
    if start and all(byte in b"\t\n\r\x1b" or byte >= 32 for byte in start) and b"\xff" not in start:
        return "it is text, expected WAV, FLAC, OGG or MP3"
    said = getattr(error, "error_string", None) or str(error).rpartition(": ")[2]
    return f"{said.rstrip('.').strip() or type(error).__name__}; expected WAV, FLAC, OGG or MP3"


def header(handle: Handle) -> Header:
    """Return the header of a recording; refuse what cannot be one."""
    if handle.content is not None:  # which is not kept
        return _header.__wrapped__(handle, 0, 0)
    try:
        known = os.stat(handle.path)
        return _header(handle, known.st_mtime_ns, known.st_size)
    except OSError:
        return _header(handle, 0, 0)


@lru_cache(maxsize=100_000)
def _header(handle: Handle, changed: int, size: int) -> Header:  # noqa: ARG001  (a file that changed is read again)
    with _opened(handle) as file:
        found = Header(int(file.samplerate), int(file.channels), int(file.frames))
        width = {"PCM_S8": 1, "PCM_U8": 1, "PCM_16": 2, "PCM_24": 3, "PCM_32": 4, "FLOAT": 4, "DOUBLE": 8}
        compressed = file.format in ("FLAC", "OGG", "MP3")
        least = 0 if compressed else width.get(file.subtype, 0) * found.samples * found.channels
    if not LEAST_RATE <= found.rate <= MOST_RATE:
        raise UserError(f"{handle}: expected {LEAST_RATE:,} to {MOST_RATE:,} samples a second, found {found.rate:,}.")
    if not 1 <= found.channels <= MOST_CHANNELS:
        raise UserError(f"{handle}: expected 1 to {MOST_CHANNELS} channels, found {found.channels}.")
    if found.seconds > 3600 * MOST_HOURS or least > 2 * handle.size() + 4096:
        raise UserError(
            f"{handle}: the header promises {found.seconds / 3600:,.1f} hours in {handle.size():,} bytes, expected at "
            f"most {MOST_HOURS:g} hours that are there; cut it into parts, or fetch it again."
        )
    promised = _promised(handle.start(4096))
    if promised is not None and promised[0] + promised[1] > handle.size() + 1:
        raise UserError(
            f"{handle} breaks off: its header promises {promised[1]:,} bytes of sound, there are "
            f"{max(0, handle.size() - promised[0]):,}; fetch or record it again."
        )
    if found.samples <= 0:
        raise UserError(f"{handle} holds no samples: expected a recording of some length.")
    return found


def _promised(start: bytes) -> tuple[int, int] | None:
    """Return where the samples of a WAV file begin, and the bytes that its header says there are; None where it says
    nothing, as in files that were written while they were made."""
    if start[:4] != b"RIFF" or start[8:12] != b"WAVE":
        return None
    at = 12
    while at + 8 <= len(start):
        size = int.from_bytes(start[at + 4 : at + 8], "little")
        if start[at : at + 4] == b"data":
            return (at + 8, size) if 0 < size < 0xFFFF0000 else None
        at += 8 + size + size % 2
    return None


def bounds(clip: Clip) -> tuple[int, int]:
    """Return the first sample of a clip and the one behind its last."""
    known = header(clip.handle)
    first = round(clip.start * known.rate)
    last = known.samples if clip.end is None else min(known.samples, round(clip.end * known.rate))
    if first >= last:
        raise UserError(
            f"{clip}: expected a part inside of {known.seconds:.2f} seconds, found {clip.start:g} to "
            f"{'the end' if clip.end is None else f'{clip.end:g}'}."
        )
    if last - first > MOST_SECONDS * known.rate:
        hours = (last - first) / known.rate / 3600
        raise UserError(f"{clip} has {hours:.1f} hours, expected at most {MOST_SECONDS / 3600:g}; cut it into parts.")
    return first, last


def seconds(clip: Clip) -> float:
    """Return the length of a clip."""
    first, last = bounds(clip)
    return (last - first) / header(clip.handle).rate


def frame_count(clip: Clip) -> int:
    """Return the number of frames: one for each HOP, the last one for at least half of it; at least one."""
    return max(1, math.floor(seconds(clip) / HOP + 0.5))


def samples_of(clip: Clip) -> tuple[NDArray[np.float32], int]:
    """Return the samples of a clip as the mean of its channels, (samples,) from −1 to 1, and their rate."""
    first, last = bounds(clip)
    blocks: list[NDArray[np.float32]] = []
    with _opened(clip.handle) as file:
        if first:
            file.seek(first)
        left = last - first
        while left > 0:
            block = file.read(min(BLOCK, left), dtype="float32", always_2d=True)
            if not len(block):
                break
            blocks.append(block.mean(axis=1))
            left -= len(block)
    if not blocks:
        raise UserError(f"{clip} is broken: its header promises samples, and none can be read; fetch it again.")
    found = np.concatenate(blocks)
    if not np.isfinite(found).all():
        where = int(np.flatnonzero(~np.isfinite(found))[0]) / header(clip.handle).rate + clip.start
        raise UserError(f"{clip}: a sample is NaN or infinite at {where:.2f} s; record or convert it again.")
    if left > 0.01 * (last - first) + header(clip.handle).rate * HOP:
        got = len(found) / header(clip.handle).rate
        raise UserError(
            f"{clip} breaks off after {got:.2f} s, expected {seconds(clip):.2f} s by its header; fetch it again."
        )
    return found, header(clip.handle).rate


def resampled(samples: NDArray[np.float32], rate: int, wanted: int) -> NDArray[np.float32]:
    """Return samples at another rate, by a polyphase filter."""
    if rate == wanted:
        return samples
    from scipy.signal import resample_poly

    common = math.gcd(rate, wanted)
    found: NDArray[np.float32] = resample_poly(samples, wanted // common, rate // common).astype(np.float32)
    return found


def faults_of(samples: NDArray[np.float32], rate: int) -> Iterator[tuple[str, str]]:
    """Yield the kind of each fault that can be heard, and a sentence with its second."""
    loud = np.abs(samples)
    if not len(samples) or loud.max() < SILENT:
        yield "silent recordings", "silence: no sample is above −70 dB; remove it, or record it again"
        return
    full = loud >= CLIPPED
    if full.mean() > 0.001:
        at = int(np.flatnonzero(full)[0]) / rate
        share = 100 * float(full.mean())
        yield "clipped recordings", f"clipped: {share:.1f} % of the samples are at full scale, the first at {at:.2f} s"
    mean = float(samples.mean())
    if abs(mean) > 0.1:
        yield "recordings off centre", f"the mean of its samples is {mean:+.2f}, expected about 0; remove the offset"
