"""The built-in job `scenes --task detect`: find 1 to 6 shapes, which may overlap, in pictures of 64 pixels."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from regard import pictures
from regard.commands.scenes import COLOURS, FINE, SHAPES, Thing, draw_thing, shade
from regard.commands.sheets import precision_recall
from regard.commands.show import show
from regard.data.boxes import parsed
from regard.runs import settings
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress
from regard.training.train import run_training

SIZE = 64  # pixels of a side
MOST = 6  # shapes
COVERED = 0.5  # of a box at most, by the box of another shape
SIDES = {
    "circle": (1, 1, 1, 1),
    "square": (0.88,) * 4,
    "triangle": (1, 1, 1, 0.8),
    "cross": (1, 1, 1, 1),
}  # of a radius

TRAIN, HELD_OUT = 8_000, 500
ENOUGH = 90.0  # % mAP50 that five minutes on two cores reach, and more
SETTINGS = {
    "task": "detect",
    "input": "patches",
    "patches": {"size": SIZE, "channels": 3, "patch": 8, "fit": "squash", "flip": True},
    "encoder": {
        "kind": "vit", "stem": "convolutional", "position": "sinusoidal",
        "layers": 2, "width": 64, "hidden": 128, "heads": 4, "dropout": 0.0,
    },
    "model": {
        "kind": "detr", "layers": 3, "encoder_layers": 0, "width": 64, "hidden": 128, "heads": 4, "dropout": 0.0,
        "queries": 16, "denoising": 3,
    },
    "training": {
        "budget": 2200, "rate": 1.5e-3, "warmup": 100, "decay": 1e-4, "patience": 100, "average": 3,
    },
}  # fmt: skip

Corners = tuple[float, float, float, float]


def edges(thing: Thing) -> Corners:
    """Return left, top, right and bottom of a shape in pixels."""
    left, top, right, bottom = (side * thing.radius for side in SIDES[thing.shape])
    found = (thing.x - left, thing.y - top, thing.x + right, thing.y + bottom)
    return tuple(round(SIZE * each, 2) for each in found)  # type: ignore[return-value]


def crowd(chosen: random.Random) -> list[Thing]:
    """Draw 1 to 6 shapes, none of which covers half of another; a later one lies upon those before."""
    things: list[Thing] = []
    for _ in range(chosen.randint(1, MOST)):
        for _ in range(50):
            radius = chosen.uniform(0.08, 0.2)
            x, y = (chosen.uniform(radius, 1 - radius) for _ in "xy")
            new = Thing(chosen.choice(list(COLOURS)), chosen.choice(SHAPES), x, y, radius)
            if all(covered(edges(new), edges(other)) <= COVERED for other in things):
                things.append(new)
                break
    return things


def covered(one: Corners, other: Corners) -> float:
    """Return the largest share of either box that lies in the other."""
    wide, tall = (max(0.0, min(one[i + 2], other[i + 2]) - max(one[i], other[i])) for i in (0, 1))
    return wide * tall / min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))


def painted(things: Sequence[Thing], chosen: random.Random) -> NDArray[np.uint8]:
    """Return shapes as pixels (SIZE, SIZE, 3), on a light ground."""
    image = Image.new("RGB", (SIZE * FINE, SIZE * FINE), tuple(chosen.randint(225, 255) for _ in "rgb"))
    pen = ImageDraw.Draw(image)
    for each in things:
        draw_thing(pen, each, SIZE * FINE, shade(each.colour, chosen))
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.uint8)


def write(path: Path | BinaryIO, count: int, seed: str) -> None:
    """Write pictures and their boxes as a zip archive with a COCO file."""
    chosen = random.Random(seed)
    found: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    found["categories"] = [{"id": i + 1, "name": name} for i, name in enumerate(SHAPES)]
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            things, file = crowd(chosen), io.BytesIO()
            Image.fromarray(painted(things, chosen)).save(file, "PNG", compress_level=1)
            archive.writestr(f"{number:05d}.png", file.getvalue())
            found["images"].append({"id": number, "file_name": f"{number:05d}.png", "width": SIZE, "height": SIZE})
            for thing in things:
                left, top, right, bottom = edges(thing)
                box = [left, top, round(right - left, 2), round(bottom - top, 2)]
                entry = {"id": len(found["annotations"]) + 1, "image_id": number, "bbox": box}
                found["annotations"].append(entry | {"category_id": SHAPES.index(thing.shape) + 1})
        archive.writestr("annotations.json", json.dumps(found))


def demonstrate(run: Path, minutes: float, seed: int = 1, count: int = TRAIN, held_out: int = HELD_OUT) -> None:
    """Write the pictures, train, say how well held-out shapes are found, and draw where each query looked."""
    refuse_unwritable(run)
    say = Progress().say
    say(f"{count:,} pictures of 1 to {MOST} shapes that may overlap: {', '.join(SHAPES)}.")
    folder = run.with_name(run.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.zip" for name in ("train", "valid", "test")}
    for name, path in files.items():
        write(path, count if name == "train" else held_out, f"{seed} {name}")
    data = {"train": [str(files["train"])], "valid": [str(files["valid"])]}
    config = settings.make({"data": data, **SETTINGS}, "the demo")
    config = settings.override(config, [f"training.minutes={minutes}", f"training.seed={seed}"])
    _report(run_training(config, {}, run, Progress()), files["test"], minutes)


def _report(model: Model, test: Path, minutes: float) -> None:
    held = model.held([test])
    scores, answers = model.task.evaluate(held)
    named = zip(("mAP50", "mAP50:95"), scores, strict=True)
    values = [f"{name} {score.value:.1f} % ({score.low:.1f} to {score.high:.1f})" for name, score in named]
    print(f"\nOn {len(held.items):,} held-out pictures: {', '.join(values)}")
    print(model.task.details(held.items, answers))
    if scores[0].value < ENOUGH:
        print(f"That is not much for {minutes:g} minutes: this machine is slow or busy. Give it more with --minutes.")
    folder = model.folder / "pictures"
    folder.mkdir(exist_ok=True)
    fullest = sorted(range(len(held.items)), key=lambda i: -len(parsed(held.items[i].expected[0])))[:8]
    asked = [str(held.items[i].example.source) for i in fullest]
    curve = pictures.save(precision_recall(held.items, answers), folder / "precision_recall.png")
    picture = show(model, asked[:1], folder / "boxes.png")
    page = show(model, asked, folder / "boxes.html")
    print(f"\nWhere each query looked: {picture} and, to hover over, {page}; precision and recall: {curve}")
    print("What to try next:")
    print(f"  regard predict {quoted(model.folder)} {quoted(asked[1])} --json")
    print("  regard train boxes.csv               # or COCO JSON, Pascal VOC, YOLO, with the pictures beside it")
