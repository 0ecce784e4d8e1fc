"""Two streams for a permutation language model (Yang et al. 2019, 2.3). In an order z of the positions, for z_t:

    g_z_t ← attention(Q = g_z_t, KV = h_z_<t)          the query stream knows the position z_t, not what stands there
    h_z_t ← attention(Q = h_z_t, KV = h_z_≤t)          the content stream knows it

h⁰_i is the embedding of token i and g⁰_i a learned vector w, the same everywhere: relative positions alone tell one g
from another. Both streams pass through the same layers, so they pass together: queries [h; g], keys and values h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.attention.masks import padding, permutation
from regard.attention.multihead import Context
from regard.attention.state import join_positions
from regard.backbones.transformer import EncoderLayer


class TwoStream(nn.Module):
    """Layers whose positions are relative, read both ways or in a given order."""

    def __init__(self, layers: Sequence[EncoderLayer], norm: nn.Module | None, width: int) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm
        self.query = nn.Parameter(torch.empty(width))  # w
        nn.init.normal_(self.query, std=0.02)

    def forward(self, x: Tensor, positions: Tensor) -> Context:
        """The content stream where everybody sees everybody but padding: features of a text that is known."""
        mask = padding.on(positions, positions)
        for layer in self.layers:
            x, _ = layer(x, positions, mask)
        return Context(x if self.norm is None else self.norm(x), positions)

    def streams(self, x: Tensor, positions: Tensor, order: Tensor, targets: Tensor) -> tuple[Context, Tensor]:
        """h for all positions, and g (batch, t, width) for the positions `targets`, (t,) or (batch, t), −1 for none.

        Position p comes `order[p]`-th, (n,) or (batch, n). Positions of the same rank see each other's content but do
        not predict each other: given ones share a rank before all others.
        """
        length = x.shape[1]
        both = join_positions(positions, targets)
        mask = self._mask(positions, order, targets)
        x = torch.cat((x, self.query.expand(len(x), targets.shape[-1], -1)), 1)
        for layer in self.layers:
            x, _ = layer(x, both, mask, None, Context(x[:, :length], positions))
        x = x if self.norm is None else self.norm(x)
        return Context(x[:, :length], positions), x[:, length:]

    @staticmethod
    def _mask(positions: Tensor, order: Tensor, targets: Tensor) -> Tensor:
        """(n + targets, n), with (batch, 1) before it where rows differ: built once for all layers."""
        content = permutation(order).on(positions, positions).rows(positions)
        query = permutation(order, itself=False).on(targets, positions).rows(targets)
        rows = torch.broadcast_shapes(content.shape[:-2], query.shape[:-2])
        return torch.cat((content.expand(*rows, -1, -1), query.expand(*rows, -1, -1)), -2)
