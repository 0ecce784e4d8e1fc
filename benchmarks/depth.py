"""A hundred layers: post-LN against DeepNorm, the same network, data, steps and rate; the losses as a plot.

    python benchmarks/depth.py --plot docs/pictures/depth.png

An encoder and a decoder of 50 layers each learn to copy strings of letters. Wang et al. 2022 ("DeepNet"): the updates
of a deep post-LN network explode at the beginning, DeepNorm bounds them.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import report

import regard
from regard.pictures.style import origin
from regard.training.loop import Trainer


def losses(folder: Path, norm: str, how: argparse.Namespace) -> list[float]:
    """Return the training loss of every step."""
    found: list[float] = []
    inner = Trainer._step

    def step(self: Trainer) -> tuple[float, int]:
        done = inner(self)
        found.append(done[0])
        print(json.dumps({"norm": norm, "step": len(found), "loss": round(done[0], 4)}), file=sys.stderr, flush=True)
        return done

    settings = [
        "model.kind=transformer", f"model.norm={norm}", f"model.layers={how.layers // 2}", "model.width=64",
        "model.hidden=128", "model.heads=4", "model.dropout=0", "model.ngrams=1", "training.budget=800",
        "training.optimiser=adamw", "training.decay=0", "training.smoothing=0", f"training.rate={how.rate}",
        f"training.warmup={how.warmup}", "training.schedule=constant", f"training.every={how.steps}",
        f"training.seed={how.seed}", "decoding.beam=1", "data.held_out=20", "tokens.level=characters",
        "output.level=characters",
    ]  # fmt: skip
    Trainer._step = step  # type: ignore[method-assign]
    try:
        regard.train(folder / "copy.tsv", out=folder / norm, task="convert", steps=how.steps, set=settings, quiet=True)
    finally:
        Trainer._step = inner  # type: ignore[method-assign]
    return found


def plot(rows: dict[str, list[float]], layers: int, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, line in rows.items():
        axes.plot(range(1, 1 + len(line)), line, label={"post": "post-LN", "deep": "DeepNorm"}[name])
    axes.set(
        title=f"{layers // 2} + {layers // 2} layers of width 64, copying",
        xlabel="step",
        ylabel="training loss (nats a letter)",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110, metadata=origin())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--norms", nargs="*", default=("deep", "post"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warmup", type=int, default=50)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    how = parser.parse_args()
    torch.set_num_threads(1)
    chosen = random.Random(how.seed)
    words = {"".join(chosen.choices("abcdefgh", k=chosen.randint(4, 10))) for _ in range(5000)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "copy.tsv").write_text("".join(f"{word}\t{word}\n" for word in sorted(words)))
        found = {norm: losses(Path(folder), norm, how) for norm in how.norms}
    rows: list[dict[str, Any]] = []
    for norm, line in found.items():
        last = line[-20:]
        row = {"norm": norm, "layers": how.layers, "steps": len(line), "first": line[0]}
        rows.append(row | {"last 20": sum(last) / len(last)})
    report("depth", rows)
    if how.plot:
        plot(found, how.layers, how.plot)


if __name__ == "__main__":
    main()
