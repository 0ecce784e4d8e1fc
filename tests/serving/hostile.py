"""Files that strangers may send: bombs, headers that lie, files that break off, and what is none of it."""

import io
import struct
import zlib
from collections.abc import Iterator

import numpy as np
import soundfile
from PIL import Image


def image(form: str, size: tuple[int, int] = (40, 30), mode: str = "RGB", **more: object) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    Image.fromarray(pixels).convert(mode).save(file, form, **more)
    return file.getvalue()


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png(columns: int, rows: int, content: bytes, *more: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(more) + chunk(b"IDAT", content) + chunk(b"IEND", b"")


def bmp(columns: int, rows: int) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, columns, rows, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + head + bytes(64)


def images() -> Iterator[tuple[str, bytes]]:
    """Yield pictures that must be refused."""
    zeros = zlib.compress(bytes(3 * 20_000 * 200), 9)
    yield "png bomb", png(20_000, 20_000, zeros)
    yield "png bomb below the limit of files", png(8_000, 8_000, zeros)
    yield "png of 2^31 columns", png(2**31 - 1, 1, zeros)
    yield "png without columns", png(0, 10, zeros)
    yield "png with too few pixels", png(3_000, 3_000, zlib.compress(bytes(1000)))
    yield "png with broken deflate", png(100, 100, b"\x78\x9c" + b"\xff" * 200)
    text = b"Comment\0\0" + zlib.compress(bytes(80_000_000), 9)
    yield "png with a bomb in its text", png(10, 10, zlib.compress(bytes(310)), chunk(b"zTXt", text))
    yield "png of a header alone", png(10, 10, b"")[:40]
    for form in ("PNG", "JPEG", "BMP", "TIFF", "WEBP", "PPM"):
        whole = image(form)
        yield f"{form} that breaks off", whole[: len(whole) // 2]
    whole = image("JPEG")
    at = whole.index(b"\xff\xc0")
    yield "jpeg bomb", whole[: at + 5] + struct.pack(">HH", 65_000, 65_000) + whole[at + 9 :]
    yield "gif bomb", b"GIF89a" + struct.pack("<HH", 65_535, 65_535) + image("GIF")[10:]
    yield "bmp bomb", bmp(100_000, 100_000)
    yield "bmp with negative columns", bmp(-40, 30)
    yield "ppm bomb", b"P6 60000 60000 255\n" + bytes(100)
    yield "tiff in a circle", b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", 1) + bytes(12) + struct.pack("<I", 8)
    yield "svg", b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>"
    yield "eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) run\n"
    yield "zip", b"PK\x03\x04" + bytes(100)
    yield "noise", bytes(np.random.default_rng(2).integers(0, 256, 5000).astype(np.uint8))
    yield "nothing", b""


def sound(form: str, seconds: float = 0.5, rate: int = 8000, channels: int = 1, subtype: str | None = None) -> bytes:
    time = np.arange(round(seconds * rate)) / rate
    samples = np.repeat(0.3 * np.sin(2 * np.pi * 440 * time)[:, None], channels, 1)
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def wav(rate: int = 8000, channels: int = 1, promised: int | None = None, content: bytes = bytes(800)) -> bytes:
    size = len(content) if promised is None else promised
    each = rate * channels * 2 % 2**32
    head = struct.pack("<HHIIHH", 1, channels, rate, each, channels * 2, 16)
    chunks = b"WAVEfmt " + struct.pack("<I", 16) + head + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", size + 36) + chunks + content


def sounds() -> Iterator[tuple[str, bytes]]:
    """Yield recordings that must be refused."""
    yield "wav that promises gigabytes", wav(promised=0xFFFE0000)
    yield "wav that promises a little more", wav(promised=8000)
    yield "wav of no samples", wav(content=b"")
    yield "wav of rate 0", wav(rate=0)
    yield "wav of rate 2^31", wav(rate=2**31)
    yield "wav of no channels", wav(channels=0)
    yield "wav of 1,000 channels", wav(channels=1000, content=bytes(200_000))
    yield "wav of an hour of silence", wav(rate=1000, content=bytes(2 * 3600 * 1000))
    yield "flac bomb: hours of silence", silence()
    whole = sound("FLAC")
    yield "flac that breaks off", whole[: len(whole) // 2]
    yield "flac that lies about its length", whole[:21] + b"\xff\xff\xff\xff\xff" + whole[26:]
    yield "wav of NaN", wav_of_nan()
    yield "aiff of a header alone", sound("AIFF")[:20]
    yield "ogg with a broken page", b"OggS" + bytes(200)
    yield "mp4", bytes(4) + b"ftypM4A " + bytes(200)
    yield "text", b"this is no recording, but somebody says so\n" * 10
    yield "an image", image("PNG")
    yield "noise", bytes(np.random.default_rng(3).integers(0, 256, 5000).astype(np.uint8))
    yield "nothing", b""


def silence() -> bytes:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 8000, 1, format="FLAC", subtype="PCM_16") as out:
        for _ in range(2 * 60):
            out.write(np.zeros(60 * 8000, np.int16))
    return file.getvalue()


def wav_of_nan() -> bytes:
    file = io.BytesIO()
    samples = np.zeros(4000, np.float32)
    samples[1000] = np.nan
    soundfile.write(file, samples, 8000, format="WAV", subtype="FLOAT")
    return file.getvalue()
