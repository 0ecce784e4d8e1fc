"""Pictures with labels or captions, by content: a folder for each class, IDX and NPZ files, and lists of paths.

| form | recognised by |
|---|---|
| folder per class | at least two folders whose files are pictures |
| list | a column of paths to pictures: TSV, CSV, JSONL, Flickr's `name.jpg#0<TAB>caption` |
| folder with a list | `metadata.csv` or `metadata.jsonl` (Hugging Face), or one table beside the pictures |
| IDX, NPZ | their first bytes; arrays whose names end with images and labels, or are x and y |
| pictures alone | for what makes pictures: any of these without labels |

All of these may lie in a zip archive. Of several captions of one picture each is an example; in an evaluation they are
alternatives.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any

from regard.data.columns import LABEL_NAMES, TEXT_NAMES
from regard.data.example import Example
from regard.data.folders import Handle, Tree, by_folder, tree_of
from regard.data.format import Format, are_labels
from regard.data.lines import UTF_8, Fault, OnFault, read_text, refuse
from regard.data.picture_arrays import ALONE, PictureExample, labels_beside, npz_file, npz_keys
from regard.data.pixels import SUFFIXES, ImageHandle, decoded, is_idx
from regard.errors import UserError

INPUT = "patches"
ENOUGH = 0.95  # of the files of a folder, or of the values of a column, that must be pictures
SAMPLE = 1000  # rows of a list that it is recognised by
CAPTION_NAMES = ("caption", "captions", "description", "raw", *TEXT_NAMES)
PATH_NAMES = ("file_name", "filename", "image", "path", "file", "img", "picture", "image_path", "image_name")
FOLDERS = ("images", "Images", "image", "imgs", "img", "photos", "pictures", "data", "files")  # beside a list
LISTS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt", ".token")
NUMBERED = re.compile(r"#\d+$")  # the number of a caption in Flickr's lists


# ---- recognition ---------------------------------------------------------------------------------------------------


def recognise_images(paths: Sequence[Path], samples: Callable[[], Sequence[Any]], task: str | None) -> Format | None:
    """Return the form of paths that hold pictures, or None; `samples` are the first lines of text files."""
    found = [_recognise(path, task) for path in paths]
    if all(form is not None for form in found):
        return _same(paths, [form for form in found if form is not None])
    if any(form is not None for form in found) or len(paths) != 1 or not paths[0].is_file() or _binary(paths[0]):
        return None
    return _recognise_list(paths[0], samples()[0].filled, task)


def _same(paths: Sequence[Path], forms: Sequence[Format]) -> Format:
    for path, form in zip(paths, forms, strict=True):
        if (form.kind, form.task) != (forms[0].kind, forms[0].task):
            raise UserError(f"{paths[0]} and {path} have different forms; bring them into one form.")
    return forms[0]


def _recognise(path: Path, task: str | None) -> Format | None:
    if path.is_file() and (dimensions := is_idx(path)):
        if dimensions < 3:
            raise UserError(f"{path} holds labels alone: name the file of the pictures, whose labels lie beside it.")
        if task != ALONE:
            labels_beside(path)
        return _form("idx", "IDX: an array of pictures, and their labels beside it", task or "classify")
    if npz_file(path) is not None:
        keys = npz_keys(path, alone=task == ALONE)
        if keys is None:
            return None
        described = f"NPZ: arrays {keys.images} and {keys.targets}" if keys.targets else f"NPZ: the array {keys.images}"
        return _form("npz", described, task or keys.task)
    tree = tree_of(path)
    return None if tree is None else _recognise_tree(tree, task)


def _form(kind: str, description: str, task: str) -> Format:
    return Format(kind, 2, description, task=task, input=INPUT)


def _binary(path: Path) -> bool:
    if path.suffix.lower() in SUFFIXES:
        raise UserError(f"{path} is one picture: name a folder of pictures, or a list of their paths and labels.")
    with path.open("rb") as file:
        start = file.read(512)
    return b"\0" in start and not start.startswith(b"\x1f\x8b")


def _recognise_tree(tree: Tree, task: str | None) -> Format | None:
    pictures = [handle for handle in tree.files if handle.suffix in SUFFIXES]
    if len(pictures) < 0.5 * len(tree.files) or not pictures:
        return None
    ignored = _ignored(tree)
    listing = listing_in(tree)
    if listing is not None:
        rows = list(islice(listing.rows(), SAMPLE))
        what = f"{len(pictures):,} pictures, described by {listing.name}{ignored}"
        return _form("picture list", what, task or _task(rows, listing.layout.said))
    classes = Counter(label for label, handle in by_folder(tree) if handle.suffix in SUFFIXES)
    if len(classes) < 2 and task == ALONE:
        return _form("pictures", f"{len(pictures):,} pictures without labels{ignored}", task)
    if len(classes) < 2:
        found = f"only {next(iter(classes))!r}" if classes else "none"
        raise UserError(
            f"{tree.path} holds {len(pictures):,} pictures without labels: expected a folder for each class, got "
            f"{found}; or add a metadata.csv with the columns file_name and label or caption."
        )
    what = f"{sum(classes.values()):,} pictures in {len(classes)} folders, one for each class{ignored}"
    return _form("picture folders", what, task or "classify")


def _ignored(tree: Tree) -> str:
    others = [*tree.ignored, *("/".join(h.inside) for h in tree.files if h.suffix not in SUFFIXES)]
    if not others:
        return ""
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3:,} more" if len(others) > 3 else "")
    return f" (ignored: {shown})"


def _recognise_list(path: Path, lines: Sequence[str], task: str | None) -> Format | None:
    layout = layout_of(lines)
    if layout is None:
        return None
    listing = Listing(path.name, layout, lambda: ((0, line) for line in lines), beside(path))
    rows = list(listing.rows())
    return _form("picture list", f"a list of pictures: {layout.description}", task or _task(rows, layout.said))


def _task(rows: Sequence[tuple[int, str, str]], said: str | None) -> str:
    """Return classify for labels and convert for captions, as a header says it or the targets show it."""
    if said is not None:
        return said
    targets = [target for _, _, target in rows]
    few = len(set(targets)) <= max(2, 0.2 * len(targets)) and sum(len(t.split()) for t in targets) <= 2 * len(targets)
    return "classify" if few or are_labels(targets, [path for _, path, _ in rows]) else "convert"


# ---- lists ---------------------------------------------------------------------------------------------------------


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
                report(Fault(self.name, number, f"expected {layout.description}, got {line[:60]!r}", "faulty lines"))
                continue
            path, targets = NUMBERED.sub("", str(fields[0]).strip()), fields[1]
            for target in targets if isinstance(targets, list) else [targets]:
                yield number, path, str(target).strip()


def _fields(line: str, layout: ImageLayout, feed: Iterator[tuple[int, str]]) -> tuple[Any, Any] | None:
    if layout.delimiter == "json":
        try:
            found = json.loads(line)
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


def layout_of(lines: Sequence[str]) -> ImageLayout | None:
    """Return the columns of a list with paths of pictures, or None of a text that holds no such list."""
    filled = [line for line in lines[:SAMPLE] if line.strip()]
    if not filled:
        return None
    if filled[0].lstrip().startswith("{"):
        return _json_layout(filled)
    for delimiter in ("\t", "|", ",", ";"):
        rows = [line.split(delimiter) for line in filled] if delimiter in "\t|" else _parsed_rows(filled, delimiter)
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
        if width < 2:
            continue
        header = not any(map(_names_picture, rows[0]))
        named = [name.strip().lower() for name in rows[0]] if header else [""] * width
        body = [row for row in rows[header:] if len(row) == width]
        path = next((c for c in range(width) if body and _paths([row[c] for row in body])), None)
        if path is None:
            continue
        target = _target_column(named, body, path)
        if target is None:
            continue
        said = _said(named[target])
        names = [named[c] or what for c, what in ((path, "path"), (target, "label or caption"))]
        return ImageLayout(path, target, delimiter, header, f"{names[0]} and {names[1]} in columns", said)
    return None


def _parsed_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    try:
        return list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter))
    except csv.Error:
        return []


def _names_picture(value: str) -> bool:
    return NUMBERED.sub("", value.strip()).lower().endswith(SUFFIXES)


def _paths(values: Sequence[str]) -> bool:
    return sum(map(_names_picture, values)) >= ENOUGH * len(values)


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


def _json_layout(lines: Sequence[str]) -> ImageLayout | None:
    try:
        found = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return None
    if not all(isinstance(row, dict) for row in found):
        return None
    keys = list(found[0])
    path = next((k for k in keys if _paths([str(row.get(k, "")) for row in found])), None)
    if path is None:
        return None
    known = [k for k in keys if k != path and isinstance(found[0][k], str | int | list)]
    target = next((n for n in (*CAPTION_NAMES[:4], *LABEL_NAMES, *CAPTION_NAMES) if n in known), None)
    target = target or max(known, key=lambda k: sum(len(str(row.get(k, ""))) for row in found), default=None)
    if target is None:
        return None
    return ImageLayout(path, target, "json", False, f"{path} and {target} in JSON lines", _said(target))


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


def listing_in(tree: Tree) -> Listing | None:
    """Return the list that a folder or archive has beside its pictures."""
    tables = [h for h in tree.files if h.suffix in LISTS]
    metadata = [h for h in tables if PurePosixPath(h.name).stem == "metadata"]
    top = [h for h in tables if len(h.inside) == min(len(other.inside) for other in tree.files)]
    by_name = {h.inside: h for h in tree.files}
    names = {h.name: h for h in tree.files}
    for handle in (*metadata, *top):
        text = _text(handle)
        layout = layout_of([line for _, line in islice(text(), SAMPLE)])
        if layout is not None:
            return Listing(str(handle), layout, text, _inside(handle, by_name, names))
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
        root = listing.path if listing.member else str(Path(listing.path).parent)
        return ImageHandle(str(Path(root) / name))

    return find


def _text(handle: Handle) -> Callable[[], Iterator[tuple[int, str]]]:
    def lines() -> Iterator[tuple[int, str]]:
        if not handle.member:
            yield from read_text(handle.path, lambda _: None)
            return
        yield from enumerate(handle.read().decode("utf-8-sig", "replace").splitlines(), 1)

    return lines


# ---- reading -------------------------------------------------------------------------------------------------------


def read_folders(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of each class folder with the folder's name as label."""
    del form, encoding
    tree = tree_of(path)
    if tree is None:
        raise UserError(f"{path} is neither a folder nor a zip archive, expected a folder for each class.")
    for label, handle in by_folder(tree):
        if handle.suffix in SUFFIXES:
            picture = ImageHandle(handle.path, handle.member)
            if sound(picture, str(picture), 0, report):
                yield Example(picture, label, str(picture), 0)


def read_alone(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield all pictures of a folder or archive, without labels."""
    del form, encoding
    tree = tree_of(path)
    for handle in () if tree is None else tree.files:
        picture = ImageHandle(handle.path, handle.member)
        if handle.suffix in SUFFIXES and sound(picture, str(picture), 0, report):
            yield Example(picture, "", str(picture), 0)


def read_list(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures that a list names, with their labels or captions."""
    del form
    path = Path(path)
    tree = tree_of(path)
    if tree is not None:
        listing = listing_in(tree)
    else:
        lines = [line for _, line in islice(read_text(path, report, encoding), SAMPLE)]
        layout, text = layout_of(lines), lambda: read_text(path, report, encoding)
        listing = None if layout is None else Listing(str(path), layout, text, beside(path))
    if listing is None:
        raise UserError(f"{path} holds no list of pictures: expected a column of paths such as photo.jpg.")
    for number, name, target in listing.rows(report):
        picture = listing.find(name)
        if not target:
            report(
                Fault(
                    listing.name, number, "the label or caption is empty; fill in or remove the line", "empty targets"
                )
            )
        elif not Path(picture.path).is_file():
            report(Fault(listing.name, number, f"there is no picture {name}; check the path", "missing pictures"))
        elif sound(picture, listing.name, number, report):
            refers = (picture.path,) if tree is None else ()
            yield Example(picture, target, listing.name, number, str(picture), refers)


def sound(picture: ImageHandle, file: str, line: int, report: OnFault) -> bool:
    """Decode a picture where faults are collected, so that a damaged one is left out; else it is decoded only once,
    when it is stored, and refused then."""
    if report is refuse:
        return True
    try:
        decoded(picture)
    except UserError as error:
        report(Fault(file, line, str(error).removeprefix(f"{file} "), "unreadable pictures"))
        return False
    return True
