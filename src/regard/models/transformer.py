"""The Transformer encoder–decoder (Vaswani et al. 2017), from parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import MultiHead, positions
from regard.attention.mixing import ShawValues
from regard.backbones.dropout import Dropout
from regard.backbones.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, FeedForward, Residual
from regard.errors import UserError
from regard.inputs.embedding import Embedding
from regard.outputs.convert import Converter

# layers of each side, width, hidden width of the feed-forward, heads
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"layers": 4, "width": 128, "hidden": 256, "heads": 4},
    "small": {"layers": 3, "width": 256, "hidden": 512, "heads": 4},
    "base": {"layers": 6, "width": 512, "hidden": 2048, "heads": 8},
    "big": {"layers": 6, "width": 1024, "hidden": 4096, "heads": 16},
}

Inside = Callable[[int, int, bool], dict[str, Any]]

# Kinds that act inside every self-attention: parts of MultiHead from (heads, width of a head, both ways).
INSIDE: dict[str, Inside] = {
    "rotary": lambda heads, width, both: {"rotate": positions.Rotary(width)},  # noqa: ARG005
    "alibi": lambda heads, width, both: {"bias": positions.Alibi(heads)},  # noqa: ARG005
    "t5": lambda heads, width, both: {"bias": positions.T5(heads, both_ways=both)},  # noqa: ARG005
    "shaw": lambda heads, width, both: {"bias": positions.Shaw(16, width), "mix": ShawValues(16, width)},  # noqa: ARG005
    "transformer-xl": lambda heads, width, both: {"bias": positions.TransformerXL(heads, width)},  # noqa: ARG005
    "none": lambda heads, width, both: {},  # noqa: ARG005
}

# Kinds that are a table, brought in before the first layer: from (longest sequence, width).
TABLES: dict[str, Callable[[int, int], nn.Module]] = {
    "sinusoidal": lambda length, width: positions.Sinusoidal(width),  # noqa: ARG005
    "learned": positions.Learned,
    "recurrent": lambda length, width: positions.Recurrent(width),  # noqa: ARG005
    "floater": lambda length, width: positions.Floater(width),  # noqa: ARG005
}


def transformer(
    source_size: int,
    target_size: int,
    *,
    layers: int,
    width: int,
    hidden: int,
    heads: int,
    dropout: float = 0.1,
    norm: str = "pre",
    position: str = "sinusoidal",
    length: int = 1024,
    joint: bool = False,
    tied: bool = True,
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> Converter:
    """Ids of two vocabularies (one if `joint`) to a converter. `tied` makes the output layer the target's table."""
    inside = partial(_inside, position, heads, width)
    residual = partial(Residual, width, dropout, pre=norm == "pre")

    def feed() -> FeedForward:
        return FeedForward(width, hidden, dropout, activation)

    def last() -> nn.Module | None:
        return nn.LayerNorm(width) if norm == "pre" else None

    def attention(**parts: Any) -> MultiHead:
        return MultiHead(width, heads, **parts)

    encoder = Encoder([EncoderLayer(attention(**inside(True)), feed(), residual) for _ in range(layers)], last())
    decoder = Decoder(
        [DecoderLayer(attention(**inside(False)), attention(), feed(), residual) for _ in range(layers)], last()
    )
    source = Embedding(source_size, width, _place(position, length, width), Dropout(dropout))
    target = Embedding(target_size, width, _place(position, length, width), Dropout(dropout))
    if joint:
        target.table = source.table
    return Converter(source, target, encoder, decoder, tied=tied)


def _inside(position: str, heads: int, width: int, both: bool) -> dict[str, Any]:
    if position not in INSIDE and position not in TABLES:
        known = ", ".join([*TABLES, *INSIDE])
        raise UserError(f"The position kind {position!r} is unknown, expected one of {known}.")
    return INSIDE[position](heads, width // heads, both) if position in INSIDE else {}


def _place(position: str, length: int, width: int) -> nn.Module | None:
    return positions.Added(TABLES[position](length, width)) if position in TABLES else None
