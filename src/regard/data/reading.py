"""Files as a stream of examples, whatever their format and task.

The format is recognised by content, and each may be gzipped (also by content). Files are streamed: a corpus may be
larger than memory. Text is UTF-8 unless another encoding is given, and comes out in Unicode's NFC form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.data.aligned import read_aligned
from regard.data.example import Example, TextExample
from regard.data.format import Format
from regard.data.labelled import read_labelled
from regard.data.lines import (
    UTF_8,
    Fault,
    OnFault,
    check_encoding,
    decode_line,
    open_bytes,
    read_lines,
    read_text,
    refuse,
)
from regard.data.recognition import SAMPLE_LINES, recognise, recognise_like
from regard.data.tables import read_table
from regard.data.tagged import read_tagged, split_words
from regard.errors import UserError

__all__ = [
    "SAMPLE_LINES",
    "Example",
    "Fault",
    "Format",
    "OnFault",
    "TextExample",
    "decode_line",
    "open_bytes",
    "read_examples",
    "read_lines",
    "read_text",
    "recognise",
    "recognise_like",
    "refuse",
    "split_words",
]


def read_examples(
    paths: Sequence[Path | str],
    on_fault: OnFault | None = None,
    form: Format | None = None,
    encoding: str = UTF_8,
) -> Iterator[TextExample]:
    """Yield the examples of the files.

    A fault raises UserError with its file and line; with `on_fault` it is handed over and its example left out. Blank
    lines are passed over, except in aligned files, where they are an empty side, and in plain text, where they are
    lines like others.
    """
    report = on_fault or refuse
    check_encoding(encoding)
    form = form or recognise(paths, encoding=encoding)
    if form.kind == "aligned":
        if len(paths) != 2:
            raise UserError(f"{paths[0]}: expected {form.description}, found {len(paths)}; name both.")
        yield from read_aligned(paths, form, report, encoding)
        return
    read = READERS[form.kind]
    for path in paths:
        yield from read(path, form, report, encoding)


def read_plain(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the lines of a text as they are, with blank lines and with blanks at the ends."""
    del form
    for number, text in read_text(path, report, encoding):
        yield Example(text, "", str(path), number)


READERS = {
    "tsv": read_table,
    "csv": read_table,
    "dictionary": read_table,
    "columns": read_tagged,
    "conllu": read_tagged,
    "labelled": read_labelled,
    "text": read_plain,
}
