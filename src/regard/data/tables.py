"""Tables: tab-separated columns, comma-separated values with a header, and pronouncing dictionaries.

Two of the columns are the source and the target (convert), or the text and its label (classify).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from regard.data.example import TextExample, make_example
from regard.data.format import Format, Sample, are_labels
from regard.data.lines import UTF_8, Fault, OnFault, read_text
from regard.errors import UserError

PAIR_NAMES = (("source", "target"), ("src", "tgt"), ("input", "output"))
TEXT_NAMES = (
    *("text", "sentence", "review", "question", "utterance", "tweet", "comment", "message", "content", "document"),
    *("body", "title", "query", "phrase"),
)
LABEL_NAMES = ("label", "class", "category", "intent", "sentiment", "topic", "polarity", "rating", "stars", "target")
LABELLED_NAMES = tuple((text, label) for text in TEXT_NAMES for label in LABEL_NAMES)
CSV_NAME = re.compile(r"\.csv(\.gz)?$", re.IGNORECASE)
FEATURES = re.compile(r"[\w{(][^\s;|=]*[;|=]\S+")  # V;PST, N;ACC(PL), v;pst, pos=V,tense=PST, Case=Nom|Number=Sing
FEATURE = re.compile(r"[A-Z0-9][\w.,()+/{}-]*")  # one alone, such as PL, or any capitalised word
DICTIONARY_LINE = re.compile(r"(\S+) {2,}(\S.*)")
DICTIONARY_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # READ(1) is a second pronunciation of READ
DICTIONARY_COMMENT = ";;;"


# ---------------------------------------------------------------------------------------------- recognition


def recognise_table(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file that holds both sides in columns, or None."""
    if task not in (None, "convert", "classify"):
        return None
    form = _recognise_csv(sample, task, sure) or _recognise_tsv(sample, task, sure)
    if form is not None or task == "classify":
        return form
    entries = [line for line in sample.filled if not line.startswith(DICTIONARY_COMMENT)]
    if entries and sum(DICTIONARY_LINE.fullmatch(line) is not None for line in entries) >= 0.9 * len(entries):
        return Format("dictionary", 2, "a pronouncing dictionary: a word, two spaces, its symbols")
    return None


def _recognise_tsv(sample: Sample, task: str | None, sure: bool) -> Format | None:
    lines = sample.filled
    columns, votes = Counter(line.count("\t") + 1 for line in lines).most_common(1)[0]
    if columns == 1 or 2 * votes < len(lines):
        return None
    fields = lines[0].split("\t")
    named = _named_columns(fields, task)
    if named is not None:
        implied, source, target = named
        description = f"tab-separated columns with a header: {fields[source]} and {fields[target]}"
        return Format("tsv", len(fields), description, (source,), target, header=True, task=implied)
    rows = [line.split("\t") for line in lines if line.count("\t") == columns - 1]
    if columns == 2:
        return _two_columns(rows, task, sure)
    if columns > 3 or task == "classify":
        keep = "text and label" if task == "classify" else "source and target"
        raise UserError(
            f"{sample.path} has {columns} tab-separated columns, expected {'2' if task == 'classify' else '2 or 3'}; "
            f"keep {keep}, or name them in a header."
        )
    return _three_columns(rows, sample.path)


def _two_columns(rows: list[list[str]], task: str | None, sure: bool) -> Format | None:
    label = None if task == "convert" else _label_column(rows, sure)
    if label is not None:
        order = "label, text" if label == 0 else "text, label"
        return Format("tsv", 2, f"tab-separated columns: {order}", (1 - label,), label, task="classify")
    return Format("tsv", 2, "tab-separated columns: source, target") if task != "classify" else None


def _three_columns(rows: list[list[str]], path: str) -> Format:
    if all(row[2].startswith("CC-BY") for row in rows):
        return Format("tsv", 3, "tab-separated columns: source, target, and an attribution that is left out")
    numbered = all(row[0].strip().isdecimal() for row in rows)
    second, third = (_likeness([row[column].strip() for row in rows]) for column in (1, 2))
    if max(second, third) <= (1 if numbered else 0):
        raise UserError(
            f"{path} has 3 tab-separated columns, which are not a lemma, its features (such as V;PST) and its form; "
            "keep source and target, or name them in a header."
        )
    if third > second:
        description = "tab-separated columns: lemma and features (the third) are the source, form the target"
        return Format("tsv", 3, description, (0, 2), 1)
    return Format("tsv", 3, "tab-separated columns: lemma and features are the source, form the target", (0, 1), 2)


def _likeness(column: list[str]) -> float:
    """Return the likeness of a column to features: 0 for none, up to 1 for single ones, above 1 for several in each.

    Any capitalised word could be a single feature; features recur, or consist of capitals alone (PL).
    """
    several = sum(FEATURES.fullmatch(value) is not None for value in column)
    single = sum(FEATURE.fullmatch(value) is not None for value in column)
    if several + single < 0.9 * len(column):
        return 0.0
    if 2 * several >= len(column):
        return 1 + several / len(column)
    varied = len(set(column)) / len(column)
    return 1 - varied / 2 if varied <= 0.5 or all(value.isupper() for value in column) else 0.0


def _label_column(rows: Sequence[Sequence[str]], sure: bool) -> int | None:
    """Return the column that labels the other; if it is `sure` that one does, the less varied or the shorter one."""
    if not rows:
        return None
    first, second = ([row[column].strip() for row in rows] for column in (0, 1))
    if are_labels(second, first):
        return 1
    if are_labels(first, second):
        return 0
    if not sure:
        return None
    weight = [(len(set(column)), sum(map(len, column))) for column in (first, second)]
    return 0 if weight[0] < weight[1] else 1


def _recognise_csv(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return CSV if the header has known names or the file's name says so; a sentence may well begin "source, "."""
    for delimiter in ",;":
        fields = next(iter(_parsed(sample.filled[:1], delimiter)), [])
        named = _named_columns(fields, task)
        if named is not None:
            return _csv_format(fields, *named, delimiter)
    if CSV_NAME.search(sample.path):
        return guess_csv(sample, task, sure)
    return None


def guess_csv(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return CSV with a header of unknown names if nearly every record has as many fields as the header."""
    columns = 0
    for delimiter in ",;":
        fields, rows = _records(sample, delimiter)
        columns = columns or len(fields)
        if len(fields) != 2:
            continue
        label = None if task == "convert" else _label_column(rows, sure)
        if label is not None:
            return _csv_format(fields, "classify", 1 - label, label, delimiter)
        if task != "classify":
            return _csv_format(fields, "convert", 0, 1, delimiter)
    named = CSV_NAME.search(sample.path)
    what, names = ("labelled texts", "text,label") if task == "classify" else ("pairs", "source,target")
    if columns > 2:
        text = "" if named else "; plain text needs --task continue"
        raise UserError(
            f"{sample.path} has {columns} comma-separated columns, none of which has a known name; keep two, or call "
            f"two of them {names.replace(',', ' and ')} in the header{text}."
        )
    if named:
        raise UserError(
            f"{sample.path} does not hold {what}: expected a CSV header with at least two columns, such as {names}."
        )
    return None


def _records(sample: Sample, delimiter: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the records that are as wide, or nothing if they are few.

    Quoted fields of a CSV file may span several lines. If one is never closed, it hides all that follow: then each line
    is a record. In what may be plain text a quote means nothing.
    """
    whole = _parsed([f"{line}\n" for line in sample.lines], delimiter) if CSV_NAME.search(sample.path) else []
    for records in (whole, [record for line in sample.filled for record in _parsed([line], delimiter) or [[]]]):
        fields, rows = records[0] if records else [], records[1:]
        alike = [row for row in rows if len(row) == len(fields)]
        if len(fields) >= 2 and rows and 1 + len(alike) >= 0.9 * len(records):
            return fields, alike
    return [], []


def _parsed(lines: list[str], delimiter: str) -> list[list[str]]:
    """Return the records of some lines up to the first that cannot be parsed, such as a very long line of text."""
    records: list[list[str]] = []
    with suppress(csv.Error):
        records.extend([field.strip() for field in fields] for fields in csv.reader(lines, delimiter=delimiter))
    return [fields for fields in records if any(fields)]


def _csv_format(fields: list[str], task: str, source: int, target: int, delimiter: str) -> Format:
    description = f"comma-separated values with a header: {fields[source]} and {fields[target]}"
    return Format("csv", len(fields), description, (source,), target, True, delimiter, task)


def _named_columns(fields: list[str], task: str | None) -> tuple[str, int, int] | None:
    """Return the task that the names of a header imply (unless it is given), and its columns of source and target."""
    names = [field.strip().lower() for field in fields]
    known = [("convert", PAIR_NAMES), ("classify", LABELLED_NAMES)]
    for spoken_of, sides in known if task != "classify" else reversed(known):
        for source, target in sides:
            if source in names and target in names:
                return task or spoken_of, names.index(source), names.index(target)
    return None


# ---------------------------------------------------------------------------------------------- reading


def read_table(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the examples of a file of the kind "tsv", "csv" or "dictionary"."""
    return (_read_csv if form.kind == "csv" else _read_columns)(path, form, report, encoding)


def _select(fields: list[str], form: Format, file: str, line: int, report: OnFault) -> TextExample | None:
    if len(fields) != form.columns:
        what = f"has {len(fields)} columns, expected {form.columns} ({form.description})"
        report(Fault(file, line, what, "wrong number of columns"))
        return None
    source = "\t".join(fields[column].strip() for column in form.source)
    return make_example(source, fields[form.target], file, line, report, form.task)


def _read_columns(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[TextExample]:
    """Yield one example for each line of tab-separated columns or of a dictionary."""
    file = str(path)
    header = form.header
    for number, text in read_text(path, report, encoding):
        if header:
            header = False
            continue
        if not text.strip() and (form.kind != "tsv" or "\t" not in text):  # columns may all be empty, a line is blank
            continue
        if form.kind == "dictionary" and text.startswith(DICTIONARY_COMMENT):
            continue
        fields = text.split("\t") if form.kind == "tsv" else _dictionary_fields(text)
        example = _select(fields, form, file, number, report)
        if example is not None:
            yield example


def _dictionary_fields(text: str) -> list[str]:
    match = DICTIONARY_LINE.fullmatch(text.rstrip())
    return [DICTIONARY_VARIANT.sub("", match[1]), match[2]] if match else [text]


def _read_csv(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[TextExample]:
    """Yield the records of a CSV file; line breaks inside a quoted field become spaces."""
    file = str(path)
    current = 0

    def lines() -> Iterator[str]:
        nonlocal current
        for number, text in read_text(path, report, encoding):
            current = number
            yield text + "\n"

    feed = lines()
    header = form.header
    for first in feed:
        start = current
        if not first.strip():
            continue
        fields = _csv_record(first, feed, form.delimiter, file, start, report)
        if header:
            header = False
        elif fields is not None:
            example = _select([field.replace("\n", " ") for field in fields], form, file, start, report)
            if example is not None:
                yield example


def _csv_record(
    first: str, feed: Iterator[str], delimiter: str, file: str, start: int, report: OnFault
) -> list[str] | None:
    """Return one record: the line given and as many more as its open quotes need."""
    try:
        return next(csv.reader(chain([first], feed), delimiter=delimiter, strict=True))
    except csv.Error as error:
        report(Fault(file, start, f"is not valid CSV ({error}); check its quotes", "not valid CSV"))
        return None
