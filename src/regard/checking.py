"""Checking before hours are spent: data for faults, a config for mistakes, a run for invariances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from regard import choosing
from regard import config as settings
from regard.config import Config
from regard.data.check import check_pairs
from regard.data.reading import read_pairs
from regard.errors import UserError
from regard.outputs.convert import Batch
from regard.running import Model, load


def check(targets: Sequence[str], test: Sequence[str]) -> tuple[str, bool]:
    """A report on data, a config or a run, and whether all is well."""
    first = Path(targets[0])
    if first.is_dir():
        return check_run(load(first))
    if first.suffix in (".yaml", ".yml"):
        config = settings.load(first)
        report, sound = check_data(config.data.train, [*config.data.test, *test])
        return f"{first}: all settings are valid\n{expectation(config)}\n\n{report}", sound
    report, sound = check_data(list(targets), test)
    if sound:
        config, reasons = choosing.choose(list(targets), faults="skip")
        lines = [f"  {key}: {why}" for key, why in reasons.items()]
        report += "\n\n`regard train` would choose\n" + "\n".join(lines) + f"\n{expectation(config)}"
    return report, sound


def check_data(paths: Sequence[str], test: Sequence[str]) -> tuple[str, bool]:
    found = check_pairs([Path(path) for path in paths], [Path(path) for path in test])
    return found.render(), not found.faults


def expectation(config: Config) -> str:
    """What a training of these settings needs in memory: weights, gradients, two moments, and a batch's activations."""
    model, parameters = config.model, settings.parameters(config)
    activations = config.training.budget * (model.width * 30 * model.layers + 2 * (config.tokens.size or 200)) * 4
    total = 16 * parameters + activations + 400e6
    return f"about {parameters / 1e6:.1f} million parameters; training needs about {total / 1e9:.1f} GB of memory"


def check_run(model: Model) -> tuple[str, bool]:
    """What must hold for every trained model, tried on its own data."""
    paths = model.config.data.valid or model.config.data.train
    try:
        pairs = [(p.source, p.target) for p, _ in zip(read_pairs([Path(x) for x in paths]), range(16), strict=False)]
    except UserError as error:
        raise UserError(f"{model.folder}: its data is needed for the check, but {error}") from error
    batch = model.task.batch([tuple(map(torch.tensor, row)) for row in model.task.rows(pairs)])
    model.network.eval()
    checks: dict[str, Callable[[Model, Batch], float]] = {
        "causality: a later target token changes nothing earlier": causality,
        "padding: more of it changes nothing": padding,
        "batch: each row is the same alone": alone,
        "cache: step by step equals all at once": cache,
    }
    lines, sound = [f"{model.folder}: {len(pairs)} pairs"], True
    with torch.no_grad():
        for name, measure in checks.items():
            difference = measure(model, batch)
            good = difference < 1e-4
            sound = sound and good
            lines.append(f"  {'ok  ' if good else 'FAIL'} {name} (largest difference {difference:.1e})")
    return "\n".join(lines), sound


def causality(model: Model, batch: Batch) -> float:
    real = batch.target != 0
    middle = batch.target.shape[1] // 2
    changed = batch.target.clone()
    changed[:, middle:] = torch.where(real[:, middle:], 4 + (changed[:, middle:] + 1) % 4, 0)
    before, after = model.network(batch), model.network(Batch(batch.source, changed))
    return _difference(before[:, :middle], after[:, :middle], real[:, :middle])


def padding(model: Model, batch: Batch) -> float:
    wider = Batch(*(torch.nn.functional.pad(side, (0, 5)) for side in batch))
    length = batch.target.shape[1]
    return _difference(model.network(batch), model.network(wider)[:, :length], batch.target != 0)


def alone(model: Model, batch: Batch) -> float:
    together = model.network(batch)
    rows = [model.network(Batch(s[None, s != 0], t[None, t != 0]))[0] for s, t in zip(*batch, strict=True)]
    return max(float((together[i, : len(row)] - row).abs().max()) for i, row in enumerate(rows))


def cache(model: Model, batch: Batch) -> float:
    state, tokens, steps = model.network.start(batch.source), torch.full((len(batch.source),), 2), []
    for t in range(batch.target.shape[1]):
        logits, state = model.network.step(tokens, state)
        steps.append(logits)
        tokens = batch.target[:, t]
    return _difference(model.network(batch), torch.stack(steps, 1), batch.target != 0)


def _difference(one: Tensor, other: Tensor, where: Tensor) -> float:
    return float((one - other).abs().amax(-1)[where].max()) if bool(where.any()) else 0.0
