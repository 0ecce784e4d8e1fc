"""The built-in job `morse`: read recordings of Morse code, made at random. No data needed.

A dot lasts 1.2 / (words a minute) seconds, a dash three dots; one dot of silence stands between signs, three between
characters (ITU-R M.1677). Tone, speed, noise, fading and the length of every sign differ from message to message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.commands.show import show_answered
from regard.runs import settings
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress
from regard.training.train import run_training

RATE = 4000  # samples a second: tones end at 1,000 Hz
CODE = {
    "A": ".-", "B": "-...", "C": "-.-.", "D": "-..", "E": ".", "F": "..-.", "G": "--.", "H": "....", "I": "..",
    "J": ".---", "K": "-.-", "L": ".-..", "M": "--", "N": "-.", "O": "---", "P": ".--.", "Q": "--.-", "R": ".-.",
    "S": "...", "T": "-", "U": "..-", "V": "...-", "W": ".--", "X": "-..-", "Y": "-.--", "Z": "--..",
    "0": "-----", "1": ".----", "2": "..---", "3": "...--", "4": "....-", "5": ".....", "6": "-....", "7": "--...",
    "8": "---..", "9": "----.",
}  # fmt: skip
LETTERS = "".join(CODE)


@dataclass(frozen=True)
class Conditions:
    """The ranges that messages are drawn from."""

    characters: tuple[int, int] = (1, 4)
    speed: tuple[float, float] = (15.0, 25.0)  # words a minute
    tone: tuple[float, float] = (400.0, 1000.0)  # Hz
    noise: tuple[float, float] = (8.0, 20.0)  # signal to noise, dB
    fading: float = 0.3  # the faintest share of the loudness


USUAL = Conditions()
OTHERS = {
    "5 to 8 characters": replace(USUAL, characters=(5, 8)),
    "30 words a minute": replace(USUAL, speed=(30.0, 30.0)),
    "12 words a minute": replace(USUAL, speed=(12.0, 12.0)),
    "noise of 3 dB": replace(USUAL, noise=(3.0, 3.0)),
}


def held_out(text: str) -> bool:
    """Return True for one text of ten: it is never heard in training."""
    return zlib.crc32(f"morse {text}".encode()) % 10 == 0


def messages(
    count: int, seed: int, how: Conditions = USUAL, *, unheard: bool
) -> Iterator[tuple[str, NDArray[np.int16]]]:
    """Yield texts and their samples; `unheard` are the texts that no training has.

    Those of a training are more often short, shares being 1 / length²: what a character sounds like is learned from
    single ones first, and without many of these for long not at all.
    """
    draw = np.random.default_rng(seed)
    lengths = np.arange(how.characters[0], how.characters[1] + 1)
    shares = np.ones(len(lengths)) if unheard else 1 / lengths**2
    made = 0
    while made < count:
        text = "".join(draw.choice([*LETTERS], draw.choice(lengths, p=shares / shares.sum())))
        if held_out(text) == unheard:
            made += 1
            yield text, recorded(text, draw, how)


def recorded(text: str, draw: np.random.Generator, how: Conditions) -> NDArray[np.int16]:
    """Return a message as it may be received."""
    dot = 1.2 / draw.uniform(*how.speed)
    lengths: list[tuple[bool, float]] = [(False, draw.uniform(0.1, 0.3))]
    for character in text:
        for sign in CODE[character]:
            lengths += [(True, dot * (3 if sign == "-" else 1)), (False, dot)]
        lengths[-1] = (False, 3 * dot)
    lengths[-1] = (False, draw.uniform(0.1, 0.3))
    keyed = np.concatenate(
        [np.full(round(RATE * seconds * draw.uniform(0.92, 1.08)), float(on)) for on, seconds in lengths]
    )
    ramp = np.hanning(max(3, round(0.01 * RATE)))  # a key does not click
    keyed = np.convolve(keyed, ramp / ramp.sum(), "same")
    time = np.arange(len(keyed)) / RATE
    faint = draw.uniform(how.fading, 1.0)
    fading = faint + (1 - faint) * (0.5 + 0.5 * np.sin(2 * np.pi * (draw.uniform(0.1, 0.7) * time + draw.uniform())))
    signal = keyed * fading * np.sin(2 * np.pi * (draw.uniform(*how.tone) * time + draw.uniform()))
    noise = draw.standard_normal(len(time)) * np.sqrt(0.5 / 10 ** (draw.uniform(*how.noise) / 10))
    mixed = signal + noise
    found: NDArray[np.int16] = (mixed / np.abs(mixed).max() * draw.uniform(0.2, 0.9) * 32767).astype(np.int16)
    return found


def write_together(folder: Path, name: str, made: Iterator[tuple[str, NDArray[np.int16]]]) -> str:
    """Write messages one after the other into one recording, and a table with the start, end and text of each."""
    import soundfile

    at, lines = 0, ["path\tstart\tend\ttext\n"]
    with soundfile.SoundFile(folder / f"{name}.wav", "w", RATE, 1, "PCM_16") as file:
        for text, samples in made:
            file.write(samples)
            lines.append(f"{name}.wav\t{at / RATE:.5f}\t{(at + len(samples)) / RATE:.5f}\t{text}\n")
            at += len(samples)
    path = folder / f"{name}.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def write_apart(folder: Path, made: Sequence[tuple[str, NDArray[np.int16]]]) -> list[Path]:
    """Write each message as a file of its own."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"message{number:02d}.wav" for number in range(1, len(made) + 1)]
    for path, (_, samples) in zip(paths, made, strict=True):
        soundfile.write(path, samples, RATE, "PCM_16")
    return paths


# ---- the job -------------------------------------------------------------------------------------------------------

TRAIN, HELD_OUT = 8_000, 500
ENOUGH = 95.0  # % of held-out messages that four minutes on two cores read, and more
SETTINGS: dict[str, Any] = {
    "task": "convert",
    "input": "frames",
    "frames": {"rate": RATE, "bins": 24, "normal": "recording", "reduction": 4, "speed": 0.1, "masks": 0},
    "encoder": {"kind": "conformer", "width": 64, "hidden": 128, "layers": 2, "heads": 4, "kernel": 15, "dropout": 0.0},
    "model": {"kind": "recurrent", "width": 64, "attention": "location", "dropout": 0.0},
    "output": {"level": "characters", "ctc": 0.5, "metric": "wer"},
    "decoding": {"ctc": 0.5, "beam": 4},
    "training": {
        "budget": 1024,
        "optimiser": "muon",
        "rate": 6e-3,
        "warmup": 100,
        "smoothing": 0.0,
        "patience": 100,
        "average": 3,
    },
}


def demonstrate(run: Path, minutes: float, seed: int = 1, count: int = TRAIN, held: int = HELD_OUT) -> None:
    """Write the recordings, train, say how well unheard messages are read, and draw where each character was heard."""
    refuse_unwritable(run)
    say = Progress().say
    say(f"{count:,} recordings of Morse code, 1 to 4 characters, 15 to 25 words a minute, in noise")
    folder = run.with_name(run.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    train = write_together(folder, "train", messages(count, seed, unheard=False))
    valid = write_together(folder, "valid", messages(held // 2, seed + 1, unheard=True))
    data = {"train": [train], "valid": [valid], "longest": 2000}
    config = settings.make({"data": data, **SETTINGS}, "the demo")
    config = settings.override(config, [f"training.minutes={minutes}", f"training.seed={seed}"])
    model = run_training(config, {}, run, Progress())
    tests = [*messages(held, seed + 2, unheard=True)]
    _report(model, folder, tests, seed, minutes)


def _report(
    model: Model, folder: Path, tests: Sequence[tuple[str, NDArray[np.int16]]], seed: int, minutes: float
) -> None:
    paths = write_apart(folder / "test", tests)
    right, answers = _read(model, paths, tests)
    print(f"\nRead {right:.1f} % of {len(tests):,} held-out messages exactly, such as")
    for path, (text, _), answer in list(zip(paths, tests, answers, strict=True))[:4]:
        print(f"  {path}  →  {answer}{'' if answer == text else f'  (it is {text})'}")
    for number, (name, how) in enumerate(OTHERS.items()):
        others = [*messages(-(-len(tests) // 5), seed + 10 + number, how, unheard=True)]
        share, _ = _read(model, write_apart(folder / f"other{number}", others), others)
        print(f"Never heard in training, {name}: {share:.0f} % right")
    if right < ENOUGH:
        print(f"That is not much for {minutes:g} minutes: this machine is slow or busy. Give it more with --minutes.")
    pictures = model.folder / "pictures"
    pictures.mkdir(exist_ok=True)
    longest = max(range(min(50, len(tests))), key=lambda i: len(tests[i][0]))
    picture = show_answered(model, {str(paths[longest]): tests[longest][0]}, pictures / "heard.png")
    some = {str(path): text for path, (text, _) in zip(paths[:8], tests, strict=False)}
    page = show_answered(model, some, pictures / "heard.html")
    print(f"\nWhere each character was heard: {picture} and, to listen to, {page}")
    print("What to try next:")
    print(f"  regard predict {quoted(model.folder)} {quoted(paths[0])} --alignment hard     # with times")
    print(f"  regard show {quoted(model.folder)} {quoted(paths[1])} -o heard.html")
    print("  regard train recordings/            # a folder for each class, or a table of recordings and transcripts")


def _read(
    model: Model, paths: Sequence[Path], tests: Sequence[tuple[str, NDArray[np.int16]]]
) -> tuple[float, list[str]]:
    answers = model.predict([str(path) for path in paths])
    hits = sum(answer == text for answer, (text, _) in zip(answers, tests, strict=True))
    return 100 * hits / len(tests), answers
