"""The built-in job `scenes --moving`: describe clips of two shapes, "a red circle moves left". No data needed.

One thing moves and another one rests: the caption names what moves and how, which no single frame shows. Some
combinations of colour and shape never move in training.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image, ImageDraw

from regard.commands import scenes
from regard.commands.scenes import COLOURS, FINE, SHAPES, UNSEEN, Thing, draw_thing, shade
from regard.commands.show import show_answered
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress

SIZE, FRAMES = 32, 6
WAYS = {"moves left": (-1, 0), "moves right": (1, 0), "moves up": (0, -1), "moves down": (0, 1)}
TRAIN, HELD_OUT = 8_000, 400
ENOUGH = 90.0  # % of held-out clips that eight minutes on two cores describe exactly, and more
SETTINGS = {key: value for key, value in scenes.SETTINGS.items() if key != "patches"} | {
    "input": "clips",
    "clips": {"frames": FRAMES, "size": SIZE, "channels": 3, "patch": 8},
    "training": scenes.SETTINGS["training"] | {"budget": 3200},
}


@dataclass(frozen=True)
class MovingScene:
    """A thing that moves by (dx, dy) from the first frame to the last, and one that rests."""

    moving: Thing
    resting: Thing
    way: str
    distance: float

    @property
    def caption(self) -> str:
        return f"a {self.moving} {self.way}"

    def at(self, share: float) -> tuple[Thing, Thing]:
        """Return both things when a share of the way is done."""
        dx, dy = (share * self.distance * part for part in WAYS[self.way])
        return replace(self.moving, x=self.moving.x + dx, y=self.moving.y + dy), self.resting


def moving_scene(chosen: random.Random, *, unseen: bool = False) -> MovingScene:
    """Draw a scene; `unseen`: what moves is a combination that training does not have."""
    while True:
        moves, rests = ((chosen.choice(list(COLOURS)), chosen.choice(SHAPES)) for _ in "ab")
        if (moves in UNSEEN) != unseen or moves == rests:
            continue
        way, distance = chosen.choice(list(WAYS)), chosen.uniform(0.3, 0.5)
        radius = chosen.uniform(0.14, 0.18)
        one, other = (Thing(*what, *_place(chosen, radius), radius) for what in (moves, rests))
        found = MovingScene(one, other, way, distance)
        last = found.at(1)[0]
        inside = all(radius <= part <= 1 - radius for part in (last.x, last.y))
        if inside and all(_apart(*found.at(share / 4)) for share in range(5)):
            return found


def _place(chosen: random.Random, radius: float) -> tuple[float, float]:
    return chosen.uniform(radius, 1 - radius), chosen.uniform(radius, 1 - radius)


def _apart(one: Thing, other: Thing) -> bool:
    return max(abs(one.x - other.x), abs(one.y - other.y)) > one.radius + other.radius


def film(shown: MovingScene, chosen: random.Random) -> list[Image.Image]:
    """Return the frames of a scene, on a light ground."""
    ground = tuple(chosen.randint(232, 255) for _ in "rgb")
    colours = [shade(thing.colour, chosen) for thing in (shown.moving, shown.resting)]
    frames = []
    for number in range(FRAMES):
        image = Image.new("RGB", (SIZE * FINE, SIZE * FINE), ground)
        pen = ImageDraw.Draw(image)
        for thing, colour in zip(shown.at(number / (FRAMES - 1)), colours, strict=True):
            draw_thing(pen, thing, SIZE * FINE, colour)
        frames.append(image.resize((SIZE, SIZE), Image.Resampling.BOX))
    return frames


def write(path: Path, count: int, seed: str, *, unseen: bool = False) -> list[MovingScene]:
    """Write scenes as animated WebP files."""
    chosen = random.Random(seed)
    shown = [moving_scene(chosen, unseen=unseen) for _ in range(count)]

    def encoded(each: MovingScene) -> bytes:
        file, (first, *others) = io.BytesIO(), film(each, chosen)
        first.save(file, "WEBP", save_all=True, append_images=others, duration=200, loop=0, lossless=True, method=0)
        return file.getvalue()

    scenes.archive(path, shown, encoded, ".webp")
    return shown


def demonstrate(run: Path, minutes: float, seed: int = 1, count: int = TRAIN, held_out: int = HELD_OUT) -> None:
    """Write the clips, train, say how well held-out and unseen ones are described, and draw where each word looked."""
    refuse_unwritable(run)
    combinations = ", ".join(f"{colour} {shape}" for colour, shape in UNSEEN)
    Progress().say(f"{count:,} clips of {FRAMES} frames; what never moves in training: {combinations}.")

    def part(path: Path, name: str, own: str) -> list[MovingScene]:
        return write(path, count if name == "train" else held_out, own, unseen=name == "unseen")

    _report(*scenes.trained(run, minutes, seed, SETTINGS, part), minutes)


def _report(
    model: Model, files: dict[str, Path], test: Sequence[MovingScene], unseen: Sequence[MovingScene], minutes: float
) -> None:
    right, answers = scenes.described(model, files["test"], test, ".webp")
    print(f"\nDescribed {right:.1f} % of {len(test):,} held-out clips exactly, such as")
    for number in range(4):
        print(f"  {files['test']}/{number:05d}.webp  →  {answers[number]}")
    new = scenes.described(model, files["unseen"], unseen, ".webp")[0]
    print(f"With a colour and shape that never moved in training: {new:.1f} %")
    if right < ENOUGH:
        print(f"That is little for {minutes:g} minutes: this machine is slow or busy. Give it more with --minutes.")
    folder = model.folder / "pictures"
    folder.mkdir(exist_ok=True)
    asked = {f"{files['test']}/{number:05d}.webp": each.caption for number, each in enumerate(test[:8])}
    picture, page = (show_answered(model, asked, folder / name) for name in ("words.png", "words.html"))
    print(f"\nWhere each word looked: {picture} and, to hover over, {page}")
    print("What to try next:")
    print(f"  regard show {quoted(model.folder)} {quoted(list(asked)[1])} -o clip.png")
    print("  regard train clips/          # animated files, a folder for each class")
