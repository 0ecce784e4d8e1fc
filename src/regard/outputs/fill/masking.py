"""Masking in training: 15 % of the tokens, whole words or single ones (Devlin et al. 2019, 3.1)."""

from __future__ import annotations

import unicodedata
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from regard.text.labels import FIRST
from regard.text.tokenizer import SPACE, SUB_WORDS, Tokenizer


def how_many(lengths: NDArray[Any], rate: float) -> NDArray[np.int64]:
    """Return the number of tokens to hide in rows of these lengths: the rate, rounded, but at least one."""
    return np.maximum(1, np.floor(rate * lengths + 0.5)).astype(np.int64)


class WordStarts:
    """Return the word of a row that each token belongs to, from ids alone. A punctuation mark is a word of its own."""

    def __init__(self, vocabulary: Tokenizer) -> None:
        pieces = vocabulary.pieces_of(range(FIRST, vocabulary.size))
        level = vocabulary.level
        marks = [_is_mark(piece) for piece in pieces]
        begins = [
            level not in (*SUB_WORDS, "characters") or mark or piece.startswith(SPACE) or piece == "␣"
            for piece, mark in zip(pieces, marks, strict=True)
        ]
        # The special ids stand alone, and so does whatever is put behind the vocabulary.
        self.begins = torch.tensor([True] * FIRST + begins + [True])
        self.ends = torch.tensor([True] * FIRST + marks + [True])

    def __call__(self, ids: Tensor) -> Tensor:
        """Word numbers (batch, n), counted from 0 in each row."""
        starts = self.begins[ids]
        starts[:, 1:] |= self.ends[ids[:, :-1]]
        return starts.long().cumsum(1) - starts[:, :1].long()


def _is_mark(piece: str) -> bool:
    text = piece.removeprefix(SPACE)
    return bool(text) and all(unicodedata.category(character)[0] in "PS" for character in text)


def hide(ids: Tensor, words: Tensor, count: Tensor, generator: Generator | None = None) -> Tensor:
    """Return the tokens (batch, n) to hide: random words, as many as come nearest to `count` (batch,) tokens.

    Special ids are never hidden. A word is taken while its middle lies within the count, and the first one always: the
    number of tokens is right on average where words have several, and exact where each is a word.
    """
    may = ids >= FIRST
    key = torch.rand(ids.shape, generator=generator).gather(1, words).masked_fill(~may, 2.0)
    place = key.argsort(dim=1, stable=True).argsort(1)  # words stand together
    first = torch.full_like(words, ids.shape[1]).scatter_reduce(1, words, place, "amin")
    size = torch.zeros_like(words).scatter_add(1, words, may.long())
    taken = (2 * first + size - 1 < 2 * count[:, None]) | (first == 0)
    return taken.gather(1, words) & may


def replace(ids: Tensor, hidden: Tensor, mask: int, size: int, generator: Generator | None = None) -> Tensor:
    """Of the hidden tokens 80 % become the mask, 10 % any token of the vocabulary, 10 % stay (3.1).

    The last two are there because no mask is seen when the network is used on known text.
    """
    draw = torch.rand(ids.shape, generator=generator)
    other = torch.randint(min(FIRST, size - 1), size, ids.shape, generator=generator)
    changed = torch.where(draw < 0.8, mask, torch.where(draw < 0.9, other, ids))
    return torch.where(hidden, changed, ids)


def ranks(hidden: Tensor, generator: Generator | None = None) -> Tensor:
    """An order of prediction: 0 for what is given, 1, 2 … at random for the hidden positions of each row."""
    key = torch.rand(hidden.shape, generator=generator).masked_fill(~hidden, 2.0)
    return (key.argsort(dim=1, stable=True).argsort(1) + 1).masked_fill(~hidden, 0)
