"""The format of a set of files, and the sample of lines that it is recognised by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

MOST_LABELS = 200  # distinct; more are hardly labels


@dataclass(frozen=True, slots=True)
class Format:
    """The recognised kind of a set of files, and the columns (of aligned files: the files) of source and target."""

    kind: str  # "tsv", "csv", "dictionary", "aligned", "columns", "conllu", "labelled" or "text"
    columns: int
    description: str
    source: tuple[int, ...] = (0,)
    target: int = 1
    header: bool = False
    delimiter: str = "\t"
    task: str = "convert"  # or "tag", "classify", "continue"
    input: str = "tokens"  # the input that reads the sources


@dataclass(frozen=True)
class Sample:
    """The first lines of a file, blank ones included."""

    path: str
    lines: list[str]

    @cached_property
    def filled(self) -> list[str]:
        return [line for line in self.lines if line.strip()]


def few(values: Sequence[str]) -> bool:
    """Return True if values repeat as labels do: at most 200 distinct ones and 5 % of the values, of up to 200 20 %.

    Between 200 and 800 values, 40 distinct ones are few: the allowance does not shrink as values are added. One
    value alone is a label only if it repeats often: a file may be sorted by its labels.
    """
    distinct, count = len(set(values)), len(values)
    allowed = min(MOST_LABELS, max(0.05 * count, min(0.2 * count, 40)))
    return (2 <= distinct <= allowed) or (distinct == 1 and count >= 20)


def are_labels(labels: Sequence[str], texts: Sequence[str]) -> bool:
    """Return True if one column labels the other: few values, mostly single words, and far more varied texts."""
    single = sum(len(label.split()) == 1 for label in labels)
    return few(labels) and single >= 0.8 * len(labels) and len(set(texts)) >= 4 * len(set(labels))
