"""Attention under masks in whole blocks (patterns.py) at a cost linear in length, forward and backward.

A layout names for each block of queries the blocks of keys that it may look at; wide blocks look at all. The named
blocks are copied side by side, and the same equation runs on them:

    queries  (batch · blocks, heads, size, d)      keys  (batch · blocks, heads, slots · size, d)

Softmax of dot products is computed by plain matrix products, a few blocks at a time, so that keys and scores stay in
the caches of a CPU; for the gradient they are copied and computed again, and nothing but y and log Σ exp(s) is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.blocks import Inner
from regard.attention.masks import BlockLayout, Laid

SCORES = 2**18  # numbers of a call: more fall out of the caches
CHUNK = 4096  # tokens of a call where any parts are used
LOWEST = -1e30  # the score of a masked key; finite, for −∞ − (−∞) is NaN


@dataclass(frozen=True)
class Chosen:
    """The blocks of a layout and the masks inside them: computed once per batch and layout."""

    layout: BlockLayout  # its keys cover all blocks of the batch
    positions: Tensor  # (batch or 1, blocks, size)
    k_pos: Tensor  # (batch or 1, blocks, slots · size)
    mask: Tensor  # (batch or 1, blocks, size, slots · size)


def chosen_of(laid: Laid) -> Chosen | None:
    """Return the blocks of a mask that states them, or None where the dense form is the better or the only one."""
    if "chosen" not in laid.store:
        laid.store["chosen"] = None if laid.mask.blocks is None else _choose(laid)
    found = laid.store["chosen"]
    assert found is None or isinstance(found, Chosen)
    return found


def _choose(laid: Laid) -> Chosen | None:
    positions = laid.k_pos if laid.k_pos.dim() == 2 else laid.k_pos.unsqueeze(0)
    length = positions.shape[-1]
    line = torch.arange(length, device=positions.device)
    if not length or not laid.aligned or not bool(((positions == line) | (positions < 0)).all()):
        return None
    assert laid.mask.blocks is not None
    layout = laid.mask.blocks(positions.amax(-1) + 1)
    size, count = layout.size, math.ceil(length / layout.size)
    if count <= layout.keys.shape[-1]:
        return None
    keys = pad(layout.keys, (0, 0, 0, count - layout.keys.shape[1]), value=-1)
    own = pad(positions, (0, count * size - length), value=-1).unflatten(-1, (count, size))
    rows = torch.arange(len(positions), device=positions.device).view(-1, 1, 1)
    near = own[rows, keys].masked_fill((keys < 0).unsqueeze(-1), -1).flatten(-2)
    mask = (own >= 0).unsqueeze(-1) & (near >= 0).unsqueeze(-2)
    if laid.mask.rest is not None:
        mask = mask & laid.mask.rest(own.unsqueeze(-1), near.unsqueeze(-2))
    return Chosen(BlockLayout(size, keys, layout.wide), own, near, mask)


@dataclass(frozen=True)
class Softmax:
    """Softmax of scale · q · k: the parts that have the form below."""

    scale: float


def in_chosen(
    inner: Inner, q: Tensor, k: Tensor, v: Tensor, laid: Laid, chosen: Chosen, plain: Softmax | None = None
) -> Tensor:
    """Return the attention under a layout; equals the dense form. Tensors are (batch, heads, n, d).

    `inner(q, k, v, mask, q_pos, k_pos)` is the equation for some queries and keys. With `plain` it is known to be a
    softmax of dot products.
    """
    (batch, heads, length), (count, size) = q.shape[:3], chosen.positions.shape[1:]
    tail = count * size - length
    queries, keys, values = (pad(x, (0, 0, 0, tail)).unflatten(-2, (count, size)) for x in (q, k, v))
    index = block_index(chosen.layout.keys.clamp(min=0), batch, k.shape[1], count)
    if plain is not None:
        index = index.repeat_interleave(heads // k.shape[1], 2)
        y = _Blocks.apply(queries, keys, values, index, chosen.mask, plain.scale)  # type: ignore[no-untyped-call]
    else:
        y = _any_parts(inner, queries, keys, values, index, chosen)
    y = y.reshape(batch * heads * count, size, -1)
    if chosen.layout.wide.shape[-1]:
        y = _with_wide(inner, y, queries, k, v, laid, chosen)
    whole: Tensor = y.view(batch, heads, count * size, -1)
    return whole[..., :length, :]


def block_index(numbers: Tensor, batch: int, groups: int, count: int) -> Tensor:
    """Return where blocks (rows, blocks, slots) lie in (batch · groups · count, …): (batch, blocks, groups, slots)."""
    rows = torch.arange(batch, device=numbers.device).view(-1, 1, 1, 1)
    group = torch.arange(groups, device=numbers.device).view(1, 1, -1, 1)
    return (rows * groups + group) * count + numbers.unsqueeze(2)


def _any_parts(inner: Inner, queries: Tensor, keys: Tensor, values: Tensor, index: Tensor, chosen: Chosen) -> Tensor:
    """Call `inner` on the copied blocks, some at a time; return (batch, heads, blocks, size, d)."""
    batch, groups, _, size, _ = keys.shape
    indices = index.split(max(1, CHUNK // size), 1)
    near = [_Copies.apply(x.reshape(-1, size * x.shape[-1]), *indices) for x in (keys, values)]  # type: ignore[no-untyped-call]
    answers, start = [], 0
    for number, some in enumerate(queries.split(max(1, CHUNK // size), 2)):
        many = some.shape[2]
        shape = (batch * many, groups, -1)
        k, v = (x[number].view(*shape, y.shape[-1]) for x, y in zip(near, (keys, values), strict=True))
        wheres = (x[:, start : start + many] for x in (chosen.mask, chosen.positions, chosen.k_pos))
        mask, q_pos, k_pos = (x.expand(batch, *x.shape[1:]).flatten(0, 1) for x in wheres)
        answer = inner(some.transpose(1, 2).flatten(0, 1), k, v, mask.unsqueeze(1), q_pos, k_pos)
        answers.append(answer.unflatten(0, (batch, many)).transpose(1, 2))
        start += many
    return torch.cat(answers, 2)


class _Copies(torch.autograd.Function):
    """The rows of x that each of several indices names. Their gradients are added into one tensor: one for each index
    would be as long as x, and all together as long as its square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *indices: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(*indices)
        ctx.shape = x.shape
        return tuple(x.index_select(0, index.flatten()) for index in indices)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        total = gradients[0].new_zeros(ctx.shape)
        for index, gradient in zip(ctx.saved_tensors, gradients, strict=True):
            total.index_add_(0, index.flatten(), gradient)
        return total, *[None] * len(gradients)


class _Blocks(torch.autograd.Function):
    """y = softmax(scale · q kᵀ) v of each block of queries with its blocks of keys.

    Tensors are (batch, heads, blocks, size, d), the index is (batch, blocks, heads, slots) and the mask
    (batch or 1, blocks, size, slots · size).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, index: Tensor, mask: Tensor, scale: float) -> Tensor:
        answers, logs = q.new_empty(*q.shape[:-1], v.shape[-1]), q.new_empty(*q.shape[:-1], 1)
        stored = [x.reshape(-1, x.shape[-2] * x.shape[-1]) for x in (k, v)]
        for part in _parts(index, mask):
            keys, values = _copied(stored, index[:, part], q.shape[-2])
            scores = torch.bmm(_rows(q, part), keys.mT).mul_(scale)
            empty = _hide(scores, mask[:, part], index[:, part])
            most = scores.amax(-1, keepdim=True)
            weights = scores.sub_(most).exp_()
            total = weights.sum(-1, keepdim=True)
            if empty is not None:  # a query with nothing to look at: its log is so large that its weights are 0
                total = total.masked_fill(empty, math.inf)
            _put(answers, part, torch.bmm(weights, values).div_(total))
            _put(logs, part, most.add_(total.log()))
        ctx.save_for_backward(q, *stored, index, mask, answers, logs)
        ctx.scale, ctx.shapes = scale, (k.shape, v.shape)
        return answers

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, *stored, index, mask, answers, logs = ctx.saved_tensors
        to_q, (to_k, to_v) = torch.empty_like(q), [torch.zeros_like(x) for x in stored]
        for part in _parts(index, mask):
            keys, values = _copied(stored, index[:, part], q.shape[-2])
            queries, up, answer, log = (_rows(x, part) for x in (q, gradients[0], answers, logs))
            scores = torch.bmm(queries, keys.mT).mul_(ctx.scale).sub_(log)
            _hide(scores, mask[:, part], index[:, part])
            weights = scores.exp_()
            where = index[:, part].flatten()
            to_v.index_add_(0, where, torch.bmm(weights.mT, up).view(len(where), -1))
            mean = (up * answer).sum(-1, keepdim=True)
            of_scores = torch.baddbmm(mean, up, values.mT, beta=-1).mul_(weights).mul_(ctx.scale)
            _put(to_q, part, torch.bmm(of_scores, keys))
            to_k.index_add_(0, where, torch.bmm(of_scores.mT, queries).view(len(where), -1))
        return to_q, to_k.view(ctx.shapes[0]), to_v.view(ctx.shapes[1]), None, None, None


def _parts(index: Tensor, mask: Tensor) -> list[slice]:
    """Return the blocks of each call."""
    batch, count, heads, _ = index.shape
    many = max(1, SCORES // (batch * heads * mask.shape[-2] * mask.shape[-1]))
    return [slice(start, start + many) for start in range(0, count, many)]


def _copied(stored: Sequence[Tensor], index: Tensor, size: int) -> list[Tensor]:
    """Return the named blocks of keys and of values side by side, (batch · blocks · heads, slots · size, d)."""
    rows, slots = index.shape[:3].numel(), index.shape[-1]
    return [x.index_select(0, index.flatten()).view(rows, slots * size, -1) for x in stored]


def _rows(x: Tensor, part: slice) -> Tensor:
    """Return some blocks of (batch, heads, blocks, size, d) as (batch · blocks · heads, size, d)."""
    return x[:, :, part].transpose(1, 2).flatten(0, 2)


def _put(x: Tensor, part: slice, rows: Tensor) -> None:
    """Write what `_rows` would read."""
    here = x[:, :, part].transpose(1, 2)
    here.copy_(rows.view(here.shape))


def _hide(scores: Tensor, mask: Tensor, index: Tensor) -> Tensor | None:
    """Mask scores in place; return where a query has nothing to look at, (batch · blocks · heads, size, 1)."""
    if bool(mask.all()):
        return None
    batch, many, heads, _ = index.shape
    scores.view(batch, many, heads, *mask.shape[-2:]).masked_fill_(~mask.unsqueeze(2), LOWEST)
    nothing = ~mask.any(-1, keepdim=True)
    return nothing.unsqueeze(2).expand(batch, many, heads, -1, -1).flatten(0, 2) if bool(nothing.any()) else None


def _with_wide(inner: Inner, y: Tensor, queries: Tensor, k: Tensor, v: Tensor, laid: Laid, chosen: Chosen) -> Tensor:
    """Return answers (batch · heads · blocks, size, d) with those of wide blocks, which meet all keys."""
    batch, heads, count, size, width = queries.shape
    wide = chosen.layout.wide.expand(batch, -1)
    index = block_index(wide.clamp(min=0).unsqueeze(1), batch, heads, count)[:, 0]  # (batch, heads, few)
    few = queries.reshape(-1, size * width).index_select(0, index.flatten()).view(batch, heads, -1, width)
    rows = torch.arange(batch, device=wide.device).view(-1, 1)
    q_pos = chosen.positions.expand(batch, -1, -1)[rows, wide.clamp(min=0)].masked_fill((wide < 0).unsqueeze(-1), -1)
    q_pos, k_pos = q_pos.flatten(1), laid.k_pos.expand(batch, -1)
    mask = (q_pos >= 0).unsqueeze(-1) & (k_pos >= 0).unsqueeze(-2)
    if laid.mask.rest is not None:
        mask = mask & laid.mask.rest(q_pos.unsqueeze(-1), k_pos.unsqueeze(-2))
    allowed = None if bool(mask.all()) else mask.unsqueeze(1)
    answer = inner(few, k, v, allowed, q_pos, k_pos).reshape(-1, size, y.shape[-1])
    there = (wide >= 0).unsqueeze(1).expand(-1, heads, -1).flatten()
    return y.index_copy(0, index.flatten()[there], answer[there])
