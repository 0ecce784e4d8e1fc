"""The built-in job `scenes --task detect`: find 1 to 6 shapes, which may overlap, in pictures of 64 pixels."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from regard.commands.scenes import COLOURS, FINE, SHAPES, Thing, draw_thing, shade

SIZE = 64  # pixels of a side
MOST = 6  # shapes
COVERED = 0.5  # of a box at most, by the box of another shape
SIDES = {
    "circle": (1, 1, 1, 1),
    "square": (0.88,) * 4,
    "triangle": (1, 1, 1, 0.8),
    "cross": (1, 1, 1, 1),
}  # of a radius

Edges = tuple[float, float, float, float]


def edges(thing: Thing) -> Edges:
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


def covered(one: Edges, other: Edges) -> float:
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


def write(path: Path, count: int, seed: str) -> None:
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
