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

from regard.attention import Context, Edges, Mask, padding
from regard.attention.masks import join_positions, permutation
from regard.backbones.transformer import EncoderLayer


class TwoStream(nn.Module):
    """Layers whose positions are relative, read both ways or in a given order."""

    def __init__(
        self, layers: Sequence[EncoderLayer], norm: nn.Module | None, width: int, *, mask: Mask = padding
    ) -> None:
        super().__init__()
        self.layers, self.norm, self.mask = nn.ModuleList(layers), norm, mask
        self.query = nn.Parameter(torch.empty(width))  # w
        nn.init.normal_(self.query, std=0.02)

    def forward(self, context: Context) -> Context:
        """Return the content stream under the mask alone: features of a known text."""
        x, positions = context.values, context.where()
        mask = context.rule(self.mask).at(positions)
        for layer in self.layers:
            x, _ = layer(x, None, positions, mask)
        return context._replace(values=x if self.norm is None else self.norm(x), positions=positions)

    def streams(self, context: Context, order: Tensor, targets: Tensor) -> tuple[Context, Tensor]:
        """Return h for all positions, and g (batch, t, width) for the positions `targets`, (t,) or (batch, t), −1 for
        none.

        Position p comes `order[p]`-th, (n,) or (batch, n). Positions of the same rank see each other's content but do
        not predict each other: given ones share a rank before all others.
        """
        x, positions = context.values, context.where()
        length = x.shape[1]
        both = join_positions(positions, targets)
        mask = self._mask(context.rule(self.mask), positions, order, targets)
        x = torch.cat((x, self.query.expand(x.shape[0], targets.shape[-1], -1)), 1)
        for layer in self.layers:
            x, _ = layer(x, Context(x[:, :length], positions), both, mask)
        x = x if self.norm is None else self.norm(x)
        return context._replace(values=x[:, :length], positions=positions), x[:, length:]

    @staticmethod
    def _mask(rule: Mask | Edges, positions: Tensor, order: Tensor, targets: Tensor) -> Tensor:
        """Return (n + targets, n), with (batch, 1) before it where rows differ: built once for all layers."""
        if isinstance(rule, Edges):
            raise ValueError("two streams need a mask of positions, found edges: choose another model.kind")
        content = (rule & permutation(order)).on(positions, positions).rows(positions)
        query = (rule & permutation(order, itself=False)).on(targets, positions).rows(targets)
        rows = torch.broadcast_shapes(content.shape[:-2], query.shape[:-2])
        return torch.cat((content.expand(*rows, -1, -1), query.expand(*rows, -1, -1)), -2)
