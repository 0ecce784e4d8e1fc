"""Activations, written over their argument where no gradient needs it."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.compiler import is_exporting
from torch.nn.functional import gelu, silu

OVER: dict[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] = {
    torch.relu: torch.relu_,
    gelu: torch.ops.aten.gelu_,
    silu: partial(silu, inplace=True),
}


def activated(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return activation(x) of an x that nobody else reads: in inference it is written over x.

    The hidden vectors are the largest of a Transformer; a second block for them costs memory, and a tenth of the time
    where the allocator gives it back to the system after each layer.
    """
    if x.requires_grad or is_exporting() or activation not in OVER:
        return activation(x)
    return OVER[activation](x)
