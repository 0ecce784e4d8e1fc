"""What all forms of data share: a pair, the description of a form, a sample to recognise it by.

Whatever the task, data is read as pairs: the source is what a model is given, the target what it shall answer.

| task | source | target |
|---|---|---|
| convert | a sequence | another sequence |
| tag | words, one blank between two | as many tags, one blank between two |
| classify | a text | its label |
| continue | a line of text, exactly | nothing |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from regard.data.lines import Fault, OnFault

MOST_LABELS = 200  # distinct; more are hardly labels
SIDES = {
    "convert": ("source", "target"),
    "tag": ("row of words", "row of tags"),
    "classify": ("text", "label"),
    "continue": ("line", "target"),
}
TASKS = tuple(SIDES)


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its target, and where they stand (for aligned files: the place in the source file)."""

    source: str
    target: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Format:
    """What a set of files was recognised as, and which columns (of aligned files: which file) are source and target."""

    kind: str  # "tsv", "csv", "dictionary", "aligned", "columns", "conllu", "labelled" or "text"
    columns: int
    description: str
    source: tuple[int, ...] = (0,)
    target: int = 1
    header: bool = False
    delimiter: str = "\t"
    task: str = "convert"  # or "tag", "classify", "continue"


@dataclass(frozen=True)
class Sample:
    """The first lines of a file, blank ones included."""

    path: str
    lines: list[str]

    @cached_property
    def filled(self) -> list[str]:
        return [line for line in self.lines if line.strip()]


def make_pair(source: str, target: str, file: str, line: int, report: OnFault, task: str) -> Pair | None:
    """A pair without blanks at its ends, or None after it was reported that a side is empty."""
    source, target = source.strip(), target.strip()
    if source and target:
        return Pair(source, target, file, line)
    names = SIDES[task]
    empty = "both sides are" if not source and not target else f"the {names[1 if source else 0]} is"
    kind = "empty sides" if task == "convert" else f"empty {names[1 if source else 0]}s"
    report(Fault(file, line, f"{empty} empty; fill in or remove the line", kind))
    return None


def few(values: Sequence[str]) -> bool:
    """Whether values repeat as labels do: at most 200 distinct ones and 5 % of the values, of up to 200 values 20 %.

    (Between 200 and 800 values, 40 distinct ones are few: the allowance does not shrink as values are added.) One
    value alone is a label only if it repeats often: a file may be sorted by its labels.
    """
    distinct, count = len(set(values)), len(values)
    allowed = min(MOST_LABELS, max(0.05 * count, min(0.2 * count, 40)))
    return (2 <= distinct <= allowed) or (distinct == 1 and count >= 20)


def are_labels(labels: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether one column labels the other: few values, mostly single words, and the other column far more varied."""
    single = sum(len(label.split()) == 1 for label in labels)
    return few(labels) and single >= 0.8 * len(labels) and len(set(texts)) >= 4 * len(set(labels))
