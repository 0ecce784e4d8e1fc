"""Linear attention (Katharopoulos et al. 2020; Performer, Choromanski et al. 2021) in linear time and memory.

With a Kernel as the score and `divide` as the normaliser, the sums over keys come out of the brackets:

    y_t = φ(q_t) · S_t / φ(q_t) · z_t          S_t = Σ_i φ(k_i) v_iᵀ,  z_t = Σ_i φ(k_i),  over the allowed keys i

- both ways, S and z are the same for every query;
- causally, positions are cut into chunks: a chunk × chunk triangle inside each, one S and z for all chunks before;
- step by step, S and z are the state (`Sums`): constant time and memory for each token.

`attend` with the same parts is the reference. Features come with a scale of their own, φ(k_i) = features · exp(h_i).
For the query at t all scales are taken relative to the running maximum M_t = max_{i ≤ t} h_i, never to one over all
positions: whatever stands after t changes nothing at t, not even a rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.equation import match_heads
from regard.attention.kernels import LOWEST, Kernel
from regard.attention.masks import Laid, causal, padding
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, divide
from regard.attention.positions import BiasFunction
from regard.attention.scores import Score

CHUNK = 64  # smaller ones have more states to add up, larger ones more scores that are masked
PIECE = 2**21  # numbers of a tensor that is computed at once
LEAST = 1e-12  # of a divisor, relative to the largest features: where it is less, weights would be rounding errors


def is_linear(score: Score, bias: BiasFunction | None, normalise: Normaliser, mix: Mix) -> bool:
    """Return True if these parts have a linear form."""
    return isinstance(score, Kernel) and bias is None and normalise is divide and mix is weighted_sum


def linear(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, laid: Laid) -> Tensor | None:
    """Return the answer of `attend` with this kernel in linear time, or None for a mask that has no such form.

    There is one for `padding`, and for `causal` where queries and keys are the same positions. Tensors are
    (batch, heads, n, d).
    """
    if laid.mask is causal and laid.aligned:
        return step(q, k, v, kernel, laid.k_pos, None)[0]
    return both_ways(q, k, v, kernel, laid.k_pos) if laid.mask is padding else None


def features(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, k_pos: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return features of queries and keys, values (batch · heads, n, ·), and the scales of the keys; padding has
    features 0. Sums are in float32 at least."""
    q, k, v = _wide(q, k, v)
    queries = kernel.features.queries(q)
    keys, scale = kernel.features(k)
    padded = k_pos < 0
    if bool(padded.any()):
        gone = by_batch(padded)
        keys = keys.masked_fill(gone, 0.0)
        scale = scale if scale is None else scale.masked_fill(gone.squeeze(-1), LOWEST)
    folded = None if scale is None else scale.flatten(0, 1)
    return queries.flatten(0, 1), keys.flatten(0, 1), v.flatten(0, 1), folded


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in float32 at least, in which sums are kept."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


def by_batch(where: Tensor) -> Tensor:
    """Return (n,) or (batch, n) in a shape that goes with (batch, heads, n, d)."""
    return where.unsqueeze(-1) if where.dim() == 1 else where[:, None, :, None]


def both_ways(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, k_pos: Tensor) -> Tensor:
    """Return y of queries that all see the same keys, (batch, heads, m, d)."""
    k, v = match_heads(q, k, v)
    sums, tops = [], []
    for keys, values, where in zip(*(x.split(_piece(q), -2) for x in (k, v)), k_pos.split(_piece(q), -1), strict=True):
        padded, (wide, wide_values) = where < 0, _wide(keys, values)
        made, top = kernel.features.together(wide, by_batch(padded) if bool(padded.any()) else None)
        sums.append(torch.cat((made.mT @ wide_values, made.sum(-2).unsqueeze(-1)), -1))
        tops.append(top)
    total = _added(sums, tops)
    answers = []
    for some in q.split(_piece(q), -2):
        found = kernel.features.queries(*_wide(some)) @ total
        # A query without keys has the sum 0, and 0 as its answer.
        answers.append((found[..., :-1] / found[..., -1:].clamp(min=LEAST)).to(v.dtype))
    return torch.cat(answers, -2)


def _piece(q: Tensor) -> int:
    """Return the positions that are computed at once: larger tensors fall out of the caches, and the allocator maps
    them anew each time."""
    return max(CHUNK, PIECE // (q.shape[0] * q.shape[1] * q.shape[-1] * CHUNK or 1) * CHUNK)


def _added(sums: list[Tensor], tops: list[Tensor | None]) -> Tensor:
    """Return sums (batch, heads, m, e), each relative to a scale exp(top) of its own, added up."""
    if tops[0] is None:
        return torch.stack(sums).sum(0)
    scales = torch.stack([top for top in tops if top is not None])
    return (torch.stack(sums) * (scales - scales.amax(0)).exp()).sum(0)


# ---- causal --------------------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Some queries and keys, and how their scales relate to each other. Without scales the factors are None."""

    q: Tensor  # (rows, c, m)
    k: Tensor
    v: Tensor  # (rows, c, e)
    pairs: Tensor | None = None  # (rows, c, c) exp(h_i − M_t)
    before: Tensor | None = None  # (rows, c, 1) exp(M before − M_t): what was summed before, for query t
    after: Tensor | None = None  # (rows, c, 1) exp(h_i − M end): key i, for what comes later
    decay: Tensor | None = None  # (rows, 1, 1) exp(M before − M end)

    def weights(self) -> Tensor:
        """Return φ(q_t) · φ(k_i) for i ≤ t, else 0, relative to M_t."""
        products = torch.bmm(self.q, self.k.mT)
        return (products if self.pairs is None else products * self.pairs).tril()

    def asking(self) -> Tensor:
        """Return the queries as what was summed before meets them."""
        return self.q if self.before is None else self.q * self.before

    def adding(self) -> Tensor:
        """Return the keys as they are added to the sums."""
        return self.k if self.after is None else self.k * self.after


@dataclass(frozen=True)
class Cut:
    """Queries, keys and values (rows, n, ·) cut into chunks."""

    q: Tensor
    k: Tensor
    v: Tensor
    scale: Tensor | None  # (rows, n) h_i
    highest: Tensor | None  # (rows, 1 + n) M before the first, and up to each position

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, scale: Tensor | None, top: Tensor | None = None) -> Cut:
        """`top` (rows, 1) is the highest scale before the first position."""
        if scale is None:
            return cls(q, k, v, None, None)
        top = scale.new_full((len(scale), 1), LOWEST) if top is None else top
        return cls(q, k, v, scale, torch.cat((top, scale), -1).cummax(-1).values)

    def parts(self) -> list[slice]:
        """Return where each chunk is."""
        return [slice(start, start + CHUNK) for start in range(0, self.q.shape[1], CHUNK)]

    def chunk(self, part: slice) -> Chunk:
        chunk = Chunk(self.q[:, part], self.k[:, part], self.v[:, part])
        if self.scale is None or self.highest is None:
            return chunk
        own, upto = self.scale[:, part], self.highest[:, part.start + 1 : part.stop + 1]
        top, end = self.highest[:, part.start : part.start + 1], upto[:, -1:]
        # Later keys may lie above M_t: they are masked afterwards, and must not become infinite before.
        pairs = (own.unsqueeze(-2) - upto.unsqueeze(-1)).clamp_(max=0.0).exp_()
        before, after, decay = ((x - y).exp().unsqueeze(-1) for x, y in ((top, upto), (own, end), (top, end)))
        return chunk._replace(pairs=pairs, before=before, after=after, decay=decay)


def _look(chunk: Chunk, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the answers of a chunk and their divisors."""
    weights, asking = chunk.weights(), chunk.asking()
    total = torch.baddbmm(weights.sum(-1, keepdim=True), asking, z).clamp(min=LEAST)
    return torch.baddbmm(torch.bmm(weights, chunk.v), asking, s) / total, total


def _add(chunk: Chunk, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums with the keys and values of a chunk."""
    adding = chunk.adding()
    if chunk.decay is not None:
        s, z = s * chunk.decay, z * chunk.decay
    return torch.baddbmm(s, adding.mT, chunk.v), z + adding.sum(1).unsqueeze(-1)


def _nothing(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sums of no keys: S (rows, m, e) and z (rows, m, 1)."""
    return q.new_zeros(len(q), q.shape[-1], v.shape[-1]), q.new_zeros(len(q), q.shape[-1], 1)


class _Causal(torch.autograd.Function):
    """All positions at once. For the gradient only S and z of each chunk are kept; the triangles are computed again.

        dφ(q_t) = Σ_{i ≤ t} a_ti φ(k_i) + S_t dn_t + z_t dd_t            a_ti = dn_t · v_i + dd_t
        dφ(k_i) = Σ_{t ≥ i} a_ti φ(q_t),   dv_i = Σ_{t ≥ i} (φ(q_t) · φ(k_i)) dn_t

    with dn = dy / divisor and dd = −dn · y; the sums over later t run from the last chunk to the first.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: Tensor | None, s: Tensor, z: Tensor, top: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the answers (rows, n, e) to queries after the sums s and z, relative to `top`, and the sums after."""
        cut, sums = Cut.of(q, k, v, scale, top), []
        answers, totals = torch.empty_like(v), q.new_empty(*q.shape[:2], 1)
        for part in cut.parts():
            chunk = cut.chunk(part)
            answers[:, part], totals[:, part] = _look(chunk, s, z)
            sums += [s, z]
            s, z = _add(chunk, s, z)
        ctx.save_for_backward(q, k, v, scale, top, answers, totals, *sums)
        return answers, s, z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, scale, top, answers, totals, *sums = ctx.saved_tensors
        cut, to = Cut.of(q, k, v, scale, top), [torch.empty_like(x) for x in (q, k, v)]
        to_y, to_s, to_z = gradients
        for part in reversed(cut.parts()):
            z, s = sums.pop(), sums.pop()
            up = to_y[:, part] / totals[:, part]
            of_total = -(up * answers[:, part]).sum(-1, keepdim=True) * (totals[:, part] > LEAST)
            chunk = cut.chunk(part)
            for whole, own in zip(to, _gradients(chunk, up, of_total, (s, z), (to_s, to_z)), strict=True):
                whole[:, part] = own
            asking = chunk.asking()
            if chunk.decay is not None:
                to_s, to_z = to_s * chunk.decay, to_z * chunk.decay
            to_s, to_z = torch.baddbmm(to_s, asking.mT, up), torch.baddbmm(to_z, asking.mT, of_total)
        return *to, None, to_s, to_z, None


def _gradients(
    chunk: Chunk, up: Tensor, of_total: Tensor, sums: tuple[Tensor, Tensor], later: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of a chunk's q, k and v from those of its dividends and divisors, the sums before it, and
    the gradients of the sums after it."""
    (s, z), (to_s, to_z) = sums, later
    of_weights = torch.baddbmm(of_total, up, chunk.v.mT)
    of_weights = (of_weights if chunk.pairs is None else of_weights.mul_(chunk.pairs)).tril_()
    to_q = torch.bmm(up, s.mT).baddbmm_(of_total, z.mT)
    to_k = torch.baddbmm(to_z.mT, chunk.v, to_s.mT)
    if chunk.before is not None and chunk.after is not None:
        to_q, to_k = to_q.mul_(chunk.before), to_k.mul_(chunk.after)
    to_v = torch.bmm(chunk.weights().mT, up).baddbmm_(chunk.adding(), to_s)
    return to_q.baddbmm_(of_weights, chunk.k), to_k.baddbmm_(of_weights.mT, chunk.q), to_v


# ---- step by step --------------------------------------------------------------------------------------------------


class Summed(NamedTuple):
    """The sums over all keys so far, relative to the highest scale so far."""

    s: Tensor  # (batch, heads, m, e)
    z: Tensor  # (batch, heads, m, 1)
    top: Tensor | None  # (batch, heads, 1)


def step(
    q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, positions: Tensor, before: Summed | None
) -> tuple[Tensor, Summed]:
    """Return the answers to queries after what was summed, and the sums with their keys."""
    k, v = match_heads(q, k, v)
    s, z, top = (None, None, None) if before is None else (x if x is None else x.flatten(0, 1) for x in before)
    answers, size = [], _piece(q)
    cuts = (*(x.split(size, -2) for x in (q, k, v)), positions.split(size, -1))
    for own_q, own_k, own_v, where in zip(*cuts, strict=True):
        made = features(kernel, own_q, own_k, own_v, where)
        if s is None:
            s, z = _nothing(made[0], made[2])
        y, s, z = _Causal.apply(*made, s, z, top)  # type: ignore[no-untyped-call]
        scale = made[3]
        if scale is not None and scale.shape[-1]:
            highest = scale.detach().amax(-1, keepdim=True)
            top = highest if top is None else torch.maximum(top, highest)
        answers.append(y.unflatten(0, q.shape[:2]).to(v.dtype))
    y, padded = torch.cat(answers, -2), positions < 0
    folded: list[Any] = [x if x is None else x.unflatten(0, q.shape[:2]) for x in (s, z, top)]
    after = Summed(*folded)
    return y.masked_fill(by_batch(padded), 0.0) if bool(padded.any()) else y, after
