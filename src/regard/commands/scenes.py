"""The built-in job `scenes`: describe pictures of two shapes, "a red circle left of a blue square". No data needed.

The picture decides the caption: one shape is clearly larger and is named first, and one of four relations clearly
holds. Some combinations of colour and shape never occur in training: a model that has learned colours and shapes apart
can name them all the same.
"""

from __future__ import annotations

import csv
import io
import random
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from regard.commands.show import show_answered
from regard.runs import settings
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress
from regard.training.train import run_training

SIZE = 56  # pixels of a side
FINE = 4  # times as many pixels while drawing, for smooth edges
COLOURS = {
    "red": (214, 48, 49),
    "green": (46, 160, 67),
    "blue": (47, 98, 214),
    "yellow": (236, 190, 30),
    "purple": (145, 70, 190),
    "grey": (120, 124, 130),
}
SHAPES = ("circle", "square", "triangle", "cross")
UNSEEN = (("red", "square"), ("blue", "circle"), ("yellow", "triangle"), ("green", "cross"))
RELATIONS = ("left of", "right of", "above", "below")
TRAIN, HELD_OUT = 12_000, 500
ENOUGH = 97.0  # % of held-out scenes that four minutes on two cores describe exactly, and more
SETTINGS: dict[str, Any] = {
    "task": "convert",
    "input": "patches",
    "patches": {"size": SIZE, "channels": 3, "patch": 8},
    "output": {"level": "words"},
    "encoder": {
        "kind": "vit", "stem": "convolutional", "position": "sinusoidal",
        "layers": 2, "width": 64, "hidden": 128, "heads": 4, "dropout": 0.0,
    },
    "model": {"kind": "transformer", "layers": 2, "width": 64, "hidden": 128, "heads": 4, "dropout": 0.0},
    "training": {
        "budget": 3700, "optimiser": "muon", "rate": 6e-3, "warmup": 100,
        "smoothing": 0.0, "patience": 100, "average": 3,
    },
}  # fmt: skip


class Captioned(Protocol):
    """Something that a caption describes."""

    @property
    def caption(self) -> str: ...


S = TypeVar("S", bound=Captioned)


@dataclass(frozen=True)
class Thing:
    """A shape of a colour; `x` and `y` are its middle and `radius` half its side, in shares of the picture."""

    colour: str
    shape: str
    x: float
    y: float
    radius: float

    def __str__(self) -> str:
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True)
class Scene:
    """A large thing, a small one, and where the large one is."""

    large: Thing
    small: Thing
    relation: str

    @property
    def caption(self) -> str:
        return f"a {self.large} {self.relation} a {self.small}"

    @property
    def unseen(self) -> bool:
        return any((thing.colour, thing.shape) in UNSEEN for thing in (self.large, self.small))


def scene(chosen: random.Random, *, unseen: bool = False) -> Scene:
    """Draw a scene; `unseen`: with a combination that training does not have, else without any."""
    while True:
        things = [(chosen.choice(list(COLOURS)), chosen.choice(SHAPES)) for _ in "ab"]
        if any(thing in UNSEEN for thing in things) != unseen or things[0] == things[1]:
            continue
        relation = chosen.choice(RELATIONS)
        far, aside = chosen.uniform(0.36, 0.5), chosen.uniform(-0.12, 0.12)
        sign = 1 if relation in ("left of", "above") else -1  # from the large thing to the small one
        dx, dy = (sign * far, aside) if relation in ("left of", "right of") else (aside, sign * far)
        large, small = chosen.uniform(0.19, 0.23), chosen.uniform(0.09, 0.115)
        x, y = (chosen.uniform(large, 1 - large) for _ in "xy")
        if small <= x + dx <= 1 - small and small <= y + dy <= 1 - small:
            return Scene(Thing(*things[0], x, y, large), Thing(*things[1], x + dx, y + dy, small), relation)


def drawn(shown: Scene, chosen: random.Random) -> NDArray[np.uint8]:
    """Return a scene as pixels (SIZE, SIZE, 3), on a light ground."""
    ground = tuple(chosen.randint(232, 255) for _ in "rgb")
    image = Image.new("RGB", (SIZE * FINE, SIZE * FINE), ground)
    pen = ImageDraw.Draw(image)
    for thing in (shown.large, shown.small):
        draw_thing(pen, thing, SIZE * FINE, shade(thing.colour, chosen))
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.uint8)


def shade(colour: str, chosen: random.Random) -> tuple[int, ...]:
    """Return a colour that differs a little from picture to picture."""
    return tuple(max(0, min(255, part + chosen.randint(-12, 12))) for part in COLOURS[colour])


def draw_thing(pen: ImageDraw.ImageDraw, thing: Thing, side: int, colour: tuple[int, ...]) -> None:
    """Draw a thing into a picture of so many pixels."""
    x, y, r = thing.x * side, thing.y * side, thing.radius * side
    if thing.shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    elif thing.shape == "square":
        pen.rectangle((x - 0.88 * r, y - 0.88 * r, x + 0.88 * r, y + 0.88 * r), fill=colour)
    elif thing.shape == "triangle":
        pen.polygon(((x, y - r), (x - r, y + 0.8 * r), (x + r, y + 0.8 * r)), fill=colour)
    else:
        pen.rectangle((x - r, y - 0.32 * r, x + r, y + 0.32 * r), fill=colour)
        pen.rectangle((x - 0.32 * r, y - r, x + 0.32 * r, y + r), fill=colour)


def write(path: Path, count: int, seed: str, *, unseen: bool = False) -> list[Scene]:
    """Write scenes as pictures."""
    chosen = random.Random(seed)
    scenes = [scene(chosen, unseen=unseen) for _ in range(count)]

    def encoded(shown: Scene) -> bytes:
        file = io.BytesIO()
        Image.fromarray(drawn(shown, chosen)).save(file, "PNG", compress_level=1)
        return file.getvalue()

    archive(path, scenes, encoded, ".png")
    return scenes


def archive(path: Path, scenes: Sequence[S], encoded: Callable[[S], bytes], suffix: str) -> None:
    """Write files with their captions as a zip archive with a metadata.csv, as Hugging Face's image folders have it."""
    table = io.StringIO()
    rows = csv.writer(table)
    rows.writerow(("file_name", "caption"))
    with zipfile.ZipFile(path, "w") as packed:
        for number, each in enumerate(scenes):
            packed.writestr(f"{number:05d}{suffix}", encoded(each))
            rows.writerow((f"{number:05d}{suffix}", each.caption))
        packed.writestr("metadata.csv", table.getvalue())


def trained(
    run: Path, minutes: float, seed: int, given: dict[str, Any], parts: Callable[[Path, str, str], list[S]]
) -> tuple[Model, dict[str, Path], list[S], list[S]]:
    """Write the four parts beside the run and train; return the model, the files, and the scenes of test and unseen."""
    folder = run.with_name(run.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.zip" for name in ("train", "valid", "test", "unseen")}
    _, _, test, unseen = (parts(path, name, f"{seed} {name}") for name, path in files.items())
    data = {"train": [str(files["train"])], "valid": [str(files["valid"])]}
    config = settings.make({"data": data, **given}, "the demo")
    config = settings.override(config, [f"training.minutes={minutes}", f"training.seed={seed}"])
    return run_training(config, {}, run, Progress()), files, test, unseen


def demonstrate(run: Path, minutes: float, seed: int = 1, count: int = TRAIN, held_out: int = HELD_OUT) -> None:
    """Write the scenes, train, say how well held-out and unseen ones are described, and draw where each word looked."""
    refuse_unwritable(run)
    combinations = ", ".join(f"{colour} {shape}" for colour, shape in UNSEEN)
    Progress().say(
        f"{count:,} pictures of two shapes in {len(COLOURS)} colours; never together in training: {combinations}."
    )

    def part(path: Path, name: str, own: str) -> list[Scene]:
        return write(path, count if name == "train" else held_out, own, unseen=name == "unseen")

    _report(*trained(run, minutes, seed, SETTINGS, part), minutes)


def _report(
    model: Model, files: dict[str, Path], test: Sequence[Scene], unseen: Sequence[Scene], minutes: float
) -> None:
    right, answers = described(model, files["test"], test, ".png")
    print(f"\nDescribed {right:.1f} % of {len(test):,} held-out scenes exactly, such as")
    for number in range(4):
        print(f"  {files['test']}/{number:05d}.png  →  {answers[number]}")
    new, others = described(model, files["unseen"], unseen, ".png")
    named = 100 * sum(_names(answer, each) for answer, each in zip(others, unseen, strict=True)) / len(unseen)
    print(
        f"With a colour and shape never seen together in training: {new:.1f} % exactly; those two named {named:.1f} %"
    )
    if right < ENOUGH:
        print(f"That is not much for {minutes:g} minutes: this machine is slow or busy. Give it more with --minutes.")
    folder = model.folder / "pictures"
    folder.mkdir(exist_ok=True)
    asked = {f"{files['test']}/{number:05d}.png": each.caption for number, each in enumerate(test[:8])}
    picture = show_answered(model, asked, folder / "words.png")
    heads = show_answered(model, asked, folder / "heads.png", grid=True)
    page = show_answered(model, asked, folder / "words.html")
    print(f"\nWhere each word looked: {picture}, all heads: {heads} and, to hover over, {page}")
    print("What to try next:")
    print(f"  regard show {quoted(model.folder)} {quoted(list(asked)[1])} -o scene.png")
    print("  regard train photos/                 # a folder for each class, or a list of pictures and captions")


def described(model: Model, path: Path, scenes: Sequence[Captioned], suffix: str) -> tuple[float, list[str]]:
    """Return the percentage of the scenes of an archive that are described exactly, and all answers."""
    answers = model.predict([f"{path}/{number:05d}{suffix}" for number in range(len(scenes))], beam=1)
    hits = sum(answer == each.caption for answer, each in zip(answers, scenes, strict=True))
    return 100 * hits / len(scenes), answers


def _names(answer: str, shown: Scene) -> bool:
    """Return True if every unseen combination in a scene is named in its place."""
    words, expected = answer.split(), shown.caption.split()
    places = [i for i, thing in ((1, shown.large), (-2, shown.small)) if (thing.colour, thing.shape) in UNSEEN]
    return all(words[i : i + 2 or None] == expected[i : i + 2 or None] for i in places)
