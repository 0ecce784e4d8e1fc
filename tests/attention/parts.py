"""Every position kind and many masks, for tests that must hold for all of them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from regard.attention import masks, positions
from regard.attention.masks import Mask
from regard.attention.mixing import ShawValues

# Parts for MultiHead with `heads` heads of width 8, each a fresh module.
INSIDE: dict[str, Callable[[int], dict[str, Any]]] = {
    "none": lambda heads: {},
    "rotary": lambda heads: {"rotate": positions.Rotary(8)},
    "sinusoidal in every layer": lambda heads: {"rotate": positions.AddedToHeads(positions.Sinusoidal(8))},
    "learned in every layer": lambda heads: {"rotate": positions.AddedToHeads(positions.LearnedTable(600, 8))},
    "recurrent in every layer": lambda heads: {"rotate": positions.AddedToHeads(positions.RecurrentTable(8))},
    "floater in every layer": lambda heads: {"rotate": positions.AddedToHeads(positions.Floater(8))},
    "alibi": lambda heads: {"bias": positions.Alibi(heads)},
    "t5": lambda heads: {"bias": positions.T5(heads)},
    "shaw": lambda heads: {"bias": positions.Shaw(3, 8), "mix": ShawValues(3, 8)},
    "transformer-xl": lambda heads: {"bias": positions.RelativeTransformerXL(heads, 8)},
    "forgetting": lambda heads: {"bias": positions.Decay(0.9)},
}


def some_masks(length: int) -> dict[str, Mask]:
    """Masks that fit positions 0 … length − 1, alone and combined."""
    generator = torch.Generator().manual_seed(length)
    graph = torch.rand(max(length, 1), max(length, 1), generator=generator) < 0.4
    order = torch.randperm(max(length, 1), generator=generator)
    documents = torch.arange(max(length, 1)) // 3
    return {
        "padding": masks.padding,
        "causal": masks.causal,
        "window": masks.window(2, 1),
        "block": masks.block(4),
        "prefix": masks.causal | masks.prefix(2),
        "document": masks.causal & masks.document(documents),
        "ordering": masks.ordering(graph),
        "permutation": masks.permutation(order),
        "query stream": masks.permutation(order, itself=False),
        "causal window": masks.causal & masks.window(3, 5),
        "not": ~masks.window(1, 1) & masks.causal,
        "own": masks.Mask(lambda q, k: (q + k) % 3 != 0),
    }


def gradients(answer: Tensor, inputs: Iterable[Tensor], upstream: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad((answer * upstream).sum(), list(inputs), allow_unused=True, materialize_grads=True))
