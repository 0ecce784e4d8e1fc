"""Pictures with labels or captions, by content: a folder for each class, IDX and NPZ files, and lists of paths.

| form | recognised by |
|---|---|
| folder per class | at least two folders whose files are pictures |
| list | a column of paths to pictures: TSV, CSV, JSONL, Flickr's `name.jpg#0<TAB>caption` |
| folder with a list | `metadata.csv` or `metadata.jsonl` (Hugging Face), or one table beside the pictures |
| IDX, NPZ | their first bytes; arrays whose names end with images and labels, or are x and y |

All of these may lie in a zip archive. Of several captions of one picture each is an example; in an evaluation they are
alternatives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.example import Example
from regard.data.folders import Tree, by_folder, tree_of
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, read_text, refuse
from regard.data.picture_lists import SAMPLE, Listing, beside, layout_of, listing_in, rows_of, task_of
from regard.data.pixels import SUFFIXES, ImageHandle, array_of, decoded, idx_array, is_idx, npz_array, npz_shapes
from regard.errors import UserError

PictureExample = Example[ImageHandle, str]
INPUT = "patches"
PATH_NAMES = ("file_name", "filename", "image", "path", "file", "img", "picture", "image_path", "image_name")
IMAGE_ARRAYS = ("images", "image", "x", "data", "pixels")
TARGET_ARRAYS = {
    "classify": ("labels", "label", "y", "targets", "classes"),
    "convert": ("captions", "caption", "texts", "descriptions"),
}
PARTS = {
    "train": ("train", "training"),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test", "t10k", "testing"),
}


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
        labels_beside(path)
        return _form("idx", "IDX: an array of pictures, and their labels beside it", task or "classify")
    if _npz(path) is not None:
        keys = npz_keys(path)
        if keys is None:
            return None
        return _form("npz", f"NPZ: arrays {keys.images} and {keys.targets}", task or keys.task)
    tree = tree_of(path)
    return None if tree is None else _recognise_tree(tree, task)


def _form(kind: str, description: str, task: str) -> Format:
    return Format(kind, 2, description, task=task, input=INPUT)


def _npz(path: Path) -> tuple[Path, str] | None:
    """Return an NPZ file and the part of it that a path such as arrays.npz/train names."""
    if path.suffix.lower() == ".npz" and path.is_file():
        return path, ""
    if path.parent.suffix.lower() == ".npz" and path.parent.is_file():
        return path.parent, path.name
    return None


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
        return _form("picture list", what, task or task_of(rows, listing.layout.said))
    classes = Counter(label for label, handle in by_folder(tree) if handle.suffix in SUFFIXES)
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
    return _form("picture list", f"a list of pictures: {layout.description}", task or task_of(rows, layout.said))


# ---- reading -------------------------------------------------------------------------------------------------------


def read_folders(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of each class folder with the folder's name as label."""
    del form, encoding
    tree = tree_of(path)
    if tree is None:
        raise UserError(f"{path} is no folder and no zip archive, expected a folder for each class.")
    for label, handle in by_folder(tree):
        if handle.suffix in SUFFIXES:
            picture = ImageHandle(handle.path, handle.member)
            if sound(picture, str(picture), 0, report):
                yield Example(picture, label, str(picture), 0)


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


def labels_beside(path: Path) -> Path:
    """Return the IDX file of the labels of an IDX file of pictures."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    for found in (path.with_name(name), path.with_name(name + ".gz"), path.with_name(name.removesuffix(".gz"))):
        if found != path and found.is_file() and is_idx(found) == 1:
            return found
    raise UserError(f"{path}: its labels are missing: expected {name} beside it.")


def read_idx(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of an IDX file with the labels in the file beside it."""
    del form, encoding, report
    beside = labels_beside(Path(path))
    labels, pictures = idx_array(beside), array_of(str(path))
    _refuse_uneven(path, len(pictures), str(beside), len(labels))
    for index, label in enumerate(labels.tolist()):
        yield Example(ImageHandle(str(path), "", index), str(label), str(path), index + 1, refers=(str(beside),))


def _refuse_uneven(path: Path | str, pictures: int, where: str, targets: int) -> None:
    if pictures != targets:
        raise UserError(f"{path} has {pictures:,} pictures, but {where} has {targets:,} labels: expected one for each.")


class NpzKeys(NamedTuple):
    images: str
    targets: str
    task: str


def npz_keys(path: Path) -> NpzKeys | None:
    """Return the names of the arrays of pictures and of their targets in an NPZ file, or in one part of it."""
    found = _npz(path)
    if found is None:
        return None
    file, part = found
    shapes = npz_shapes(file)
    images = [key for key, shape in shapes.items() if len(shape) in (3, 4) and _core(key, part) in IMAGE_ARRAYS]
    for task, names in TARGET_ARRAYS.items():
        targets = [key for key, shape in shapes.items() if len(shape) in (1, 2) and _core(key, part) in names]
        if images and targets:
            return NpzKeys(images[0], targets[0], task)
    return None


def _core(key: str, part: str) -> str:
    """Return the name of an array without the name of its part: train_images and x_train are images and x."""
    words = key.lower().split("_")
    names = PARTS.get(part, (part,) if part else PARTS["train"])
    rest = [word for word in words if word not in names]
    return "_".join(rest) if not part or len(rest) < len(words) else ""


def parts_of_npz(path: Path) -> dict[str, str]:
    """Return the parts for training, validation and test of an NPZ file that has such ones."""
    return {part: str(path / part) for part in PARTS if npz_keys(path / part) is not None}


def read_npz(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of an NPZ file with their labels or captions."""
    del form, encoding, report
    keys, found = npz_keys(Path(path)), _npz(Path(path))
    if keys is None or found is None:
        raise UserError(f"{path}: expected arrays such as images and labels, or x_train and y_train.")
    file = str(found[0])
    targets, pictures = npz_array(file, keys.targets), array_of(file, keys.images)
    _refuse_uneven(path, len(pictures), keys.targets, len(targets))
    if targets.ndim == 2 and targets.shape[1] > 1 and targets.dtype.kind in "biuf":
        targets = targets.argmax(1)  # one-hot
    for index, row in enumerate(targets):
        for target in np.atleast_1d(row).tolist():
            text = target.decode("utf-8", "replace") if isinstance(target, bytes) else str(target)
            if text.strip():
                yield Example(ImageHandle(file, keys.images, index), text.strip(), file, index + 1)


def splits_of_images(path: Path | str) -> dict[str, str]:
    """Return the files for training and test in a folder of IDX files, and the parts of an NPZ file."""
    path = Path(path)
    if path.suffix.lower() == ".npz" and path.is_file():
        found = parts_of_npz(path)
        return found if "train" in found and len(found) > 1 else {}
    if not path.is_dir():
        return {}
    files = [file for file in sorted(path.iterdir()) if file.is_file() and "images" in file.name and is_idx(file) >= 3]
    found = {part: str(file) for part, names in PARTS.items() for file in files if file.name.startswith(names)}
    return found if "train" in found else {}
