"""Clips with labels or captions: animated GIF and WebP files, and folders of numbered frames.

| form | recognised by |
|---|---|
| animated files | the forms of pictures (`regard.data.images`), where the files have several frames each |
| frames | `label/clip/0001.png`: folders of pictures of consecutive numbers, in a folder for each class |
| frames with a list | such folders, and a table with a column of their names |

All of these may lie in a zip archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.example import Example
from regard.data.folders import Handle, Tree, by_folder, tree_of
from regard.data.format import Format
from regard.data.images import recognise_images
from regard.data.lines import UTF_8, Fault, OnFault
from regard.data.picture_arrays import PictureExample
from regard.data.picture_lists import Listing, listing_in, rows_of, task_of
from regard.data.pixels import SUFFIXES, ImageHandle, Pixels, decoded, frame_count, frames_at
from regard.errors import UserError

INPUT = "clips"
ANIMATED = (".gif", ".webp", ".png")
SAMPLE = 20  # files that are looked into
COMPARED = 8  # frames by which clips are compared
ENOUGH = 0.9  # of these that must have several frames
NUMBER = re.compile(r"(\d+)\D*$")
FRAMES, FRAME_LIST = "frame folders", "frame list"


# ---- recognition ---------------------------------------------------------------------------------------------------


def recognise_clips(paths: Sequence[Path], samples: Callable[[], Sequence[Any]], task: str | None) -> Format | None:
    """Return the form of paths that hold clips, or None."""
    found = [_recognise_frames(path, task) for path in paths]
    if all(form is not None for form in found):
        return found[0]
    if not all(_animated(path) for path in paths):
        return None
    form = recognise_images(paths, samples, task)
    if form is None or form.kind not in ("picture folders", "picture list"):
        return None
    return replace(form, input=INPUT, description=form.description.replace("pictures", "animated pictures", 1))


def _animated(path: Path) -> bool:
    """Return True if the pictures that a folder, an archive or a list names have several frames each."""
    tree = tree_of(path)
    if tree is not None:
        files = [ImageHandle(h.path, h.member) for h in tree.files if h.suffix in ANIMATED]
        files = [] if len(files) < 0.5 * len(tree.files) else files
    else:
        files = _listed(path)
    some = files[:: max(1, len(files) // SAMPLE)][:SAMPLE]
    return bool(some) and sum(_moves(one) for one in some) >= ENOUGH * len(some)


def _listed(path: Path) -> list[ImageHandle]:
    """Return the animated files among the first that a list on the disk names; none of any other file."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        start = file.read(4096)
    names = re.findall(rb"[^\t,;|\"\n]+\.(?:gif|webp)\b", start, re.IGNORECASE)
    texts = [name.decode("utf-8", "replace").strip() for name in names]
    places = [path.parent / text for text in texts]
    return [ImageHandle(str(place)) for place in places if place.is_file()]


def _moves(picture: ImageHandle) -> bool:
    try:
        return frame_count(picture) > 1
    except UserError:
        return False


def _recognise_frames(path: Path, task: str | None) -> Format | None:
    tree = tree_of(path)
    clips = frame_folders(tree) if tree is not None else {}
    if tree is None or not clips:
        return None
    listing = listing_of(tree, clips)
    what = f"{len(clips):,} folders of numbered frames"
    if listing is not None:
        rows = list(islice(listing.rows(), 1000))
        form = task or task_of(rows, listing.layout.said)
        return Format(FRAME_LIST, 2, f"{what}, described by {listing.name}", task=form, input=INPUT)
    labels = {label for label, _ in labelled(tree, clips)}
    if len(labels) < 2:
        return None
    return Format(FRAMES, 2, f"{what} of {len(labels)} classes", task=task or "classify", input=INPUT)


def frame_folders(tree: Tree) -> dict[tuple[str, ...], list[Handle]]:
    """Return the folders whose pictures have consecutive numbers, if nearly all pictures lie in such; else none."""
    found: dict[tuple[str, ...], list[Handle]] = {}
    for handle in tree.files:
        if handle.suffix in SUFFIXES and len(handle.inside) > 1:
            found.setdefault(handle.inside[:-1], []).append(handle)
    pictures = sum(handle.suffix in SUFFIXES for handle in tree.files)
    clips = {folder: ordered for folder, files in found.items() if (ordered := _consecutive(files))}
    return clips if sum(map(len, clips.values())) >= ENOUGH * pictures and len(clips) > 1 else {}


def _consecutive(files: Sequence[Handle]) -> list[Handle]:
    """Return frames in the order of their numbers; none if these do not follow one another."""
    numbers = [NUMBER.search(Path(handle.name).stem) for handle in files]
    if len(files) < 2 or not all(numbers):
        return []
    order = sorted(zip((int(n[1]) for n in numbers if n), files, strict=True))
    first = order[0][0]
    return [handle for _, handle in order] if [n - first for n, _ in order] == [*range(len(order))] else []


def labelled(tree: Tree, clips: dict[tuple[str, ...], list[Handle]]) -> list[tuple[str, ImageHandle]]:
    """Return the label and the clip of each folder of frames that lies in a folder for its class."""
    labels = {handle.inside[:-1]: label for label, handle in by_folder(tree) if handle.suffix in SUFFIXES}
    return [
        (labels[folder], clip_of(files))
        for folder, files in clips.items()
        if labels.get(folder) not in (None, folder[-1])
    ]


def clip_of(files: Sequence[Handle]) -> ImageHandle:
    """Return the clip of a folder of frames."""
    first = files[0]
    if first.member:
        return ImageHandle(first.path, first.member.rpartition("/")[0] + "/")
    return ImageHandle(str(Path(first.path).parent))


def listing_of(tree: Tree, clips: dict[tuple[str, ...], list[Handle]]) -> Listing | None:
    """Return the list of a tree with a column that names its folders of frames."""
    by_name = {
        "/".join(folder[depth:]): clip_of(files) for folder, files in clips.items() for depth in range(len(folder))
    }
    known = {name.strip("/") for name in by_name}

    def find(name: str) -> ImageHandle:
        return by_name.get(name.strip().strip("/"), ImageHandle(name))

    return listing_in(tree, lambda value: value.strip().strip("/") in known, find)


# ---- reading -------------------------------------------------------------------------------------------------------


def read_frames(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield folders of frames with the name of the folder around them as label."""
    del form, encoding, report
    tree = tree_of(path)
    for label, clip in labelled(tree, frame_folders(tree)) if tree is not None else ():
        yield Example(clip, label, str(clip), 0, str(clip))


def read_frame_list(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[PictureExample]:
    """Yield the folders of frames that a list names, with their labels or captions."""
    del form, encoding
    tree = tree_of(path)
    listing = None if tree is None else listing_of(tree, frame_folders(tree))
    if listing is None:
        raise UserError(f"{path} holds no list of clips: expected a column with the names of folders of frames.")
    for number, name, target in rows_of(listing, report):
        clip = listing.find(name)
        if tree_of(str(clip)) is None:
            report(Fault(listing.name, number, f"there is no clip {name}; check the path", "missing clips"))
        else:
            yield Example(clip, target, listing.name, number, str(clip))


# ---- decoding ------------------------------------------------------------------------------------------------------


def count_of(clip: ImageHandle) -> int:
    """Return the number of frames of a clip."""
    files = _frames(clip)
    return len(files) if files else frame_count(clip)


def sampled(clip: ImageHandle, most: int, least: int | None = None) -> list[Pixels]:
    """Return at most so many frames of a clip, spread evenly from the first to the last."""
    files = _frames(clip)
    count = len(files) or frame_count(clip)
    chosen = even(count, most)
    if files:
        return [decoded(ImageHandle(files[i].path, files[i].member), least) for i in chosen.tolist()]
    return frames_at(clip, chosen.tolist())


def strip_of(clip: ImageHandle) -> Pixels:
    """Return a few frames of a clip one below the other, which tell it from others."""
    return np.concatenate(sampled(clip, COMPARED))


def even(count: int, most: int) -> NDArray[np.int64]:
    """Return the numbers of at most so many frames, spread evenly: all of them if there are few."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def _frames(clip: ImageHandle) -> list[Handle]:
    """Return the files of a folder of frames; none if the clip is a file."""
    if clip.content is not None or (not clip.member.endswith("/") and not Path(clip.path).is_dir()):
        return []
    tree = tree_of(str(clip))
    files = _consecutive([h for h in tree.files if h.suffix in SUFFIXES]) if tree is not None else []
    if not files:
        raise UserError(f"{clip}: expected a folder of pictures with consecutive numbers, such as 0001.png.")
    return files


def fault_of(clip: ImageHandle) -> str:
    """Return why a clip cannot be read, as far as its header says it, or nothing."""
    try:
        if clip.path:
            count_of(clip)
    except UserError as error:
        return str(error)
    return ""
