"""The stem of graphs: z = W x for each node, fast where most of x is 0.

It is the first matrix of the network (backbones/graph.py): for bags of words, W x is a weighted sum of a few rows of W.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.compiler import is_exporting
from torch.nn.functional import embedding_bag

from regard.attention import Context
from regard.inputs.input import Source, moved
from regard.layers.dropout import Dropout
from regard.layers.stem import Stem

Around = Callable[[Source, np.random.Generator | None], Source]


class NodeStem(nn.Module):
    """z = Wᵀ dropout(x) + Vᵀ dropout(dense). The last `signs` dense numbers may have either sign; `around` finds what
    nodes see, where a batch only names the nodes that are asked for."""

    def __init__(
        self, columns: int, dense: int, carried: int, stem: Stem, *, signs: int = 0, around: Around | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(columns, stem.width)) if columns else None
        self.map = nn.Linear(dense, stem.width, bias=False) if dense else None
        self.carried = nn.Linear(carried, stem.edges) if stem.edges else None
        self.dropout, self.width, self.signs, self.around = Dropout(stem.dropout), stem.width, signs, around
        for matrix in (self.weight, None if self.map is None else self.map.weight):
            if matrix is not None:
                nn.init.xavier_uniform_(matrix)

    def forward(self, source: Source) -> Context:
        if self.around is not None:
            draw = np.random.default_rng(int(torch.randint(2**62, ()))) if self.training else None
            device = source.positions.device
            source = moved(self.around(source, draw), device)
        counts, columns, amounts, dense = source.values
        x = self._sparse(counts, columns, amounts) if self.weight is not None else None
        if self.map is not None:
            y = self.map(self.dropout(self._turned(dense)))
            x = y if x is None else x + y
        assert x is not None
        mask: Any = source.mask
        if self.carried is not None and mask.features is not None:
            mask = type(mask)(mask.row, mask.receiver, mask.sender, self.carried(mask.features), mask.strength)
        return Context(x, source.positions, mask, source.units)

    def _sparse(self, counts: Tensor, columns: Tensor, amounts: Tensor) -> Tensor:
        """Return Σ_c x_c W_c for each node, (batch, n, width)."""
        assert self.weight is not None
        if is_exporting():  # a feature belongs to the node whose features begin last before it
            ends = torch.cumsum(counts.flatten(), 0)
            marks = ends.new_zeros(columns.shape[0] + 1).index_add(0, ends, torch.ones_like(ends))
            given = self.weight[columns] * amounts.unsqueeze(-1)
            found = given.new_zeros(counts.numel(), self.width).index_add(0, marks.cumsum(0)[:-1], given)
            return found.view(*counts.shape, -1)
        offsets = torch.zeros(counts.numel() + 1, dtype=torch.long, device=counts.device)
        torch.cumsum(counts.flatten(), 0, out=offsets[1:])
        weights = self.dropout(amounts).to(self.weight.dtype)
        z = embedding_bag(
            columns, self.weight, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
        )
        return z.view(*counts.shape, -1)

    def _turned(self, dense: Tensor) -> Tensor:
        """Return the dense numbers with signs that are drawn for each graph in training."""
        if not self.training or not self.signs:
            return dense
        signs = 2 * torch.randint(2, (len(dense), 1, self.signs), device=dense.device) - 1
        return torch.cat((dense[..., : -self.signs], dense[..., -self.signs :] * signs), -1)
