"""Records with named fields: JSON lines, a JSON array, Parquet. A field is a column, and its value is text."""

from __future__ import annotations

import importlib
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.data.columns import Table
from regard.data.format import SAMPLE_LINES, Format, Sample
from regard.data.lines import UTF_8, Fault, OnFault, from_json, open_bytes, open_file, read_text
from regard.errors import UserError

MOST_FIELDS = 1000
LARGEST = 2**30  # bytes of a JSON array, which is parsed whole
ARRAY = re.compile(r"""\s*(\[\s*\{|\{\s*")""")
Record = dict[str, Any]


# ---------------------------------------------------------------------------------------------- recognition


def record_table(sample: Sample, kind: str = "") -> tuple[str, Table, frozenset[int]] | None:
    """Return the kind of records in a file, a table of the first ones, and which of its columns hold lists."""
    if sample.parquet and kind in ("", "parquet"):
        return _table("parquet", sample.path, [*_first(_parquet_records(sample.path))])
    if sample.parquet or kind == "parquet":
        return None
    if kind in ("", "jsonl"):
        records = [record for line in sample.filled if (record := _parsed(line)) is not None]
        around = len(records) == 1 and _array_in(records[0]) is not None
        if records and len(records) >= (0.5 if kind else 0.9) * len(sample.filled) and not around:
            return _table("jsonl", sample.path, records)
    if kind in ("", "json") and ARRAY.match("\n".join(sample.filled[:5])):
        array = _array(sample.path, sample.encoding)
        if array:
            return _table("json", sample.path, array[:SAMPLE_LINES])
    return None


def _first(records: Iterator[tuple[int, Record]]) -> Iterator[Record]:
    for number, record in records:
        if number > SAMPLE_LINES:
            return
        yield record


def _parsed(line: str) -> Record | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = from_json(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _array(path: str, encoding: str) -> list[Record] | None:
    """Return the objects of a JSON array, also of one that is the only array in an object around it."""
    with open_bytes(path) as stream:
        content = stream.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise UserError(
            f"{path}: expected a JSON array of at most {LARGEST:,} bytes. Try one object a line (JSON lines)."
        )
    try:
        text = content.decode(encoding if not encoding.lower().startswith("utf") else "utf-8-sig")
        found = from_json(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict):
        found = _array_in(found) or [found]
    if not isinstance(found, list) or not all(isinstance(record, dict) for record in found):
        return None
    return found


def _array_in(record: Record) -> list[Any] | None:
    """Return the only array of objects in an object."""
    inside = [value for value in record.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    return inside[0] if len(inside) == 1 else None


def _table(kind: str, path: str, records: list[Record]) -> tuple[str, Table, frozenset[int]]:
    names = tuple(dict.fromkeys(name for record in records for name in record))[:MOST_FIELDS]
    listed = frozenset(i for i, name in enumerate(names) if any(isinstance(r.get(name), list) for r in records))
    kept = [i for i, name in enumerate(names) if not any(_is_nested(r.get(name)) for r in records)]
    if not kept:
        what = "objects of their own" if names else "nothing"
        raise UserError(
            f"{path}: expected records with fields of text, such as text and label, found fields that hold {what}: "
            f"{', '.join(names[:8])}. Write each text to a field of its own."
        )
    shown = tuple(names[i] for i in kept)
    rows = [[text_of(record.get(name)) for name in shown] for record in records]
    return kind, Table(path, rows, shown, what="fields"), frozenset(kept.index(i) for i in listed if i in kept)


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(x, dict | list) for x in value))


def text_of(value: Any) -> str:
    """Return a value of a record as text; a list is a row of words."""
    if value is None:
        return ""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return " ".join("_".join(text_of(each).split()) for each in value)
    return (
        str(value) if isinstance(value, int | float) and not isinstance(value, bool) else json.dumps(value, default=str)
    )


# ---------------------------------------------------------------------------------------------- reading


def read_records(
    path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8
) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each record, in the order of the form's names, with its line (JSON lines) or number."""
    if form.kind == "jsonl":
        numbered = _json_lines(path, report, encoding)
    elif form.kind == "json":
        numbered = iter(enumerate(_array(str(path), encoding) or _refuse_array(path), 1))
    else:
        numbered = _parquet_records(path)
    wanted = {form.names[column] for column in (*form.source, form.target) if column >= 0}
    for number, record in numbered:
        missing = sorted(wanted - record.keys())
        if missing:
            what = f"has no field {missing[0]!r}, expected {', '.join(sorted(wanted))}"
            report(Fault(str(path), number, what, "missing fields"))
            continue
        yield number, [text_of(record.get(name)) for name in form.names]


def _refuse_array(path: Path | str) -> list[Record]:
    raise UserError(f"{path}: expected a JSON array of objects.")


def _json_lines(path: Path | str, report: OnFault, encoding: str) -> Iterator[tuple[int, Record]]:
    for number, line in read_text(path, report, encoding):
        if not line.strip():
            continue
        record = _parsed(line)
        if record is None:
            report(
                Fault(str(path), number, 'is not a JSON object, expected one such as {"text": "…"}', "not valid JSON")
            )
        else:
            yield number, record


def _parquet_records(path: Path | str) -> Iterator[tuple[int, Record]]:
    try:
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UserError(
            f"{path} is a Parquet file: expected the package pyarrow to read it, found none. "
            'Try pip install "regard[parquet]".'
        ) from error
    with open_file(path) as stream:
        source = stream if stream.seekable() and isinstance(stream, io.BufferedReader) else io.BytesIO(stream.read())
        try:
            number = 0
            for batch in parquet.ParquetFile(source).iter_batches(1024):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
        except UserError:
            raise
        except Exception as error:  # pyarrow's have no common base
            raise UserError(
                f"{path} is a damaged Parquet file ({str(error).splitlines()[0]}); fetch it again."
            ) from error
