"""The position kinds by name: some act inside every self-attention, the others are a table before the first layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from regard.attention import positions
from regard.attention.mixing import ShawValues
from regard.errors import UserError

# Parts of MultiHead from (heads, width of a head, both ways).
INSIDE: dict[str, Callable[[int, int, bool], dict[str, Any]]] = {
    "rotary": lambda heads, width, both: {"rotate": positions.Rotary(width)},  # noqa: ARG005
    "alibi": lambda heads, width, both: {"bias": positions.Alibi(heads)},  # noqa: ARG005
    "t5": lambda heads, width, both: {"bias": positions.T5(heads, both_ways=both)},  # noqa: ARG005
    "shaw": lambda heads, width, both: {"bias": positions.Shaw(16, width), "mix": ShawValues(16, width)},  # noqa: ARG005
    "transformer-xl": lambda heads, width, both: {"bias": positions.RelativeTransformerXL(heads, width)},  # noqa: ARG005
    "none": lambda heads, width, both: {},  # noqa: ARG005
}

# Tables from (longest sequence, width).
TABLES: dict[str, Callable[[int, int], nn.Module]] = {
    "sinusoidal": lambda length, width: positions.Sinusoidal(width),  # noqa: ARG005
    "learned": positions.LearnedTable,
    "recurrent": lambda length, width: positions.RecurrentTable(width),  # noqa: ARG005
    "floater": lambda length, width: positions.Floater(width),  # noqa: ARG005
}


def inside(position: str, heads: int, width: int, *, both: bool) -> dict[str, Any]:
    """Return the parts that this kind adds to one self-attention of that width, reading `both` ways or only back."""
    if position not in INSIDE and position not in TABLES:
        known = ", ".join([*TABLES, *INSIDE])
        raise UserError(f"The position kind {position!r} is unknown, expected one of {known}.")
    return INSIDE[position](heads, width // heads, both) if position in INSIDE else {}


def place(position: str, length: int, width: int) -> nn.Module | None:
    """Return the part that this kind adds to embeddings, if it is a table."""
    return positions.Added(TABLES[position](length, width)) if position in TABLES else None
