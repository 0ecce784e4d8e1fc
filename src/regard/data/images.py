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

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.example import Example
from regard.data.folders import Tree, by_folder, some, tree_of
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, read_text
from regard.data.picture_arrays import ALONE, PictureExample, labels_beside, npz_file, npz_keys, sound
from regard.data.picture_lists import SAMPLE, Listing, beside, layout_of, listing_in, rows_of, task_of
from regard.data.pixels import SUFFIXES, ImageHandle
from regard.data.stored_arrays import is_idx, located
from regard.errors import UserError

INPUT = "patches"
WHERE = "give its path from the list, from images/ beside it or from the folder above"


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
            raise UserError(f"{paths[0]} and {path} have different formats: convert them to one.")
    return forms[0]


def _recognise(path: Path, task: str | None) -> Format | None:
    if not path.is_dir() and (dimensions := is_idx(located(path))):
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
    listing = listing_in(tree) if pictures or (tree.archive and len(tree.files) == 1) else None
    if listing is None and (len(pictures) < 0.5 * len(tree.files) or not pictures):
        return None
    ignored = _ignored(tree, listing)
    if listing is not None:
        rows = list(islice(listing.rows(), SAMPLE))
        which = f"{len(pictures):,} pictures" if pictures else "pictures beside the archive"
        what = f"{which}, described by {listing.name}{ignored}"
        return _form("picture list", what, task or task_of(rows, listing.layout.said))
    classes = Counter(label for label, handle in by_folder(tree) if handle.suffix in SUFFIXES)
    if len(classes) < 2 and task == ALONE:
        return _form("pictures", f"{len(pictures):,} pictures without labels{ignored}", task)
    if len(classes) < 2:
        found = f"only {next(iter(classes))!r}" if classes else "none"
        raise UserError(
            f"{tree.path} holds {len(pictures):,} pictures without labels: expected a folder for each class, found "
            f"{found}; or add a metadata.csv with the columns file_name and label or caption."
        )
    what = f"{sum(classes.values()):,} pictures in {len(classes)} folders, one for each class{ignored}"
    return _form("picture folders", what, task or "classify")


def _ignored(tree: Tree, listing: Listing | None) -> str:
    used = "" if listing is None else listing.name
    left = (h for h in tree.files if h.suffix not in SUFFIXES and str(h) != used)
    others = [*tree.ignored, *("/".join(handle.inside) for handle in left)]
    found = f" (ignored: {some(others)})" if others else ""
    return found + (f" (without files: {some(tree.empty)})" if listing is None and tree.empty else "")


def _recognise_list(path: Path, lines: Sequence[str], task: str | None) -> Format | None:
    layout = layout_of(lines)
    if layout is None:
        return None
    listing = Listing(path.name, layout, lambda: ((0, line) for line in lines), beside(path))
    rows = list(listing.rows())
    return _form("picture list", f"a list of pictures: {layout.description}", task or task_of(rows, layout.said))


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
    for number, name, target in rows_of(listing, report):
        picture = listing.find(name)
        if not Path(picture.path).is_file():
            report(Fault(listing.name, number, f"there is no picture {name}; {WHERE}", "missing pictures"))
        elif sound(picture, listing.name, number, report):
            refers = (picture.path,) if tree is None else ()
            yield Example(picture, target, listing.name, number, str(picture), refers)
