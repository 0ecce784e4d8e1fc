"""Choosing settings from the data: level, model, sizes, batch and schedule, each with its reason in a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Config, make
from regard.data.reading import Fault, read_pairs, recognise
from regard.errors import UserError
from regard.inputs.tokens import choose_level

SAMPLE = 200_000  # pairs looked at closely; more are only counted


@dataclass(frozen=True)
class Survey:
    """What choosing needs to know of the training pairs."""

    count: int
    sources: list[str]
    targets: list[str]
    description: str


def survey(paths: Sequence[str], faults: str) -> Survey:
    """Count the pairs and keep a sample from all over the file."""
    form = recognise([Path(path) for path in paths])
    skipped: list[Fault] = []
    pairs = read_pairs([Path(path) for path in paths], skipped.append if faults == "skip" else None, form)
    generator = np.random.default_rng(0)
    kept: list[tuple[str, str]] = [(pair.source, pair.target) for pair in islice(pairs, SAMPLE)]
    count = len(kept)
    for pair in pairs:  # reservoir sampling: each pair is kept with the same probability
        count += 1
        place = int(generator.integers(count))
        if place < SAMPLE:
            kept[place] = (pair.source, pair.target)
    if not count:
        raise UserError(f"{paths[0]}: there is no pair in it, expected `source<TAB>target` lines.")
    return Survey(count, [s for s, _ in kept], [t for _, t in kept], form.description)


def choose(
    train: Sequence[str], valid: Sequence[str] = (), test: Sequence[str] = (), *, faults: str = "stop"
) -> tuple[Config, dict[str, str]]:
    """All settings for these files, and the reason for each that was chosen."""
    seen = survey(train, faults)
    tokens, reasons = _tokens(seen)
    model, training, more = _sizes(seen.count, running_text=tokens["target_level"] == "bpe")
    held_out = max(1, min(1000, seen.count // 10, max(50, seen.count // 20)))
    data = {"train": list(train), "valid": list(valid), "test": list(test), "faults": faults, "held_out": held_out}
    found: dict[str, Any] = {"data": data, "tokens": tokens, "model": model, "training": training}
    reasons |= {"data.train": f"{seen.count:,} pairs: {seen.description}", **more}
    if not valid:
        reasons["data.held_out"] = f"no validation data given: {held_out} of {seen.count:,} pairs are held out"
    return make(found, "the chosen settings"), reasons


def _tokens(seen: Survey) -> tuple[dict[str, Any], dict[str, str]]:
    (source, source_why), (target, target_why) = choose_level(seen.sources), choose_level(seen.targets)
    joint = source == target == "bpe"
    words = len({word for text in (seen.sources + seen.targets)[:100_000] for word in text.split()})
    size = None
    reasons = {"tokens.source_level": source_why, "tokens.target_level": target_why}
    if "bpe" in (source, target):
        size = 4_000 if seen.count < 10_000 else 8_000 if seen.count < 300_000 else 16_000
        size = min(size, max(300, words))
        reasons["tokens.size"] = f"{size:,} sub-words: enough for {seen.count:,} pairs to show each of them often"
    if joint:
        reasons["tokens.joint"] = "both sides are running text: names and numbers are written the same on both"
    return {"source_level": source, "target_level": target, "joint": joint, "size": size}, reasons


def _sizes(count: int, *, running_text: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """The model and its training by the number of pairs."""
    model, training, why = _for_text(count) if running_text else _for_strings(count)
    few = model["dropout"] > 0.2
    reasons = {
        "model.kind": why,
        "model.width": f"{count:,} pairs: width {model['width']}, layers {model['layers']}",
        "model.dropout": f"{count:,} pairs are {'few: much' if few else 'many: little'} is dropped in training",
        "training.minutes": "as many steps as fit into 20 minutes; --minutes gives it more or less",
    }
    return model, training, reasons


def _for_text(count: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    model: dict[str, Any] = {
        "kind": "transformer",
        "layers": 3,
        "width": 256,
        "hidden": 1024,
        "heads": 4,
        "dropout": 0.3,
    }
    if count < 5_000:
        model |= {"layers": 2, "width": 128, "hidden": 256}
    if count > 300_000:
        model |= {"layers": 4, "dropout": 0.1}
    return model, {"budget": 4096, "rate": 1e-3, "warmup": 800}, "running text: a Transformer translates it best"


def _for_strings(count: int) -> tuple[dict[str, Any], dict[str, Any], str]:
    model: dict[str, Any] = {"kind": "recurrent", "cell": "lstm", "layers": 1, "attention": "additive", "feeding": True}
    training: dict[str, Any] = {"budget": 2048, "rate": 3e-3, "warmup": 200}
    if count < 2_000:
        model |= {"width": 128, "dropout": 0.4}
    elif count < 20_000:
        model |= {"width": 192, "dropout": 0.3}
    else:
        model |= {"width": 256, "dropout": 0.2}
        training |= {"budget": 4096, "rate": 2e-3}
    why = "short strings: an LSTM with attention learns them in less time than a Transformer on a CPU"
    return model, training, why
