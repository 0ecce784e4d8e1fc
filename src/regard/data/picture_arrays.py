"""Pictures in arrays: IDX files with the labels in a file beside them, and NPZ files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.data.example import Example
from regard.data.folders import Handle, is_zip, tree_of
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, refuse
from regard.data.pixels import ImageHandle, decoded
from regard.data.stored_arrays import NPZ, array_of, idx_array, is_idx, located, npz_array, npz_shapes
from regard.errors import UserError

PictureExample = Example[ImageHandle, str]
ALONE = "imagine"  # the task that needs no targets
IMAGES_ONLY = ("images", "image", "pixels")  # names that nothing else has
IMAGE_ARRAYS = (*IMAGES_ONLY, "x", "data")
TARGET_ARRAYS = {
    "classify": ("labels", "label", "y", "targets", "classes"),
    "convert": ("captions", "caption", "texts", "descriptions"),
}
PARTS = {
    "train": ("train", "training"),
    "valid": ("val", "valid", "validation", "dev"),
    "test": ("test", "t10k", "testing"),
}


def npz_file(path: Path) -> tuple[Handle, str] | None:
    """Return an NPZ file, on the disk or in a zip archive, and the part of it that a path such as arrays.npz/train
    names. An archive of one NPZ file alone stands for it."""
    for file, part in ((path, ""), (path.parent, path.name)):
        if file.suffix.lower() == NPZ:
            found = located(file)
            return (found, part) if found.member or file.is_file() else None
    tree = tree_of(path) if is_zip(path) else None
    only = tree.files[0] if tree is not None and len(tree.files) == 1 else None
    return (only, "") if only is not None and only.suffix == NPZ else None


def inside(file: Handle, array: str) -> tuple[str, str]:
    """Return the path and the member that name an array of an NPZ file."""
    return file.path, f"{file.member}/{array}" if file.member else array


def labels_beside(path: Path) -> Handle:
    """Return the IDX file of the labels of an IDX file of pictures."""
    name = path.name.replace("images", "labels").replace("idx3", "idx1").replace("idx4", "idx1")
    for other in (path.with_name(name), path.with_name(name + ".gz"), path.with_name(name.removesuffix(".gz"))):
        found = located(other)
        if other != path and is_idx(found) == 1:
            return found
    raise UserError(f"{path}: its labels are missing: expected {name} beside it.")


def read_idx(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of an IDX file with the labels in the file beside it."""
    del encoding, report
    file = located(path)
    pictures = array_of(file.path, file.member)
    try:
        beside = labels_beside(Path(path))
    except UserError:
        if form.task != ALONE:
            raise
        for index in range(len(pictures)):
            yield Example(ImageHandle(file.path, file.member, index), "", str(path), index + 1)
        return
    labels = idx_array(beside)
    _refuse_uneven(path, len(pictures), str(beside), len(labels))
    refers = () if beside.member else (beside.path,)
    for index, label in enumerate(labels.tolist()):
        picture = ImageHandle(file.path, file.member, index)
        yield Example(picture, str(label), str(path), index + 1, refers=refers)


def _refuse_uneven(path: Path | str, pictures: int, where: str, targets: int) -> None:
    if pictures != targets:
        raise UserError(f"{path} has {pictures:,} pictures, but {where} has {targets:,} labels: expected one for each.")


class NpzKeys(NamedTuple):
    images: str
    targets: str
    task: str


def npz_keys(path: Path, *, alone: bool = False) -> NpzKeys | None:
    """Return the names of the arrays of pictures and of their targets in an NPZ file, or in one part of it; pictures
    `alone` have none."""
    found = npz_file(path)
    if found is None:
        return None
    file, part = found
    shapes = npz_shapes(file)
    images = [key for key, shape in shapes.items() if len(shape) in (3, 4) and _core(key, part) in IMAGE_ARRAYS]
    for task, names in TARGET_ARRAYS.items():
        targets = [key for key, shape in shapes.items() if len(shape) in (1, 2) and _core(key, part) in names]
        if images and targets:
            return NpzKeys(images[0], targets[0], task)
    if images and not (alone or part) and _core(images[0], "") in IMAGES_ONLY:
        arrays = ", ".join(sorted(shapes))
        raise UserError(f"{path}: expected an array of labels or captions beside that of the pictures, found {arrays}.")
    return NpzKeys(images[0], "", ALONE) if alone and images else None


def _core(key: str, part: str) -> str:
    """Return the name of an array without the name of its part: train_images and x_train are images and x."""
    words = key.lower().split("_")
    names = PARTS.get(part, (part,) if part else PARTS["train"])
    rest = [word for word in words if word not in names]
    return "_".join(rest) if not part or len(rest) < len(words) else ""


def parts_of_npz(path: Path) -> dict[str, str]:
    """Return the parts for training, validation and test of an NPZ file that has such ones."""
    found = npz_file(path)
    file = path if found is None else Path(str(found[0]))
    return {part: str(file / part) for part in PARTS if npz_keys(file / part) is not None}


def read_npz(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the pictures of an NPZ file with their labels or captions."""
    del encoding
    keys, found = npz_keys(Path(path), alone=form.task == ALONE), npz_file(Path(path))
    if keys is None or found is None:
        raise UserError(f"{path}: expected arrays such as images and labels, or x_train and y_train.")
    file, (where, member) = str(found[0]), inside(found[0], keys.images)
    pictures = (ImageHandle(where, member, index) for index in range(len(array_of(where, member))))
    if not keys.targets:
        for number, picture in enumerate(pictures, 1):
            if sound(picture, file, number, report):
                yield Example(picture, "", file, number)
        return
    targets = npz_array(found[0], keys.targets)
    _refuse_uneven(path, len(array_of(where, member)), keys.targets, len(targets))
    if targets.ndim == 2 and targets.shape[1] > 1 and targets.dtype.kind in "biuf":
        targets = targets.argmax(1)  # one-hot
    for number, (picture, row) in enumerate(zip(pictures, targets, strict=True), 1):
        texts = [_text(target) for target in np.atleast_1d(row).tolist()]
        if any(texts) and sound(picture, file, number, report):
            yield from (Example(picture, text, file, number) for text in texts if text)


def _text(target: object) -> str:
    return (target.decode("utf-8", "replace") if isinstance(target, bytes) else str(target)).strip()


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


def splits_of_images(path: Path | str) -> dict[str, str]:
    """Return the files for training and test in a folder or archive of IDX files, and the parts of an NPZ file."""
    path = Path(path)
    if npz_file(path) is not None:
        found = parts_of_npz(path)
        return found if "train" in found and len(found) > 1 else {}
    tree = tree_of(path)
    near = min((len(handle.inside) for handle in tree.files), default=0) if tree is not None else 0
    files = [h for h in (tree.files if tree is not None else ()) if len(h.inside) == near and "images" in h.name]
    arrays = [handle for handle in files if is_idx(handle) >= 3]
    found = {part: str(file) for part, names in PARTS.items() for file in arrays if file.name.startswith(names)}
    return found if "train" in found else {}
