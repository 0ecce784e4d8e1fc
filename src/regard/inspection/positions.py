"""Tables of positions inside a network, as arrays."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.attention.positions import Added, AddedToHeads, Concatenated, LearnedTable
from regard.errors import UserError


@torch.no_grad()
def position_tables(network: nn.Module, length: int = 50) -> dict[str, NDArray[np.float32]]:
    """Return the table p_0 … p_(length−1) of each place where one comes in, by the name of its module."""
    found: dict[str, NDArray[np.float32]] = {}
    for name, part in network.named_modules():
        table = part.table if isinstance(part, Added | AddedToHeads | Concatenated) else None
        if isinstance(part, LearnedTable) and not any(name.startswith(f"{known}.") for known in found):
            table = part  # of a stem that adds it itself, as BERT's does
        if not isinstance(table, nn.Module):
            continue
        most = min(length, len(table.table)) if isinstance(table, LearnedTable) else length
        found[name] = np.asarray(table(torch.arange(most)).float())
    if not found:
        raise UserError(
            "This model has no table of positions: expected model.position sinusoidal, learned, recurrent or floater."
        )
    return found
