"""Where an answer looked: weights between answer and source tokens, merged into words, as numbers or `0-0 1-2`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.inputs.tokens import SUB_WORDS, Tokenizer

Aligned = tuple[NDArray[np.float32], list[str], list[str]]  # weights (answer units, source units), their names
PARTS = ("words", *SUB_WORDS)  # levels whose tokens may be parts of a word: at that of words, its punctuation marks


def in_words(
    weights: NDArray[np.float32], text: str, answer: list[int], source: Tokenizer, target: Tokenizer
) -> Aligned:
    """Weights (answer tokens, source tokens) with the units' names: a word is what stands between blanks, whether its
    tokens are sub-words, or itself and its punctuation. Characters and symbols stay what they are."""
    rows, columns = target.pieces_of(answer), source.pieces(text)
    if target.level in PARTS:
        groups = target.groups_of(answer)
        weights, rows = merged(weights, groups, np.mean), joined(rows, groups)
    if source.level in PARTS:
        groups = source.groups(text)
        weights, columns = merged(weights.T, groups, np.sum).T, joined(columns, groups)
    return weights, rows, columns


def merged(weights: NDArray[np.float32], groups: list[int], how: Any) -> NDArray[np.float32]:
    """Rows of one word made one: the mean over answer tokens, the sum over source tokens: rows still add to 1."""
    return np.stack(
        [how(weights[[i for i, g in enumerate(groups) if g == word]], axis=0) for word in sorted({*groups})]
    )


def joined(pieces: list[str], groups: list[int]) -> list[str]:
    """The words that pieces make up."""
    words: dict[int, str] = {}
    for piece, group in zip(pieces, groups, strict=True):
        words[group] = words.get(group, "") + piece.removeprefix("▁")
    return [words[group] for group in sorted(words)]


def pharaoh(weights: NDArray[np.float32]) -> str:
    """`0-0 1-2`: for each answer unit the source unit it looked at most, source first."""
    return " ".join(f"{int(np.argmax(row))}-{j}" for j, row in enumerate(weights))


def rounded(weights: NDArray[np.float32]) -> list[list[float]]:
    """As JSON can hold it, with four digits."""
    return [[round(float(x), 4) for x in row] for row in weights]
