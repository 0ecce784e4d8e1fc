"""Checking before hours are spent: data for faults, a config for mistakes, a run for damage and for invariances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard import config as config_files
from regard.config import Config
from regard.data.batches import Batches, Rows
from regard.data.check import DataReport, check_pairs
from regard.data.example import UNITS
from regard.data.survey import take_survey
from regard.errors import UserError
from regard.inputs.input import Row
from regard.machine import memory as machine_memory
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.runs import settings, verify
from regard.runs.build import build, read, shapes
from regard.runs.model import Model, load, refuse_missing
from regard.task import Task
from regard.training import choose, device, memory
from regard.training.prepare import counts_of, fits, learn

SAMPLE = 30_000  # pairs that stand for all of them where memory is predicted


def check(targets: Sequence[str], test: Sequence[str], *, accept: bool = False) -> tuple[str, bool]:
    """A report on data, a config or a run, and whether all is well; `accept` takes the run's files as they are."""
    first = Path(targets[0])
    if first.is_dir():
        return check_run(first, accept=accept)
    if accept:
        raise UserError(f"--accept takes the files of a run as they are, but {first} is not a run folder.")
    if config_files.is_settings(first):
        config = settings.load(first)
        found = check_data(config.data.train, [*config.data.test, *test], config)
        expected = expectation(config, found.statistics.pairs)
        return f"{first}: all settings are valid\n{expected}\n\n{found.render()}", not found.faults
    found = check_data(list(targets), test)
    report, sound = found.render(), not found.faults
    if sound:
        config, reasons, _ = choose.choose(list(targets), faults="skip")
        lines = [f"  {key}: {why}" for key, why in reasons.items()]
        report += "\n\n`regard train` would choose\n" + "\n".join(lines)
        report += f"\n{expectation(config, found.statistics.pairs)}"
    return report, sound


def check_data(paths: Sequence[str], test: Sequence[str], config: Config | None = None) -> DataReport:
    """A report on files, read as the settings say if there are any."""
    how = (OUTPUTS[config.task].reads, config.data.encoding) if config else ()
    return check_pairs([Path(path) for path in paths], [Path(path) for path in test], *how)


def expectation(config: Config, pairs: int) -> str:
    """What a training of these settings needs in memory, what to do if that is more than there is, and its padding.

    It is tried with vocabularies and batches of the first SAMPLE of so many pairs.
    """
    data, output = config.data, OUTPUTS[config.task]
    seen = take_survey(islice(read(config, data.train, lambda _: None), SAMPLE), names_in(output), "")
    origin = load(config.training.start).task if config.training.start else None
    parts = learn(config, seen, origin and (origin.input, origin.output))
    count = sum(math.prod(shape) for shape in shapes(config, parts).values())
    padding = ""
    about = f"about {count / 1e6:.1f} million parameters"
    if 16 * count > machine_memory():  # there is no room to try
        need = memory.Need(memory.resident(), 12 * count, 4 * count, machine_memory())
    else:
        task = build(config, parts)
        rows = [row for row in task.rows(seen.examples) if fits(row, data.longest)]
        if not rows:
            return f"{about}; no {UNITS[output.reads]} is left to train on: see data.longest"
        costs = [field.tokens for field in task.fields]
        batches = Batches(counts_of(rows), config.training.budget, config.training.seed, costs)
        need = _tried(config, task, rows, batches, len(rows) * max(1, pairs) // max(1, seen.count))
        padding = f"\nabout {100 * batches.waste(0):.1f} % of a batch's tokens would be padding (training.budget)"
    return f"{about}; {need.sentence(config.training)}{padding}"


def _tried(config: Config, task: Task, rows: Sequence[Row], batches: Batches, count: int) -> memory.Need:
    """What is needed to train on `count` rows such as these."""
    how, cpu = config.training, torch.device("cpu")

    def loss(chosen: Rows) -> Tensor:
        batch = task.batch([tuple(np.array(field) for field in rows[i]) for i in chosen])
        with device.rounded(how, cpu):
            found: Tensor = task.network(batch, task.turns[0])
        return found.sum()

    return memory.predict(task.network, loss, batches, cpu, count)


def check_run(run: Path, *, accept: bool) -> tuple[str, bool]:
    """Whether every file of a run is what was written; then, whether its model does what every model must."""
    refuse_missing(run, "config.yaml")
    if accept:
        verify.accept(run)
    faults = verify.verify(run)
    if faults:
        return "\n".join(faults), False
    report, sound = check_model(load(run))
    return f"{run}: every file is what was written\n{report}", sound


def check_model(model: Model) -> tuple[str, bool]:
    """What must hold for every trained model, tried on its own data."""
    paths = model.config.data.valid or model.config.data.train
    try:
        examples = list(islice(read(model.config, paths), 16))
    except UserError as error:
        return f"  its answers were not tried, as that needs its data: {error}", True
    rows = list(model.task.rows(examples))[:16]
    model.network.eval()
    lines, sound = [f"what must hold for every model, on {len(rows)} rows of its data:"], True
    with torch.no_grad():
        for name, difference in model.task.invariances(rows):
            good = difference < 1e-4
            sound = sound and good
            lines.append(f"  {'ok  ' if good else 'FAIL'} {name} (largest difference {difference:.1e})")
    return "\n".join(lines), sound
