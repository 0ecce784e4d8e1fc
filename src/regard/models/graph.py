"""Networks along edges: GCN (Kipf and Welling 2017), GAT (Veličković et al. 2018), GATv2 (Brody et al. 2022), and the
graph convolution σ(θ₁ᵀ x_j + Σ_{i∈N(j)} θ₂ᵀ x_i) (Scarselli et al. 2009; Morris et al. 2019)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from regard.attention import normalisers, scores
from regard.attention.edges import EdgeFeatures
from regard.attention.normalisers import Normaliser, WeightDropout
from regard.backbones.graph import (
    EdgeAttention,
    EdgeValues,
    GraphEncoder,
    GraphLayer,
    Split,
    beside,
    shared,
    sides,
)
from regard.layers.stem import Stem


def gcn(
    *, layers: int, width: int, dropout: float, skip: bool, norm: bool, edge_width: int
) -> tuple[Stem, GraphEncoder]:
    """H ← ReLU(D^−½ (A + I) D^−½ H W): the weights of neighbours follow from degrees alone."""
    stem, made = _sums(normalisers.symmetric, shared, torch.relu, layers, width, dropout, skip, norm, edge_width)
    return replace(stem, reach=layers + 1), made  # the degrees of the farthest nodes count too


def graph_convolution(
    *, layers: int, width: int, dropout: float, skip: bool, norm: bool, edge_width: int
) -> tuple[Stem, GraphEncoder]:
    """x_j ← ReLU(θ₁ᵀ x_j + Σ_{i∈N(j)} θ₂ᵀ x_i): every neighbour counts alike, and how many there are matters."""
    return _sums(normalisers.exponential, beside, torch.relu, layers, width, dropout, skip, norm, edge_width)


def gat(
    *,
    layers: int,
    width: int,
    heads: int,
    dropout: float,
    attention_dropout: float,
    skip: bool,
    norm: bool,
    edge_width: int,
    dynamic: bool = False,
) -> tuple[Stem, GraphEncoder]:
    """Attention along edges, ELU between layers; the last layer has one head. `dynamic` is GATv2."""
    score: Callable[[int, int], nn.Module] = scores.GraphDynamic if dynamic else scores.GraphAdditive
    split, parts = (sides, 2) if dynamic else (shared, 1)

    def attention(count: int) -> EdgeAttention:
        normalise: Normaliser = WeightDropout(normalisers.softmax, attention_dropout)
        features = EdgeFeatures(edge_width, count) if edge_width else None
        return EdgeAttention(score=score(count, width // count), normalise=normalise, features=features)

    made = []
    for number in range(layers):
        last = number == layers - 1
        bare = number == 0 or (last and not dynamic)
        count = 1 if last and layers > 1 else heads
        if width % count:
            raise ValueError(f"the heads must divide the width: width {width} with {count} heads")
        how: dict[str, Any] = {"project": None if bare else _matrix(width, parts * width), "skip": skip, "norm": norm}
        activation = None if last else elu
        rate = 0.0 if number == 0 else dropout  # the stem drops its own
        made.append(GraphLayer(attention(count), split, width, count, activation=activation, dropout=rate, **how))
    return _stem(parts * width, layers, dropout, edge_width), GraphEncoder(made)


def _sums(
    normalise: Normaliser,
    split: Split,
    activation: Callable[[Tensor], Tensor],
    layers: int,
    width: int,
    dropout: float,
    skip: bool,
    norm: bool,
    edge_width: int,
) -> tuple[Stem, GraphEncoder]:
    """Build layers whose weights are not learned."""
    parts = 2 if split is beside else 1
    made = []
    for number in range(layers):
        last = number == layers - 1
        bare = number == 0 or (last and split is shared)
        made.append(
            GraphLayer(
                EdgeAttention(score=scores.uniform, normalise=normalise),
                split,
                width,
                1,
                project=None if bare else _matrix(width, parts * width),
                activation=None if last and split is shared and layers > 1 else activation,
                dropout=0.0 if number == 0 else dropout,
                loops=split is shared,
                values=EdgeValues(edge_width, width) if edge_width else None,
                skip=skip,
                norm=norm,
            )
        )
    return _stem(parts * width, layers, dropout, edge_width), GraphEncoder(made)


def _matrix(width: int, out: int) -> nn.Linear:
    layer = nn.Linear(width, out, bias=False)
    nn.init.xavier_uniform_(layer.weight)
    return layer


def _stem(width: int, layers: int, dropout: float, edge_width: int) -> Stem:
    return Stem(width, None, dropout, scale=False, reach=layers, edges=edge_width)
