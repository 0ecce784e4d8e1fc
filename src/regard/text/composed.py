"""Composed characters: Hangul syllables and letters with accents, which Unicode can also write as their parts."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence

NEW = 0.01  # of the texts may hold a composed character that training has not seen
RARE = 0.1  # of the composed characters occur once, at least, where they are decomposed


def decompose(texts: Sequence[str]) -> str:
    """Return why texts should be read in decomposed characters; "" if they should not.

    A character seen once tells of others not seen at all: of the next n texts, about as many hold a new one as there
    are characters seen once in n texts (Good 1953). A new syllable is made of known letters.
    """
    counts = Counter(
        character
        for text in texts
        if not text.isascii()
        for character in unicodedata.normalize("NFC", text)
        if unicodedata.normalize("NFD", character) != character
    )
    once = sum(count == 1 for count in counts.values())
    if once < NEW * len(texts) or once < RARE * len(counts) or once < 2:
        return ""
    seen = f"{once:,} of {len(counts):,} composed characters occur once"
    return f"{seen}, and new ones will come: they are read as their parts"
