"""The format of a set of files, and the sample of lines that it is recognised by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from regard.data.lines import UTF_8, count_lines, decode_line, read_lines

MOST_LABELS = 200  # distinct; more are hardly labels
SAMPLE_LINES = 1_000  # of the beginning of a file
STRIDE, FARTHEST = 50, 200_000  # farther lines: every 50th, up to line 200,000
COLUMNED = ("tsv", "csv", "jsonl", "json", "parquet", "columns", "conllu", "aligned")  # kinds with columns to choose
NO_TARGET = -1  # plain text has none


@dataclass(frozen=True, slots=True)
class Format:
    """The recognised kind of a set of files, and the columns (of aligned files: the files) of source and target."""

    kind: str  # one of regard.data.reading.READERS, or "aligned"
    columns: int
    description: str
    source: tuple[int, ...] = (0,)
    target: int = 1
    header: bool = False
    delimiter: str = "\t"
    task: str = "convert"  # or "tag", "classify", "continue"
    input: str = "tokens"  # the input that reads the sources
    names: tuple[str, ...] = ()  # of the columns, where they have any
    between: str = "\t"  # joins the columns of a source
    splits: tuple[tuple[str, str], ...] = ()  # the parts of one file that are for training, validation and test
    cut: bool = False  # these parts are not stated in the file: without its own validation data, some of it is held out
    why: str = field(default="", compare=False)  # the evidence

    @property
    def sentence(self) -> str:
        """Return a sentence: the recognised form, and the evidence for it."""
        return f"{self.description} ({self.why})" if self.why else self.description

    @property
    def chosen(self) -> str:
        """The columns as `--columns` takes them; nothing where there is no choice."""
        if self.kind not in COLUMNED:
            return ""
        names = [*self.names] if self.header or self.kind in ("jsonl", "json", "parquet") else []
        plain = len(set(names)) == len(names) and not any(set(name) & set(",+=") or name.isdecimal() for name in names)
        called = [names[c] if plain and c < len(names) and names[c] else str(c + 1) for c in range(self.columns + 1)]
        source = f"source={'+'.join(called[column] for column in self.source)}"
        return source if self.target == NO_TARGET else f"{source},target={called[self.target]}"


@dataclass(frozen=True)
class Sample:
    """The first lines of a file, blank ones included; more is read when it is asked for."""

    path: str
    lines: list[str]
    encoding: str = UTF_8
    parquet: bool = False  # it has no lines

    @cached_property
    def filled(self) -> list[str]:
        return [line for line in self.lines if line.strip()]

    @cached_property
    def far(self) -> list[str]:
        """Lines from farther on, for a file may be sorted."""
        if len(self.lines) < SAMPLE_LINES:
            return []
        raw = islice(read_lines(self.path), SAMPLE_LINES, FARTHEST, STRIDE)
        lines = (decode_line(self.path, number, line, lambda _: None, self.encoding) for number, line in raw)
        return [line for line in lines if line and line.strip()]

    @cached_property
    def total(self) -> int:
        """The number of lines of the whole file."""
        return count_lines(self.path)


def few(values: Sequence[str], least: int = 2) -> bool:
    """Return True if values repeat as labels do: at most 200 distinct ones and 5 % of the values, of up to 200 20 %.

    Between 200 and 800 values, 40 distinct ones are few: the allowance does not shrink as values are added. At least
    `least` of them, and nine tenths of all values, occur several times.
    """
    counts, total = Counter(values), len(values)
    if least == 1 and len(counts) == 1:
        return total >= 20
    allowed = min(MOST_LABELS, max(0.05 * total, min(0.2 * total, 40)))
    several = [count for count in counts.values() if count > 1]
    return least <= len(several) and len(counts) <= allowed and sum(several) >= 0.9 * total


def are_labels(labels: Sequence[str], texts: Sequence[str]) -> bool:
    """Return True if one column labels the other: few values, and far more varied texts.

    Labels of several words have to repeat more often: a phrase that comes twice may be an answer.
    """
    if not few(labels) or len(set(texts)) < 4 * len(set(labels)):
        return False
    single = sum(len(label.split()) == 1 for label in labels)
    return single >= 0.8 * len(labels) or 10 * len(set(labels)) <= len(labels)
