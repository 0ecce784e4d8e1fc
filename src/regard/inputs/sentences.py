"""Sentences of words as tokens: whole words with their characters, or sub-words of which the first speaks for its word.

| tokens | ids | inside |
|---|---|---|
| words | one for each word | the characters of each word, END after each |
| sub-words | the pieces of all words | for each id 1 if a word begins there, else 0 |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import pad
from regard.inputs.input import Row
from regard.text import labels
from regard.text.tokenizer import END, UNKNOWN, Tokenizer

ENDS = 12  # characters that are read of each end of a word: a long address is no reason for a wide batch


class Sentences:
    """Rows of (ids, inside) from lists of words."""

    def __init__(self, tokens: Tokenizer, characters: Tokenizer) -> None:
        self.tokens, self.characters = tokens, characters
        self.spelled = tokens.level == "symbols"

    def encode(self, texts: Sequence[Sequence[str]]) -> list[Row]:
        """Encode each distinct word once."""
        distinct = list({word: None for words in texts for word in words})
        closed = [labels.closed(word) for word in distinct]
        pieces = dict(zip(distinct, self.tokens.encode_batch(closed), strict=True))
        spelled = dict(zip(distinct, self.characters.encode_batch(closed), strict=True)) if self.spelled else {}
        return [self._row(words, pieces, spelled) for words in texts]

    def _row(self, words: Sequence[str], pieces: dict[str, list[int]], spelled: dict[str, list[int]]) -> Row:
        cut = [pieces[word] or [UNKNOWN] for word in words]
        ids = [id for each in cut for id in each]
        if self.spelled:
            return ids, [id for word in words for id in (*_ends(spelled[word] or [UNKNOWN]), END)]
        return ids, [int(place == 0) for each in cut for place in range(len(each))]

    def parts(self, row: Row, most: int) -> Iterator[Row]:
        """Cut a row between words; a word of more than `most` pieces is shortened."""
        ids, inside = ([*map(int, field)] for field in row)
        if self.spelled:
            words = [([id], [*spelling, END]) for id, spelling in zip(ids, _split(inside), strict=True)]
        else:
            starts = [*np.flatnonzero(inside), len(ids)]
            words = [(ids[a:b][:most], inside[a:b][:most]) for a, b in pairwise(starts)]
        part: tuple[list[int], list[int]] = ([], [])
        for own, more in words:
            if part[0] and len(part[0]) + len(own) > most:
                yield part
                part = ([], [])
            part = (part[0] + own, part[1] + more)
        if part[0]:
            yield part

    def spellings(self, rows: Sequence[Row]) -> tuple[torch.Tensor, NDArray[Any]]:
        """Return the characters of each distinct word once, and for each word of each row its number."""
        numbers: dict[tuple[int, ...], int] = {}
        which = [
            np.array([numbers.setdefault(tuple(word), len(numbers)) for word in _split(row[1])], dtype=np.int64)
            for row in rows
        ]
        return torch.from_numpy(pad([np.array(word) for word in numbers])), pad(which)


def firsts(rows: Sequence[Row], shift: int) -> torch.Tensor:
    """Return the place where each word begins, (rows, words), −1 for none; `shift` marks stand in front."""
    return torch.from_numpy(pad([np.flatnonzero(np.asarray(row[1])) + shift for row in rows], -1))


def _ends(characters: list[int]) -> list[int]:
    return characters if len(characters) <= 2 * ENDS else [*characters[:ENDS], *characters[-ENDS:]]


def _split(inside: Any) -> list[list[int]]:
    """Return the characters of each word, from a row with END after each."""
    words: list[list[int]] = [[]]
    for id in inside:
        if id == END:
            words.append([])
        else:
            words[-1].append(int(id))
    return words[:-1]
