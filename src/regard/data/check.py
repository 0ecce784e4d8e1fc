"""A check of data before training: every fault by file and line, and statistics.

About 40 bytes are kept for each example (hashes and lengths, never the text), so that large corpora can be checked.
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

from regard.data.example import SIDES, UNITS, TextExample
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault
from regard.data.reading import read_examples
from regard.data.recognition import recognise, recognise_like
from regard.data.statistics import Side, Spread, Statistics, render_statistics
from regard.data.tagged import split_words
from regard.text.tokenizer import looks_like_symbols

SHOWN = 10  # faults of a kind in a rendered report
KEPT = 10_000  # faults of a kind in memory; beyond that they are only counted
ABSURD_LENGTH = 20  # times the median of its side, and
LONG = 200  # characters at least
ABSURD_RATIO = 9  # times the usual proportion of target to source, and
LONG_FOR_RATIO = 30  # characters at least on the longer side: short texts vary more
# A tab inside a source is the border between a lemma and its features.
STRANGE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ufffd]")


@dataclass(frozen=True, slots=True)
class DataReport:
    """The result of `check_pairs`."""

    format: Format
    statistics: Statistics
    faults: list[Fault]
    counts: dict[str, int]  # faults of each kind, also those that are not kept in `faults`

    def render(self) -> str:
        """Return the report for a terminal."""
        lines = [f"Recognised as {self.format.description}.", *render_statistics(self.statistics), ""]
        if not self.counts:
            lines.append("No faults were found.")
        for kind, count in self.counts.items():
            lines.append(f"{kind} ({count:,}):")
            shown = [fault for fault in self.faults if fault.kind == kind][:SHOWN]
            lines.extend(f"  {fault}" for fault in shown)
            if count > len(shown):
                lines.append(f"  ... and {count - len(shown):,} more")
        return "\n".join(lines)


def check_pairs(
    paths: Sequence[Path | str],
    test_paths: Sequence[Path | str] = (),
    task: str | None = None,
    encoding: str = UTF_8,
) -> DataReport:
    """Read all examples and report on them; `test_paths` are searched for examples that also occur in training."""
    form = recognise(paths, task, encoding)
    faults = _Faults()
    train = _gather(paths, form, encoding, faults)
    test = _Gathered(form, None)
    if test_paths:
        test = _gather(test_paths, recognise_like(test_paths, form, encoding), encoding, faults)
    if form.task != "continue":  # lines of plain text may be of any length, and many of them recur
        train.find_absurd(faults, train)
        test.find_absurd(faults, train)
        _find_leaks(train, test, faults)
    return DataReport(form, train.statistics(test), faults.kept, dict(faults.counts))


def _gather(paths: Sequence[Path | str], form: Format, encoding: str, faults: _Faults) -> _Gathered:
    gathered = _Gathered(form, str(paths[form.target]) if form.kind == "aligned" else None)
    for example in read_examples(paths, faults.add, form, encoding):
        gathered.add(example)
        for side, text in enumerate((example.source, example.target)):
            match = STRANGE.search(text)
            if match is not None:
                faults.add(_strange(match, SIDES[form.task][side], *gathered.place(len(gathered) - 1, side)))
    return gathered


class _Faults:
    """Counts of faults by kind, and the first faults of each kind."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self.counts: Counter[str] = Counter()

    def add(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] <= KEPT:
            self.kept.append(fault)


@dataclass
class _SideCounts:
    """Lengths of one side, its characters and its words."""

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
    """Hashes and lengths of one set of examples; `target_file` is given if the targets have a file of their own."""

    def __init__(self, form: Format, target_file: str | None) -> None:
        self.task = form.task
        self._target_file = target_file
        self.source, self.target = _SideCounts(), _SideCounts()
        self.symbols = 0
        self.labels: Counter[str] = Counter()
        self.blank = 0
        self._pairs, self._sources = array("Q"), array("Q")
        self._lines, self._files = array("q"), array("i")
        self._names: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, example: TextExample) -> None:
        self.source.add(example.source)
        self.target.add(example.target)
        self.symbols += looks_like_symbols(example.target)
        if self.task in ("tag", "classify"):
            self.labels.update(split_words(example.target) if self.task == "tag" else [example.target])
        self.blank += not example.source.strip()
        self._sources.append(_hash(example.key))
        self._pairs.append(_hash(f"{example.key}\n{example.target}"))
        self._lines.append(example.line)
        self._files.append(self._names.setdefault(example.file, len(self._names)))

    def place(self, index: int, side: int = 0) -> tuple[str, int]:
        """Return the file and line of the source (side 0) or the target (side 1) of an example."""
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
        """(examples, 2) characters of source and target."""
        return np.stack([np.array(side.characters, dtype=np.int64) for side in (self.source, self.target)], axis=1)

    def find_absurd(self, faults: _Faults, usual: _Gathered) -> None:
        """Report lengths far from those of `usual`, and for conversions also length ratios."""
        if not len(self) or not len(usual):
            return
        medians = np.median(usual.lengths, axis=0)
        lengths = self.lengths
        too_long = lengths > np.maximum(ABSURD_LENGTH * medians, LONG)
        too_long[:, 1] &= self.task == "convert"
        for row, side in np.argwhere(too_long).tolist():
            subject = f"the {SIDES[self.task][side]} has {lengths[row, side]:,} characters"
            what = f"{subject}, half of them have at most {medians[side]:,.0f}; cut or remove it"
            faults.add(Fault(*self.place(row, side), what, "absurd lengths"))
        if self.task != "convert":
            return
        ratio = lengths[:, 1] / lengths[:, 0] / float(np.median(usual.lengths[:, 1] / usual.lengths[:, 0]))
        odd = (np.maximum(ratio, 1 / ratio) > ABSURD_RATIO) & (lengths.max(axis=1) >= LONG_FOR_RATIO)
        for row in np.flatnonzero(odd).tolist():
            what = f"{lengths[row, 0]:,} characters stand against {lengths[row, 1]:,}; is this a pair?"
            faults.add(Fault(*self.place(row), what, "absurd length ratios"))

    def statistics(self, test: _Gathered) -> Statistics:
        distinct = len(np.unique(self.pairs)) - bool(self.blank)  # all blank lines are one
        return Statistics(
            task=self.task,
            pairs=len(self),
            source=self.source.summary(),
            target=self.target.summary(),
            duplicates=len(self) - self.blank - distinct,
            symbol_share=self.symbols / len(self) if len(self) else 0.0,
            test_pairs=len(test),
            test_sources_seen=int(np.isin(test.sources, self.sources).sum()),
            labels=dict(self.labels.most_common()),
            unknown_labels=sorted(test.labels.keys() - self.labels.keys()),
        )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _strange(match: re.Match[str], side: str, file: str, line: int) -> Fault:
    where = f"at character {match.start() + 1}"
    if match[0] == "\ufffd":
        what = f"the {side} has U+FFFD {where}: its text was damaged before; restore or remove it"
        return Fault(file, line, what, "replacement characters")
    what = f"the {side} has the control character U+{ord(match[0]):04X} {where}; remove it"
    return Fault(file, line, what, "control characters")


def _find_leaks(train: _Gathered, test: _Gathered, faults: _Faults) -> None:
    """Report test examples that are also in training, each with its first place there."""
    hashes, first = np.unique(train.pairs, return_index=True)
    if not hashes.size:
        return
    wanted = test.pairs
    where = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    for row in np.flatnonzero(hashes[where] == wanted).tolist():
        file, line = train.place(int(first[where[row]]))
        what = f"the {UNITS[train.task]} is also in the training data ({file}:{line}); remove it from one of them"
        faults.add(Fault(*test.place(row), what, f"test {UNITS[train.task]}s in the training data"))
