"""A training without its weights: settings, vocabularies and batches of a sample of the data, to be traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from regard.config import Config, Training
from regard.costs import memory
from regard.costs.steps import StepCost, step_cost
from regard.data.batches import Batches, Content, Rows
from regard.data.store import Store
from regard.data.survey import take_survey
from regard.errors import UserError
from regard.inputs.input import Row
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.runs.build import Parts, files_of, load_parts, read, weightless
from regard.runs.folder import CACHE
from regard.task import Task
from regard.text.labels import FIRST
from regard.text.tokenizer import SUB_WORDS, Tokenizer
from regard.training.arrangement import arrange
from regard.training.prepare import StoredRows, counts_of, fitting, learn

SAMPLE = 30_000  # rows that stand for all of them
TYPICAL = 30  # tokens of a side where the data is not there


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A training as it would be, with some of its rows, `count` in all, and a network that has no weights."""

    config: Config
    parts: Parts
    task: Task
    rows: Sequence[Row]
    batches: Batches
    count: int
    assumed: str = ""  # what is not known, but taken to be so

    def content(self, chosen: Rows) -> Content:
        return [tuple(np.array(field) for field in self.rows[int(i)]) for i in chosen]

    def batch(self, chosen: Rows) -> Any:
        return self.task.batch(self.content(chosen))

    def need(self, place: memory.Place, how: Training | None = None) -> memory.Need:
        """Return the memory that a process needs there."""
        peak = self.peak(place.processes)
        return memory.need_of(self.task.network, peak, place, how or self.config.training)

    @cache  # noqa: B019 (a sample lives as long as its plan)
    def peak(self, processes: int) -> int:
        """Return the most bytes that gradients and activations of a process take together."""
        return memory.peak_of(self.task.network, self.batch, self.task.turns, self.batches, processes)

    def step(self) -> StepCost:
        """Return the operations of a mean step."""
        return step_cost(self.task, self.batches, self.content, self.config.training.accumulate)

    @property
    def per_epoch(self) -> float:
        """The steps of an epoch of all rows."""
        each = len(self.rows) / max(1, self.batches.count(0))
        return self.count / max(each, 1e-9) / self.config.training.accumulate


def of_files(config: Config, pairs: int | None = None, origin: Parts | None = None) -> Rehearsal:
    """Return a rehearsal on the first of the data's rows. `pairs` are there in all; None: they are counted."""
    data, output = config.data, OUTPUTS[config.task]
    examples = read(config, data.train, lambda _: None)
    seen = take_survey(islice(examples, SAMPLE), names_in(output), "")
    pairs = seen.count + sum(1 for _ in examples) if pairs is None else pairs
    parts = learn(config, seen, origin)
    task = weightless(config, parts)
    rows = [part for row in task.rows(seen.examples) for part in fitting(row, data.longest, parts)]
    return _sample(config, parts, rows, len(rows) * max(1, pairs) // max(1, seen.count))


def of_run(config: Config, run: Path) -> Rehearsal:
    """Return a rehearsal of a run, on the rows that it has stored."""
    store = Store.open(run / CACHE / "train", verify=False)
    return _sample(config, load_parts(config, run), StoredRows(store)[: min(SAMPLE, len(store))], len(store))


def of_settings(config: Config, length: int = TYPICAL) -> Rehearsal:
    """Return a rehearsal of settings whose files are not there: texts of sub-words, so many of them on each side."""
    size = getattr(config.reading, "size", None)
    if size is None or getattr(config.reading, "level", None) not in SUB_WORDS:
        raise UserError(
            f"{config.data.train[0]}: the data is not there, and these settings do not say how large a vocabulary is: "
            "give the data, or set tokens.level=bpe and tokens.size."
        )
    with TemporaryDirectory(prefix="regard-") as folder:
        for name in files_of(config):
            own = size if name.startswith("token") else getattr(getattr(config, "output", None), "size", None) or size
            Tokenizer.supposed(own).save(Path(folder) / name)
        parts = load_parts(config, Path(folder))
    fields = (*parts[0].fields, *parts[1].fields)
    ids = np.arange(length) % (size - FIRST) + FIRST
    full = max(1, int(config.training.budget // (length * sum(field.tokens for field in fields))))
    rows = [tuple(ids.astype(field.dtype) for field in fields)] * (4 * full)
    said = f"{config.data.train[0]} is not there: taken to be texts of {length} tokens on each side (--length)"
    return _sample(config, parts, rows, 0, said)


def _sample(config: Config, parts: Parts, rows: Sequence[Row], count: int, assumed: str = "") -> Rehearsal:
    task, how = weightless(config, parts), config.training
    arrange(task.network, how)
    lengths = counts_of(rows) if len(rows) else np.zeros((0, len(task.fields)), np.int32)
    batches = Batches(lengths, how.budget, how.seed, [field.tokens for field in task.fields])
    return Rehearsal(config, parts, task, rows, batches, count, assumed)
