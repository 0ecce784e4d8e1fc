"""Labels and tags as a vocabulary: class c is the token c + 4, after the four special ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from regard.text.tokenizer import SPECIALS, Tokenizer

BLANK = "␣"  # inside a name or a word: the tokenizer cuts at every kind of blank, the no-break one too
FIRST = len(SPECIALS)  # the first id that stands for something in the text


def closed(name: str) -> str:
    """Return a name without blanks inside."""
    return re.sub(r"\s", BLANK, name.strip())


def opened(name: str, blank: str = " ") -> str:
    """Return the name with its blanks restored."""
    return name.replace(BLANK, blank)


def learn(names: Iterable[str]) -> Tokenizer:
    """Return the vocabulary of some names, the most frequent first."""
    return Tokenizer.train(map(closed, names), "symbols")


def classes(vocabulary: Tokenizer, blank: str = " ") -> list[str]:
    """Return the name of each class."""
    return [opened(vocabulary.decode([id]), blank) for id in range(FIRST, vocabulary.size)]


def class_of(id: int) -> int:
    """Return the class of a token; an unknown token counts as the first class, and is never trained on."""
    return max(int(id) - FIRST, 0)
