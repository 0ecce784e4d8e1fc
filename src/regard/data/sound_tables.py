"""Tables of recordings: TSV, CSV, JSONL and `|`-separated lines with a path and a label, transcript or file of labels.

NeMo's manifests, Hugging Face's metadata files, Common Voice, SpeechBrain and LJSpeech are such tables.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.folders import Handle, Tree
from regard.data.format import Format, are_labels
from regard.data.intervals import decoded
from regard.data.lines import Fault, OnFault, decode_line, from_json, read_lines
from regard.data.recordings import FRAMES, SoundExample, example, finder, has_transcript, labels_of
from regard.data.sound import SOUND, Clip
from regard.errors import UserError

SAMPLE = 200
TABLES = (".tsv", ".csv", ".jsonl", ".json", ".txt", ".manifest")
PATHS = ("audio_filepath", "file_name", "path", "audio", "file", "wav", "filename", "filepath", "recording")
TEXTS = ("text", "sentence", "transcription", "transcript", "normalized_text", "wrd", "words")
LABELS = ("label", "class", "command", "category", "intent", "target", "word", "digit", "emotion", "language")
WHO = ("client_id", "speaker", "speaker_id", "spk_id", "spk", "speakerid")
STARTS, ENDS, DURATIONS = ("start", "offset", "begin", "start_time"), ("end", "stop", "end_time"), ("duration",)
NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class SoundTable:
    """The columns of a table of recordings, by name or, without a header, by number."""

    delimiter: str  # "json" for lines of JSON
    header: tuple[str, ...]  # empty: there is none
    path: str
    target: str
    start: str | None = None
    end: str | None = None
    duration: str | None = None
    who: str | None = None


Record = dict[str, str]


def recognise_table(path: Path, encoding: str, task: str | None) -> Format | None:
    """Return the form of a file if a column of it names recordings."""
    if not path.is_file():
        return None
    try:
        lines = [*islice(_text_lines(path, encoding), SAMPLE)]
    except UserError:
        return None
    return _recognised([line for _, line in lines], path.name, task, beside=(path.parent / "wavs").is_dir())


def recognise_inside(tree: Tree, task: str | None) -> Format | None:
    """Return the form of the one table of a folder that names its recordings."""
    found = table_in(tree)
    if found is None:
        return None
    return _recognised(_lines_in(found)[:SAMPLE], found.name, task, beside="wavs" in tree.folders)


def table_in(tree: Tree) -> Handle | None:
    """Return the table directly in a folder; of several the one that is called metadata, train or validated."""
    known = [h for h in tree.files if len(h.inside) == 1 and h.suffix in TABLES]
    fitting = [h for h in known if columns_of(_lines_in(h)[:SAMPLE], beside="wavs" in tree.folders) is not None]
    order = ("metadata", "train", "validated", "manifest")
    return min(fitting, key=lambda h: next((i for i, n in enumerate(order) if h.name.startswith(n)), 9), default=None)


def _lines_in(handle: Handle) -> list[str]:
    return [line for line in decoded(handle.read()).splitlines() if line.strip()]


def _recognised(lines: Sequence[str], name: str, task: str | None, *, beside: bool) -> Format | None:
    table = columns_of([line for line in lines if line.strip()], beside=beside)
    if table is None:
        return None
    rows = [row for _, row in records(enumerate(lines, 1), table, lambda _: None)]
    targets = [row[table.target] for row in rows]
    if not targets or not any(targets):
        raise UserError(f"{name}: expected a label or transcript for each recording in the column {table.target!r}.")
    kind = {".tsv": "TSV", ".csv": "CSV"}.get(
        Path(name).suffix.lower(), "JSONL" if table.delimiter == "json" else "table"
    )
    said = f"{kind} of recordings: {table.path!r} → {table.target!r}" if table.header else f"{kind} of recordings"
    if all(Path(target).suffix.lower() in FRAMES for target in targets):
        own = "tag"
        said += ", files that label frames"
    elif task == "tag":
        raise UserError(
            f"{name}: --task tag labels frames: expected a column of files that label them (.TextGrid, .lab)."
        )
    else:
        own = _task(table, targets, [row[table.path] for row in rows])
    if table.who is not None:
        said += f"; speakers ({table.who}) are held out whole"
    if task == "continue":
        raise UserError("--task continue needs text: recordings cannot be continued.")
    return Format(
        "sound-table", 2, said, header=bool(table.header), delimiter=table.delimiter, task=task or own, input="frames"
    )


def _task(table: SoundTable, targets: list[str], paths: list[str]) -> str:
    name = table.target.lower()
    if table.header and name in TEXTS:
        return "convert"
    if table.header and name in LABELS:
        return "classify"
    return "classify" if are_labels(targets, paths) else "convert"


# ---- columns -------------------------------------------------------------------------------------------------------


def columns_of(lines: Sequence[str], *, beside: bool = False) -> SoundTable | None:
    """Return the columns of a table of recordings; None if no column names some."""
    if not lines:
        return None
    if lines[0].lstrip().startswith("{"):
        return _json_columns(lines)
    for delimiter in ("\t", "|", ",", ";"):
        try:
            rows = [*_cells(lines, delimiter)]
        except csv.Error:
            continue
        width = len(rows[0])
        if width < 2 or sum(len(row) == width for row in rows) < 0.9 * len(rows):
            continue
        found = _columns([row for row in rows if len(row) == width], delimiter)
        if found is not None:
            return found
        if delimiter == "|" and beside and width in (2, 3):
            return SoundTable("|", (), "0", str(width - 1))  # LJSpeech: names without a suffix in wavs/
    return None


def _columns(rows: list[list[str]], delimiter: str) -> SoundTable | None:
    head, body = rows[0], rows[1:]
    places = [i for i in range(len(head)) if body and _named([row[i] for row in body])]
    if not places:
        places = [i for i in range(len(head)) if not body and SOUND.fullmatch(head[i].strip())]
    if not places:
        return None
    place = places[0]
    if SOUND.fullmatch(head[place].strip()) is not None:
        return _unnamed(rows, place, delimiter)
    names = [cell.strip().lower() for cell in head]
    found = _by_names(names, names[place])
    target = found or next((n for i, n in enumerate(names) if i != place), None)
    if target is None:
        return None
    return SoundTable(delimiter, tuple(names), names[place], target, *_times(names), _first(names, WHO))


def _unnamed(rows: list[list[str]], place: int, delimiter: str) -> SoundTable | None:
    """Return the columns where there is no header: two that are numbers are start and end."""
    others = [i for i in range(len(rows[0])) if i != place]
    numeric = [i for i in others if all(NUMBER.fullmatch(row[i].strip()) for row in rows)]
    timed = len(numeric) >= 2 and len(others) > 2
    left = [i for i in others if not timed or i not in numeric[:2]]
    if not left:
        return None
    start, end = (str(numeric[0]), str(numeric[1])) if timed else (None, None)
    return SoundTable(delimiter, (), str(place), str(left[0]), start, end)


def _json_columns(lines: Sequence[str]) -> SoundTable | None:
    try:
        rows = [from_json(line) for line in lines]
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(row, dict) for row in rows):
        return None
    names = [str(name) for name in rows[0]]
    lower = {name.lower(): name for name in names}
    path = next((lower[n] for n in PATHS if n in lower and _named([str(row.get(lower[n], "")) for row in rows])), None)
    if path is None:
        path = next((n for n in names if _named([str(row.get(n, "")) for row in rows])), None)
    target = _by_names([n.lower() for n in names], (path or "").lower())
    if path is None or target is None:
        return None
    start, end, duration = (None if n is None else lower[n] for n in _times([*lower]))
    who = _first([*lower], WHO)
    return SoundTable("json", tuple(names), path, lower[target], start, end, duration, who and lower[who])


def _by_names(names: Sequence[str], path: str) -> str | None:
    """Return the column of transcripts, or else of labels."""
    return next((name for name in (*TEXTS, *LABELS) if name in names and name != path), None)


def _times(names: Sequence[str]) -> tuple[str | None, str | None, str | None]:
    return _first(names, STARTS), _first(names, ENDS), _first(names, DURATIONS)


def _first(names: Sequence[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _named(values: Sequence[str]) -> bool:
    return len(values) > 0 and sum(SOUND.fullmatch(value.strip()) is not None for value in values) >= 0.95 * len(values)


def _cells(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    if delimiter in (",", ";"):
        yield from csv.reader(lines, delimiter=delimiter)
    else:
        yield from (line.split(delimiter) for line in lines)


# ---- reading -------------------------------------------------------------------------------------------------------


def records(lines: Iterable[tuple[int, str]], table: SoundTable, report: Any) -> Iterator[tuple[int, Record]]:
    """Yield numbered rows as dictionaries; a row with too few cells is reported."""
    for number, line in lines:
        if not line.strip():
            continue
        if table.delimiter == "json":
            try:
                row = {str(key): "" if value is None else str(value) for key, value in from_json(line).items()}
            except (ValueError, AttributeError, RecursionError):
                report((number, f"expected a JSON object, found {line[:40]!r}"))
                continue
        else:
            try:
                cells = next(_cells([line], table.delimiter), [])
            except csv.Error:
                report((number, f"expected fields with {table.delimiter!r} between them, found {line[:40]!r}"))
                continue
            if table.header and tuple(cell.strip().lower() for cell in cells) == table.header:
                continue
            names = table.header or [str(i) for i in range(len(cells))]
            row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        missing = next((name for name in (table.path, table.target) if name not in row), None)
        if missing is not None:
            report((number, f"expected a column {missing!r}, found {line[:40]!r}"))
            continue
        yield number, row


def read_sound_table(path: Path | str, form: Format, report: OnFault, encoding: str) -> Iterator[SoundExample]:
    """Yield the recordings that a table names, in a file or in a folder or archive with one."""
    from regard.data.folders import tree_of

    tree = tree_of(path)
    handle = None if tree is None else table_in(tree)
    root = Path(path) if tree is not None else Path(path).parent
    file = str(path) if handle is None else str(handle)
    beside = (root / "wavs").is_dir() if tree is None else "wavs" in tree.folders
    lines = [*_text_lines(Path(path), encoding, report)] if handle is None else [*enumerate(_lines_in(handle), 1)]
    table = columns_of([line for _, line in lines[:SAMPLE] if line.strip()], beside=beside)
    if table is None:
        raise UserError(f"{file}: no column names recordings, expected {form.description}.")
    find = finder(root, tree)

    def fault(found: tuple[int, str]) -> None:
        report(Fault(file, *found, "unreadable rows"))

    for number, row in records(lines, table, fault):
        found = _example(row, table, form, (file, number), find, report)
        if found is not None:
            yield found


def _example(
    row: Record, table: SoundTable, form: Format, at: tuple[str, int], find: Any, report: OnFault
) -> SoundExample | None:
    name = row[table.path] + (".wav" if not SOUND.fullmatch(row[table.path]) and table.delimiter == "|" else "")
    handle = find(name)
    if handle is None:
        why = "a placeholder stands in its path" if "{" in name else "paths are looked for beside the table"
        report(Fault(*at, f"there is no recording {name!r}: {why}", "missing recordings"))
        return None
    times = _part(row, table)
    if isinstance(times, str):
        report(Fault(*at, times, "times"))
        return None
    clip, target, who = Clip(handle, *times), row[table.target], row.get(table.who or "", "")
    if form.task == "tag":
        other = find(target)
        if other is None:
            report(Fault(*at, f"there is no file {target!r} with the labels of frames", "missing labels"))
            return None
        tags = labels_of(clip, other, report, at[1])
        return None if tags is None else example(clip, tags, *at, who, (other.path,))
    return example(clip, target, *at, who) if has_transcript(target, *at, report) else None


def _part(row: Record, table: SoundTable) -> tuple[float, float | None] | str:
    """Return start and end in seconds, or what is wrong with them; a duration without a start says nothing new."""
    found: list[float | None] = []
    for name in (table.start, table.end, table.duration):
        text = row.get(name or "", "")
        if text and not NUMBER.fullmatch(text):
            return f"expected seconds in {name!r}, found {text!r}"
        found.append(float(text) if text else None)
    start, end, duration = found
    if start is not None and end is None and duration is not None and table.start == "offset":
        end = start + duration
    if end is not None and end <= (start or 0.0):
        return f"the part from {start or 0:g} to {end:g} s is empty or runs backwards"
    return start or 0.0, end


def _text_lines(path: Path, encoding: str, report: OnFault | None = None) -> Iterator[tuple[int, str]]:
    for number, raw in read_lines(path):
        text = decode_line(str(path), number, raw, report or (lambda _: None), encoding)
        if text is not None:
            yield number, text
