"""Statistics of a set of examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from regard.data.example import UNITS, counted

SHOWN_LABELS = 20


@dataclass(frozen=True, slots=True)
class Spread:
    """Lengths of texts."""

    median: int
    most: int  # 95 % are at most this long
    longest: int


@dataclass(frozen=True, slots=True)
class Side:
    """Statistics of the sources, or of the targets."""

    characters: Spread
    words: Spread
    distinct_characters: int
    distinct_words: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of a set of examples."""

    task: str
    pairs: int
    source: Side
    target: Side
    duplicates: int  # pairs that occurred before, exactly
    symbol_share: float  # of the targets, rows of short symbols such as phonemes
    test_pairs: int
    test_sources_seen: int  # sources of the test pairs that also occur in training, with any target
    labels: dict[str, int]  # of texts, or the tags of words: how often each occurs, the most frequent first
    unknown_labels: list[str]  # those of the test pairs that training does not have


def render_statistics(statistics: Statistics) -> list[str]:
    """Return the statistics for a terminal, line by line."""
    noun = UNITS[statistics.task] + "s"
    lines = [f"{counted(statistics.pairs, UNITS[statistics.task])}, {statistics.duplicates:,} of them repeated."]
    if statistics.task == "convert":
        lines += [*_render_side("source", statistics.source), *_render_side("target", statistics.target)]
        if statistics.symbol_share >= 0.005:
            lines.append(f"{100 * statistics.symbol_share:.0f} % of the targets are rows of space-separated symbols.")
    else:
        lines += [*_render_side(UNITS[statistics.task], statistics.source), *_render_labels(statistics)]
    if statistics.test_pairs:
        share = statistics.test_sources_seen / statistics.test_pairs
        what = "the sources of " if statistics.task == "convert" else ""
        lines.append(f"{statistics.test_pairs:,} test {noun}; {what}{100 * share:.1f} % also occur in training.")
    return lines


def _render_side(name: str, side: Side) -> list[str]:
    figures = (
        ("characters", side.characters, side.distinct_characters),
        ("words", side.words, side.distinct_words),
    )
    return [
        f"  {name:<8} {unit:<10}  median {spread.median:>6,}   95 % {spread.most:>6,}   "
        f"longest {spread.longest:>7,}   distinct {distinct:>8,}"
        for unit, spread, distinct in figures
    ]


def shares(labels: Counter[str], noun: str) -> str:
    """Return a line with the share of each label, the most frequent first."""
    shown = [f"{label} {100 * count / labels.total():.1f} %" for label, count in labels.most_common(SHOWN_LABELS)]
    shown += [f"and {len(labels) - len(shown):,} more"] if len(labels) > len(shown) else []
    return f"{counted(len(labels), noun)}: {', '.join(shown)}."


def _render_labels(statistics: Statistics) -> list[str]:
    """Return the frequency of each label or tag, and those that only the test has."""
    lines = []
    noun = "tag" if statistics.task == "tag" else "label"
    if statistics.labels:
        lines.append(shares(Counter(statistics.labels), noun))
    if statistics.unknown_labels:
        unknown = ", ".join(statistics.unknown_labels[:SHOWN_LABELS])
        lines.append(f"Only the test has {len(statistics.unknown_labels):,} of its {noun}s: {unknown}.")
    return lines
