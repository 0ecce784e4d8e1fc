"""Scripts that are written without a space between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

# First and last code point of each block, and about how many letters a word has there.
HAN = [(0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x323AF)]
KANA = [(0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1AFF0, 0x1B16F)]
OTHERS = [
    (0x0E01, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
]  # fmt: skip
ANY = re.compile("[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in (*HAN, *KANA, *OTHERS)) + "]")  # in a hurry
SPACED = re.compile(r"[^\W\d_]+")  # runs of letters
LETTERS_OF_A_WORD = {"han": 1.5, "kana": 3.0, "other": 5.0}
COUNTING = "年月日号號時时分秒"  # with numerals, Han characters of dates and times: no sentence
DEPENDENT = "ะาำๅະາຳ"  # vowels of Thai and Lao that are letters to Unicode, but never begin anything
STACKING = "\u1039\u17d2"  # what follows these signs of Myanmar and Khmer is written below what stands before them
ENDS = ("。", "！", "？", "｡", "။", "།", "។", "。」", "！」", "？」", "。”", "！”", "？”")  # of sentences


@lru_cache(maxsize=1 << 15)
def script(character: str) -> str:
    """Return "han", "kana" or "other" for a letter or mark of a script without spaces, "" for everything else."""
    point = ord(character)
    for name, blocks in (("other", OTHERS), ("kana", KANA), ("han", HAN)):
        if any(low <= point <= high for low, high in blocks):
            return name if unicodedata.category(character)[0] in "LM" or character == "〇" else ""
    return ""


def opens(before: str, piece: str) -> bool:
    """Return True if a piece begins a new unit after the piece before it, without a space between them.

    It does at a letter of a script without spaces, and at the end of such a script. A mark, a sign that repeats or
    lengthens what it follows and punctuation belong to what stands before them.
    """
    if not before or not piece:
        return False
    first, last = piece[0], before[-1]
    if not first.isalnum() or unicodedata.category(first) == "Lm" or first in DEPENDENT or last in STACKING:
        return False
    return bool(script(first) or script(last))


def mostly_unspaced(texts: Iterable[str]) -> bool:
    """Return True if more than half of the words are written in scripts without spaces."""
    difference = 0.0
    for text in texts:
        difference += (_words_in(text) if ANY.search(text) else 0) - len(SPACED.findall(ANY.sub(" ", text)))
    return difference > 0


def mostly_han(texts: Iterable[str]) -> bool:
    """Return True if the letters of scripts without spaces are Chinese: Han, with hardly any kana or others."""
    letters = [script(character) for text in texts if ANY.search(text) for character in text]
    return letters.count("han") >= 0.9 * sum(map(bool, letters)) > 0


def count_words(text: str) -> float:
    """Return the approximate number of words: those between blanks; in scripts without spaces, by their letters."""
    words = text.split()
    return sum(max(1.0, _words_in(word)) for word in words) if ANY.search(text) else len(words)


def parts(text: str) -> list[str]:
    """Return the units to learn a vocabulary from: words; in scripts without spaces, pairs of neighbouring letters."""
    words = text.split()
    if not ANY.search(text):
        return words
    return [part for word in words for part in ([word] if not ANY.search(word) else map("".join, pairwise(f" {word}")))]


def is_sentence(text: str) -> bool:
    """Return True if a text in a script without spaces ends as sentences do and has more than one word."""
    return text.endswith(ENDS) and count_words(text) > 1 and ANY.search(text) is not None


def _words_in(text: str) -> float:
    """Return the approximate number of words in scripts without spaces; numerals and units of time do not count."""
    return sum(
        1 / LETTERS_OF_A_WORD[name]
        for character in text
        if (name := script(character)) and character not in COUNTING and not _is_number(character)
    )


def _is_number(character: str) -> bool:
    return unicodedata.numeric(character, None) is not None
