"""Boxes in pictures: how they are written, and how those that a file names are checked against their pictures.

A target is a JSON list with `[label, left, top, right, bottom]` for each thing, in pixels of the picture; a thing that
is a crowd has a sixth entry, 0, and an answer has its score there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from regard.data.example import Example
from regard.data.folders import Handle, Tree, tree_of
from regard.data.lines import Fault, OnFault
from regard.data.pixels import SUFFIXES, ImageHandle, size_of
from regard.errors import UserError

BoxExample = Example[ImageHandle, str]
SLACK = 0.01  # of a side that a box may stick out of its picture by rounding; and 2 pixels
SCORE = 5  # the entry of a score


class Box(NamedTuple):
    """A thing: its label, its edges in pixels, and how sure an answer is of it; 0 in a target is a crowd, which is
    neither to be found nor wrong."""

    label: str
    left: float
    top: float
    right: float
    bottom: float
    score: float = 1.0


def written(boxes: Iterable[Box]) -> str:
    """Return boxes as a target is written; an answer's scores are kept."""
    rows = [list(box) if box.score != 1 else list(box[:SCORE]) for box in boxes]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":"))


def parsed(text: str) -> list[Box]:
    """Return the boxes of a target or an answer."""
    try:
        return [Box(str(row[0]), *(float(x) for x in row[1:])) for row in json.loads(text or "[]")]
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise UserError(f'{text[:60]!r}: expected boxes such as [["cat", 10, 12, 50, 60]].') from error


@dataclass
class Named:
    """A box as a file names it: the place in the file, for complaints, and edges in pixels, or in shares of the picture
    if they are `relative`."""

    label: str
    edges: tuple[float, float, float, float]
    line: int
    where: str = ""  # "annotation 7", where a line does not say it
    crowd: bool = False
    relative: bool = False


@dataclass
class Entry:
    """A picture as a file names it, and its boxes."""

    name: str
    file: str
    line: int = 0
    boxes: list[Named] = field(default_factory=list)


class Gallery:
    """The pictures that lie beside a file of boxes, or in the same folder or archive, by path, name and stem."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.handles = [handle for handle in handles if handle.suffix in SUFFIXES]
        self._known: dict[str, Handle] = {}
        for handle in reversed(self.handles):  # of several with the same name the first
            path = "/".join(handle.inside)
            for key in (Path(handle.name).stem, handle.name, path.rpartition(".")[0], path):
                self._known[key] = handle

    def find(self, name: str) -> ImageHandle | None:
        """Return the picture that a file calls so, with or without its folder and suffix."""
        plain = name.replace("\\", "/").strip().removeprefix("./")
        parts = plain.split("/")
        for key in ("/".join(parts[i:]) for i in range(len(parts))):
            found = self._known.get(key) or self._known.get(key.rpartition(".")[0])
            if found is not None:
                return ImageHandle(found.path, found.member)
        return None


def gallery_of(path: Path) -> Gallery:
    """Return the pictures of a folder or archive; of a file, those in its folder and in archives there."""
    tree = tree_of(path)
    if tree is not None:
        return Gallery(tree.files)
    folder = Tree(str(path.parent or Path()))
    archives = [Tree(handle.path, handle.path) for handle in folder.files if handle.suffix == ".zip"]
    return Gallery([*folder.files, *(member for archive in archives for member in archive.files)])


def examples(
    entries: Iterable[Entry], find: Callable[[str], ImageHandle | None], report: OnFault, inside: bool
) -> Iterator[BoxExample]:
    """Yield a picture with its boxes for each entry; what is faulty is reported with the place where it stands.

    `inside`: the pictures are in the data's own folder or archive, whose checksum covers them.
    """
    for entry in entries:
        picture = find(entry.name)
        if picture is None:
            what = f"there is no picture {entry.name!r} beside it; check its name"
            report(Fault(entry.file, entry.line, what, "missing pictures"))
            continue
        try:
            rows, columns, _ = size_of(picture)
        except UserError as error:
            report(Fault(entry.file, entry.line, str(error), "unreadable pictures"))
            continue
        boxes = [box for named in entry.boxes if (box := _checked(named, entry, rows, columns, report)) is not None]
        refers = () if inside else (picture.path,)
        yield Example(picture, written(boxes), entry.file, entry.line, str(picture), refers)


def _checked(named: Named, entry: Entry, rows: int, columns: int, report: OnFault) -> Box | None:
    """Return a box in pixels, cut at the border that it touches; one without size or outside is a fault."""
    left, top, right, bottom = named.edges
    if named.relative:
        left, top, right, bottom = left * columns, top * rows, right * columns, bottom * rows
    shown = f"{left:g}, {top:g}, {right:g}, {bottom:g}"
    start = f"{named.where}: " if named.where else ""

    slack = [max(2.0, SLACK * side) for side in (columns, rows)]
    cut = (max(0.0, left), max(0.0, top), min(float(columns), right), min(float(rows), bottom))
    out = left < -slack[0] or top < -slack[1] or right > columns + slack[0] or bottom > rows + slack[1]
    what, kind = "", ""
    if not named.label:
        what, kind = f"the box {shown} has no label; name its class", "boxes without a label"
    elif not (right > left and bottom > top):  # NaN, too
        what = f"the box of {named.label!r} has no size: expected left < right and top < bottom, found {shown}"
        kind = "boxes without size"
    elif out or cut[0] >= cut[2] or cut[1] >= cut[3]:
        what = f"the box of {named.label!r} lies outside its picture {entry.name}"
        what, kind = f"{what}: expected 0 to {columns} and 0 to {rows}, found {shown}", "boxes outside their pictures"
    if what:
        report(Fault(entry.file, named.line or entry.line, f"{start}{what}", kind))
        return None
    a, b, c, d = (round(x, 4) for x in cut)
    return Box(named.label, a, b, c, d, 0.0 if named.crowd else 1.0)
