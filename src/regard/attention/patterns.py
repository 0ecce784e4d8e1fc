"""Patterns: masks in whole blocks of positions, whose cost is linear in length (blocks.py).

    bigbird(64) = near(64, 3) | landmarks(64, 1, 1) | chance(64, 3, seed)          Zaheer et al. 2020, section 2

Near blocks are a window, landmarks see all and are seen by all, and each block of queries has a few random blocks. How
many blocks there are is a matter of each row's own length, so padding changes nothing. A causal pattern does not ask
for it: near and random blocks lie before the query, and the first blocks are seen by all, but see only what precedes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.masks import BlockLayout, Mask, causal

Numbers = NDArray[np.int64]
Plan = Callable[[int], tuple[Numbers, Numbers]]  # from the number of blocks: keys (blocks, slots), wide (few,)


def near(size: int, count: int = 3, *, back: bool = False) -> Mask:
    """A window of `count` blocks around the query's own, or with `back` the own and those before."""
    if count < 1 or (count % 2 == 0 and not back):
        raise ValueError(f"a window is an odd number of blocks around the query's own, found {count}")
    return _mask(size, lambda blocks: (_near(blocks, count, back=back), _none()), f"near({size}, {count})")


def landmarks(size: int, first: int = 1, last: int = 1) -> Mask:
    """Global blocks: the `first` and the `last` ones of a row look at everything, and everything looks at them."""

    def plan(blocks: int) -> tuple[Numbers, Numbers]:
        found = _global(blocks, first, last)
        return np.tile(found, (blocks, 1)), found

    return _mask(size, plan, f"landmarks({size}, {first}, {last})")


def chance(size: int, count: int = 3, *, seed: int = 0, avoid: Callable[[int], Numbers] | None = None) -> Mask:
    """Random blocks, `count` for each block of queries: a function of the seed, the block and the number of blocks.

    `avoid` returns (blocks, x) numbers that are not drawn, −1 for none.
    """

    def plan(blocks: int) -> tuple[Numbers, Numbers]:
        avoided = np.full((blocks, 0), -1) if avoid is None else avoid(blocks)
        return _drawn(blocks, count, seed, avoided), _none()

    return _mask(size, plan, f"chance({size}, {count})")


def chosen(size: int, keys: Numbers) -> Mask:
    """Given blocks: those of `keys` (blocks, slots) for each block of queries, −1 for none."""
    return _mask(size, lambda blocks: (keys[:blocks], _none()), f"chosen({size})")


def bigbird(
    size: int = 64,
    *,
    window: int = 3,
    first: int = 1,
    last: int = 1,
    random: int = 3,
    seed: int = 0,
    back: bool = False,
) -> Mask:
    """BigBird: near, global and random blocks (Zaheer et al. 2020). With `back` it is causal, and `last` counts as 0.

    ITC makes existing tokens global, as here; for ETC, which adds tokens, see `backbones.landmarks`.
    """
    last = 0 if back else last

    def avoid(blocks: int) -> Numbers:
        own = [_near(blocks, window, back=back), np.tile(_global(blocks, first, last), (blocks, 1))]
        if back:  # later blocks are not drawn: everything from the query's own block on
            later = np.arange(blocks)[None, :].repeat(blocks, 0)
            own.append(np.where(later > np.arange(blocks)[:, None], later, -1))
        return np.concatenate(own, 1)

    pattern = near(size, window, back=back)
    if first or last:
        pattern = pattern | (landmarks(size, first, last) if not back else _seen(size, first))
    if random:
        pattern = pattern | chance(size, random, seed=seed, avoid=avoid)
    return causal & pattern if back else pattern


def _seen(size: int, first: int) -> Mask:
    """The first blocks, which all see."""
    return _mask(size, lambda blocks: (np.tile(_global(blocks, first, 0), (blocks, 1)), _none()), f"first({first})")


def _none() -> Numbers:
    return np.full(0, -1)


def _near(blocks: int, count: int, *, back: bool) -> Numbers:
    steps = np.arange(1 - count, 1) if back else np.arange(count) - count // 2
    found = np.arange(blocks)[:, None] + steps
    return np.where((found >= 0) & (found < blocks), found, -1)


def _global(blocks: int, first: int, last: int) -> Numbers:
    both = np.concatenate((np.arange(min(first, blocks)), np.arange(max(0, blocks - last), blocks)))
    return np.unique(both)


def _drawn(blocks: int, count: int, seed: int, avoided: Numbers) -> Numbers:
    """Draw `count` blocks for each of `blocks` without repetition, none of `avoided`; −1 where there are no more.

    By Floyd's algorithm: in its s-th turn one of the first c − count + s + 1 of c free blocks is drawn, and the last of
    them instead of one that was drawn before.
    """
    free = np.ones((blocks, blocks + 1), dtype=bool)
    np.put_along_axis(free, avoided, values=False, axis=1)
    rank = free[:, :blocks].cumsum(1)  # of the free ones, from 1
    number = np.random.Generator(np.random.Philox(key=seed)).random((blocks, count))  # row i is the same in any length
    drawn = np.full((blocks, count), -1)
    most = rank[:, -1]
    for slot in range(count):
        last = most - np.minimum(count, most) + slot
        found = (number[:, slot] * (last + 1)).astype(np.int64)
        found = np.where((drawn == found[:, None]).any(1), last, found)
        drawn[:, slot] = np.where(slot < most, found, -1)
    where = (rank[:, None, :] <= drawn[:, :, None]).sum(-1)  # the block whose rank is one more
    return np.where(drawn >= 0, where, -1)


def _mask(size: int, plan: Plan, name: str) -> Mask:
    if size < 1:
        raise ValueError(f"a block has 1 or more positions, found {size}")

    planned = lru_cache(maxsize=1024)(plan)

    def blocks(lengths: Tensor) -> BlockLayout:
        counts = [max(1, -(-int(length) // size)) for length in lengths.tolist()]
        plans = {count: planned(count) for count in set(counts)}
        keys = _padded([plans[count][0] for count in counts], max(counts))
        wide = _padded([plans[count][1][None] for count in counts], 1)
        return BlockLayout(size, keys.to(lengths.device), wide[:, 0].to(lengths.device))

    def rule(q_pos: Tensor, k_pos: Tensor) -> Tensor:
        q, k = (where.unsqueeze(0) if where.dim() == 2 else where for where in (q_pos, k_pos))
        allowed = blocks(lengths_of(k.flatten(1))).allows(q, k)
        return allowed if max(q_pos.dim(), k_pos.dim()) >= 3 else allowed[0]

    return Mask(rule, name, blocks=blocks)


def lengths_of(k_pos: Tensor) -> Tensor:
    """Return the number of positions up to the last of each row (rows, n)."""
    return k_pos.amax(-1) + 1 if k_pos.shape[-1] else k_pos.new_zeros(k_pos.shape[0])


def _padded(plans: list[Numbers], blocks: int) -> Tensor:
    """Return plans (blocks, slots) as one tensor (rows, blocks, slots), −1 where a row has fewer."""
    slots = max(plan.shape[1] for plan in plans)
    found = np.full((len(plans), blocks, slots), -1)
    for row, plan in enumerate(plans):
        found[row, : plan.shape[0], : plan.shape[1]] = plan
    return torch.from_numpy(found)
