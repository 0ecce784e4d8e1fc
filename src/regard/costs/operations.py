"""Floating-point operations of each kind of product; a multiplication and an addition are two.

    (m × k)(k × n)       2 m k n
    convolution          2 · outputs · inputs of each output
    its gradients        as much again for the weights, and for the input

Sums, exponentials and normalisations are not counted, as nobody does: they are a hundredth of the whole. Products that
torch does not show as such are stated where they are computed, see `regard.layers.products`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
Formula = Callable[..., int]


def _mm(a: Tensor, b: Tensor, **_: Any) -> int:
    return 2 * prod(a.shape) * b.shape[-1]


def _mv(a: Tensor, *_: Any, **__: Any) -> int:
    return 2 * prod(a.shape)


def _second(formula: Formula) -> Formula:
    """Return the formula of an operation whose first argument is added to the product of the others."""
    return lambda _, *products, **options: formula(*products[:2], **options)


def _convolved(given: torch.Size, kernel: torch.Size, made: torch.Size, *, transposed: bool) -> int:
    """Each output is a sum over the channels of its group and the places of a kernel; transposed: each input is."""
    return 2 * prod(given if transposed else made) * prod(kernel[1:])


def _convolution(x: Tensor, weight: Tensor, *rest: Any, made: Tensor, **_: Any) -> int:
    return _convolved(x.shape, weight.shape, made.shape, transposed=rest[4])


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any, **_: Any) -> int:
    once = _convolved(x.shape, weight.shape, gradient.shape, transposed=rest[4])
    asked: list[bool] = rest[-1][:2]
    return once * sum(asked)  # for the input and the weight, where they are asked for


FORMULAS: dict[Any, Formula] = {
    aten.mm: _mm,
    aten.bmm: _mm,
    aten.mv: _mv,
    aten.dot: _mv,
    aten.addmm: _second(_mm),
    aten.addmm_: _second(_mm),
    aten.baddbmm: _second(_mm),
    aten.baddbmm_: _second(_mm),
    aten.addbmm: _second(_mm),
    aten.addmv: _second(_mv),
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
}


def operations(function: Any, args: Any, made: Any) -> int:
    """Return the floating-point operations of one operation of torch's."""
    formula = FORMULAS.get(function.overloadpacket)
    if formula is None:
        return 0
    return formula(*args, made=made)
