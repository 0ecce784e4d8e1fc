"""25 kinds of bad audio files: one sentence each, in little time and memory."""

import struct
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from regard import inputs
from regard.data.sound import clip_at, samples_of
from regard.errors import UserError
from tests.data.sounds import tone, write


def header(
    data: int, samples: bytes = b"", rate: int = 8000, channels: int = 1, bits: int = 16, kind: int = 1
) -> bytes:
    block = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * block & 0xFFFFFFFF, block & 0xFFFF, bits)
    return (
        b"RIFF"
        + struct.pack("<I", (36 + data) & 0xFFFFFFFF)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", data)
        + samples
    )


def good(folder: Path, name: str = "good.wav") -> bytes:
    return write(folder / name, tone(440, 0.5)).read_bytes()


def zipped(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    return (folder / "x.zip").read_bytes()


def not_a_number(folder: Path) -> bytes:
    samples = np.zeros(800, np.float32)
    samples[400] = np.nan
    soundfile.write(folder / "nan.wav", samples, 8000, "FLOAT")
    return (folder / "nan.wav").read_bytes()


BAD: dict[str, tuple[str, Callable[[Path], bytes | None], str]] = {
    "empty": ("a.wav", lambda f: b"", "0 bytes"),
    "one byte": ("a.wav", lambda f: b"R", "not a readable recording"),
    "text": ("a.wav", lambda f: b"hello, this is no sound\n" * 40, "it is text"),
    "HTML error page": ("a.mp3", lambda f: b"<!doctype html><html><body>404 not found</body></html>", "it is text"),
    "zip": ("a.wav", zipped, "zip archive"),
    "MP4": ("a.m4a", lambda f: b"\0\0\0\x20ftypM4A \0\0\0\0" + bytes(200), "MP4 or M4A"),
    "zeros": ("a.wav", lambda f: bytes(4096), "not a readable recording"),
    "random": ("a.flac", lambda f: np.random.default_rng(0).bytes(4096), "not a readable recording"),
    "header alone": ("a.wav", lambda f: header(0), "no samples"),
    "gigabytes promised": (
        "a.wav",
        lambda f: header(0x7FFFFF00, bytes(64)),
        "promises 2,147,483,392 bytes of sound, there are 64",
    ),
    "hours promised by FLAC": ("a.flac", lambda f: promised(f), "promises|breaks off|not a readable recording"),
    "no rate": ("a.wav", lambda f: header(1600, bytes(1600), rate=0), "samples a second|not a readable recording"),
    "a rate of 10 Hz": ("a.wav", lambda f: header(1600, bytes(1600), rate=10), "samples a second"),
    "a rate of 2 GHz": (
        "a.wav",
        lambda f: header(1600, bytes(1600), rate=2_000_000_000),
        "samples a second|not a readable recording",
    ),
    "no channel": ("a.wav", lambda f: header(1600, bytes(1600), channels=0), "channels|not a readable recording"),
    "300 channels": ("a.wav", lambda f: header(6000, bytes(6000), channels=300), "channels"),
    "99 bits": ("a.wav", lambda f: header(1600, bytes(1600), bits=99), "not a readable recording"),
    "unknown codec": ("a.wav", lambda f: header(1600, bytes(1600), kind=0x7777), "not a readable recording"),
    "RIFF of pictures": ("a.wav", lambda f: b"RIFF\x24\0\0\0WEBPVP8 " + bytes(64), "not a readable recording"),
    "cut OGG": ("a.ogg", lambda f: good(f, "g.ogg")[:900], "not a readable recording|broken|breaks off|no samples"),
    "cut FLAC": ("a.flac", lambda f: good(f, "g.flac")[:700], "not a readable recording|broken|breaks off"),
    "FLAC with holes": ("a.flac", lambda f: holes(good(f, "h.flac")), "not a readable recording|broken|breaks off"),
    "NaN": ("a.wav", not_a_number, "NaN or infinite at 0.05 s"),
    "a folder": ("a.wav", lambda f: None, "is a folder"),
    "absent": ("b.wav", lambda f: b"", "there is no such file"),
}


def promised(folder: Path) -> bytes:
    """A FLAC whose header promises 2^35 samples."""
    content = bytearray(good(folder, "p.flac"))
    content[21] |= 0x0F
    content[22:26] = b"\xff\xff\xff\xff"
    return bytes(content)


def holes(content: bytes) -> bytes:
    broken = bytearray(content)
    broken[200:] = bytes(len(broken) - 200)
    return bytes(broken)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_recording_is_one_sentence(tmp_path: Path, name: str) -> None:
    file, made, expected = BAD[name]
    content = made(tmp_path)
    path = tmp_path / "bad" / file
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    elif name != "absent":
        path.write_bytes(content)
    with pytest.raises(UserError, match=expected) as refused:
        samples_of(clip_at(str(path)))
    said = str(refused.value)
    assert said.startswith(str(path))
    assert said.endswith(".")
    assert "\n" not in said
    assert "Traceback" not in said


def test_there_are_25_kinds() -> None:
    assert len(BAD) == 25


def test_bad_recordings_of_a_table_are_faults_of_their_lines_and_can_be_skipped(tmp_path: Path) -> None:
    good(tmp_path)
    (tmp_path / "bad.wav").write_bytes(b"hello " * 100)
    (tmp_path / "a.tsv").write_text("path\ttext\ngood.wav\thi\nbad.wav\thello\n")
    form = inputs.recognise([tmp_path / "a.tsv"])
    faults: list[object] = []
    assert len(list(inputs.read([tmp_path / "a.tsv"], form, faults.append))) == 1
    assert "a.tsv:3: " in str(faults[0])
    with pytest.raises(UserError, match=r"a\.tsv:3: .*it is text"):
        list(inputs.read([tmp_path / "a.tsv"], form))


def test_one_recording_alone_is_told_what_is_missing(tmp_path: Path) -> None:
    good(tmp_path)
    with pytest.raises(UserError, match="one recording without a label"):
        inputs.recognise([tmp_path / "good.wav"])
    for i in range(3):
        write(tmp_path / "many" / f"take {i}.wav")
    with pytest.raises(UserError, match="3 recordings without labels or transcripts"):
        inputs.recognise([tmp_path / "many"])


def test_a_wave_file_of_the_standard_library_is_read(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(8000)
        file.writeframes(bytes([128, 255] * 400))
    assert len(samples_of(clip_at(str(tmp_path / "a.wav")))[0]) == 800
