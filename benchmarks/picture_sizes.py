"""Accuracy against the number of training images: a CNN, whose convolutions know what a neighbour is, against a ViT.

python -m benchmarks.picture_sizes data/img_fashion_mnist runs/sizes [--steps 1000] [--plot sizes.png]

Both have the settings of their recipes with batches of 64 and as many steps for every number of images; the ViT has
linear patches, for its recipe's begin with convolutions. 1,000 of the 60,000 images validate. What is in
runs/sizes/scores.jsonl is not trained again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from regard import pictures
from regard.runs import settings
from regard.training.progress import Progress
from regard.training.train import run_training

COUNTS, SEEDS, VALID = (500, 2000, 10_000, 59_000), (1, 2), 1000
RECIPES = {"CNN": "fashion_cnn", "ViT": "fashion_vit"}


def arrays(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the images and labels of an IDX pair."""
    images = np.frombuffer(gzip.decompress((folder / f"{name}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((folder / f"{name}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    return images.reshape(-1, 28, 28), labels


def write(data: Path, out: Path) -> None:
    """Write the first images of a shuffled training set, so many for each count, the last ones for validation, and the
    test set."""
    images, labels = arrays(data, "train")
    order = np.random.default_rng(0).permutation(len(images))
    for count in COUNTS:
        np.savez(out / f"train{count}.npz", images=images[order[:count]], labels=labels[order[:count]])
    np.savez(out / "valid.npz", images=images[order[-VALID:]], labels=labels[order[-VALID:]])
    images, labels = arrays(data, "t10k")
    np.savez(out / "test.npz", images=images, labels=labels)


def trained(out: Path, name: str, count: int, seed: int, steps: int) -> dict[str, Any]:
    """Train one network on so many images and return its accuracy on the test set."""
    given = settings.load(Path("recipes") / f"{RECIPES[name]}.yaml").model_dump()
    given["data"] = {"train": [str(out / f"train{count}.npz")], "valid": [str(out / "valid.npz")]}
    given["model"].pop("stem", None)
    given["training"] |= {"seed": seed, "steps": steps, "warmup": steps // 10, "budget": 3136, "every": steps // 4}
    began = time.process_time()
    model = run_training(settings.make(given, "the benchmark"), {}, out / f"{name}-{count}-{seed}", Progress())
    scores, _ = model.evaluate([out / "test.npz"], samples=0)
    value = next(score.value for score in scores if score.name == "accuracy")
    minutes = (time.process_time() - began) / 60
    return {"name": name, "count": count, "seed": seed, "steps": steps, "accuracy": value, "minutes": minutes}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    series, bands = {}, {}
    for name in RECIPES:
        values = [[one["accuracy"] for one in found if (one["name"], one["count"]) == (name, n)] for n in COUNTS]
        series[name] = [float(np.mean(each)) if each else float("nan") for each in values]
        bands[name] = tuple([f(each) if each else float("nan") for each in values] for f in (min, max))
        print(f"{name}: " + ", ".join(f"{n:,}: {v:.1f}" for n, v in zip(COUNTS, series[name], strict=True)))
    figure = pictures.curves(COUNTS, series, "training images", "accuracy, %", bands=bands)
    axes = figure.axes[0]
    axes.set_xscale("log")
    axes.set_xticks(COUNTS, [f"{n:,}" for n in COUNTS])
    axes.minorticks_off()
    pictures.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--plot", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if not (given.out / "test.npz").exists():
        write(given.data, given.out)
    file = given.out / "scores.jsonl"
    found = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    for seed in SEEDS:
        for count in COUNTS:
            for name in RECIPES:
                if not any((o["name"], o["count"], o["seed"]) == (name, count, seed) for o in found):
                    found.append(trained(given.out, name, count, seed, given.steps))
                    file.write_text("".join(json.dumps(one) + "\n" for one in found))
    draw(found, given.plot or given.out / "sizes.png")


if __name__ == "__main__":
    main()
