"""Lists of pictures: tables and JSON lines with a column of paths and one of labels or captions."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

from regard.data.columns import LABEL_NAMES, TEXT_NAMES
from regard.data.folders import Handle, Tree
from regard.data.format import are_labels
from regard.data.lines import Fault, OnFault, from_json, read_text
from regard.data.pixels import SUFFIXES, ImageHandle

ENOUGH = 0.95  # of the files of a folder, or of the values of a column, that must be pictures
SAMPLE = 1000  # rows of a list that it is recognised by
CAPTION_NAMES = ("caption", "captions", "description", "raw", *TEXT_NAMES)
FOLDERS = ("images", "Images", "image", "imgs", "img", "photos", "pictures", "data", "files")  # beside a list
LISTS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".token")
NUMBERED = re.compile(r"#\d+$")  # the number of a caption in Flickr's lists


def task_of(rows: Sequence[tuple[int, str, str]], said: str | None) -> str:
    """Return classify for labels and convert for captions, as a header says it or the targets show it."""
    if said is not None:
        return said
    targets = [target for _, _, target in rows]
    few = len(set(targets)) <= max(2, 0.2 * len(targets)) and sum(len(t.split()) for t in targets) <= 2 * len(targets)
    return "classify" if few or are_labels(targets, [path for _, path, _ in rows]) else "convert"


@dataclass(frozen=True)
class ImageLayout:
    """The columns of a list: of paths and of targets, by number, or in JSON lines by name."""

    path: int | str
    target: int | str
    delimiter: str  # "json" for JSON lines
    header: bool
    description: str
    said: str | None  # the task that the header names


@dataclass(frozen=True)
class Listing:
    """The lines of a list, and the picture that each of its paths names."""

    name: str
    layout: ImageLayout
    lines: Callable[[], Iterator[tuple[int, str]]]
    find: Callable[[str], ImageHandle]

    def rows(self, report: OnFault = lambda _: None) -> Iterator[tuple[int, str, str]]:
        """Yield line, path and target; several targets of a JSON line one after the other."""
        layout, feed = self.layout, iter(self.lines())
        if layout.header:
            next(feed, None)
        for number, line in feed:
            if not line.strip():
                continue
            fields = _fields(line, layout, feed)
            if fields is None or fields[0] is None or fields[1] is None:
                report(Fault(self.name, number, f"expected {layout.description}, found {line[:60]!r}", "faulty lines"))
                continue
            path, targets = NUMBERED.sub("", str(fields[0]).strip()), fields[1]
            for target in targets if isinstance(targets, list) else [targets]:
                yield number, path, str(target).strip()


def _fields(line: str, layout: ImageLayout, feed: Iterator[tuple[int, str]]) -> tuple[Any, Any] | None:
    if layout.delimiter == "json":
        try:
            found = from_json(line)
            return found.get(layout.path), found.get(layout.target)
        except (ValueError, AttributeError, RecursionError):
            return None
    try:
        more = (f"\n{text}" for _, text in feed)
        row = (
            line.split(layout.delimiter)
            if layout.delimiter in "\t|"
            else next(csv.reader(chain([line], more), delimiter=layout.delimiter, strict=True))
        )
    except (csv.Error, StopIteration):
        return None
    assert isinstance(layout.path, int)
    assert isinstance(layout.target, int)
    if max(layout.path, layout.target) >= len(row):
        return None
    return row[layout.path], " ".join(row[layout.target].split())


def layout_of(lines: Sequence[str], names: Callable[[str], bool] | None = None) -> ImageLayout | None:
    """Return the columns of a list with paths of pictures, or None of a text that holds no such list. `names` is true
    of what is a path; by default of what ends like a picture file."""
    names = names or _names_picture
    filled = [line for line in lines[:SAMPLE] if line.strip()]
    if not filled:
        return None
    if filled[0].lstrip().startswith("{"):
        return _json_layout(filled, names)
    for delimiter in ("\t", "|", ",", ";"):
        rows = [line.split(delimiter) for line in filled] if delimiter in "\t|" else _parsed_rows(filled, delimiter)
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
        if width < 2:
            continue
        header = not any(map(names, rows[0]))
        named = [name.strip().lower() for name in rows[0]] if header else [""] * width
        body = [row for row in rows[header:] if len(row) == width]
        path = next((c for c in range(width) if body and _paths([row[c] for row in body], names)), None)
        if path is None:
            continue
        target = _target_column(named, body, path)
        if target is None:
            continue
        numbered = sum(NUMBERED.search(row[path].strip()) is not None for row in body) >= ENOUGH * len(body)
        said = "convert" if numbered else _said(named[target])
        both = [named[c] or what for c, what in ((path, "path"), (target, "label or caption"))]
        return ImageLayout(path, target, delimiter, header, f"{both[0]} and {both[1]} in columns", said)
    return None


def _parsed_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter))
    except csv.Error:
        return []


def _names_picture(value: str) -> bool:
    return NUMBERED.sub("", value.strip()).lower().endswith(SUFFIXES)


def _paths(values: Sequence[str], names: Callable[[str], bool]) -> bool:
    return sum(map(names, values)) >= ENOUGH * len(values)


def _target_column(named: Sequence[str], body: Sequence[Sequence[str]], path: int) -> int | None:
    """Return the column of the targets: by its name, or the one with the most text."""
    for names in (CAPTION_NAMES[:4], LABEL_NAMES, CAPTION_NAMES):
        for name in names:
            if name in named and named.index(name) != path:
                return named.index(name)
    others = [c for c in range(len(body[0])) if c != path]
    return max(others, key=lambda c: sum(len(row[c]) for row in body), default=None)


def _said(name: str) -> str | None:
    if name in ("caption", "captions", "description", "text", "sentence", "comment"):
        return "convert"
    return "classify" if name in LABEL_NAMES else None


def _json_layout(lines: Sequence[str], names: Callable[[str], bool]) -> ImageLayout | None:
    found = [row for row in map(_object, lines) if row]
    if not found or len(found) < ENOUGH * len(lines):  # a few damaged lines are faults of a list
        return None
    keys = list(found[0])
    path = next((k for k in keys if _paths([str(row.get(k, "")) for row in found], names)), None)
    if path is None:
        return None
    known = [k for k in keys if k != path and isinstance(found[0][k], str | int | list)]
    target = next((n for n in (*CAPTION_NAMES[:4], *LABEL_NAMES, *CAPTION_NAMES) if n in known), None)
    target = target or max(known, key=lambda k: sum(len(str(row.get(k, ""))) for row in found), default=None)
    if target is None:
        return None
    return ImageLayout(path, target, "json", False, f"{path} and {target} in JSON lines", _said(target))


def _object(line: str) -> dict[str, Any] | None:
    """Return the object in a line of JSON, or None of a line that holds none."""
    try:
        found = from_json(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def beside(path: Path) -> Callable[[str], ImageHandle]:
    """Return how a list on the disk finds its pictures: relative to itself, to a folder of pictures or an archive
    beside it, or to the folder above."""
    roots = [
        path.parent,
        *(path.parent / name for name in FOLDERS if (path.parent / name).is_dir()),
        path.parent.parent,
    ]
    last: list[Path] = [roots[0]]

    def find(name: str) -> ImageHandle:
        if os.path.isabs(name):
            return ImageHandle(name)
        for root in (last[0], *roots):
            if (root / name).is_file():
                last[0] = root  # the next ones are probably there, too
                return ImageHandle(str(root / name))
        return ImageHandle(str(path.parent / name))

    return find


def listing_in(
    tree: Tree, names: Callable[[str], bool] | None = None, find: Callable[[str], ImageHandle] | None = None
) -> Listing | None:
    """Return the list that a folder or archive has beside its pictures; `names` is true of what is a path in it, and
    `find` returns what a path names."""
    tables = [h for h in tree.files if h.suffix in LISTS]
    metadata = [h for h in tables if PurePosixPath(h.name).stem == "metadata"]
    top = [h for h in tables if len(h.inside) == min(len(other.inside) for other in tree.files)]
    by_name = {h.inside: h for h in tree.files}
    files = {h.name: h for h in tree.files}
    for handle in (*metadata, *top):
        text = _text(handle)
        layout = layout_of([line for _, line in islice(text(), SAMPLE)], names)
        if layout is not None:
            return Listing(str(handle), layout, text, find or _inside(handle, by_name, files))
    return None


def _inside(
    listing: Handle, by_name: dict[tuple[str, ...], Handle], names: dict[str, Handle]
) -> Callable[[str], ImageHandle]:
    def find(name: str) -> ImageHandle:
        parts = tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))
        found = by_name.get((*listing.inside[:-1], *parts)) or by_name.get(parts)
        found = found or (names.get(parts[-1]) if parts else None)
        if found is not None:
            return ImageHandle(found.path, found.member)
        return outside(name)

    outside = beside(Path(listing.path))  # of an archive that holds the list alone
    return find


def _text(handle: Handle) -> Callable[[], Iterator[tuple[int, str]]]:
    def lines() -> Iterator[tuple[int, str]]:
        if not handle.member:
            yield from read_text(handle.path, lambda _: None)
            return
        yield from enumerate(handle.read().decode("utf-8-sig", "replace").splitlines(), 1)

    return lines


def rows_of(listing: Listing, report: OnFault) -> Iterator[tuple[int, str, str]]:
    """Yield line, path and target of a list; an empty target is a fault."""
    for number, name, target in listing.rows(report):
        if target:
            yield number, name, target
        else:
            what = "the label or caption is empty; fill in or remove the line"
            report(Fault(listing.name, number, what, "empty targets"))
