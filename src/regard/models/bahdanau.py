"""The recurrent encoder–decoder without attention (Sutskever et al. 2014), with the mean, and with attention (Bahdanau
et al. 2015, Luong et al. 2015), from parts."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from regard.attention import MultiHead, normalisers, scores
from regard.backbones.dropout import Dropout
from regard.backbones.recurrent import Decoder, Encoder, Glimpse
from regard.inputs.embedding import Embedding
from regard.inputs.ngrams import Ngrams
from regard.outputs.converter import Converter

SCORES: dict[str, Callable[[int], scores.Score]] = {
    "dot": lambda width: scores.dot,  # noqa: ARG005
    "scaled_dot": lambda width: scores.scaled_dot,  # noqa: ARG005
    "bilinear": lambda width: scores.Bilinear(width, width),
    "additive": lambda width: scores.Additive(width, width, width),
    "mlp": lambda width: scores.MLP(width, width, width),
}


def recurrent(
    source_size: int,
    target_size: int,
    *,
    cell: str = "lstm",
    layers: int = 1,
    width: int = 256,
    attention: str = "additive",
    heads: int = 0,
    feeding: bool = True,
    dropout: float = 0.1,
    joint: bool = False,
    tied: bool = True,
    ngrams: int = 1,
    buckets: int = 2**17,
) -> Converter:
    """`attention` is "none", "mean" or a score. heads = 0 takes the encoder states themselves as keys and values;
    1 projects queries, keys and values; more make it multi-head. Runs of up to `ngrams` source tokens have vectors of
    their own, in so many `buckets`."""
    runs = Ngrams(ngrams, buckets, width) if ngrams > 1 else None
    source = Embedding(source_size, width, None, Dropout(dropout), scale=False, ngrams=runs)
    target = Embedding(target_size, width, None, Dropout(dropout), scale=False)
    if joint:
        target.table = source.table
    return Converter(
        source,
        target,
        Encoder(cell, width, layers, dropout, seen=attention != "none"),
        Decoder(cell, width, layers, glimpse(attention, width, heads), dropout, feeding=feeding),
        tied=tied,
    )


def glimpse(attention: str, width: int, heads: int) -> nn.Module | None:
    """What the decoder sees of the encoder's states at each step."""
    if attention == "none":
        return None
    if attention == "mean":
        return Glimpse(scores.uniform, normalisers.mean)
    if heads == 0:
        return Glimpse(SCORES[attention](width))
    return MultiHead(width, heads, score=SCORES[attention](width // heads))
