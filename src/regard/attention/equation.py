"""The equation:  attention(q, k, v) = mix( normalise( score(q, k) + bias, mask ), v ).

`attend` is the reference: short, for any parts, and it returns the weights. `fast.fast` gives the same answer through
fused kernels. Tensors are (..., m, d): usually q (batch, heads, m, d), k (batch, groups, n, d) and
v (batch, groups, n, d_v), where `groups` divides `heads` (grouped-query attention) and most often equals it.
"""

import math

import torch
from torch import Tensor

from regard.attention.edges import Edges
from regard.attention.masks import Laid, Mask, QueryMask, padding
from regard.attention.mixing import Mix, weighted_sum
from regard.attention.normalisers import Normaliser, softmax
from regard.attention.positions import BiasFunction
from regard.attention.scores import Score, same_width, scaled_dot

AnyMask = Mask | QueryMask | Laid | Edges | Tensor | None


class NotFinite(ValueError):
    """NaN in the queries: a layer before them overflowed."""


def attend(
    q: Tensor | None,
    k: Tensor,
    v: Tensor,
    *,
    score: Score = scaled_dot,
    bias: BiasFunction | None = None,
    mask: AnyMask = None,
    normalise: Normaliser = softmax,
    mix: Mix = weighted_sum,
    q_pos: Tensor | None = None,
    k_pos: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the answer (..., m, d_v) and the weights (..., m, n).

    A mask is a rule of masks.py, that rule laid over a batch, a list of edges, or a boolean tensor that broadcasts to
    the weights.
    Positions are 0, 1, 2 … unless given. q may be None for scores that ignore it.
    """
    k, v = match_heads(q, k, v)
    same_width(score, q, k)
    scores = score(q, k)
    q_pos, k_pos = positions_for(mask, q_pos, k_pos, scores.shape[-2], k)
    if bias is not None:
        scores = scores + bias(scores if q is None else q, k, q_pos, k_pos)
    weights = normalise(scores, matrix(mask, scores.shape, q_pos, k_pos))
    return mix(weights, v, q_pos, k_pos), weights


def match_heads(q: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Check all three, and return keys and values repeated for the heads of the queries that share them."""
    check(q, k, v)
    if q is None or q.dim() < 3 or k.dim() < 3 or q.shape[-3] == k.shape[-3]:
        return k, v
    times = q.shape[-3] // k.shape[-3]
    return k.repeat_interleave(times, -3), v.repeat_interleave(times, -3)


def check(q: Tensor | None, k: Tensor, v: Tensor) -> None:
    """Refuse, in one sentence, what would otherwise fail deep inside or go wrong silently."""
    for name, given in (("q", q), ("k", k), ("v", v)):
        if given is None and name == "q":
            continue
        if not isinstance(given, Tensor):
            raise TypeError(f"{name}: expected a tensor (..., length, width), found {type(given).__name__}")
        if given.dim() < 2:
            raise ValueError(
                f"{name}: expected a tensor (..., length, width), found the shape {tuple(given.shape)}. "
                f"Try {name}.unsqueeze(0) for a single vector"
            )
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"every key needs its value: found {k.shape[-2]} keys and {v.shape[-2]} values")
    if q is None:
        return
    if q.dim() >= 3 and k.dim() >= 3 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]):
        raise ValueError(
            f"the heads of the keys must divide those of the queries: found {k.shape[-3]} and {q.shape[-3]}"
        )
    if not (_alike(q.shape[:-3], k.shape[:-3]) and _alike(k.shape[:-2], v.shape[:-2])):
        raise ValueError(
            "q, k and v must have the same batch: found the shapes "
            f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    # Fused kernels turn a NaN query into a row of zeros, which then trains on as if nothing had happened. A sum is the
    # cheapest probe; on a GPU it would wait for the device in every layer, there the loss is watched instead.
    if q.device.type == "cpu" and not torch.compiler.is_compiling() and not math.isfinite(float(q.detach().sum())):
        bad = q.detach().isnan()
        if bad.any():
            first = tuple(bad.nonzero()[0].tolist())
            raise NotFinite(f"q holds NaN, first at index {first}: look for the layer before it that overflowed")


def _alike(one: torch.Size, other: torch.Size) -> bool:
    """Return True if two shapes are the same or can be broadcast."""
    return all(a == b or a == 1 or b == 1 for a, b in zip(reversed(one), reversed(other), strict=False))


def positions_for(
    mask: AnyMask, q_pos: Tensor | None, k_pos: Tensor | None, queries: int, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the given positions, those of a laid mask, or 0, 1, 2 …"""
    if isinstance(mask, Laid | QueryMask) and q_pos is None:
        q_pos = mask.q_pos
    if isinstance(mask, Laid) and k_pos is None:
        k_pos = mask.k_pos
    return default_positions(q_pos, queries, k), default_positions(k_pos, k.shape[-2], k)


def default_positions(positions: Tensor | None, length: int, like: Tensor) -> Tensor:
    if positions is None:
        return torch.arange(length, device=like.device)
    if positions.shape[-1] != length:
        raise ValueError(f"positions must be one per element: expected {length}, found {positions.shape[-1]}")
    return positions


def matrix(mask: AnyMask, shape: torch.Size, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
    """Return any mask as the boolean tensor that normalisers take, or None where everything is allowed."""
    if isinstance(mask, Tensor):
        return checked(mask, shape)
    if isinstance(mask, Edges):
        return mask.dense(shape[0], shape[-2], shape[-1])
    dense = lay(mask, q_pos, k_pos).dense
    return None if dense is None else checked(dense, shape)


def lay(mask: Mask | QueryMask | Laid | None, q_pos: Tensor, k_pos: Tensor) -> Laid:
    """Lay the mask over these positions, if that has not been done for the batch already."""
    if isinstance(mask, Laid):
        return mask
    if not isinstance(mask, Mask | QueryMask | None):
        raise TypeError(
            f"mask: expected a rule such as regard.attention.causal, a laid mask or a boolean tensor, "
            f"found {mask if isinstance(mask, str) else type(mask).__name__!r}"
        )
    return mask.on(k_pos) if isinstance(mask, QueryMask) else (mask or padding).on(q_pos, k_pos)


def rule_of(mask: AnyMask) -> Mask | Edges | Tensor | None:
    """Return the rule of a mask in any of its forms; a tensor or a list of edges stays one."""
    return mask.mask if isinstance(mask, Laid | QueryMask) else mask


def checked(mask: Tensor, shape: torch.Size) -> Tensor:
    if mask.dtype != torch.bool:
        raise ValueError(
            f"a mask is boolean (True = may attend), found {mask.dtype}: numbers to be added belong in `bias`"
        )
    try:
        fits = torch.broadcast_shapes(mask.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"the mask has shape {tuple(mask.shape)}, expected one that broadcasts to the weights' {tuple(shape)}"
        )
    return mask
