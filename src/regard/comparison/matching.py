"""Equal sizes: the width of each variant is changed until it has as many parameters, or FLOPs, as the baseline."""

from __future__ import annotations

import math
from collections.abc import Callable

from pydantic import ValidationError

from regard.config import Config
from regard.errors import UserError
from regard.runs import settings

Count = Callable[[Config], float]
WIDEST = 8192


def matched(config: Config, wanted: float, count: Count) -> Config:
    """Return the settings with the width whose count is nearest to `wanted`; an inner width keeps its share, and then
    makes up for the rest."""
    if not {"width"} <= {*type(config.model).model_fields}:
        return config
    step = math.lcm(2, getattr(config.model, "heads", 1) or 1)
    found = _nearest(lambda number: _wide(config, number * step), WIDEST // step, wanted, count)
    hidden = getattr(found.model, "hidden", None)
    if hidden is None:
        return found
    return _nearest(lambda number: _changed(found, {"model.hidden": number}), 4 * hidden, wanted, count)


def _wide(config: Config, width: int) -> Config | None:
    found = {"model.width": width}
    if hasattr(config.model, "hidden"):
        found["model.hidden"] = max(1, round(config.model.hidden * width / config.model.width))
    return _changed(config, found)


def _changed(config: Config, changes: dict[str, int]) -> Config | None:
    """Return the changed settings, or None where they do not go together."""
    try:
        return settings.override(config, settings.changes(changes))
    except (UserError, ValidationError):
        return None


def _nearest(made: Callable[[int], Config | None], most: int, wanted: float, count: Count) -> Config:
    """Return the settings of the number from 1 to `most` whose count, which grows with it, is nearest to `wanted`."""
    low, high = 1, most
    found: list[tuple[float, Config]] = []
    while low <= high:
        middle = (low + high) // 2
        config = made(middle)
        size = None if config is None else _count(config, count)
        if config is None or size is None:  # too large for this machine, or no number that the model can have
            high = middle - 1
            continue
        found.append((abs(size - wanted), config))
        if size < wanted:
            low = middle + 1
        else:
            high = middle - 1
    if not found:
        raise UserError("--match: no width of this kind of model gives a network: leave --match out.")
    return min(found, key=lambda one: one[0])[1]


def _count(config: Config, count: Count) -> float | None:
    try:
        return count(config)
    except UserError:
        return None
