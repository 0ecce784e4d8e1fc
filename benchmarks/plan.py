"""Planned against actual: the memory of twelve trainings, and the time of six, on data that is made here.

    python benchmarks/plan.py memory                  about 4 minutes of one core
    python benchmarks/plan.py time                    about 6 minutes, on an otherwise idle machine
    python benchmarks/plan.py time "images, ViT"      those that are named
    python benchmarks/plan.py processor               the same in seconds of the processor, where it has other work too

Each training is a process of its own, as `regard train` is one. Results go to benchmarks/results/plan.json. Seconds of
the processor are those of its clocks only with one thread (OMP_NUM_THREADS=1).
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results/plan.json"
SIZES = ["model.width=128", "data.held_out=10", "training.every=100000", "training.minutes="]
TRANSFORMER = ["model.kind=transformer", "model.heads=4", "model.hidden=512", "model.layers=3"]
BIGBIRD = [*TRANSFORMER, "model.attention=bigbird", "model.block=8"]
# fmt: off
TRAININGS: dict[str, tuple[str, list[str]]] = {
    "convert, Transformer": ("convert", [*TRANSFORMER, "training.budget=8000"]),
    "convert, LSTM": ("convert", ["model.kind=recurrent", "training.budget=6000"]),
    "convert, convolution": ("convert", ["model.kind=convolution", "training.budget=6000"]),
    "continue, GPT": ("continue", ["model.kind=gpt", "model.heads=4", "model.hidden=512", "training.budget=6000"]),
    "continue, LSTM": ("continue", ["model.kind=recurrent", "training.budget=6000"]),
    "fill, BERT": ("fill", ["model.kind=bert", "model.heads=4", "model.hidden=512", "training.budget=6000"]),
    "classify, Transformer": ("classify", [*TRANSFORMER, "training.budget=8000"]),
    "classify, linear attention": ("classify", [*TRANSFORMER, "model.attention=linear", "training.budget=8000"]),
    "classify, BigBird": ("classify", [*BIGBIRD, "training.budget=8000"]),
    "images, CNN": ("images", ["model.kind=cnn", "model.width=64", "training.budget=8000"]),
    "images, ViT": ("images", ["model.kind=vit", "training.budget=8000"]),
    "images, Swin": ("images", ["model.kind=swin", "model.width=64", "training.budget=8000"]),
}
# fmt: on
TIMED = ["convert, Transformer", "convert, LSTM", "continue, GPT", "fill, BERT", "classify, Transformer", "images, ViT"]


def write(kind: str, folder: Path) -> Path:
    """Write 1,500 examples, and return their file."""
    draw = random.Random(1)
    if kind == "images":
        pixels = np.random.default_rng(1).integers(0, 255, (600, 32, 32, 3), np.uint8)
        np.savez(folder / "images.npz", images=pixels, labels=np.array(["even", "odd"] * 300))
        return folder / "images.npz"
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 7))) for _ in range(2000)]
    texts = [draw.choices(words, k=draw.randint(6, 30)) for _ in range(1500)]
    ends = {
        "convert": lambda text: "\t" + " ".join(reversed(text)),
        "classify": lambda text: f"\t{'ab'[len(text) % 2]}",
    }
    lines = (" ".join(text) + ends.get(kind, lambda _: "")(text) + "\n" for text in texts)
    path = folder / f"{kind}{'.tsv' if kind in ends else '.txt'}"
    path.write_text("".join(lines), encoding="utf-8")
    return path


# Before anything else runs in a process: its clocks count what the processor does for it alone.
PROCESSOR = "import time; time.perf_counter = time.monotonic = time.process_time\n"


def trained(kind: str, changes: list[str], folder: Path, steps: int, clocks: str = "") -> str:
    """Train in a process of its own; return what it said."""
    path = folder / "images.npz" if kind == "images" else next(folder.glob(f"{kind}.*"))
    run = folder / f"run{len([*folder.iterdir()])}"
    code = f"{clocks}from regard.commands.app import main; main()"
    command = [sys.executable, "-c", code, "train", str(path), "-o", str(run), "--steps", str(steps)]
    if kind != "images":
        command += ["--task", kind]
    command += [part for change in (*SIZES, *changes) for part in ("--set", change)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def planned(kind: str, changes: list[str], folder: Path, steps: int, clocks: str = "") -> tuple[float, float]:
    """Plan in a process of its own; return the range of its seconds."""
    path = folder / "images.npz" if kind == "images" else next(folder.glob(f"{kind}.*"))
    code = (
        f"{clocks}import json, sys; from regard.commands.plan import plan; path, task, steps, *changes = sys.argv[1:]; "
        "found = plan([path], task=task or None, changes=[*changes, f'training.steps={steps}']); "
        "print(json.dumps(found.seconds))"
    )
    task = "" if kind == "images" else kind
    command = [sys.executable, "-c", code, str(path), task, str(steps), *SIZES, *changes]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    low, high = json.loads(done.stdout)
    return low, high


def memories(folder: Path, names: list[str]) -> dict[str, list[float]]:
    found = {}
    for name in names or TRAININGS:
        kind, changes = TRAININGS[name]
        said = trained(kind, changes, folder, 8)
        pair = re.search(r"planned: ([\d.]+) GB.*actual: ([\d.]+) GB", said)
        assert pair, said
        found[name] = [float(pair[1]), float(pair[2])]
        print(
            f"{name:28} planned {pair[1]} GB, actual {pair[2]} GB ({found[name][0] / found[name][1] - 1:+.0%})",
            flush=True,
        )
    return found


def times(folder: Path, names: list[str], clocks: str = "") -> dict[str, list[float]]:
    found = {}
    for name in names or TIMED:
        kind, changes = TRAININGS[name]
        steps = 60
        low, high = planned(kind, changes, folder, steps, clocks)
        run = trained(kind, changes, folder, steps, clocks)
        minutes = re.search(r"actual: .* ([\d.e-]+) minutes for", run)
        assert minutes, run
        took = 60 * float(minutes[1])
        middle = (low + high) / 2
        found[name] = [low, high, took]
        print(f"{name:28} planned {low:.1f} to {high:.1f} s, took {took:.1f} s ({middle / took - 1:+.0%})", flush=True)
    return found


def main() -> None:
    what, *names = sys.argv[1:]
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for kind in ("convert", "classify", "continue", "fill", "images"):
            write(kind, folder)
        clocks = PROCESSOR if what == "processor" else ""
        found = memories(folder, names) if what == "memory" else times(folder, names, clocks)
        results[what] = results.get(what, {}) | found
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results | {"threads": os.environ.get("OMP_NUM_THREADS", "")}, indent=1) + "\n")


if __name__ == "__main__":
    main()
