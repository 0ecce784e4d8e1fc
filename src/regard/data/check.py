"""A check of data before training: every fault by file and line, and statistics.

About 40 bytes are kept for each example (hashes and lengths, never the text), so that large corpora can be checked.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from regard.data.example import SIDES, UNITS, Example, TextExample
from regard.data.format import Format
from regard.data.lines import Fault, OnFault
from regard.data.statistics import Side, Spread, Statistics, render_statistics
from regard.data.tagged import split_words
from regard.text.tokenizer import looks_like_symbols

ODD = ("unusual lengths", "unusual length ratios", "control characters", "replacement characters")  # training goes on
LEAKED = "in the training data"
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
    """The findings of `regard check` in data."""

    format: Format
    statistics: Statistics
    faults: list[Fault]
    counts: dict[str, int]  # faults of each kind, also those that are not kept in `faults`
    stops: dict[str, int] = field(default_factory=dict)  # faults that stop a training, by the set they are in
    about: tuple[str, ...] = ()  # lines about things that are no texts, in the place of the statistics

    @property
    def pairs(self) -> int:
        return self.statistics.pairs

    def render(self) -> str:
        """Return the report for a terminal: faults that stop a training, then what is only odd."""
        lines = [f"Recognised as {self.format.sentence}.", *(self.about or render_statistics(self.statistics)), ""]
        stopping, odd = ([k for k in self.counts if (k in ODD or k.endswith(LEAKED)) is only] for only in (False, True))
        if not self.counts:
            lines.append("No faults were found.")
        lines += [line for kind in stopping for line in self._of_kind(kind)]
        if odd:
            lines += ["" if stopping else "No faults were found that stop a training, but these look unusual:"]
            lines += [line for kind in odd for line in self._of_kind(kind)]
        return "\n".join(lines)

    def _of_kind(self, kind: str) -> list[str]:
        count = self.counts[kind]
        shown = [fault for fault in self.faults if fault.kind == kind][:SHOWN]
        more = [f"  ... and {count - len(shown):,} more"] if count > len(shown) else []
        return [f"{kind} ({count:,}):", *(f"  {fault}" for fault in shown), *more]


@dataclass(frozen=True)
class Part:
    """A set of files: for training, validation or test."""

    name: str
    paths: Sequence[Path | str]
    form: Format


Read = Callable[[Sequence[Path | str], Format, OnFault, str], Iterable[Example[Any, Any]]]


def check_parts(train: Part, others: Sequence[Part], encoding: str, read: Read) -> DataReport:
    """Read all examples and report on them; those of other parts should not occur in training."""
    faults, form = Faults(), train.form
    known = _gather(train, encoding, faults, read)
    gathered = {part.name: _gather(part, encoding, faults, read) for part in others}
    if form.task != "continue":  # lines of plain text may be of any length, and many of them recur
        known.find_absurd(faults, known)
        for name, other in gathered.items():
            other.find_absurd(faults, known)
            _find_leaks(known, other, faults, name)
    statistics = known.statistics(gathered.get("test", _Gathered(form, None)))
    return DataReport(form, statistics, faults.kept, dict(faults.counts), dict(faults.stops))


def _gather(part: Part, encoding: str, faults: Faults, read: Read) -> _Gathered:
    form = part.form
    gathered = _Gathered(
        form, str(part.paths[form.target]) if form.kind == "aligned" and len(part.paths) == 2 else None
    )

    def stop(fault: Fault) -> None:
        faults.stops[part.name] += 1
        faults.add(fault)

    for found in read(part.paths, form, stop, encoding):
        example = cast(TextExample, found)
        gathered.add(example)
        for side, text in enumerate((example.source, example.target)):
            match = STRANGE.search(text) if isinstance(text, str) else None
            if match is not None:
                faults.add(_strange(match, SIDES[form.task][side], *gathered.place(len(gathered) - 1, side)))
    return gathered


class Faults:
    """Counts of faults by kind, and the first faults of each kind."""

    def __init__(self) -> None:
        self.kept: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()

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
        self.source.add(str(example.source))
        self.target.add(str(example.target))
        self.symbols += looks_like_symbols(str(example.target))
        if self.task in ("tag", "classify"):
            self.labels.update(split_words(example.target) if self.task == "tag" else [example.target])
        self.blank += not str(example.source).strip()
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

    def find_absurd(self, faults: Faults, usual: _Gathered) -> None:
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
            faults.add(Fault(*self.place(row, side), what, "unusual lengths"))
        if self.task != "convert":
            return
        ratio = lengths[:, 1] / lengths[:, 0] / float(np.median(usual.lengths[:, 1] / usual.lengths[:, 0]))
        odd = (np.maximum(ratio, 1 / ratio) > ABSURD_RATIO) & (lengths.max(axis=1) >= LONG_FOR_RATIO)
        for row in np.flatnonzero(odd).tolist():
            what = f"{lengths[row, 0]:,} characters stand against {lengths[row, 1]:,}; is this a pair?"
            faults.add(Fault(*self.place(row), what, "unusual length ratios"))

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


def _find_leaks(train: _Gathered, test: _Gathered, faults: Faults, name: str) -> None:
    """Report examples of another part that are also in training, each with its first place there."""
    hashes, first = np.unique(train.pairs, return_index=True)
    if not hashes.size:
        return
    wanted = test.pairs
    where = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    for row in np.flatnonzero(hashes[where] == wanted).tolist():
        file, line = train.place(int(first[where[row]]))
        what = f"the {UNITS[train.task]} is also in the training data ({file}:{line}); remove it from one of them"
        faults.add(Fault(*test.place(row), what, f"{name} {UNITS[train.task]}s {LEAKED}"))
