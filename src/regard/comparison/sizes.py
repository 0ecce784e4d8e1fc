"""Parameters and FLOPs of settings, before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from regard.config import Config
from regard.costs.steps import step_cost
from regard.data.batches import Batches, Content, Rows
from regard.errors import UserError
from regard.inputs.input import Row
from regard.runs import settings
from regard.runs.build import Parts, build, parameters
from regard.training.prepare import counts_of, fitting, learn
from regard.training.split import Split, survey

ROWS = 2000  # from which the batches of an epoch are made


def parameters_of(config: Config) -> float:
    """Return the number of weights."""
    return parameters(config, parts_of(config))


def parts_of(config: Config) -> Parts:
    """Return what input and output learn from the data."""
    return _learned(_key(config))[0]


def flops_of(config: Config) -> float:
    """Return the floating-point operations of a mean step of training."""
    parts, rows = _learned(_key(config))
    task = build(config, parts)
    costs = [field.tokens for field in task.fields]
    batches = Batches(counts_of(rows), config.training.budget, config.training.seed, costs)

    def content(chosen: Rows) -> Content:
        return [tuple(np.array(field) for field in rows[i]) for i in chosen]

    return step_cost(task, batches, content, config.training.accumulate).flops


def _key(config: Config) -> str:
    """Return all settings that vocabularies and rows depend on, with the model of the kind they are for."""
    kept = config.model_dump(mode="json")
    return json.dumps(kept | {"model": {"kind": kept["model"].get("kind")}, "training": {"seed": config.training.seed}})


@lru_cache(maxsize=8)
def _learned(key: str) -> tuple[Parts, Sequence[Row]]:
    """Return what input and output learn from the data of these settings, and some rows of it."""
    found = json.loads(key)
    config = settings.make({name: value for name, value in found.items() if value != {"kind": None}}, "the settings")
    seen = Split(config, survey(config, (lambda _: None) if config.data.faults == "skip" else None)).learning()
    parts = learn(config, seen, None)
    rows = parts[1].rows(parts[0], iter(seen.examples[:ROWS]))
    some = [part for row in rows for part in fitting(row, config.data.longest, parts)]
    if not some:
        raise UserError(f"{config.data.train[0]}: no example is as short as data.longest: set a larger one.")
    return parts, some
