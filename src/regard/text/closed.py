"""Small closed vocabularies: commands, actions, glosses, spelled numbers, whose words are few and all frequent."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from regard.text import scripts
from regard.text.tokenizer import split_word

WHOLE = ("words", "symbols")  # levels of whole words
MOST = 3_000  # distinct words
OFTEN = 5  # times that a word has to occur to count as frequent
SEEN = 30  # times that half of the words occur at least
SHARE = 0.99  # of the words that are frequent


def closed_level(texts: Sequence[str]) -> tuple[str, str] | None:
    """Return the level of whole words for texts that are made of few words, and the reason; None for any others.

    In running text about half of the words occur once (Zipf 1949). Where nearly all occur often, there will hardly be
    new ones, and sub-words would only make texts longer. Numbers in digits are no closed set: others may come.
    """
    counts = Counter(word for text in texts for word in text.split())
    if not _closed(counts, len(texts)) or scripts.mostly_unspaced(texts):
        return None
    why = f"A closed vocabulary of {len(counts):,} words, half of them seen {_median(counts):,.0f} times or more"
    parts: Counter[str] = Counter()
    for word, count in counts.items():
        for part in split_word(word):
            parts[part] += count
    if len(parts) <= len(counts) and parts.keys() != counts.keys():  # the same words, with and without a comma behind
        return "words", f"{why}: words and punctuation marks are learned whole."
    return "symbols", f"{why}: they are learned whole."


def _closed(counts: Counter[str], texts: int) -> bool:
    if not 2 <= len(counts) <= MOST or counts.total() < 2 * texts:
        return False
    frequent = sum(count >= OFTEN for count in counts.values())
    numbers = sum(any(map(str.isdigit, word)) for word in counts)
    return frequent >= SHARE * len(counts) and _median(counts) >= SEEN and numbers <= 0.1 * len(counts)


def _median(counts: Counter[str]) -> float:
    return statistics.median(counts.values())
