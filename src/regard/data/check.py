"""Looking through pairs before hours are spent on them: every fault by file and line, and what the data is like.

About 40 bytes are kept for each pair (hashes and lengths, never the text), so that large corpora can be checked.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.reading import Fault, Format, Pair, read_pairs, recognise
from regard.inputs.tokens import looks_like_symbols

SIDES = ("source", "target")
SHOWN = 10  # faults of a kind in a rendered report
KEPT = 10_000  # faults of a kind in memory; beyond that they are only counted
ABSURD_LENGTH = 20  # times the median of its side, and
LONG = 200  # characters at least
ABSURD_RATIO = 9  # times the usual proportion of target to source, and
LONG_FOR_RATIO = 30  # characters at least on the longer side: short texts vary more
# A tab inside a source is the border between a lemma and its features.
STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ufffd]")


@dataclass(frozen=True, slots=True)
class Spread:
    """How long texts are."""

    median: int
    most: int  # 95 % are at most this long
    longest: int


@dataclass(frozen=True, slots=True)
class Side:
    """What the sources, or the targets, are like."""

    characters: Spread
    words: Spread
    distinct_characters: int
    distinct_words: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a set of pairs is like."""

    pairs: int
    source: Side
    target: Side
    duplicates: int  # pairs that occurred before, exactly
    symbol_share: float  # of the targets, rows of short symbols such as phonemes
    test_pairs: int
    test_sources_seen: int  # sources of the test pairs that also occur in training, with any target


@dataclass(frozen=True, slots=True)
class Report:
    """What `check_pairs` found."""

    format: Format
    statistics: Statistics
    faults: list[Fault]
    counts: dict[str, int]  # faults of each kind, also those that are not kept in `faults`

    def render(self) -> str:
        """The report for a terminal."""
        lines = [f"Recognised as {self.format.description}.", *_render_statistics(self.statistics), ""]
        if not self.counts:
            lines.append("No faults were found.")
        for kind, count in self.counts.items():
            lines.append(f"{kind} ({count:,}):")
            shown = [fault for fault in self.faults if fault.kind == kind][:SHOWN]
            lines.extend(f"  {fault}" for fault in shown)
            if count > len(shown):
                lines.append(f"  ... and {count - len(shown):,} more")
        return "\n".join(lines)


def check_pairs(paths: Sequence[Path | str], test_paths: Sequence[Path | str] = ()) -> Report:
    """Read all pairs and report on them; `test_paths` are compared with the others for pairs that occur in both."""
    form = recognise(paths)
    faults = _Faults()
    train = _gather(paths, form, faults)
    test = _gather(test_paths, recognise(test_paths), faults) if test_paths else _Gathered(None)
    train.find_absurd(faults, train)
    test.find_absurd(faults, train)
    _find_leaks(train, test, faults)
    return Report(form, train.statistics(test), faults.kept, dict(faults.counts))


def _gather(paths: Sequence[Path | str], form: Format, faults: _Faults) -> _Gathered:
    gathered = _Gathered(str(paths[1]) if form.kind == "aligned" else None)
    for pair in read_pairs(paths, faults.add, form):
        gathered.add(pair)
        for side, text in enumerate((pair.source, pair.target)):
            match = STRANGE.search(text)
            if match is not None:
                faults.add(_strange(match, side, *gathered.place(len(gathered) - 1, side)))
    return gathered


class _Faults:
    """Faults as they come, the first of each kind kept."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self.counts: Counter[str] = Counter()

    def add(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] <= KEPT:
            self.kept.append(fault)


@dataclass
class _SideCounts:
    """Lengths of one side, and what occurs in it."""

    characters: array[int] = field(default_factory=lambda: array("i"))
    word_counts: Counter[int] = field(default_factory=Counter)
    alphabet: set[str] = field(default_factory=set)
    words: set[int] = field(default_factory=set)

    def add(self, text: str) -> None:
        words = text.split()
        self.characters.append(len(text))
        self.word_counts[len(words)] += 1
        self.alphabet.update(text)
        self.words.update(map(hash, words))

    def summary(self) -> Side:
        lengths = np.array(self.characters, dtype=np.int64)
        words = np.repeat(*(np.array(list(part), dtype=np.int64) for part in _columns(self.word_counts)))
        return Side(_spread(lengths), _spread(words), len(self.alphabet), len(self.words))


def _columns(counts: Counter[int]) -> tuple[list[int], list[int]]:
    return list(counts.keys()), list(counts.values())


def _spread(lengths: NDArray[np.int64]) -> Spread:
    if not lengths.size:
        return Spread(0, 0, 0)
    median, most = np.percentile(lengths, [50, 95], method="higher")
    return Spread(int(median), int(most), int(lengths.max()))


class _Gathered:
    """What is kept of the pairs of one set; `target_file` is given if the targets stand in a file of their own."""

    def __init__(self, target_file: str | None) -> None:
        self._target_file = target_file
        self.source, self.target = _SideCounts(), _SideCounts()
        self.symbols = 0
        self._pairs, self._sources = array("Q"), array("Q")
        self._lines, self._files = array("q"), array("i")
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, pair: Pair) -> None:
        self.source.add(pair.source)
        self.target.add(pair.target)
        self.symbols += looks_like_symbols(pair.target)
        self._sources.append(_hash(pair.source))
        self._pairs.append(_hash(f"{pair.source}\n{pair.target}"))
        self._lines.append(pair.line)
        self._files.append(self._names.setdefault(pair.file, len(self._names)))

    def place(self, index: int, side: int = 0) -> tuple[str, int]:
        """The file and line of the source (side 0) or the target (side 1) of a pair."""
        file = list(self._names)[self._files[index]]
        return (self._target_file or file) if side else file, self._lines[index]

    @property
    def pairs(self) -> NDArray[np.uint64]:
        return np.array(self._pairs, dtype=np.uint64)

    @property
    def sources(self) -> NDArray[np.uint64]:
        return np.array(self._sources, dtype=np.uint64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(pairs, 2) characters of source and target."""
        return np.stack([np.array(side.characters, dtype=np.int64) for side in (self.source, self.target)], axis=1)

    def find_absurd(self, faults: _Faults, usual: _Gathered) -> None:
        """Report lengths and proportions far from those of `usual`."""
        if not len(self) or not len(usual):
            return
        medians = np.median(usual.lengths, axis=0)
        usual_ratio = float(np.median(usual.lengths[:, 1] / usual.lengths[:, 0]))
        lengths = self.lengths
        too_long = lengths > np.maximum(ABSURD_LENGTH * medians, LONG)
        for row, side in np.argwhere(too_long).tolist():
            found = f"the {SIDES[side]} has {lengths[row, side]:,} characters"
            what = f"{found}, half of them have at most {medians[side]:,.0f}; cut or remove it"
            faults.add(Fault(*self.place(row, side), what, "absurd lengths"))
        ratio = lengths[:, 1] / lengths[:, 0] / usual_ratio
        odd = (np.maximum(ratio, 1 / ratio) > ABSURD_RATIO) & (lengths.max(axis=1) >= LONG_FOR_RATIO)
        for row in np.flatnonzero(odd).tolist():
            what = f"{lengths[row, 0]:,} characters stand against {lengths[row, 1]:,}; is this a pair?"
            faults.add(Fault(*self.place(row), what, "absurd length ratios"))

    def statistics(self, test: _Gathered) -> Statistics:
        return Statistics(
            pairs=len(self),
            source=self.source.summary(),
            target=self.target.summary(),
            duplicates=len(self) - len(np.unique(self.pairs)),
            symbol_share=self.symbols / len(self) if len(self) else 0.0,
            test_pairs=len(test),
            test_sources_seen=int(np.isin(test.sources, self.sources).sum()),
        )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _strange(match: re.Match[str], side: int, file: str, line: int) -> Fault:
    where = f"at character {match.start() + 1}"
    if match[0] == "\ufffd":
        what = f"the {SIDES[side]} has U+FFFD {where}: its text was damaged before; restore or remove it"
        return Fault(file, line, what, "replacement characters")
    what = f"the {SIDES[side]} has the control character U+{ord(match[0]):04X} {where}; remove it"
    return Fault(file, line, what, "control characters")


def _find_leaks(train: _Gathered, test: _Gathered, faults: _Faults) -> None:
    """Report test pairs that are also in training, each with the first place where it is."""
    hashes, first = np.unique(train.pairs, return_index=True)
    if not hashes.size:
        return
    wanted = test.pairs
    where = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    for row in np.flatnonzero(hashes[where] == wanted).tolist():
        file, line = train.place(int(first[where[row]]))
        what = f"the pair is also in the training data ({file}:{line}); remove it from one of them"
        faults.add(Fault(*test.place(row), what, "test pairs in the training data"))


def _render_statistics(statistics: Statistics) -> list[str]:
    lines = [f"{statistics.pairs:,} pairs, of which {statistics.duplicates:,} occurred before."]
    for name, side in (("source", statistics.source), ("target", statistics.target)):
        for unit, spread, distinct in (
            ("characters", side.characters, side.distinct_characters),
            ("words", side.words, side.distinct_words),
        ):
            lines.append(
                f"  {name:<6} {unit:<10}  median {spread.median:>6,}   95 % {spread.most:>6,}   "
                f"longest {spread.longest:>7,}   distinct {distinct:>8,}"
            )
    lines.append(f"{statistics.symbol_share:.0%} of the targets are rows of space-separated symbols.")
    if statistics.test_pairs:
        share = statistics.test_sources_seen / statistics.test_pairs
        lines.append(f"{statistics.test_pairs:,} test pairs; the sources of {share:.1%} also occur in training.")
    return lines
