"""Checking before hours are spent: data for faults, a config for mistakes, a run for damage and for invariances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch

from regard import choosing, verifying
from regard import config as settings
from regard.config import Config
from regard.data.check import check_pairs
from regard.errors import UserError
from regard.preparing import read
from regard.running import Model, load, refuse_missing
from regard.tasks import TASKS


def check(targets: Sequence[str], test: Sequence[str], *, accept: bool = False) -> tuple[str, bool]:
    """A report on data, a config or a run, and whether all is well; `accept` takes the run's files as they are."""
    first = Path(targets[0])
    if first.is_dir():
        return check_run(first, accept=accept)
    if accept:
        raise UserError(f"--accept takes the files of a run as they are, but {first} is not a run folder.")
    if first.suffix in (".yaml", ".yml"):
        config = settings.load(first)
        report, sound = check_data(config.data.train, [*config.data.test, *test], config)
        return f"{first}: all settings are valid\n{expectation(config)}\n\n{report}", sound
    report, sound = check_data(list(targets), test)
    if sound:
        config, reasons = choosing.choose(list(targets), faults="skip")
        lines = [f"  {key}: {why}" for key, why in reasons.items()]
        report += "\n\n`regard train` would choose\n" + "\n".join(lines) + f"\n{expectation(config)}"
    return report, sound


def check_data(paths: Sequence[str], test: Sequence[str], config: Config | None = None) -> tuple[str, bool]:
    """A report on files, read as the settings say if there are any."""
    how = (TASKS[config.task].reads, config.data.encoding) if config else ()
    found = check_pairs([Path(path) for path in paths], [Path(path) for path in test], *how)
    return found.render(), not found.faults


def expectation(config: Config) -> str:
    """What a training of these settings needs in memory: weights, gradients, two moments, and a batch's activations."""
    parameters = config.parameters()
    width, layers = (getattr(config.model, key, 1) for key in ("width", "layers"))
    activations = config.training.budget * (width * 30 * layers + 2 * (getattr(config.tokens, "size", 0) or 200)) * 4
    total = 16 * parameters + activations + 400e6
    return f"about {parameters / 1e6:.1f} million parameters; training needs about {total / 1e9:.1f} GB of memory"


def check_run(run: Path, *, accept: bool) -> tuple[str, bool]:
    """Whether every file of a run is what was written; then, whether its model does what every model must."""
    refuse_missing(run, "config.yaml")
    if accept:
        verifying.accept(run)
    faults = verifying.verify(run)
    if faults:
        return "\n".join(faults), False
    report, sound = check_model(load(run))
    return f"{run}: every file is what was written\n{report}", sound


def check_model(model: Model) -> tuple[str, bool]:
    """What must hold for every trained model, tried on its own data."""
    paths = model.config.data.valid or model.config.data.train
    try:
        pairs = list(islice(read(paths, model.config.task, model.config.data), 16))
    except UserError as error:
        return f"  its answers were not tried, as that needs its data: {error}", True
    rows = list(model.task.stored(iter(pairs)))[:16]
    model.network.eval()
    lines, sound = [f"what must hold for every model, on {len(rows)} rows of its data:"], True
    with torch.no_grad():
        for name, difference in model.task.invariances(rows):
            good = difference < 1e-4
            sound = sound and good
            lines.append(f"  {'ok  ' if good else 'FAIL'} {name} (largest difference {difference:.1e})")
    return "\n".join(lines), sound
