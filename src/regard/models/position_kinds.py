"""The position kinds by name: some act inside every self-attention, the others are a table before the first layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from regard.attention import positions
from regard.attention.mixing import ShawValues
from regard.errors import UserError

# Parts of MultiHead from (heads, width of a head's keys and of its values, both ways).
INSIDE: dict[str, Callable[[int, int, int, bool], dict[str, Any]]] = {
    "rotary": lambda heads, keys, values, both: {"rotate": positions.Rotary(keys)},  # noqa: ARG005
    "alibi": lambda heads, keys, values, both: {"bias": positions.Alibi(heads)},  # noqa: ARG005
    "t5": lambda heads, keys, values, both: {"bias": positions.T5(heads, both_ways=both)},  # noqa: ARG005
    "shaw": lambda heads, keys, values, both: {"bias": positions.Shaw(16, keys), "mix": ShawValues(16, values)},  # noqa: ARG005
    "transformer-xl": lambda heads, keys, values, both: {"bias": positions.RelativeTransformerXL(heads, keys)},  # noqa: ARG005
    "none": lambda heads, keys, values, both: {},  # noqa: ARG005
}

# Tables from (longest sequence, width).
TABLES: dict[str, Callable[[int, int], nn.Module]] = {
    "sinusoidal": lambda length, width: positions.Sinusoidal(width),  # noqa: ARG005
    "learned": positions.LearnedTable,
    "recurrent": lambda length, width: positions.RecurrentTable(width),  # noqa: ARG005
    "floater": lambda length, width: positions.Floater(width),  # noqa: ARG005
}


def inside(
    position: str,
    heads: int,
    width: int,
    *,
    both: bool,
    key_width: int | None = None,
    value_width: int | None = None,
) -> dict[str, Any]:
    """Return the parts that this kind adds to one self-attention of that width, reading `both` ways or only back."""
    if position not in INSIDE and position not in TABLES:
        known = ", ".join([*TABLES, *INSIDE])
        raise UserError(f"The position kind {position!r} is unknown, expected one of {known}.")
    if position not in INSIDE:
        return {}
    return INSIDE[position](heads, key_width or width // heads, value_width or width // heads, both)


def place(position: str, length: int, width: int) -> nn.Module | None:
    """Return the part that this kind adds to embeddings, if it is a table."""
    return positions.Added(TABLES[position](length, width)) if position in TABLES else None
