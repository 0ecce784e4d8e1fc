"""Three wishes for positions (Liu et al. 2020, section 1), asked of each network in a comparison of positions.

    inductive              the network reads sequences of any length
    data-driven            positions have weights, W > 0
    parameter-efficient    the weights are as many for longer sequences, W(n) = W(2n)

W(n) is what the network has more than without positions, where the longest sequence has n elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard.comparison import sizes
from regard.config import Config
from regard.errors import UserError
from regard.outputs import OUTPUTS
from regard.outputs.abilities import Stretches
from regard.runs import settings
from regard.runs.build import Parts, parameters, weightless

LONG = 10_000  # elements: more than any other setting that a table's length follows from


def wishes_of(configs: Sequence[Config]) -> list[dict[str, Any] | None]:
    """Return for each variant which wishes its positions fulfil; nothing at all if positions do not differ."""
    kinds = {config.model.position for config in configs if hasattr(config.model, "position")}
    return [None if len(kinds) < 2 else _fulfilled(config) for config in configs]


def _fulfilled(config: Config) -> dict[str, Any] | None:
    if not hasattr(config.model, "position"):
        return None
    parts, key = sizes.parts_of(config), length_key(config)
    try:
        own = _weights(config, parts)
        some, more = (_weights(settings.override(config, [f"{key}={n}"]), parts) for n in (LONG, 2 * LONG))
    except UserError:  # this kind of model needs positions
        return None
    return {
        "inductive": weightless(config, parts).network.longest is None,
        "data-driven": own > 0,
        "parameter-efficient": some == more,
        "weights": own,
    }


def _weights(config: Config, parts: Parts) -> int:
    """Return W(n) of these settings; none of the weights is allocated."""
    without = settings.override(config, ["model.position=none"])
    return parameters(config, parts) - parameters(without, parts)


def length_key(config: Config) -> str:
    """Return the setting of the longest sequence that is trained on."""
    output = OUTPUTS[config.task]
    return output.length if issubclass(output, Stretches) else "data.longest"
