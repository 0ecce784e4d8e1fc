"""Threads for independent pieces of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Found = TypeVar("Found")


def side_by_side(work: Callable[[Part], Found], parts: Sequence[Part]) -> list[Found]:
    """Return the result of `work` for each part, computed by as many workers of one thread as torch has threads.

    Small matrix products by one thread each are faster than by several threads together, which wait for each other. A
    worker is a thread: it has neither the caller's `no_grad` nor the values of its context variables.
    """
    threads = torch.get_num_threads()
    if threads == 1 or len(parts) == 1:
        return [work(part) for part in parts]
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)
