"""Edges: a third form of mask, beside rules and masks laid over a batch. Who may look at whom is a list of pairs.

    s_ji = score(q_j, k_i) for each edge i → j        a_ji = softmax over the edges into j        y_j = Σ_i a_ji v_i

Everything is computed per edge: time and memory are linear in the number of edges, and no n × n tensor is made. The
answer is that of `attend` with `Edges.dense` as its mask. A receiver without edges gets zeros, as every empty row does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.compiler import is_exporting
from torch.utils._pytree import register_pytree_node

from regard.attention import normalisers
from regard.attention.masks import Mask, padding
from regard.attention.normalisers import Normaliser, WeightDropout
from regard.attention.positions import BiasFunction
from regard.attention.scores import PairScore, Score, dot, scaled_dot, uniform
from regard.layers.dropout import Dropout
from regard.layers.products import products

CHUNK = 8192  # edges whose vectors are held at once, in the cache: memory stays linear with a small factor
ALONE = (normalisers.sigmoid, normalisers.relu, normalisers.exponential, normalisers.none)  # of each score by itself


class Flat(NamedTuple):
    """Edges over all nodes of a batch, (rows · n) of them, sorted by receiver."""

    receiver: Tensor  # (e,)
    sender: Tensor  # (e,)
    offsets: Tensor  # (rows · n + 1,): the edges into node j are offsets[j] … offsets[j + 1]
    order: Tensor | None  # the place of each of them in the list of edges; None: the same


@dataclass(frozen=True, eq=False)
class Edges:
    """A list of edges between the nodes of a padded batch. Edges of all rows stand one after another, none is padding.

    An edge lets node `receiver` of a row look at node `sender` of the same row. It should be there once. `strength`
    is a weight that the data gives it: an edge of strength 2 counts as two. `features` are numbers of each edge.
    """

    row: Tensor  # (e,)
    receiver: Tensor  # (e,)
    sender: Tensor  # (e,)
    features: Tensor | None = None  # (e, f)
    strength: Tensor | None = None  # (e,)
    store: dict[Any, Any] = field(default_factory=dict)  # forms that are computed once per batch

    def __len__(self) -> int:
        return len(self.row)

    def __rand__(self, rule: Mask) -> Edges:
        """Return the edges that a rule allows; positions are the numbers of the nodes."""
        return self if rule is padding else self.only(rule(self.receiver, self.sender))

    def at(self, q_pos: Tensor) -> Edges:  # noqa: ARG002
        """Return the edges: they are laid over a batch already."""
        return self

    def only(self, chosen: Tensor) -> Edges:
        """Return some of the edges, by a boolean (e,)."""
        parts = (self.row, self.receiver, self.sender, self.features, self.strength)
        return Edges(*(None if part is None else part[chosen] for part in parts))  # type: ignore[arg-type]

    def receiving(self, chosen: Tensor | slice, m: int) -> Edges:
        """Return the edges into some of m nodes, which are numbered 0, 1, 2 … from now on."""
        nodes = torch.arange(m, device=self.row.device)[chosen]
        place = torch.full((m,), -1, device=self.row.device)
        place[nodes] = torch.arange(len(nodes), device=self.row.device)
        found = self.only(place[self.receiver] >= 0)
        return Edges(found.row, place[found.receiver], found.sender, found.features, found.strength)

    def without_loops(self) -> Edges:
        """Return the edges between different nodes; in an exported graph, all of them with the loops at strength 0."""
        if is_exporting():
            other = (self.receiver != self.sender).float()
            features = None if self.features is None else self.features * other.unsqueeze(-1)
            strength = other if self.strength is None else self.strength * other
            return Edges(self.row, self.receiver, self.sender, features, strength)
        if "without loops" not in self.store:
            self.store["without loops"] = self.only(self.receiver != self.sender)
        found: Edges = self.store["without loops"]
        return found

    def flat(self, rows: int, m: int, n: int) -> Flat:
        """Return the edges over m receivers and n senders of each row, sorted by receiver: computed once."""
        if is_exporting():
            receiver, sender = self.row * m + self.receiver, self.row * n + self.sender
            return Flat(receiver, sender, receiver.new_zeros(rows * m + 1), None)
        if (rows, m, n) not in self.store:
            receiver, sender = self.row * m + self.receiver, self.row * n + self.sender
            order = None
            if bool((receiver[1:] < receiver[:-1]).any()):
                order = receiver.argsort(stable=True)
                receiver, sender = receiver[order], sender[order]
            offsets = receiver.new_zeros(rows * m + 1)
            torch.cumsum(torch.bincount(receiver, minlength=rows * m), 0, out=offsets[1:])
            self.store[rows, m, n] = Flat(receiver, sender, offsets, order)
        found: Flat = self.store[rows, m, n]
        return found

    def dense(self, rows: int, m: int, n: int) -> Tensor:
        """Return the same as a boolean matrix, (rows, 1, m, n)."""
        allowed = torch.zeros(rows, 1, m, n, dtype=torch.bool, device=self.row.device)
        allowed[self.row, 0, self.receiver, self.sender] = True
        return allowed


register_pytree_node(
    Edges,
    lambda edges: ([edges.row, edges.receiver, edges.sender, edges.features, edges.strength], None),
    lambda parts, _: Edges(*parts),
)


def attend_edges(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    edges: Edges,
    *,
    score: Score = scaled_dot,
    bias: BiasFunction | None = None,
    normalise: Normaliser = normalisers.softmax,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """Return the answer (batch, heads, m, d) of attention along edges; `added` (e, heads) joins the scores."""
    weights, flat = edge_weights(
        q, k, edges, score=score, bias=bias, normalise=normalise, q_pos=q_pos, k_pos=k_pos, added=added
    )
    return mix_edges(weights, v, flat, q.shape[-2])


def mix_edges(weights: Tensor, v: Tensor, flat: Flat, m: int) -> Tensor:
    """Return y_j = Σ_i a_ji v_i, (batch, heads, m, d), for weights (e, heads) of sorted edges."""
    if is_exporting():
        given = weights.unsqueeze(-1) * _by_node(v).index_select(0, flat.sender)
        total: Tensor = segment_sum(given, flat).unflatten(0, (v.shape[0], m))
        return total.transpose(1, 2)
    parts = (weights, _by_node(v), flat.sender, flat.receiver, v.shape[0] * m)
    y: Tensor = EdgeSum.apply(*parts)  # type: ignore[no-untyped-call]
    return y.view(v.shape[0], m, *y.shape[1:]).transpose(1, 2)


def edge_weights(
    q: Tensor,
    k: Tensor,
    edges: Edges,
    *,
    score: Score = scaled_dot,
    bias: BiasFunction | None = None,
    normalise: Normaliser = normalisers.softmax,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
    added: Tensor | None = None,
) -> tuple[Tensor, Flat]:
    """Return the weight of each edge, (e, heads), and the sorted edges that they belong to."""
    flat = edges.flat(q.shape[0], q.shape[-2], k.shape[-2])
    scores = _scores(q, k, flat, score)
    if bias is not None:
        if q_pos is None or k_pos is None:
            raise ValueError("a bias needs the positions of queries and keys: pass q_pos and k_pos")
        scores = scores + _bias(q, k, flat, bias, q_pos, k_pos)
    if added is not None:
        scores = scores + _sorted(added, flat)
    strength = None if edges.strength is None else _sorted(edges.strength, flat).unsqueeze(-1)
    return _normalised(scores, flat, normalise, strength), flat


def _sorted(values: Tensor, flat: Flat) -> Tensor:
    return values if flat.order is None else values[flat.order]


def _by_node(x: Tensor) -> Tensor:
    """Reshape (batch, heads, n, d) to (batch · n, heads, d)."""
    return x.transpose(1, 2).flatten(0, 1)


# ---- scores ---------------------------------------------------------------------------------------------------------


def _scores(q: Tensor, k: Tensor, flat: Flat, score: Score) -> Tensor:
    """Return s_ji for each edge, (e, heads)."""
    if score is uniform:
        return q.new_zeros(flat.receiver.shape[0], q.shape[1])
    if score in (dot, scaled_dot):
        pairs = (_by_node(q), _by_node(k), flat.receiver, flat.sender)
        found: Tensor
        if is_exporting():
            found = (pairs[0].index_select(0, pairs[2]) * pairs[1].index_select(0, pairs[3])).sum(-1)
        else:
            found = EdgeDot.apply(*pairs)  # type: ignore[no-untyped-call]
        return found if score is dot else found / k.shape[-1] ** 0.5
    if isinstance(score, PairScore):
        one, other = _by_node(score.queries(q)), _by_node(score.keys(k))
        return score.join(one.index_select(0, flat.receiver), other.index_select(0, flat.sender))
    # Any other score, with the edges as a batch of one query and one key each.
    one, other = _by_node(q)[flat.receiver].unsqueeze(-2), _by_node(k)[flat.sender].unsqueeze(-2)
    return score(one, other).flatten(1)


def _bias(q: Tensor, k: Tensor, flat: Flat, bias: BiasFunction, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    one, other = _by_node(q)[flat.receiver].unsqueeze(-2), _by_node(k)[flat.sender].unsqueeze(-2)
    where = (
        pos.expand(x.shape[0], -1).reshape(-1)[index].unsqueeze(-1)
        for x, pos, index in ((q, q_pos, flat.receiver), (k, k_pos, flat.sender))
    )
    found = bias(one, other, *where)
    return found.expand(len(one), -1, -1, -1).flatten(1)


# ---- normalisers ----------------------------------------------------------------------------------------------------


def _normalised(scores: Tensor, flat: Flat, normalise: Normaliser, strength: Tensor | None) -> Tensor:
    if isinstance(normalise, WeightDropout):
        weights = _normalised(scores, flat, normalise.normalise, strength)
        return Dropout(normalise.p)(weights) if normalise.training else weights
    if normalise is normalisers.softmax:
        return segment_softmax(scores, flat, strength)
    if normalise in ALONE:
        weights = normalise(scores, None)
        return weights if strength is None else weights * strength
    one = torch.ones_like(scores) if strength is None else strength.expand_as(scores)
    total = segment_sum(one, flat)
    if normalise is normalisers.mean:
        return one / total.clamp(min=torch.finfo(one.dtype).tiny)[flat.receiver]
    if normalise is normalisers.symmetric:
        root = total.clamp(min=torch.finfo(one.dtype).tiny).rsqrt() * (total > 0)
        return root[flat.receiver] * one * root[flat.sender]
    raise ValueError(f"the normaliser {normalise} has no form on edges: choose softmax, mean or symmetric")


def segment_softmax(scores: Tensor, flat: Flat, strength: Tensor | None = None) -> Tensor:
    """a_ji = w_ji exp(s_ji − max_i' s_ji') / Σ_i' w_ji' exp(s_ji' − max …) over the edges into j, (e, heads)."""
    if is_exporting():
        return _exported_softmax(scores, flat, strength)
    parts = (scores, flat.receiver, flat.offsets, strength)
    found: Tensor = SegmentSoftmax.apply(*parts)  # type: ignore[no-untyped-call]
    return found


def _exported_softmax(scores: Tensor, flat: Flat, strength: Tensor | None) -> Tensor:
    into = flat.receiver.unsqueeze(-1).expand_as(scores)
    lowest = scores.new_full((flat.offsets.shape[0] - 1, scores.shape[1]), torch.finfo(scores.dtype).min)
    highest = lowest.scatter_reduce(0, into, scores, "amax")
    weights = (scores - highest.index_select(0, flat.receiver)).exp()
    weights = weights if strength is None else weights * strength.clamp(min=0)
    total = segment_sum(weights, flat).clamp(min=torch.finfo(scores.dtype).tiny)
    return weights / total.index_select(0, flat.receiver)


def segment_sum(values: Tensor, flat: Flat) -> Tensor:
    """Return the sum of values (e, …) over the edges into each node, (nodes, …)."""
    return values.new_zeros(flat.offsets.shape[0] - 1, *values.shape[1:]).index_add(0, flat.receiver, values)


class SegmentSoftmax(Function):
    """Softmax over the edges into each node. Its gradient is a · (g − Σ a g), as that of any softmax."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, receiver: Tensor, offsets: Tensor, strength: Tensor | None) -> Tensor:
        nodes = len(offsets) - 1
        if not len(scores):
            ctx.save_for_backward(scores, receiver)
            ctx.nodes = nodes
            return scores.clone()
        highest = torch.segment_reduce(scores, "max", offsets=offsets, axis=0)
        weights = highest.index_select(0, receiver).neg_().add_(scores).exp_()
        if strength is not None:
            weights *= strength.clamp(min=0)
        total = weights.new_zeros(nodes, weights.shape[1]).index_add_(0, receiver, weights)
        weights /= total.clamp_(min=torch.finfo(weights.dtype).tiny).index_select(0, receiver)
        ctx.save_for_backward(weights, receiver)
        ctx.nodes = nodes
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        weights, receiver = ctx.saved_tensors
        part = weights * gradients[0]
        total = part.new_zeros(ctx.nodes, part.shape[1]).index_add_(0, receiver, part)
        return part.sub_(total.index_select(0, receiver).mul_(weights)), None, None, None


# ---- sums and products along edges ----------------------------------------------------------------------------------


def _dots(a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return a_i · b_j for each edge, (e, heads), of vectors (nodes, heads, d)."""
    products(2 * len(i) * a.shape[1:].numel())
    found = a.new_empty(len(i), a.shape[1])
    for part in range(0, len(i), CHUNK):
        some = slice(part, part + CHUNK)
        torch.sum(a.index_select(0, i[some]).mul_(b.index_select(0, j[some])), -1, out=found[some])
    return found


def _sums(weights: Tensor, b: Tensor, j: Tensor, i: Tensor, nodes: int) -> Tensor:
    """Return Σ w_e b_j(e) over the edges of each i, (nodes, heads, d)."""
    products(2 * len(j) * b.shape[1:].numel())
    found = b.new_zeros(nodes, b[0].numel() if len(b) else 1)
    for part in range(0, len(j), CHUNK):
        some = slice(part, part + CHUNK)
        found.index_add_(0, i[some], b.index_select(0, j[some]).mul_(weights[some].unsqueeze(-1)).flatten(1))
    return found.view(nodes, *b.shape[1:])


def _both(weights: Tensor, given: Tensor, b: Tensor, j: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Return g_i · b_j for each edge, and Σ w_e g_i(e) over the edges of each j: g is fetched once for both."""
    products(4 * len(j) * b.shape[1:].numel())
    dots, sums = weights.new_empty(weights.shape), torch.zeros_like(b)
    flat = sums.view(len(b), -1)
    for part in range(0, len(j), CHUNK):
        some = slice(part, part + CHUNK)
        own, where = given.index_select(0, i[some]), j[some]
        torch.sum(b.index_select(0, where).mul_(own), -1, out=dots[some])
        flat.index_add_(0, where, own.mul_(weights[some].unsqueeze(-1)).flatten(1))
    return dots, sums


class EdgeDot(Function):
    """s_e = a_i(e) · b_j(e): a product of matrices of which only the entries along edges are computed."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, i, j)
        return _dots(a, b, i, j)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        a, b, i, j = ctx.saved_tensors
        (given,) = gradients
        to_a = _sums(given, b, j, i, len(a)) if ctx.needs_input_grad[0] else None
        to_b = _sums(given, a, i, j, len(b)) if ctx.needs_input_grad[1] else None
        return to_a, to_b, None, None


class EdgeSum(Function):
    """y_i = Σ_e w_e b_j(e): the product of a sparse matrix with vectors, for several heads at once."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, b: Tensor, j: Tensor, i: Tensor, nodes: int) -> Tensor:
        ctx.save_for_backward(weights, b, j, i)
        return _sums(weights, b, j, i, nodes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        weights, b, j, i = ctx.saved_tensors
        given = gradients[0].contiguous()
        if all(ctx.needs_input_grad[:2]):
            return *_both(weights, given, b.contiguous(), j, i), None, None, None
        to_weights = _dots(given, b, i, j) if ctx.needs_input_grad[0] else None
        to_b = _sums(weights, given, i, j, len(b)) if ctx.needs_input_grad[1] else None
        return to_weights, to_b, None, None, None


def dense_weights(weights: Tensor, flat: Flat, rows: int, m: int, n: int, heads: Sequence[int] | None) -> Tensor:
    """Return weights (e, heads) of sorted edges as (rows, heads, m, n), for pictures."""
    chosen = weights if heads is None else weights[:, list(heads)]
    found = chosen.new_zeros(rows * m * n, chosen.shape[1])
    found[flat.receiver * n + flat.sender % n] = chosen
    return found.view(rows, m, n, -1).permute(0, 3, 1, 2)


class EdgeFeatures(nn.Module):
    """The share of the features of edges in their scores, (e, heads): a learned functional for each head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.functional = nn.Parameter(torch.empty(width, heads))
        nn.init.xavier_uniform_(self.functional)

    def forward(self, edges: Edges) -> Tensor:
        if edges.features is None:
            raise ValueError("the network wants features of edges, and these edges have none")
        return edges.features @ self.functional
