"""Scores: the fit of a key to a query.  `score(q, k)` gives s_ji for query j and key i.

Every score takes q (..., m, d_q) and k (..., n, d_k) and gives (..., m, n). Functions have no parameters, modules do;
a score of your own is any function of that shape.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from regard.layers.products import stated
from regard.layers.roles import BETWEEN, Role

Score = Callable[[Tensor | None, Tensor], Tensor]


def same_width(score: Score, q: Tensor | None, k: Tensor) -> None:
    """Refuse vectors of different widths where the score is their product."""
    if score in (dot, scaled_dot) and q is not None and q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"the score is a product of queries and keys, which must be equally wide: found {q.shape[-1]} and "
            f"{k.shape[-1]}. Try score=Bilinear(…) or project one of them"
        )


def query(q: Tensor | None) -> Tensor:
    """Return the query; refuse None, which only scores that ignore the query accept."""
    if q is None:
        raise ValueError(
            "this score compares queries with keys, but q is None: pass q, or use the score Content or uniform"
        )
    return q


def dot(q: Tensor | None, k: Tensor) -> Tensor:
    """s_ji = q_j · k_i (Luong et al. 2015, section 3.1)."""
    return query(q) @ k.mT


def scaled_dot(q: Tensor | None, k: Tensor) -> Tensor:
    """s_ji = q_j · k_i / √d: d independent terms of variance 1 add up to variance d (Vaswani et al. 2017, 3.2.1)."""
    return dot(q, k) / math.sqrt(k.shape[-1])


def uniform(q: Tensor | None, k: Tensor) -> Tensor:
    """s_ji = 0: every key fits equally well. One row if there is no query."""
    m = 1 if q is None else q.shape[-2]
    return k.new_zeros(*k.shape[:-2], m, k.shape[-2])


class Bilinear(nn.Module):
    """s_ji = q_jᵀ W k_i (Luong et al. 2015, "general")."""

    roles: ClassVar[dict[str, Role]] = {"weight": BETWEEN}

    def __init__(self, q_width: int, k_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(q_width, k_width))
        nn.init.xavier_uniform_(self.weight)

    def queries(self, q: Tensor | None) -> Tensor:
        """Return Wᵀq: the query moved into the space of the keys, where the score is a plain dot product."""
        return query(q) @ self.weight

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        return dot(self.queries(q), k)


class Additive(nn.Module):
    """s_ji = w · tanh(W_q q_j + W_k k_i) (Bahdanau et al. 2015, A.1.2); the same as w · tanh(W [k; q])."""

    def __init__(self, q_width: int, k_width: int, hidden: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(q_width, hidden, bias=False)
        self.k_proj = nn.Linear(k_width, hidden, bias=False)
        self.output = nn.Linear(hidden, 1, bias=False)

    def compare(self, q: Tensor | None, k: Tensor) -> Tensor:
        """Score projected queries and keys: a decoder projects its keys once, not at every step."""
        pairs = query(q).unsqueeze(-2) + k.unsqueeze(-3)  # (..., m, n, hidden)
        scores: Tensor = self.output(pairs.tanh()).squeeze(-1)
        return scores

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        return self.compare(self.q_proj(query(q)), self.k_proj(k))


class MLP(nn.Module):
    """s_ji = W₂ ReLU(W₁ [k_i; q_j] + b₁) + b₂: a small network reads key and query together."""

    def __init__(self, q_width: int, k_width: int, hidden: int) -> None:
        super().__init__()
        # W₁[k; q] is computed as W_k k + W_q q: m + n products with the wide matrix in place of m × n.
        self.k_proj = nn.Linear(k_width, hidden)
        self.q_proj = nn.Linear(q_width, hidden, bias=False)
        self.output = nn.Linear(hidden, 1)

    def compare(self, q: Tensor | None, k: Tensor) -> Tensor:
        pairs = query(q).unsqueeze(-2) + k.unsqueeze(-3)
        scores: Tensor = self.output(pairs.relu()).squeeze(-1)
        return scores

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        return self.compare(self.q_proj(query(q)), self.k_proj(k))


class Content(nn.Module):
    """s_ji = θ_j · k_i + b_j: m learned queries; what is asked does not depend on the data, so q is ignored."""

    def __init__(self, k_width: int, queries: int) -> None:
        super().__init__()
        self.theta = nn.Linear(k_width, queries)

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:  # noqa: ARG002
        scores: Tensor = self.theta(k).mT
        return scores


class PairScore(nn.Module, ABC):
    """A score of two parts and what joins them: s_ji = join(queries(q_j), keys(k_i)).

    Parts are computed once for each query and each key; along edges only `join` is computed for each pair.
    """

    @abstractmethod
    def queries(self, q: Tensor) -> Tensor:
        """Return the parts of queries (..., heads, m, d), (..., heads, m, p)."""

    @abstractmethod
    def keys(self, k: Tensor) -> Tensor:
        """Return the parts of keys (..., heads, n, d), (..., heads, n, p)."""

    @abstractmethod
    def join(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the scores (..., heads) of parts (..., heads, p)."""

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        one = self.queries(query(q)).transpose(-2, -3).unsqueeze(-3)  # (..., m, 1, heads, p)
        other = self.keys(k).transpose(-2, -3).unsqueeze(-4)  # (..., 1, n, heads, p)
        return self.join(one, other).movedim(-1, -3)


class GraphAdditive(PairScore):
    """s_ji = LeakyReLU(a_q · q_j + a_k · k_i), for each head its own a (Veličković et al. 2018, eq. 3)."""

    def __init__(self, heads: int, width: int, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.of_query, self.of_key = (nn.Parameter(torch.empty(heads, width)) for _ in range(2))
        for weight in (self.of_query, self.of_key):
            nn.init.xavier_uniform_(weight)

    def queries(self, q: Tensor) -> Tensor:
        return q @ self.of_query.unsqueeze(-1)

    def keys(self, k: Tensor) -> Tensor:
        return k @ self.of_key.unsqueeze(-1)

    def join(self, one: Tensor, other: Tensor) -> Tensor:
        return leaky_relu((one + other).squeeze(-1), self.slope)


class GraphDynamic(PairScore):
    """s_ji = a · LeakyReLU(q_j + k_i), for each head its own a: which key is best depends on the query (Brody et al.
    2022, eq. 7); by GraphAdditive it does not."""

    def __init__(self, heads: int, width: int, slope: float = 0.2) -> None:
        super().__init__()
        self.slope = slope
        self.functional = nn.Parameter(torch.empty(heads, width))
        nn.init.xavier_uniform_(self.functional)

    def queries(self, q: Tensor) -> Tensor:
        return q

    def keys(self, k: Tensor) -> Tensor:
        return k

    def join(self, one: Tensor, other: Tensor) -> Tensor:
        pairs = leaky_relu(one + other, self.slope)
        return stated((pairs * self.functional).sum(-1), 2 * pairs.numel())
