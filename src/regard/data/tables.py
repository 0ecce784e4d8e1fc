"""Tables: tab-separated columns, comma-separated values, records, and pronouncing dictionaries.

Two of the columns are the source and the target (convert), the text and its label (classify), or words and their tags.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from regard.data.columns import (
    TAGGED_NAMES,
    ChosenColumns,
    Table,
    columns_by_content,
    given_columns,
    header_evidence,
    named_columns,
)
from regard.data.example import Example, TextExample, make_example
from regard.data.format import NO_TARGET, SAMPLE_LINES, Format, Sample
from regard.data.lines import LONGEST_LINE, UTF_8, Fault, OnFault, read_text
from regard.data.records import read_records, record_table
from regard.data.tagged import split_words
from regard.errors import UserError

CSV_NAME = re.compile(r"\.csv(\.gz)?$", re.IGNORECASE)
SEPARATOR = re.compile(r"sep=(.)\s*$")  # what Excel writes above a table
DELIMITERS = {",": "comma-separated values", ";": "semicolon-separated values", "\t": "tab-separated columns"}
BARS = " ||| "  # as fast_align and Moses write pairs
DICTIONARY_LINE = re.compile(r"(\S+) {2,}(\S.*)")
DICTIONARY_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # READ(1) is a second pronunciation of READ
DICTIONARY_COMMENT = ";;;"
WHOLE = re.compile(r'"(?:[^"]|"")*"')  # a quoted field
RECORDS = ("jsonl", "json", "parquet")
csv.field_size_limit(LONGEST_LINE)  # 131,072 by default, which a chapter has


# ---------------------------------------------------------------------------------------------- recognition


def recognise_table(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file that holds both sides in columns, or None."""
    records = recognise_records(sample, task, sure)
    if records is not None or task not in (None, "convert", "classify"):
        return records
    form = _recognise_csv(sample, task, sure) or recognise_tsv(sample, task, sure)
    if form is not None or task == "classify":
        return form
    return recognise_dictionary(sample)


def recognise_dictionary(sample: Sample) -> Format | None:
    entries = [line for line in sample.filled if not line.startswith(DICTIONARY_COMMENT)]
    if entries and sum(DICTIONARY_LINE.fullmatch(line) is not None for line in entries) >= 0.9 * len(entries):
        return Format("dictionary", 2, "a pronouncing dictionary: a word, two spaces, its symbols")
    return None


def recognise_records(sample: Sample, task: str | None, sure: bool, columns: str = "", kind: str = "") -> Format | None:
    """Return the format of JSON lines, a JSON array or Parquet."""
    found = record_table(sample, kind)
    if found is None:
        return None
    kind, table, listed = found
    choice = given_columns(table, columns, task) if columns else _record_columns(table, task, sure, listed)
    if choice is None:
        return None
    if not columns and choice.target in listed and choice.task != "tag":
        choice = choice._replace(task="tag" if task in (None, "tag") else choice.task)
    description = {"jsonl": "JSON lines", "json": "a JSON array", "parquet": "a Parquet table"}[kind]
    return _format(kind, table, choice, description, header=False, delimiter="")


def _record_columns(table: Table, task: str | None, sure: bool, listed: frozenset[int]) -> ChosenColumns | None:
    names = [name.lower() for name in table.names]
    if task in (None, "tag"):
        for words, tags in TAGGED_NAMES:
            if words in names and tags in names and {names.index(words), names.index(tags)} <= listed:
                return ChosenColumns("tag", (names.index(words),), names.index(tags), "by their names")
        if task == "tag":
            return None
    if task == "continue" or table.width == 1:
        return _texts(table, task)
    return named_columns(table, task) or columns_by_content(table, task, sure)


def _texts(table: Table, task: str | None) -> ChosenColumns | None:
    """Return the column of texts to be continued: the only one, or the one with the most characters."""
    if task not in (None, "continue"):
        return None
    longest = max(range(table.width), key=lambda c: sum(map(len, table.column(c))))
    why = "the only field" if table.width == 1 else "the longest field"
    return ChosenColumns("continue", (longest,), NO_TARGET, why, "\n")


def recognise_tsv(
    sample: Sample, task: str | None, sure: bool, columns: str = "", *, forced: bool = False
) -> Format | None:
    """Return the format of lines that are cut into columns by tabs, or by |||."""
    for delimiter in ("\t", BARS):
        split = [line.split(delimiter) for line in sample.filled]
        width, votes = Counter(map(len, split)).most_common(1)[0] if split else (1, 0)
        rows = [row for row in split if len(row) == width]
        if width == 1 or 2 * votes < len(split) or (delimiter == BARS and votes < 0.95 * len(split)):
            continue
        if not (forced or columns) and sum(not row[0].strip() for row in rows) > 0.5 * len(rows):
            continue  # indented text
        if delimiter == "\t" and _is_quoted(rows):
            return _recognise_delimited(sample, "\t", task, sure, columns)
        return _tsv(sample, rows, delimiter, task, sure, columns)
    return None


def _tsv(
    sample: Sample, rows: list[list[str]], delimiter: str, task: str | None, sure: bool, columns: str
) -> Format | None:
    why = header_evidence(rows[0], rows[1:]) if sample.filled[0].split(delimiter) == rows[0] else ""
    width = len(rows[0])

    def more() -> list[list[str]]:
        return [row for line in sample.far if len(row := line.split(delimiter)) == width]

    names = tuple(name.strip() for name in rows[0]) if why else ()
    table = Table(sample.path, rows[1:] if why else rows, names, more)
    choice = _choice(table, task, sure, columns)
    if choice is None:
        return None
    description = DELIMITERS["\t"] if delimiter == "\t" else "columns separated by |||"
    return _format("tsv", table, choice, description, header=bool(why), delimiter=delimiter)


def _is_quoted(rows: list[list[str]]) -> bool:
    """Return True if quotes belong to the columns: around all of one, or doubled inside some and always closed."""
    fields = [field.strip() for row in rows for field in row if field.strip().startswith('"')]
    if not fields or not all(map(WHOLE.fullmatch, fields)):
        return False
    if any('""' in field[1:-1] for field in fields):
        return True
    body = rows[1:] or rows
    return any(sum(row[c].strip()[:1] == '"' for row in body) >= 0.95 * len(body) for c in range(len(rows[0])))


def _choice(table: Table, task: str | None, sure: bool, columns: str) -> ChosenColumns | None:
    if columns:
        return given_columns(table, columns, task)
    return (named_columns(table, task) if table.names else None) or columns_by_content(table, task, sure)


def _recognise_csv(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return CSV if the header has known names or the file's name says so; a sentence may well begin "source, "."""
    delimiter = _excel_delimiter(sample)
    if delimiter is not None:
        return _recognise_delimited(sample, delimiter, task, sure)
    for delimiter in ",;":
        first = next(iter(_parsed(sample.filled[:1], delimiter)), [])
        if len(first) > 1 and named_columns(Table(sample.path, [], tuple(first)), task) is not None:
            return _recognise_delimited(sample, delimiter, task, sure, named=True)
    if CSV_NAME.search(sample.path):
        return guess_csv(sample, task, sure)
    return None


def _excel_delimiter(sample: Sample) -> str | None:
    match = SEPARATOR.match(sample.filled[0]) if sample.filled else None
    return match[1] if match else None


def guess_csv(
    sample: Sample, task: str | None, sure: bool, columns: str = "", *, forced: bool = False
) -> Format | None:
    """Return CSV if nearly every record has as many fields, and delimiters are not those of sentences."""
    named = forced or CSV_NAME.search(sample.path) is not None
    for delimiter in _excel_delimiter(sample) or (",;\t" if named else ",;"):
        records = _records(sample, delimiter, 0.9 if named or columns else 0.95)
        if len(records) > (0 if named or columns else 1) and (named or columns or not _is_prose(sample, delimiter)):
            return _recognise_delimited(sample, delimiter, task, sure, columns)
    if named:
        what, names = ("labelled texts", "text,label") if task == "classify" else ("pairs", "source,target")
        raise UserError(
            f"{sample.path} does not hold {what}: expected at least two columns in nearly every line, with a header "
            f"such as {names}, found lines of one or of different numbers. Plain text needs --task continue."
        )
    return None


def _is_prose(sample: Sample, delimiter: str) -> bool:
    """Return True if blanks or line ends follow the delimiters, as in sentences."""
    text = "\n".join(line.rstrip() for line in sample.filled) + "\n"
    return text.count(f"{delimiter} ") + text.count(f"{delimiter}\n") > 0.1 * text.count(delimiter)


def _recognise_delimited(
    sample: Sample, delimiter: str, task: str | None, sure: bool, columns: str = "", *, named: bool = False
) -> Format | None:
    records = _records(sample, delimiter, 0.5) or (_parsed(sample.filled[:1], delimiter) if named else [])
    if not records:
        return None
    first, rows = records[0], records[1:]
    why = "the first line names them" if named else header_evidence(first, rows)
    table = Table(
        sample.path, rows if why else records, tuple(first) if why else (), _farther(sample, delimiter, len(first))
    )
    choice = _choice(table, task, sure, columns)
    if choice is None:
        return None
    quoted = ", quoted" if delimiter == "\t" else ""
    description = DELIMITERS.get(delimiter, f"values separated by {delimiter}") + quoted
    return _format("csv", table, choice, description, header=bool(why), delimiter=delimiter)


def _farther(sample: Sample, delimiter: str, width: int) -> Callable[[], list[list[str]]]:
    def more() -> list[list[str]]:
        return [row for line in sample.far for row in _parsed([line], delimiter) if len(row) == width]

    return more


def _records(sample: Sample, delimiter: str, share: float) -> list[list[str]]:
    """Return the records that are as wide as most, or nothing if they are few.

    Quoted fields of a CSV file may span several lines. If one is never closed, it hides all that follow: then each line
    is a record. In what may be plain text a quote means nothing.
    """
    lines = sample.lines[1:] if _excel_delimiter(sample) else sample.lines
    filled = [line for line in lines if line.strip()]
    known = CSV_NAME.search(sample.path) or delimiter == "\t" or _excel_delimiter(sample)
    whole = _parsed([f"{line}\n" for line in lines], delimiter) if known else []
    if whole and len(sample.lines) >= SAMPLE_LINES:
        whole.pop()  # it may go on beyond the sample
    for records in (whole, [record for line in filled for record in _parsed([line], delimiter) or [[]]]):
        if not records:
            continue
        width, votes = Counter(map(len, records)).most_common(1)[0]
        if width >= 2 and votes >= share * len(records):
            return [record for record in records if len(record) == width]
    return []


def _parsed(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the records of some lines up to the first that cannot be parsed, such as a very long line of text."""
    records: list[list[str]] = []
    with suppress(csv.Error):
        records.extend([field.strip() for field in fields] for fields in csv.reader(lines, delimiter=delimiter))
    return [fields for fields in records if any(fields)]


def _format(kind: str, table: Table, choice: ChosenColumns, what: str, *, header: bool, delimiter: str) -> Format:
    names = [table.called(c) for c in (*choice.source, choice.target) if c >= 0]
    if table.names:
        with_header = " with a header" if header else ""
        chosen = (
            f"{what}{with_header}: {' and '.join((', '.join(names[:-1]), names[-1])) if len(names) > 1 else names[0]}"
        )
    else:
        sides = {"classify": ("text", "label"), "tag": ("words", "tags")}.get(choice.task, ("source", "target"))
        if table.width == 2 and choice.target >= 0:
            order = sides if choice.target == 1 else sides[::-1]
            chosen = f"{what}: {order[0]}, {order[1]}"
        else:
            target = f", {names[-1]} the {sides[1]}" if choice.target >= 0 else ""
            source = " and ".join(str(c + 1) for c in choice.source)
            chosen = (
                f"{what}: {source} of {table.width} {'are' if len(choice.source) > 1 else 'is'} the {sides[0]}{target}"
            )
    return Format(
        kind, table.width, chosen, choice.source, choice.target, header, delimiter, choice.task,
        names=table.names, between=choice.between, why=choice.why,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- reading


def read_table(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the examples of a file of the kind "tsv", "csv", "dictionary", "jsonl", "json" or "parquet"."""
    if form.kind in RECORDS:
        rows = read_records(path, form, report, encoding)
    elif form.kind == "csv":
        rows = _read_csv(path, form, report, encoding)
    else:
        rows = _read_columns(path, form, report, encoding)
    for line, fields in rows:
        yield from _select(fields, form, str(path), line, report)


def _select(fields: list[str], form: Format, file: str, line: int, report: OnFault) -> Iterator[TextExample]:
    while len(fields) > form.columns and not fields[-1].strip():
        fields.pop()  # a delimiter at the end of a line
    if len(fields) != form.columns:
        what = f"has {len(fields)} columns, expected {form.columns} ({form.description})"
        report(Fault(file, line, what, "wrong number of columns"))
        return
    if form.target == NO_TARGET:
        for column in form.source:
            yield from (Example(text, "", file, line) for text in fields[column].split("\n"))
        return
    between = form.between
    parts = [fields[column].replace("\n", " ").strip() for column in form.source]
    if len(parts) > 1 and not any(parts):
        parts = [""]
    example = make_example(between.join(parts), fields[form.target].replace("\n", " "), file, line, report, form.task)
    if example is not None and form.task == "tag" and form.input == "tokens":  # other inputs count units of their own
        words, tags = split_words(example.source), split_words(example.target)
        if len(words) != len(tags):
            what = f"has {len(tags)} tags for {len(words)} words; give each word one tag"
            report(Fault(file, line, what, "unequal numbers of words and tags"))
            return
        example = Example(" ".join(words), " ".join(tags), file, line)
    if example is not None:
        yield example


def _read_columns(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield one row for each line of tab-separated columns or of a dictionary."""
    header = form.header
    for number, text in read_text(path, report, encoding):
        if header:
            header = False
            continue
        if not text.strip() and (form.kind != "tsv" or "\t" not in text):  # columns may all be empty, a line is blank
            continue
        if form.kind == "dictionary" and text.startswith(DICTIONARY_COMMENT):
            continue
        yield number, text.split(form.delimiter) if form.kind == "tsv" else _dictionary_fields(text)


def _dictionary_fields(text: str) -> list[str]:
    match = DICTIONARY_LINE.fullmatch(text.rstrip())
    return [DICTIONARY_VARIANT.sub("", match[1]), match[2]] if match else [text]


def _read_csv(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[tuple[int, list[str]]]:
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
        if not first.strip() or (start == 1 and SEPARATOR.match(first)):
            continue
        fields = _csv_record(first, feed, form.delimiter, file, start, report)
        if header:
            header = False
        elif fields is not None:
            yield start, fields


def _csv_record(
    first: str, feed: Iterator[str], delimiter: str, file: str, start: int, report: OnFault
) -> list[str] | None:
    """Return one record: the line given and as many more as its open quotes need."""
    try:
        return next(csv.reader(chain([first], feed), delimiter=delimiter, strict=True))
    except csv.Error as error:
        report(Fault(file, start, f"is not valid CSV ({error}); check its quotes", "not valid CSV"))
        return None
