"""Local attention at a cost linear in length, forward and backward, on any device.

A mask whose reach is finite (masks.window, masks.block, and whatever they are `&`-ed with) needs only a band of the
m × n scores. The sequence is cut into blocks of queries; each block meets the keys of its own and of the neighbouring
blocks, and the *same* equation runs on them, with the blocks as a batch:

    queries  (batch · blocks, heads, size, d)      keys  (batch · blocks, heads, (before + 1 + after) · size, d)

Scores, biases, normalisers and mixes look at positions, so nothing else changes. Masks in whole blocks: sparse.py.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.masks import Laid

CHUNK = 4096  # tokens per call: larger tensors fall out of the caches and are mapped anew by the allocator each time
Inner = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Blocks:
    """The cut of a batch into blocks and the mask of each block: computed once per batch and shared by all layers."""

    size: int  # queries per block
    before: int  # neighbouring blocks of keys, back …
    after: int  # … and ahead
    q_pos: Tensor  # (batch or 1, blocks, size)
    k_pos: Tensor  # (batch or 1, blocks, keys per block)
    mask: Tensor  # (batch or 1, blocks, size, keys per block)


def blocks_of(laid: Laid) -> Blocks | None:
    """Return the cut for this mask and these positions, or None where the dense form is the better or the only one."""
    if "blocks" not in laid.store:
        laid.store["blocks"] = _cut(laid)
    blocks = laid.store["blocks"]
    assert blocks is None or isinstance(blocks, Blocks)
    return blocks


def _cut(laid: Laid) -> Blocks | None:
    back, ahead, length = laid.mask.back, laid.mask.ahead, laid.k_pos.shape[-1]
    if math.isinf(back + ahead) or length < 2 * (back + ahead + 1) or length < 128 or not laid.aligned:
        return None
    size = block_size(int(back), int(ahead))
    before, after = math.ceil(back / size), math.ceil(ahead / size)
    positions = laid.q_pos if laid.q_pos.dim() == 2 else laid.q_pos.unsqueeze(0)
    count = math.ceil(length / size)
    own = pad(positions, (0, count * size - length), value=-1).unflatten(-1, (count, size))
    near = neighbours(pad(own, (0, 0, before, after), value=-1), count, -1)
    real = (own >= 0).unsqueeze(-1) & (near >= 0).unsqueeze(-2)
    mask = laid.mask(own.unsqueeze(-1), near.unsqueeze(-2)) & real
    return Blocks(size, before, after, own, near, mask)


def block_size(back: int, ahead: int) -> int:
    """Return half the reach, as a multiple of 32 from 32 to 256: smaller blocks copy more keys, larger ones compute
    more scores that are masked."""
    half = (back + ahead) // 2
    return min(256, max(32, 32 * round(half / 32)))


def neighbours(blocks: Tensor, count: int, dim: int) -> Tensor:
    """Return each of `count` blocks (the dimension before `dim`) with its neighbours, joined along `dim`."""
    axis = dim - 1
    spare = blocks.shape[axis] - count
    return torch.cat([blocks.narrow(axis, start, count) for start in range(spare + 1)], dim)


def in_blocks(inner: Inner, q: Tensor, k: Tensor, v: Tensor, blocks: Blocks) -> Tensor:
    """Call `inner(q, k, v, mask, q_pos, k_pos)` by blocks; equals the dense form. Tensors are (batch, heads, n, d)."""
    length, count = q.shape[-2], blocks.q_pos.shape[-2]
    per_call = max(CHUNK // blocks.size, blocks.before, blocks.after)
    # Cut by `split`, whose gradient is one concatenation; the gradient of a slice would be as long as the whole.
    tail = count * blocks.size - length
    cuts = [pad(x, (0, 0, 0, tail)).unflatten(-2, (count, blocks.size)).split(per_call, -3) for x in (q, k, v)]
    answers = []
    for call, queries in enumerate(cuts[0]):
        many = queries.shape[-3]
        keys, values = (neighbours(_surrounded(cut, call, blocks), many, -2) for cut in cuts[1:])
        near = (x.narrow(1, call * per_call, many) for x in (blocks.mask, blocks.q_pos, blocks.k_pos))
        mask, q_pos, k_pos = (x.expand(len(q), *x.shape[1:]).flatten(0, 1) for x in near)
        answer = inner(_as_batch(queries), _as_batch(keys), _as_batch(values), mask.unsqueeze(1), q_pos, k_pos)
        answers.append(answer.unflatten(0, (len(q), many)).transpose(1, 2).flatten(2, 3))
    return torch.cat(answers, -2)[..., :length, :]


def _as_batch(x: Tensor) -> Tensor:
    """Reshape (batch, heads, blocks, size, d) to (batch · blocks, heads, size, d)."""
    return x.transpose(1, 2).flatten(0, 1)


def _surrounded(cut: tuple[Tensor, ...], call: int, blocks: Blocks) -> Tensor:
    """Return the blocks of one call with the blocks before and after them; empty ones at both ends of the sequence."""
    own = cut[call]
    left = cut[call - 1][:, :, -blocks.before :] if call and blocks.before else own[:, :, :0]
    right = cut[call + 1][:, :, : blocks.after] if call + 1 < len(cut) else own[:, :, :0]
    missing = (blocks.before - left.shape[2], blocks.after - right.shape[2])
    return pad(torch.cat((left, own, right), 2), (0, 0, 0, 0, *missing))
