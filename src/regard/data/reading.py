"""Pairs of sequences from text files: tab-separated, comma-separated, line-aligned, or a pronouncing dictionary.

The form is recognised by content, and each form may be gzipped (also by content). Files are streamed: a corpus may
be larger than memory. All text is UTF-8, comes out in Unicode's NFC form and without blanks at its ends.
"""

from __future__ import annotations

import csv
import gzip
import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import BinaryIO, NoReturn, cast

from regard.errors import UserError

SAMPLE_LINES = 1_000  # what `recognise` looks at
LONGEST_LINE = 16 * 2**20  # bytes: a "line" beyond this is no text, and would be held in memory whole
NAMES = (("source", "target"), ("src", "tgt"), ("input", "output"))
DICTIONARY_LINE = re.compile(r"(\S+) {2,}(\S.*)")
DICTIONARY_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # READ(1) is a second pronunciation of READ
DICTIONARY_COMMENT = ";;;"


@dataclass(frozen=True, slots=True)
class Pair:
    """A source and its target, and where they stand (for aligned files: the place in the source file)."""

    source: str
    target: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong at one line; `kind` is the same for faults that a report shows together."""

    file: str
    line: int
    what: str
    kind: str = "other"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class Format:
    """What a set of files was recognised as, and which columns are the source and the target."""

    kind: str  # "tsv", "csv", "aligned" or "dictionary"
    columns: int
    description: str
    source: tuple[int, ...] = (0,)
    target: int = 1
    header: bool = False
    delimiter: str = "\t"


OnFault = Callable[[Fault], None]


def refuse(fault: Fault) -> NoReturn:
    """What is done with a fault when nobody collects them."""
    raise UserError(str(fault))


# ---------------------------------------------------------------------------------------------- lines of bytes


@contextmanager
def open_bytes(path: Path | str) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if they are gzipped; whatever goes wrong is said in one sentence."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path}: there is no such file; check the name and the folder.")
    if path.is_dir():
        raise UserError(f"{path} is a folder, expected a file; name the file or files inside it.")
    if not path.is_file():
        raise UserError(f"{path} is not a regular file, and it has to be read more than once; save it to a file.")
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if packed:
                with gzip.open(raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); fetch or pack it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def read_lines(path: Path | str) -> Iterator[tuple[int, bytes]]:
    r"""Numbered lines of a file, gzipped or not, without their ends (`\n` or `\r\n`) and without a byte order mark."""
    number = 0
    with open_bytes(path) as stream:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                raise UserError(
                    f"{path}:{number}: the line is longer than {LONGEST_LINE:,} bytes; is this text with line breaks?"
                )
            if number == 1:
                line = _without_mark(path, line)
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def _without_mark(path: Path | str, line: bytes) -> bytes:
    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UserError(f"{path} is UTF-16 text, expected UTF-8; save it as UTF-8 (iconv -f UTF-16 -t UTF-8).")
    return line.removeprefix(b"\xef\xbb\xbf")


def decode_line(file: str, number: int, raw: bytes, on_fault: OnFault = refuse) -> str | None:
    """The text of one line in NFC form, or None after its fault was reported."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} (0x{raw[error.start]:02x}) is not valid UTF-8; save the file as UTF-8"
        on_fault(Fault(file, number, what, "not valid UTF-8"))
        return None
    if "\0" in text:
        what = f"character {text.index(chr(0)) + 1} is NUL; remove it"
        on_fault(Fault(file, number, what, "NUL characters"))
        return None
    return unicodedata.normalize("NFC", text)


def read_text(path: Path | str, on_fault: OnFault | None = None) -> Iterator[tuple[int, str]]:
    """Numbered lines of text; a line with a fault is reported and left out."""
    for number, raw in read_lines(path):
        text = decode_line(str(path), number, raw, on_fault or refuse)
        if text is not None:
            yield number, text


# ---------------------------------------------------------------------------------------------- recognising


def recognise(paths: Sequence[Path | str]) -> Format:
    """The form of the files, from their first lines, or a UserError that says why they are not pairs."""
    if not paths:
        raise UserError("No data file was given; name a file of pairs, or two line-aligned files.")
    samples = [_sample(path) for path in paths]
    formats = [_recognise_one(lines, str(path)) for path, lines in zip(paths, samples, strict=True)]
    known = [found for found in formats if found is not None]
    if len(known) == len(paths):
        return _agreed(paths, known)
    if len(paths) == 2:
        return Format("aligned", 1, "two line-aligned files: the first holds sources, the second targets")
    other = next(path for path, found in zip(paths, formats, strict=True) if found is None)
    if len(paths) == 1:
        guessed = _guess_csv(samples[0], str(paths[0]))
        if guessed is not None:
            return guessed
    raise UserError(
        f"{other} does not hold pairs: expected source<TAB>target on each line, a CSV file with a header, "
        f"a dictionary, or two line-aligned files."
    )


def _agreed(paths: Sequence[Path | str], formats: list[Format]) -> Format:
    for path, found in zip(paths, formats, strict=True):
        if found != formats[0]:
            raise UserError(
                f"{paths[0]} and {path} have different forms ({formats[0].description}; {found.description}); "
                f"bring them into one form."
            )
    return formats[0]


def _sample(path: Path | str) -> list[str]:
    """The first readable lines that are not blank."""
    raw = [line for _, line in islice(read_lines(path), SAMPLE_LINES) if line.strip()]
    if not raw:
        raise UserError(f"{path} is empty, expected pairs of sequences.")
    joined = b"\n".join(raw)[: 2**16]
    controls = sum(joined.count(bytes([byte])) for byte in range(32) if byte not in b"\t\n\r\f\x1b")
    if controls > 0.02 * len(joined) + 4:
        raise UserError(f"{path} is a binary file, expected text (or gzipped text); convert it to UTF-8 text first.")
    lines = [text for line in raw if (text := decode_line(str(path), 0, line, lambda _: None)) is not None]
    if not lines:
        raise UserError(f"{path} is not UTF-8 text; save it as UTF-8 (for example iconv -f LATIN1 -t UTF-8).")
    return lines


def _recognise_one(lines: list[str], path: str) -> Format | None:
    """The form of one file that holds both sides, or None for what may be one side of two aligned files."""
    dialect = _recognise_csv(lines, path)
    if dialect is not None:
        return dialect
    columns, votes = Counter(line.count("\t") + 1 for line in lines).most_common(1)[0]
    if columns > 1 and 2 * votes >= len(lines):
        return _recognise_tsv(lines, columns, path)
    entries = [line for line in lines if not line.startswith(DICTIONARY_COMMENT)]
    if entries and sum(DICTIONARY_LINE.fullmatch(line) is not None for line in entries) >= 0.9 * len(entries):
        return Format("dictionary", 2, "a pronouncing dictionary: a word, two spaces, its symbols")
    return None


def _recognise_tsv(lines: list[str], columns: int, path: str) -> Format:
    fields = lines[0].split("\t")
    named = _named_columns(fields)
    if named is not None:
        source, target = named
        description = f"tab-separated columns with a header: {fields[source]} and {fields[target]}"
        return Format("tsv", len(fields), description, (source,), target, header=True)
    if columns == 2:
        return Format("tsv", 2, "tab-separated columns: source, target")
    if columns > 3:
        raise UserError(
            f"{path} has {columns} tab-separated columns, expected 2 or 3; "
            f"keep source and target, or name them in a header."
        )
    rows = [line.split("\t") for line in lines if line.count("\t") == 2]
    if all(row[2].startswith("CC-BY") for row in rows):
        return Format("tsv", 3, "tab-separated columns: source, target, and an attribution that is left out")
    return Format("tsv", 3, "tab-separated columns: lemma and features are the source, form the target", (0, 1), 2)


def _recognise_csv(lines: list[str], path: str) -> Format | None:
    """CSV, if the header uses known names or the file's name says so (a sentence may well begin "source, ")."""
    for delimiter in ",;":
        fields = _csv_fields(lines[0], delimiter)
        named = _named_columns(fields)
        if named is not None:
            return _csv_format(fields, named, delimiter)
    if re.search(r"\.csv(\.gz)?$", path, re.IGNORECASE):
        return _guess_csv(lines, path)
    return None


def _guess_csv(lines: list[str], path: str) -> Format | None:
    """CSV with a header of other names, if nearly every line has the same number of fields as the header."""
    for delimiter in ",;":
        fields = _csv_fields(lines[0], delimiter)
        alike = sum(len(_csv_fields(line, delimiter)) == len(fields) for line in lines)
        if len(fields) >= 2 and len(lines) >= 2 and alike >= 0.9 * len(lines):
            return _csv_format(fields, (0, 1), delimiter)
    if re.search(r"\.csv(\.gz)?$", path, re.IGNORECASE):
        raise UserError(
            f"{path} does not hold pairs: expected a CSV header with at least two columns, such as source,target."
        )
    return None


def _csv_format(fields: list[str], sides: tuple[int, int], delimiter: str) -> Format:
    source, target = sides
    description = f"comma-separated values with a header: {fields[source]} and {fields[target]}"
    return Format("csv", len(fields), description, (source,), target, True, delimiter)


def _csv_fields(line: str, delimiter: str) -> list[str]:
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]


def _named_columns(fields: list[str]) -> tuple[int, int] | None:
    names = [field.strip().lower() for field in fields]
    for source, target in NAMES:
        if source in names and target in names:
            return names.index(source), names.index(target)
    return None


# ---------------------------------------------------------------------------------------------- reading


def read_pairs(
    paths: Sequence[Path | str], on_fault: OnFault | None = None, form: Format | None = None
) -> Iterator[Pair]:
    """The pairs of the files, streamed.

    A fault raises UserError with its file and line; with `on_fault` it is handed over and its pair left out. Blank
    lines say nothing and are passed over, except in aligned files, where they are one empty side.
    """
    report = on_fault or refuse
    form = form or recognise(paths)
    if form.kind == "aligned":
        yield from _read_aligned(paths[0], paths[1], report)
        return
    for path in paths:
        if form.kind == "csv":
            yield from _read_csv(path, form, report)
        else:
            yield from _read_columns(path, form, report)


def _pair(source: str, target: str, file: str, line: int, report: OnFault) -> Pair | None:
    source, target = source.strip(), target.strip()
    if source and target:
        return Pair(source, target, file, line)
    empty = "both sides are" if not source and not target else f"the {'target' if source else 'source'} is"
    report(Fault(file, line, f"{empty} empty; fill in or remove the line", "empty sides"))
    return None


def _select(fields: list[str], form: Format, file: str, line: int, report: OnFault) -> Pair | None:
    if len(fields) != form.columns:
        what = f"has {len(fields)} columns, expected {form.columns} ({form.description})"
        report(Fault(file, line, what, "wrong number of columns"))
        return None
    source = "\t".join(fields[column].strip() for column in form.source)
    return _pair(source, fields[form.target], file, line, report)


def _read_columns(path: Path | str, form: Format, report: OnFault) -> Iterator[Pair]:
    """One pair a line: tab-separated columns, or a dictionary."""
    file = str(path)
    header = form.header
    for number, text in read_text(path, report):
        if header:
            header = False
            continue
        if not text.strip() or (form.kind == "dictionary" and text.startswith(DICTIONARY_COMMENT)):
            continue
        fields = text.split("\t") if form.kind == "tsv" else _dictionary_fields(text)
        pair = _select(fields, form, file, number, report)
        if pair is not None:
            yield pair


def _dictionary_fields(text: str) -> list[str]:
    match = DICTIONARY_LINE.fullmatch(text.rstrip())
    return [DICTIONARY_VARIANT.sub("", match[1]), match[2]] if match else [text]


def _read_csv(path: Path | str, form: Format, report: OnFault) -> Iterator[Pair]:
    """Records of a CSV file; a quoted field may go over several lines, and its line breaks become spaces."""
    file = str(path)
    current = 0

    def lines() -> Iterator[str]:
        nonlocal current
        for number, text in read_text(path, report):
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
            pair = _select([field.replace("\n", " ") for field in fields], form, file, start, report)
            if pair is not None:
                yield pair


def _csv_record(
    first: str, feed: Iterator[str], delimiter: str, file: str, start: int, report: OnFault
) -> list[str] | None:
    """One record: the line given and as many more as its quotes ask for."""
    try:
        return next(csv.reader(chain([first], feed), delimiter=delimiter, strict=True))
    except csv.Error as error:
        report(Fault(file, start, f"is not valid CSV ({error}); check its quotes", "not valid CSV"))
        return None


def _read_aligned(source_path: Path | str, target_path: Path | str, report: OnFault) -> Iterator[Pair]:
    """Line n of the first file belongs to line n of the second."""
    source_file, target_file = str(source_path), str(target_path)
    counts = [0, 0]
    for source, target in zip_longest(read_lines(source_path), read_lines(target_path)):
        counts[0] += source is not None
        counts[1] += target is not None
        if source is None or target is None:
            continue
        number = source[0]
        source_text = decode_line(source_file, number, source[1], report)
        target_text = decode_line(target_file, number, target[1], report)
        if source_text is None or target_text is None:
            continue
        file = source_file if not source_text.strip() or target_text.strip() else target_file
        pair = _pair(source_text, target_text, file, number, report)
        if pair is not None:
            yield pair
    if counts[0] != counts[1]:
        longer, shorter = (source_file, target_file) if counts[0] > counts[1] else (target_file, source_file)
        what = (
            f"has no partner: {longer} has {max(counts):,} lines and {shorter} {min(counts):,}; align them line by line"
        )
        report(Fault(longer, min(counts) + 1, what, "unequal line counts"))
