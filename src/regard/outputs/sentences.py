"""Sentences of words as tokens: whole words with their characters, or sub-words; and back from tokens to words.

| tokens | ids | inside |
|---|---|---|
| words | one for each word | the characters of each word, END after each |
| sub-words | START, pieces, END if enclosed | for each id 1 if a word begins there, else 0 |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import pad
from regard.inputs.tokens import END, START, UNKNOWN, Tokenizer
from regard.outputs import names
from regard.outputs.tagger import Batch

ENDS = 12  # characters that are read of each end of a word: a long address is no reason for a wide batch


@dataclass(frozen=True)
class Sentence:
    """Words, their tokens, and how many tokens each has."""

    words: list[str]
    pieces: list[list[int]]  # ids of each word; one each if words are tokens
    ids: list[int]
    inside: list[int]


class Sentences:
    def __init__(self, tokens: Tokenizer, characters: Tokenizer, *, enclosed: bool = False) -> None:
        self.tokens, self.characters, self.enclosed = tokens, characters, enclosed
        self.spelled = tokens.level == "symbols"

    def encode(self, texts: Sequence[Sequence[str]]) -> list[Sentence]:
        """Each distinct word is encoded once."""
        distinct = list({word: None for words in texts for word in words})
        closed = [names.closed(word) for word in distinct]
        pieces = dict(zip(distinct, self.tokens.encode_batch(closed), strict=True))
        spelled = dict(zip(distinct, self.characters.encode_batch(closed), strict=True)) if self.spelled else {}
        return [self._sentence(list(words), pieces, spelled) for words in texts]

    def _sentence(self, words: list[str], pieces: dict[str, list[int]], spelled: dict[str, list[int]]) -> Sentence:
        cut = [pieces[word] or [UNKNOWN] for word in words]
        ids = [id for each in cut for id in each]
        if self.spelled:
            return Sentence(words, cut, ids, [id for word in words for id in (*_ends(spelled[word] or [UNKNOWN]), END)])
        begins = [int(place == 0) for each in cut for place in range(len(each))]
        if self.enclosed:
            ids, begins = [START, *ids, END], [0, *begins, 0]
        return Sentence(words, cut, ids, begins)

    def parts(self, sentence: Sentence, most: int) -> Iterator[Sentence]:
        """A sentence as it is, or in parts of at most `most` tokens; none of an empty one."""
        if sum(map(len, sentence.pieces)) <= most:
            if sentence.words:
                yield sentence
            return
        spelled = dict(zip(sentence.words, _split(sentence.inside), strict=True)) if self.spelled else {}
        words: list[str] = []
        pieces = {word: ids[:most] for word, ids in zip(sentence.words, sentence.pieces, strict=True)}
        room = most
        for word in sentence.words:
            if len(pieces[word]) > room:
                yield self._sentence(words, pieces, spelled)
                words, room = [], most
            words.append(word)
            room -= len(pieces[word])
        yield self._sentence(words, pieces, spelled)

    def batch(self, rows: Sequence[tuple[Any, Any]], tags: Tensor) -> Batch:
        """Padded tensors of (ids, inside) rows; the characters of each distinct word stand in it once."""
        ids = torch.from_numpy(pad([np.asarray(row[0]) for row in rows]))
        if not self.spelled:
            firsts = [np.flatnonzero(np.asarray(row[1])) for row in rows]
            return Batch(ids, tags, torch.from_numpy(pad(firsts, -1)), ())
        numbers: dict[tuple[int, ...], int] = {}
        which = [
            np.array([numbers.setdefault(tuple(word), len(numbers)) for word in _split(row[1])], dtype=np.int64)
            for row in rows
        ]
        spellings = pad([np.array(word) for word in numbers])
        return Batch(ids, tags, None, (torch.from_numpy(spellings), torch.from_numpy(pad(which))))

    # ---- from tokens back to words ----------------------------------------------------------------------------------

    def shown(self, sentence: Sentence) -> list[str]:
        """What the columns of `in_words` stand for."""
        return ["▶", *sentence.words, "■"] if self.enclosed else sentence.words

    def in_words(self, weights: NDArray[np.float32], sentence: Sentence) -> NDArray[np.float32]:
        """Weights (…, tokens, tokens) as (…, words, words and marks): the first token of each word speaks for it, and
        what is looked at is summed over a word's tokens."""
        firsts = np.arange(len(sentence.ids)) if self.spelled else np.flatnonzero(sentence.inside)
        return self.columns(weights[..., firsts, :], sentence)

    def columns(self, weights: NDArray[np.float32], sentence: Sentence) -> NDArray[np.float32]:
        """Weights (…, tokens) summed to (…, words and marks)."""
        groups = self._groups(sentence)
        members = np.zeros((len(groups), groups[-1] + 1), dtype=np.float32)
        members[np.arange(len(groups)), groups] = 1
        return np.asarray(weights @ members, dtype=np.float32)

    def _groups(self, sentence: Sentence) -> list[int]:
        """The word of each token, counted with the marks."""
        shift = int(self.enclosed)
        groups = [number + shift for number, ids in enumerate(sentence.pieces) for _ in ids]
        return [0, *groups, groups[-1] + 1] if self.enclosed else groups


def _ends(characters: list[int]) -> list[int]:
    return characters if len(characters) <= 2 * ENDS else [*characters[:ENDS], *characters[-ENDS:]]


def _split(inside: Any) -> list[list[int]]:
    """The characters of each word, from a row with END after each."""
    words: list[list[int]] = [[]]
    for id in inside:
        if id == END:
            words.append([])
        else:
            words[-1].append(int(id))
    return words[:-1]
