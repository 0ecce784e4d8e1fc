"""Choosing settings for texts."""

from __future__ import annotations

from collections import Counter
from typing import Any

from regard import metrics
from regard.data.survey import Survey
from regard.data.tagged import split_words
from regard.inputs.input import Chosen, Use
from regard.text import labels, scripts
from regard.text.closed import WHOLE, closed_level
from regard.text.composed import decompose
from regard.text.tokenizer import SUB_WORDS, choose_level

OFTEN, SPEED = 200, 5_000  # times that little text is seen in the minutes of a training, at so many tokens a second
LEAST = 0.7  # minutes of a training


def chosen(seen: Survey, use: Use) -> Chosen:
    """Return how texts are cut into tokens, and for how long little text is trained on."""
    sections = {
        Use.SOURCE: _for_source,
        Use.UNITS: _for_units,
        Use.LABEL: _for_label,
        Use.STREAM: _for_stream,
        Use.BLANKS: _for_blanks,
    }
    section, reasons = sections[use](seen)
    found, why = {"tokens": section}, {f"tokens.{name}": why for name, why in reasons.items()}
    count = _elements(seen, _used(seen, section["level"]), both=use is Use.SOURCE)
    minutes = round(max(LEAST, min(20.0, OFTEN * count / SPEED / 60)), 1)
    if minutes < 20:
        found["training"] = {"minutes": minutes}
        why["training.minutes"] = (
            f"about {count:,} tokens are seen often enough in {minutes:g} minutes; --minutes changes it"
        )
    return found, why


def _elements(seen: Survey, level: str, *, both: bool) -> int:
    """Return about how many tokens the training data has."""
    texts = [*seen.sources, *(seen.targets if both else ())]
    each = len if level == "characters" else metrics.count_words
    return round(sum(map(each, texts)) * seen.count / max(1, len(seen.sources)))


def _used(seen: Survey, chosen: str) -> str:
    """Return the level that will be used."""
    return seen.given.get("tokens.level", chosen)


def _for_source(seen: Survey) -> Chosen:
    level, why = choose_level(seen.sources)
    if level != "symbols" and _used(seen, "words") in WHOLE:
        level, why = closed_level(seen.sources) or (level, why)
    if _used(seen, level) == "characters" and (parts := decompose(seen.sources)):
        return {"level": level, "decomposed": True}, {"level": why, "decomposed": parts}
    return {"level": level}, {"level": why}


def _for_units(seen: Survey) -> Chosen:
    few = seen.count < 5_000
    counts = Counter(word for text in seen.sources for word in split_words(text.lower()))
    recurring = sum(count > 1 for count in counts.values())
    size = max(300, min(50_000, recurring + labels.FIRST))
    section = {"level": "words", "lowercase": True, "size": size, "unknown": 0.2 if few else 0.1}
    reasons = {
        "size": f"{_covered(size, recurring, len(counts))}; for others there are their characters",
        "unknown": "words become unknown at random in training, so that the model learns from their characters",
    }
    if _used(seen, "words") != "words":
        section["size"] = None
        del reasons["size"]
    return section, reasons


def _covered(size: int, recurring: int, distinct: int) -> str:
    """Return which words a vocabulary of this size holds."""
    if distinct <= size:
        return f"all {distinct:,} words"
    return f"{size:,} words, {'those' if recurring <= size else 'the most frequent'} seen twice or more"


def _for_label(seen: Survey) -> Chosen:
    level, why = choose_level(seen.sources)
    if level == "bpe" and scripts.mostly_unspaced(seen.sources):
        level, why = "characters", "The texts are in a script without spaces: their words cannot be told apart."
    if level != "bpe":
        return {"level": level, "unknown": 0.0 if level == "characters" else 0.1}, {"level": why}
    if (used := _used(seen, "words")) != "words":
        return {"level": "words", "lowercase": True, "unknown": 0.0 if used == "characters" else 0.1}, {}
    counts = Counter(word for text in seen.sources for word in text.lower().split())
    recurring = sum(count > 1 for count in counts.values())
    size = max(300, min(30_000, recurring))
    return {"level": "words", "lowercase": True, "size": size, "unknown": 0.1}, {
        "level": f"{why} Whole words are labelled best from scratch",
        "size": f"{_covered(size, recurring, len(counts))}; others are unknown words",
        "unknown": "words become unknown at random in training, so that the model relies on no single one",
    }


def _for_stream(seen: Survey) -> Chosen:
    characters = seen.count * sum(len(line) + 1 for line in seen.sources) / max(1, len(seen.sources))
    level, why = choose_level(seen.sources)
    size = None
    if level != "symbols" and characters < 5e6:
        level, why = "characters", "the text is short: its characters are learned, and kept exactly"
    elif level != "symbols":
        level, why = "bpe", "the text is long enough to learn sub-words from"
    if _used(seen, level) in SUB_WORDS:
        size = 4_000 if characters < 5e7 else 8_000
    return {"level": level, "size": size}, {"level": why}


def _for_blanks(seen: Survey) -> Chosen:
    lines = [text for text in seen.sources if text.strip()]
    level, why = choose_level(lines)
    if level == "bpe" and scripts.mostly_unspaced(lines):
        level, why = "characters", "The text is in a script without spaces: its words cannot be told apart."
    section: dict[str, Any] = {"level": level}
    reasons = {"level": why}
    if _used(seen, level) in SUB_WORDS:
        words = round(sum(len(line.split()) for line in lines) * seen.count / max(1, len(seen.sources)))
        most = 4_000 if words < 300_000 else 8_000 if words < 20_000_000 else 16_000
        section["size"] = min(most, max(300, len({part for line in lines for part in scripts.parts(line)})))
        reasons["size"] = f"{section['size']:,} sub-words: enough for {words:,} words to show each often"
    return section, reasons
