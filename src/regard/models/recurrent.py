"""The recurrent encoder–decoder without attention (Sutskever et al. 2014), with the mean, and with attention before
each step (Bahdanau et al. 2015) or after it (Luong et al. 2015), from parts."""

from __future__ import annotations

from regard.attention import Layer, MultiHead, normalisers, scores
from regard.attention.location import LocationAware
from regard.backbones.recurrent import Glimpse, RecurrentDecoder, RecurrentEncoder
from regard.layers.stem import Stem
from regard.models.pair import Pair
from regard.models.parts import NORMALISERS, SCORES


def recurrent(
    *,
    cell: str = "lstm",
    layers: int = 1,
    width: int = 256,
    attention: str = "additive",
    heads: int = 0,
    normaliser: str = "softmax",
    order: str = "after",
    feeding: bool | None = None,
    both_ways: bool = True,
    dropout: float = 0.1,
    ngrams: int = 1,
    buckets: int = 2**17,
) -> Pair:
    """Build an encoder and a decoder. `attention` is "none", "mean" or a score. heads = 0 takes the encoder states
    themselves as keys and values; 1 projects queries, keys and values; more make it multi-head. In the `order` "before"
    the decoder looks from its last state, and the context is an input of the step; "after" it looks from the new one,
    and `feeding` (on, unless the order is "before") gives the last output to the next step. Runs of up to `ngrams`
    source tokens have vectors of their own, in so many `buckets`."""
    before = order == "before"
    return Pair(
        Stem(width, None, dropout, scale=False, ngrams=ngrams, buckets=buckets),
        RecurrentEncoder(cell, width, layers, dropout, seen=attention != "none", both_ways=both_ways),
        Stem(width, None, dropout, scale=False),
        RecurrentDecoder(
            cell,
            width,
            layers,
            glimpse(attention, width, heads, normaliser),
            dropout,
            feeding=not before if feeding is None else feeding,
            before=before,
        ),
    )


def glimpse(attention: str, width: int, heads: int, normaliser: str = "softmax") -> Layer | None:
    """Return the layer by which the decoder sees the encoder's states at each step."""
    if attention == "none":
        return None
    if attention == "mean":
        return Glimpse(scores.uniform, normalisers.mean)
    if attention == "location":
        return LocationAware(width, width, width)
    if heads == 0:
        return Glimpse(SCORES[attention](width), NORMALISERS[normaliser])
    return MultiHead(width, heads, score=SCORES[attention](width // heads), normalise=NORMALISERS[normaliser])
