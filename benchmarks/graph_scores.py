"""Scores of the recipes on graphs over seeds and folds, with their spread.

    python -m benchmarks.graph_scores cora_gat --seeds 20
    python -m benchmarks.graph_scores mutag proteins --data data

A fold f is the test, fold f + 1 mod 10 validates: the weights with the least loss there are tested, once. DeepSets,
which see no edges, stand beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

from regard.runs import settings
from regard.training.progress import Progress
from regard.training.train import run_training

RECIPES = Path(__file__).parents[1] / "recipes"
KINDS = {"graph": [], "deepsets": ["model.kind=deepsets", "model.width=64"]}


def trained(recipe: str, data: Path, changes: list[str], paths: dict[str, list[str]] | None = None) -> dict[str, float]:
    """Return the first metric on validation and test of one training."""
    found = settings.load(RECIPES / f"{recipe}.yaml")
    section = found.data.model_dump() | (paths or {})
    for name in ("train", "valid", "test"):
        section[name] = [path.replace("data/", f"{data}/", 1) for path in section[name]]
    config = settings.override(found.model_copy(update={"data": type(found.data)(**section)}), changes)
    folder = Path(tempfile.mkdtemp())
    try:
        run_training(config, {}, folder / "run", Progress(quiet=True))
        results = json.loads((folder / "run" / "results.json").read_text())
    finally:
        shutil.rmtree(folder)
    return {name: scores[0]["value"] for name, scores in results.items()}


def spread(values: list[float]) -> str:
    return (
        f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f} (n = {len(values)})"
    )


def over_seeds(recipe: str, data: Path, seeds: int) -> None:
    tests, began = [], time.process_time()
    for seed in range(1, seeds + 1):
        found = trained(recipe, data, [f"training.seed={seed}"])
        tests.append(found["test"])
        print(f"{recipe} seed {seed}: validation {found['validation']:.1f}, test {found['test']:.1f}", flush=True)
    minutes = (time.process_time() - began) / 60
    print(f"{recipe}: test {spread(tests)}, {minutes:.1f} minutes of one core", flush=True)


def over_folds(recipe: str, data: Path) -> None:
    for kind, changes in KINDS.items():
        tests, began = [], time.process_time()
        for fold in range(10):
            file = f"data/graph_molecules/{recipe}.npz"
            held = (fold + 1) % 10
            paths = {
                "train": [f"{file}/fold{i}" for i in range(10) if i not in (fold, held)],
                "valid": [f"{file}/fold{held}"],
                "test": [f"{file}/fold{fold}"],
            }
            found = trained(recipe, data, changes, paths)
            tests.append(found["test"])
            print(f"{recipe} {kind} fold {fold}: {found['validation']:.1f}, test {found['test']:.1f}", flush=True)
        minutes = (time.process_time() - began) / 60
        print(f"{recipe} {kind}: test {spread(tests)}, {minutes:.1f} minutes of one core", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for recipe in given.recipes:
        if recipe.startswith("cora"):
            over_seeds(recipe, given.data, given.seeds)
        else:
            over_folds(recipe, given.data)


if __name__ == "__main__":
    main()
