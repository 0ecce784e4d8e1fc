"""Regard's side of the comparison: it makes the corpus and the batches that all train on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from benchmarks.peers.programs import CLIP, RATE, SMOOTHING, Shape

from regard import config
from regard.training.loop import Trainer
from regard.training.prepare import prepare
from regard.training.progress import Progress

PAIRS = 20_000


def corpus(path: Path, size: int) -> None:
    """Pairs with the lengths of image captions (about 14 words a side) and words as frequent as Zipf's law has it."""
    random = np.random.default_rng(0)
    lengths = np.clip(np.exp(random.normal(2.55, 0.4, PAIRS)), 3, 60)
    lengths = np.maximum(1, np.stack([lengths, lengths * random.normal(1, 0.15, PAIRS)], 1).round()).astype(int)
    chance = 1 / np.arange(10, size + 10)
    words = np.array([f"w{number}" for number in range(size)])
    drawn = words[random.choice(size, lengths.sum(), p=chance / chance.sum())]
    lines = [" ".join(line) for line in np.split(drawn, lengths.flatten().cumsum()[:-1])]
    pairs = [f"{source}\t{target}" for source, target in zip(lines[::2], lines[1::2], strict=True)]
    pairs += [f"{some}\t{some}" for some in (" ".join(words[i : i + 20]) for i in range(0, size, 20))]  # every word
    path.write_text("\n".join(pairs) + "\n", encoding="utf-8")


def trainer(shape: Shape, folder: Path, budget: int = 4096) -> Trainer:
    """The trainer of a run in the folder; the second time it finds the corpus prepared."""
    if not (folder / "pairs.tsv").exists():
        corpus(folder / "pairs.tsv", shape.size - 4)
    model = {"transformer": {"layers": shape.layers, "hidden": shape.hidden, "heads": shape.heads}}.get(
        shape.kind, {"cell": "lstm", "layers": shape.layers, "attention": "additive"}
    )
    kind = "transformer" if shape.kind == "transformer" else "recurrent"
    tokens = {"source_level": "words", "target_level": "words", "joint": True, "size": shape.size}
    settings = config.make(
        {
            "task": "convert",
            "data": {"train": [str(folder / "pairs.tsv")], "held_out": 100},
            "tokens": tokens,
            "model": {"kind": kind, "width": shape.width, "dropout": shape.dropout, **model},
            "training": {
                "budget": budget, "rate": RATE, "smoothing": SMOOTHING, "clip": CLIP, "steps": 10**6, "minutes": None
            },
        },
        "the benchmark",
    )  # fmt: skip
    return _trainer(settings, folder)


def of_config(folder: Path) -> Trainer:
    """The same for settings that lie in the folder."""
    return _trainer(config.load(folder / "config.yaml"), folder)


def _trainer(settings: config.Config, folder: Path) -> Trainer:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    return Trainer(settings, run, prepare(settings, run, lambda _: None), Progress(quiet=True))


def write(ours: Trainer, folder: Path, epochs: int = 1) -> None:
    """The batches of some epochs, as `regard train` makes them, for all to read."""
    order = [batch for epoch in range(epochs) for batch in ours.batches.order(epoch)]
    rows = [[ours.store[int(i)] for i in batch] for batch in order]
    found = {"batch_ends": np.cumsum([len(batch) for batch in rows])}
    for side, name in enumerate(("source", "target")):
        # What is stored of a target ends with END; the peers put their own there.
        ids = [np.asarray(row[side])[: len(row[side]) - side] for batch in rows for row in batch]
        found |= {name: np.concatenate(ids), f"{name}_ends": np.cumsum([len(each) for each in ids])}
    np.savez(folder / "batches.npz", **found)
