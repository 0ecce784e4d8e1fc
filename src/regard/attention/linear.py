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
from regard.attention.kernels import Kernel
from regard.attention.masks import Laid, causal, padding
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, divide
from regard.attention.positions import BiasFunction
from regard.attention.scores import Score

CHUNK = 64  # smaller ones have more states to add up, larger ones more scores that are masked
LEAST = 1e-12  # of a divisor, relative to the largest features: where it is less, weights would be rounding errors
LOWEST = -1e30  # the scale of a key that is not there; finite, for −∞ − (−∞) is NaN


def is_linear(score: Score, bias: BiasFunction | None, normalise: Normaliser, mix: Mix) -> bool:
    """Return True if these parts have a linear form."""
    return isinstance(score, Kernel) and bias is None and normalise is divide and mix is weighted_sum


def linear(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, laid: Laid) -> Tensor | None:
    """Return the answer of `attend` with this kernel in linear time, or None for a mask that has no such form.

    There is one for `padding`, and for `causal` where queries and keys are the same positions. Tensors are
    (batch, heads, n, d).
    """
    ahead = laid.mask is causal
    if not (laid.mask is padding or (ahead and laid.aligned)):
        return None
    k, v = match_heads(q, k, v)
    if not ahead:
        return both_ways(q, k, v, kernel, laid.k_pos)
    made = features(kernel, q, k, v, laid.k_pos)
    y = _shaped(_Causal.apply(*made), q, v)  # type: ignore[no-untyped-call]
    padded = laid.q_pos < 0
    return y.masked_fill(_by_batch(padded), 0.0) if bool(padded.any()) else y


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
        gone = _by_batch(padded)
        keys = keys.masked_fill(gone, 0.0)
        scale = scale if scale is None else scale.masked_fill(gone.squeeze(-1), LOWEST)
    folded = None if scale is None else scale.flatten(0, 1)
    return queries.flatten(0, 1), keys.flatten(0, 1), v.flatten(0, 1), folded


def _wide(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in float32 at least, in which sums are kept."""
    return [x.to(torch.promote_types(x.dtype, torch.float32)) for x in tensors]


def _by_batch(where: Tensor) -> Tensor:
    """Return (n,) or (batch, n) in a shape that goes with (batch, heads, n, d)."""
    return where.unsqueeze(-1) if where.dim() == 1 else where[:, None, :, None]


def _shaped(y: Tensor, q: Tensor, v: Tensor) -> Tensor:
    shaped: Tensor = y.unflatten(0, q.shape[:2])
    return shaped.to(v.dtype)


def both_ways(q: Tensor, k: Tensor, v: Tensor, kernel: Kernel, k_pos: Tensor) -> Tensor:
    """Return y of queries that all see the same keys, (batch, heads, m, d)."""
    padded = k_pos < 0
    wide = _wide(q, k, v)
    queries = kernel.features.queries(wide[0])
    keys = kernel.features.together(wide[1], _by_batch(padded) if bool(padded.any()) else None)
    # A query without keys has the sum 0, and 0 as its answer.
    y = queries @ (keys.mT @ wide[2]) / (queries @ keys.sum(-2).unsqueeze(-1)).clamp(min=LEAST)
    return y.to(v.dtype)


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
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: Tensor | None) -> Tensor:
        cut, sums = Cut.of(q, k, v, scale), []
        answers, totals = torch.empty_like(v), q.new_empty(*q.shape[:2], 1)
        s, z = _nothing(q, v)
        for part in cut.parts():
            chunk = cut.chunk(part)
            answers[:, part], totals[:, part] = _look(chunk, s, z)
            sums += [s, z]
            s, z = _add(chunk, s, z)
        ctx.save_for_backward(q, k, v, scale, answers, totals, *sums)
        return answers

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, scale, answers, totals, *sums = ctx.saved_tensors
        cut, to = Cut.of(q, k, v, scale), [torch.empty_like(x) for x in (q, k, v)]
        to_s, to_z = _nothing(q, v)
        for part in reversed(cut.parts()):
            z, s = sums.pop(), sums.pop()
            up = gradients[0][:, part] / totals[:, part]
            of_total = -(up * answers[:, part]).sum(-1, keepdim=True) * (totals[:, part] > LEAST)
            chunk = cut.chunk(part)
            for whole, own in zip(to, _gradients(chunk, up, of_total, (s, z), (to_s, to_z)), strict=True):
                whole[:, part] = own
            asking = chunk.asking()
            if chunk.decay is not None:
                to_s, to_z = to_s * chunk.decay, to_z * chunk.decay
            to_s, to_z = torch.baddbmm(to_s, asking.mT, up), torch.baddbmm(to_z, asking.mT, of_total)
        return to[0], to[1], to[2], None


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
    """Return the answers to queries after what was summed, and the sums with their keys, in constant memory."""
    k, v = match_heads(q, k, v)
    made = features(kernel, q, k, v, positions)
    s, z = _nothing(made[0], made[2]) if before is None else (before.s.flatten(0, 1), before.z.flatten(0, 1))
    cut = Cut.of(*made, None if before is None or before.top is None else before.top.flatten(0, 1))
    answers = [made[2][:, :0]]
    for part in cut.parts():
        chunk = cut.chunk(part)
        answers.append(_look(chunk, s, z)[0])
        s, z = _add(chunk, s, z)
    y, padded = _shaped(torch.cat(answers, 1), q, v), positions < 0
    top = None if cut.highest is None else cut.highest[:, -1:].unflatten(0, q.shape[:2])
    after = Summed(s.unflatten(0, q.shape[:2]), z.unflatten(0, q.shape[:2]), top)
    return y.masked_fill(_by_batch(padded), 0.0) if bool(padded.any()) else y, after
