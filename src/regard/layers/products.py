"""Products that no matrix product or convolution shows: fused kernels, and sums along edges.

Whoever computes them states their number, for those who count operations: see `regard.costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("products", default=None)


def products(operations: int) -> None:
    """State that so many multiplications and additions are done here."""
    listener = _listener.get()
    if listener is not None:
        listener(operations)


def stated(x: Tensor, operations: int) -> Tensor:
    """Return x, and state the operations that made it, as a product of two factors that both learn: its gradients take
    as many each. Nothing happens where nobody listens."""
    if _listener.get() is None:
        return x
    found: Tensor = _Stated.apply(x, operations)  # type: ignore[no-untyped-call]
    return found


class _Stated(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, operations: int) -> Tensor:
        ctx.operations = operations
        products(operations)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        products(2 * ctx.operations)
        return gradients[0], None


@contextmanager
def heard(listener: Callable[[int], None]) -> Iterator[None]:
    """Tell a listener of all products that are stated."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def on_cpu(x: Tensor) -> bool:
    """Return True if a CPU computes with x; a shape without values stands for one there."""
    return x.device.type in ("cpu", "meta")


def is_rounded(x: Tensor) -> bool:
    """Return True if products with x are rounded to half precision (autocast)."""
    return torch.is_autocast_enabled("cpu" if x.is_meta else x.device.type)
