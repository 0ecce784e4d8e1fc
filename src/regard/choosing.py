"""Choosing settings from the data: level, model, sizes, batch and schedule, each with its reason in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import Config, make
from regard.data.reading import Fault, read_pairs, recognise
from regard.errors import UserError
from regard.outputs.task import UNITS, Survey
from regard.tasks import TASKS

SAMPLE = 200_000  # pairs looked at closely; more are only counted


def survey(paths: Sequence[str], faults: str, encoding: str, task: str | None) -> tuple[Survey, str]:
    """Count the pairs and keep a sample from all over the file; and the task that they were recognised as."""
    form = recognise([Path(path) for path in paths], task and TASKS[task].reads, encoding)
    skipped: list[Fault] = []
    pairs = read_pairs([Path(path) for path in paths], skipped.append if faults == "skip" else None, form, encoding)
    generator = np.random.default_rng(0)
    kept: list[tuple[str, str]] = [(pair.source, pair.target) for pair in islice(pairs, SAMPLE)]
    count = len(kept)
    for pair in pairs:  # reservoir sampling: each pair is kept with the same probability
        count += 1
        place = int(generator.integers(count))
        if place < SAMPLE:
            kept[place] = (pair.source, pair.target)
    if not count:
        raise UserError(f"{paths[0]}: there is nothing in it to train on.")
    return Survey(count, [s for s, _ in kept], [t for _, t in kept], form.description), form.task


def choose(
    train: Sequence[str],
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    *,
    faults: str = "stop",
    encoding: str = "utf-8",
    task: str | None = None,
    levels: Mapping[str, str] | None = None,
) -> tuple[Config, dict[str, str]]:
    """All settings for these files, and the reason for each that was chosen; `levels` of tokens are known before."""
    seen, recognised = survey(train, faults, encoding, task)
    seen = replace(seen, levels=levels or {})
    name = task or recognised
    sections, reasons = TASKS[name].choose(seen)
    held_out = max(1, min(1000, seen.count // 10, max(50, seen.count // 20)))
    data: dict[str, Any] = {
        "train": list(train),
        "valid": list(valid),
        "test": list(test),
        "faults": faults,
        "encoding": encoding,
    }
    data["held_out"] = held_out
    reasons = {"data.train": f"{seen.count:,} {UNITS[recognised]}s: {seen.description}", **reasons}
    if not valid:
        reasons["data.held_out"] = f"no validation data given: {held_out} of {seen.count:,} are held out"
    if "steps" not in sections["training"]:
        reasons["training.minutes"] = "as many steps as fit into 20 minutes; --minutes gives it more or less"
    sections["data"] = data | sections.get("data", {})
    return make({"task": name, **sections}, "the chosen settings"), reasons
