"""Layers along edges: each node looks at its neighbours. GCN, GAT, GATv2 and the plain graph convolution are one layer
with different parts.

    z = W x        y_j = σ( own_j + Σ_i a_ji v_i + b )        (own, q, k, v) = split(z)

The first layer has no W: the stem made z from the raw features, and does that fast where they are sparse. The last
layer of GCN and GAT has none either: y is linear in its values, so the head's matrix is that W.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from regard.attention import Context, Edges, Watchable
from regard.attention.edges import EdgeFeatures, dense_weights, edge_weights, mix_edges, segment_sum
from regard.attention.equation import AnyMask, check
from regard.attention.layer import undropped
from regard.attention.normalisers import Normaliser
from regard.attention.scores import Score
from regard.errors import UserError
from regard.layers.dropout import Dropout

Parts = tuple[Tensor | None, Tensor, Tensor]  # own, queries, and keys that are the values too
Split = Callable[[Tensor], Parts]


def shared(z: Tensor) -> Parts:
    """Queries, keys and values are the same (GAT, GCN)."""
    return None, z, z


def sides(z: Tensor) -> Parts:
    """The receiver has a matrix of its own (GATv2)."""
    q, k = z.chunk(2, -1)
    return None, q, k


def beside(z: Tensor) -> Parts:
    """The node itself has a matrix of its own, and is no neighbour (the graph convolution)."""
    own, k = z.chunk(2, -1)
    return own, k, k


class EdgeAttention(Watchable):
    """The equation along edges. `features` make features of edges a part of their scores."""

    def __init__(self, *, score: Score, normalise: Normaliser, features: EdgeFeatures | None = None) -> None:
        super().__init__()
        self.score, self.normalise, self.features = score, normalise, features

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: AnyMask, q_pos: Tensor, k_pos: Tensor) -> Tensor:  # noqa: ARG002
        check(q, k, v)
        edges = along(mask)
        added = None if self.features is None else self.features(edges)
        weights, flat = edge_weights(q, k, edges, score=self.score, normalise=self.normalise, added=added)
        return mix_edges(weights, v, flat, q.shape[-2])

    @torch.no_grad()
    def weights(
        self,
        q: Tensor,
        k: Tensor,
        mask: AnyMask,
        q_pos: Tensor,  # noqa: ARG002
        k_pos: Tensor,  # noqa: ARG002
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        edges = along(mask)
        added = None if self.features is None else self.features(edges)
        normalise = undropped(self.normalise)
        weights, flat = edge_weights(q, k, edges, score=self.score, normalise=normalise, added=added)
        return dense_weights(weights, flat, len(q), q.shape[-2], k.shape[-2], heads)


def along(mask: AnyMask) -> Edges:
    """Return the edges that a mask is; refuse other masks."""
    if not isinstance(mask, Edges):
        raise UserError("A network along edges needs edges, and this input has none: choose another model.kind.")
    return mask


class EdgeValues(nn.Module):
    """Σ_i θᵀ f_ji over the edges into j: what the features of edges add to the sum over neighbours."""

    def __init__(self, edge_width: int, width: int) -> None:
        super().__init__()
        self.map = nn.Linear(edge_width, width, bias=False)

    def forward(self, edges: Edges, rows: int, n: int) -> Tensor:
        if edges.features is None:
            raise ValueError("the network wants features of edges, and these edges have none")
        flat = edges.flat(rows, n, n)
        features = self.map(edges.features)
        return segment_sum(features if flat.order is None else features[flat.order], flat).view(rows, n, -1)


class GraphLayer(nn.Module):
    """y_j = σ( own_j + Σ_i a_ji v_i + b ), by `heads` side by side."""

    def __init__(
        self,
        attention: EdgeAttention,
        split: Split,
        width: int,
        heads: int,
        *,
        project: nn.Linear | None,
        activation: Callable[[Tensor], Tensor] | None,
        dropout: float,
        loops: bool = True,
        values: EdgeValues | None = None,
        skip: bool = False,
        norm: bool = False,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"the heads must divide the width: width {width} with {heads} heads")
        self.attention, self.split, self.heads, self.loops = attention, split, heads, loops
        self.dropout, self.project, self.activation = Dropout(dropout), project, activation
        self.values, self.skip = values, skip
        self.norm = nn.LayerNorm(width) if norm else None
        self.bias = nn.Parameter(torch.zeros(width)) if activation is not None else None  # else the head has one

    def forward(self, x: Tensor, positions: Tensor, edges: Edges) -> Tensor:
        """Return the features of all nodes; x is z already where there is no matrix."""
        seen = edges if self.loops else edges.without_loops()
        z = self.dropout(x)
        own, q, k = self.split(z if self.project is None else self.project(z))
        q_heads, k_heads = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in (q, k))
        y: Tensor = self.attention(q_heads, k_heads, k_heads, seen, positions, positions).transpose(1, 2).flatten(2)
        if own is not None:
            y = y + own
        if self.values is not None:
            y = y + self.values(seen, *x.shape[:2])
        if self.bias is not None:
            y = y + self.bias
        if self.activation is not None:
            y = self.activation(y)
        if self.skip and y.shape == x.shape:
            y = y + x
        if self.norm is not None:
            y = self.norm(y)
        return y


class GraphEncoder(nn.Module):
    """Layers along the edges of a context. Features of padding are whatever they are: nobody looks at them."""

    def __init__(self, layers: Sequence[GraphLayer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, context: Context) -> Context:
        edges, positions, x = along(context.mask), context.where(), context.values
        for layer in self.layers:
            x = layer(x, positions, edges)
        return context._replace(values=x, positions=positions)
