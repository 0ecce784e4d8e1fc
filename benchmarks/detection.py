"""Settings by which DETR learns from few pictures: the same steps with and without each, on generated shapes.

    python -m benchmarks.detection FOLDER [PICTURES [STEPS]]

PICTURES (1,000) pictures of `regard demo scenes --task detect` train each variant for STEPS (600) steps; 200 others are
the test. The last columns are processor seconds, and the largest deviation over pictures of a query's box, in pixels:
near 0 the queries have collapsed.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import regard
from regard.commands import shapes
from regard.data.boxes import parsed

VARIANTS: dict[str, list[str]] = {
    "learned vectors (DETR)": ["model.anchors=false", "model.denoising=0"],
    "… without losses of each layer": ["model.anchors=false", "model.denoising=0", "model.auxiliary=false"],
    "anchors": ["model.denoising=0"],
    "anchors, denoising": [],
    "anchors, denoising, labels twice": ["model.repeats=2"],
    "anchors, denoising, without the loss of places": ["model.dense=0"],
}


def measure(folder: Path, pictures: int, steps: int) -> None:
    """Print a row for each variant."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}.zip" for name in ("train", "valid", "test")}
    for name, path in files.items():
        shapes.write(path, pictures if name == "train" else 200, f"benchmark {name}")
    settings = {
        f"{part}.{key}": value
        for part in ("patches", "encoder", "model", "training")
        for key, value in shapes.SETTINGS[part].items()
    }  # type: ignore[attr-defined]
    settings |= {"training.every": steps, "training.average": 1, "model.dense": 1}
    print(f"| {'variant':46} | mAP50 | mAP50:95 | seconds | deviation |\n|---|---|---|---|---|")
    for name, changes in VARIANTS.items():
        began = time.process_time()
        given = [f"{key}={value}" for key, value in settings.items()] + changes
        run = folder / name.replace(" ", "_")
        model = regard.train(
            files["train"], run, valid=files["valid"], task="detect", steps=steps, set=given, quiet=True
        )
        seconds = time.process_time() - began
        scores, answers = model.task.evaluate(model.held([files["test"]]), samples=0)
        boxes = np.array([[box[1:5] for box in parsed(answer)] for answer in answers])
        found = f"{scores[0].value:5.1f} | {scores[1].value:8.1f} | {seconds:7.0f} | {boxes.std(0).max():9.1f}"
        print(f"| {name:46} | {found} |", flush=True)


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[2:]]
    measure(Path(sys.argv[1]), *(numbers + [1_000, 600][len(numbers) :]))
