"""The data of the speech recipes, from public recordings or made by espeak-ng; nothing of it is shipped.

fsdd      spoken digits: tables of the official split, and of one for each speaker, who is in its test alone
strings   the same digits joined at random, with pauses
yesno     recordings whose names are their transcripts
phonemes  sentences said by espeak-ng (a Debian package), with the time of each phoneme

python recipes/speech.py fsdd data/speech_fsdd/recordings_flac.zip data/fsdd
python recipes/speech.py strings data/speech_fsdd/recordings_flac.zip data/strings
python recipes/speech.py yesno data/speech_yesno/waves_yesno_flac.zip data/yesno
python recipes/speech.py phonemes sentences.txt data/phonemes
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from pathlib import Path

import numpy as np
import soundfile

from regard.data.folders import Handle, Tree, tree_of
from regard.data.sound import Clip, samples_of

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HELD_OUT_SPEAKER = "theo"


def digits(archive: str) -> list[tuple[Handle, str, str, int]]:
    """Return each recording of FSDD with its digit, speaker and number: {digit}_{speaker}_{index}."""
    tree = tree_of(archive)
    assert isinstance(tree, Tree)
    parts = [(handle, Path(handle.name).stem.split("_")) for handle in tree.files]
    return [(handle, digit, who, int(index)) for handle, (digit, who, index) in parts]


def write(path: Path, rows: list[tuple[str, str, str]], target: str) -> None:
    lines = [f"path\t{target}\tspeaker\n", *(f"{name}\t{text}\t{who}\n" for name, text, who in rows)]
    path.write_text("".join(lines), encoding="utf-8")


def fsdd(archive: str, out: Path) -> None:
    """Write the official split (index 0–4 tests, 5–9 validates), and one for each speaker, who is in its test alone."""

    def where(handle: Handle) -> str:
        return os.path.relpath(handle.path, out) + "/" + handle.member

    found = digits(archive)
    for name, low, high in (("test", 0, 5), ("valid", 5, 10), ("train", 10, 10**6)):
        some = [each for each in found if low <= each[3] < high]
        write(out / f"{name}.tsv", [(where(h), d, w) for h, d, w, _ in some], "label")
        write(out / f"{name}_speakers.tsv", [(where(h), w, w) for h, _, w, _ in some], "label")
    for speaker in sorted({who for _, _, who, _ in found}):
        for name, test in (("without", False), ("only", True)):
            some = [each for each in found if (each[2] == speaker) == test]
            write(out / f"{name}_{speaker}.tsv", [(where(h), d, w) for h, d, w, _ in some], "label")


def strings(archive: str, out: Path, count: int = 3000) -> None:
    """Write strings of 1 to 5 digits of one speaker, with pauses; training strings have training recordings alone."""
    found, draw = digits(archive), random.Random(1)
    known = {h: samples_of(Clip(h))[0] for h, *_ in found}
    splits = {
        "train": (count, [e for e in found if e[3] >= 10]), "valid": (200, [e for e in found if 5 <= e[3] < 10]),
        "test": (400, [e for e in found if e[3] < 5]),
        "others": (count, [e for e in found if e[2] != HELD_OUT_SPEAKER]),
        "unheard": (400, [e for e in found if e[2] == HELD_OUT_SPEAKER]),
    }  # fmt: skip
    for name, (many, some) in splits.items():
        rows, at = ["path\tstart\tend\ttext\tspeaker\n"], 0
        with soundfile.SoundFile(out / f"{name}.flac", "w", 8000, 1, "PCM_16") as file:
            for _ in range(many):
                who = draw.choice(sorted({e[2] for e in some}))
                said = draw.choices([e for e in some if e[2] == who], k=draw.randint(1, 5))
                parts = [np.zeros(draw.randint(400, 1600))]
                for handle, *_ in said:
                    parts += [known[handle] * draw.uniform(0.6, 1.0), np.zeros(draw.randint(400, 2400))]
                samples = np.concatenate(parts)
                samples = samples + 0.001 * np.random.default_rng(draw.getrandbits(32)).standard_normal(len(samples))
                file.write(samples)
                text = " ".join(WORDS[int(digit)] for _, digit, _, _ in said)
                rows.append(f"{name}.flac\t{at / 8000:.5f}\t{(at + len(samples)) / 8000:.5f}\t{text}\t{who}\n")
                at += len(samples)
        (out / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")


def yesno(archive: str, out: Path) -> None:
    """Write tables whose transcripts are the file names, 0_1_1… being no yes yes …; the last 29 files are the test."""
    tree = tree_of(archive)
    assert isinstance(tree, Tree)
    rows = []
    for handle in tree.files:
        said = Path(handle.name).stem.split("_")
        name = os.path.relpath(handle.path, out) + "/" + handle.member
        rows.append(f"{name}\t{' '.join('yes' if word == '1' else 'no' for word in said)}\n")
    for name, some in (("train", rows[:31]), ("test", rows[31:])):
        (out / f"{name}.tsv").write_text("path\ttext\n" + "".join(some), encoding="utf-8")


# ---- phonemes with known times, by espeak-ng -----------------------------------------------------------------------


class Event(ctypes.Structure):
    """espeak_EVENT of speak_lib.h."""

    _fields_ = [
        ("type", ctypes.c_int), ("unique", ctypes.c_uint), ("text", ctypes.c_int), ("length", ctypes.c_int),
        ("audio", ctypes.c_int), ("sample", ctypes.c_int), ("user", ctypes.c_void_p), ("string", ctypes.c_char * 8),
    ]  # fmt: skip


PHONEME, END, SYNCHRONOUS = 7, 0, 2


class Espeak:
    """The library, with its phoneme events turned on."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libespeak-ng.so.1")
        self.rate = self.library.espeak_Initialize(SYNCHRONOUS, 0, None, 1)
        self.samples: list[np.ndarray] = []
        self.events: list[tuple[int, str]] = []
        callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(Event))
        self.heard = callback(self._hear)
        self.library.espeak_SetSynthCallback(self.heard)

    def _hear(self, wave: object, count: int, events: object) -> int:
        if wave and count > 0:
            self.samples.append(np.ctypeslib.as_array(wave, (count,)).copy())  # type: ignore[call-overload]
        place = 0
        while events[place].type != END:  # type: ignore[index]
            if events[place].type == PHONEME:  # type: ignore[index]
                self.events.append((events[place].sample, events[place].string.decode("utf-8", "replace")))  # type: ignore[index]
            place += 1
        return 0

    def say(self, text: str, voice: str, speed: int, pitch: int) -> tuple[np.ndarray, list[tuple[float, float, str]]]:
        """Return samples, and start, end and name of each phoneme in seconds."""
        self.samples, self.events = [], []
        self.library.espeak_SetVoiceByName(voice.encode())
        self.library.espeak_SetParameter(1, speed, 0)
        self.library.espeak_SetParameter(3, pitch, 0)
        data = text.encode() + b"\0"
        self.library.espeak_Synth(data, len(data), 0, 1, 0, 1, None, None)
        self.library.espeak_Synchronize()
        wave = np.concatenate(self.samples)
        names = [(at / self.rate, name.strip() or "sil") for at, name in self.events if at <= len(wave)]
        ends = [*(start for start, _ in names[1:]), len(wave) / self.rate]
        found = [(start, end, name) for (start, name), end in zip(names, ends, strict=True) if end > start]
        return wave, ([(0.0, found[0][0], "sil")] if found and found[0][0] > 0 else []) + found


def phonemes(sentences: str, out: Path, count: int = 1000) -> None:
    """Say sentences, one to a line, by several voices: each split has its own sentences, `unheard` its own voice.
    The label file beside each recording has the times of its phonemes."""
    lines = [line.strip() for line in Path(sentences).read_text(encoding="utf-8").splitlines() if line.strip()]
    engine, draw = Espeak(), random.Random(1)
    draw.shuffle(lines)
    voices = ["en-us", "en-us+f2", "en-us+m3", "en-us+f4", "en-us+m7"]
    splits = {
        "train": (count, voices[:4]),
        "valid": (60, voices[:4]),
        "test": (120, voices[:4]),
        "unheard": (60, voices[4:]),
    }
    at = 0
    for name, (many, who) in splits.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, text in enumerate(lines[at : at + many]):
            wave, found = engine.say(text, draw.choice(who), draw.randint(140, 200), draw.randint(35, 65))
            soundfile.write(folder / f"{number:05d}.flac", wave, engine.rate)
            rows = [f"{start:.4f} {end:.4f} {label}\n" for start, end, label in found]
            (folder / f"{number:05d}.lab").write_text("".join(rows), encoding="utf-8")
        at += many


if __name__ == "__main__":
    made = {"fsdd": fsdd, "strings": strings, "yesno": yesno, "phonemes": phonemes}
    if len(sys.argv) != 4 or sys.argv[1] not in made:
        sys.exit(__doc__)
    folder = Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    made[sys.argv[1]](sys.argv[2], folder)
