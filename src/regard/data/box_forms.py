"""Pictures with boxes, by content.

| form | recognised by |
|---|---|
| COCO JSON | an object with `images`, `annotations` with `bbox`, and `categories` |
| Pascal VOC | XML files whose root is `annotation`; the lists in `ImageSets/Main` are its parts |
| CSV | a header with a picture, a label and four edges (`xmin ymin xmax ymax`, `x y width height` …) |
| YOLO | pictures with text files of the same name, lines `class x y width height` in shares of the picture |

A file lies beside its pictures, or beside a zip archive of them; all of it may be one folder or one zip archive. Lists
such as `train.txt` and `val.txt` beside a CSV file name the pictures of each part.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from regard.config import NOT_YAML, plain_yaml
from regard.data.boxes import BoxExample, Entry, Gallery, Named, examples, gallery_of
from regard.data.folders import SPLITS, Handle, Tree, tree_of
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, from_json
from regard.data.pixels import SUFFIXES
from regard.errors import UserError

TASK, INPUT = "detect", "patches"
MOST = 2**28  # bytes of a file of boxes
PICTURE_NAMES = ("image", "filename", "file_name", "file", "image_id", "image_name", "path", "img", "picture")
LABEL_NAMES = ("label", "class", "class_name", "category", "name", "object", "cell_type", "type")
EDGES = (
    ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"), ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
)  # fmt: skip
SIZES = (("x", "y", "width", "height"), ("x", "y", "w", "h"), ("left", "top", "width", "height"))
YOLO = re.compile(r"\s*\d+(\s+[-+.\deE]+){4,}\s*")
NAMES = ("classes.txt", "obj.names", "names.txt", "_darknet.labels", "predefined_classes.txt")


class Layout(NamedTuple):
    """A form that was recognised: its files of boxes, the pictures, and the lists of its parts."""

    kind: str
    files: Sequence[Handle]
    gallery: Gallery
    tree: Tree | None
    lists: dict[str, Handle]
    around: Path  # the folder of the files


# ---- recognition ---------------------------------------------------------------------------------------------------


def recognise_boxes(paths: Sequence[Path], task: str | None) -> Format | None:
    """Return the form of paths that hold pictures with boxes, or None."""
    if task not in (None, TASK):
        return None
    found = [_layout(_base(path)[0]) for path in paths]
    known = [layout for layout in found if layout is not None]
    if len(known) < len(paths) or not known:
        return None
    first = known[0]
    if any(layout.kind != first.kind for layout in known):
        raise UserError(f"{paths[0]} and {paths[-1]} have different formats: convert them to one.")
    parts = {name: str(paths[0] / name) for name in ("train", "valid", "test") if name in _parts(first)}
    whole = len(paths) == 1 and "train" in parts and _base(paths[0])[1] == ""
    what = f"pictures with boxes: {DESCRIBED[first.kind]}"
    return Format(
        first.kind, 2, what, task=TASK, input=INPUT, splits=tuple(parts.items()) if whole and len(parts) > 1 else ()
    )


def _base(path: Path) -> tuple[Path, str]:
    """Return the file or folder of a path, and the part of it that the path names: boxes.csv/train."""
    if path.name in ("train", "valid", "test") and not path.exists() and tree_of(path) is None:
        return path.parent, path.name
    return path, ""


def _layout(path: Path) -> Layout | None:
    if path.is_file() and tree_of(path) is None:
        handle = Handle(str(path), "", (path.name,))
        kind = _file_kind(handle)
        if kind is None:
            return None
        beside = Tree(str(path.parent))
        lists = {} if kind == "coco" else _lists([h for h in beside.files if len(h.inside) == 1])
        return Layout(kind, [handle], gallery_of(path), None, lists, path.parent)
    tree = tree_of(path)
    if tree is None or not any(handle.suffix in SUFFIXES for handle in tree.files):
        return None
    return _tree_layout(tree, path)


def _tree_layout(tree: Tree, path: Path) -> Layout | None:
    gallery, lists = Gallery(tree.files), _lists(tree.files)
    tables = [(handle, _file_kind(handle)) for handle in tree.files if handle.suffix in (".json", ".csv", ".tsv")]
    for kind in ("coco", "box table"):
        files = [handle for handle, found in tables if found == kind]
        if len(files) > 1:
            raise UserError(f"{tree.path} has several files of boxes: name one of them, such as {files[0]}.")
        if files:
            return Layout(kind, files, gallery, tree, {} if kind == "coco" else lists, path)
    files = [handle for handle in tree.files if handle.suffix == ".xml"]
    if files and b"<annotation" in files[0].start(4096):
        return Layout("voc", files, gallery, tree, lists, path)
    files = _yolo_files(tree, gallery)
    return Layout("yolo", files, gallery, tree, lists, path) if files else None


def _file_kind(handle: Handle) -> str | None:
    """Return the form of one file of boxes: COCO, a table, or None."""
    start = handle.start(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")
    if handle.suffix == ".json" and start[:1] == b"{":
        content = handle.read(MOST)
        return "coco" if all(key in content for key in (b'"images"', b'"annotations"', b'"bbox"')) else None
    if handle.suffix not in (".csv", ".tsv", ".txt"):
        return None
    line = start.partition(b"\n")[0].decode("utf-8", "replace")
    return "box table" if _columns(line) is not None else None


def _lists(handles: Sequence[Handle]) -> dict[str, Handle]:
    """Return the lists of pictures of each part: train.txt, val.txt, or those in ImageSets/Main."""
    found = {}
    for handle in handles:
        part = SPLITS.get(Path(handle.name).stem.lower()) if handle.suffix == ".txt" else None
        if part and len(handle.inside) in (1, 2, 3, 4) and (len(handle.inside) == 1 or "ImageSets" in handle.inside):
            found[part] = handle
    return found if "train" in found else {}


def _parts(layout: Layout) -> set[str]:
    """Return the parts that lists or folders of pictures name."""
    if layout.lists:
        return {*layout.lists}
    if layout.kind != "yolo":
        return set()
    return {part for handle in layout.gallery.handles if (part := _folder_part(handle))}


def _folder_part(handle: Handle) -> str:
    return next((SPLITS[name.lower()] for name in handle.inside[:-1] if name.lower() in SPLITS), "")


# ---- reading -------------------------------------------------------------------------------------------------------


def read_boxes(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[BoxExample]:
    """Yield the pictures of a file, folder or archive with their boxes; of `boxes.csv/train` those of a part."""
    del encoding
    base, part = _base(Path(path))
    layout = _layout(base)
    if layout is None or layout.kind != form.kind:
        raise UserError(f"{path}: expected {form.description}.")
    entries = READERS[form.kind](layout, report)
    if part:
        entries = _of_part(entries, layout, part)
    yield from examples(entries, layout.gallery.find, report, layout.tree is not None)


def _of_part(entries: Iterator[Entry], layout: Layout, part: str) -> Iterator[Entry]:
    if not layout.lists:
        there = {(h.path, h.member) for h in layout.gallery.handles if _folder_part(h) == part}
        for entry in entries:
            found = layout.gallery.find(entry.name)
            if found is not None and (found.path, found.member) in there:
                yield entry
        return
    listing = layout.lists[part]
    lines = listing.read(MOST).decode("utf-8-sig", "replace").splitlines()
    wanted = {_stem(line.split()[0]): number for number, line in enumerate(lines, 1) if line.split()}
    for entry in entries:
        if wanted.pop(_stem(entry.name), None) is not None:
            yield entry
    yield from (Entry(name, str(listing), line) for name, line in wanted.items())  # without boxes


def _stem(name: str) -> str:
    plain = name.replace("\\", "/").rpartition("/")[2]
    return Path(plain).stem if plain.lower().endswith(SUFFIXES) else plain


# ---- COCO


def _coco(layout: Layout, report: OnFault) -> Iterator[Entry]:
    handle = layout.files[0]
    try:
        found = from_json(handle.read(MOST).decode("utf-8-sig"))
        images, annotations, categories = (found[key] for key in ("images", "annotations", "categories"))
        names = {each["id"]: str(each["name"]) for each in categories}
        entries = {each["id"]: Entry(str(each["file_name"]), str(handle)) for each in images}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"the key {error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{handle} is not a readable COCO file: {reason}.") from error
    for place, each in enumerate(annotations):
        where = f"annotation {each.get('id', place) if isinstance(each, dict) else place}"
        what = _coco_fault(each, names, entries)
        if what:
            report(Fault(str(handle), 0, f"{where}: {what}", "faulty annotations"))
            continue
        x, y, w, h = map(float, each["bbox"])
        crowd = bool(each.get("iscrowd", 0))
        box = Named(names[each["category_id"]], (x, y, x + w, y + h), 0, where, crowd)
        entries[each["image_id"]].boxes.append(box)
    yield from entries.values()


def _coco_fault(each: Any, names: dict[Any, str], entries: dict[Any, Entry]) -> str:
    if not isinstance(each, dict) or not {"image_id", "category_id", "bbox"} <= {*each}:
        return "expected image_id, category_id and bbox"
    if not _known(each["image_id"], entries):
        return f"its image_id {each['image_id']!r} is not among the images; remove it, or add the image"
    if not _known(each["category_id"], names):
        return f"its category_id {each['category_id']!r} is not among the categories, expected one of {_some(names)}"
    box = each["bbox"]
    if not isinstance(box, list) or len(box) != 4 or not all(isinstance(x, int | float) for x in box):
        return f"expected bbox as [x, y, width, height], found {str(box)[:60]}"
    return ""


def _known(number: Any, things: dict[Any, Any]) -> bool:
    """Return True if a number of a JSON file, which may be a list, is that of one of the things."""
    return isinstance(number, int | float | str) and number in things


def _some(names: Any) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown[:8]) + (" …" if len(shown) > 8 else "")


# ---- tables


class _Columns(NamedTuple):
    picture: int
    label: int
    edges: tuple[int, int, int, int]
    sized: bool  # the last two edges are width and height
    delimiter: str


def _columns(header: str) -> _Columns | None:
    """Return the columns of a table of boxes by the names in its header."""
    for delimiter in (",", "\t", ";"):
        named = [name.strip().strip('"').lower() for name in header.rstrip("\r\n").split(delimiter)]
        picture = next((named.index(name) for name in PICTURE_NAMES if name in named), None)
        label = next((named.index(name) for name in LABEL_NAMES if name in named), None)
        edges = next((names for names in (*EDGES, *SIZES) if all(name in named for name in names)), None)
        if picture is not None and label is not None and edges is not None:
            a, b, c, d = (named.index(name) for name in edges)
            return _Columns(picture, label, (a, b, c, d), edges in SIZES, delimiter)
    return None


def _table(layout: Layout, report: OnFault) -> Iterator[Entry]:
    handle = layout.files[0]
    text = handle.read(MOST).decode("utf-8-sig", "replace")
    columns = _columns(text.partition("\n")[0])
    assert columns is not None
    rows = csv.reader(io.StringIO(text), delimiter=columns.delimiter)
    next(rows)
    entries: dict[str, Entry] = {}
    for row in rows:
        line = rows.line_num
        if not any(cell.strip() for cell in row):
            continue
        if len(row) < (fewest := 1 + max(columns.picture, columns.label, *columns.edges)):
            report(Fault(str(handle), line, f"expected {fewest} or more columns, found {len(row)}", "faulty lines"))
            continue
        name, label = row[columns.picture].strip(), row[columns.label].strip()
        entry = entries.setdefault(name, Entry(name, str(handle), line))
        numbers = [row[column].strip() for column in columns.edges]
        if not label and not any(numbers):
            continue  # a picture without boxes
        try:
            x, y, c, d = map(float, numbers)
        except ValueError:
            report(Fault(str(handle), line, f"expected four numbers, found {', '.join(numbers)}", "faulty lines"))
            continue
        edges = (x, y, x + c, y + d) if columns.sized else (x, y, c, d)
        entry.boxes.append(Named(label, edges, line))
    yield from entries.values()


# ---- Pascal VOC


def _voc(layout: Layout, report: OnFault) -> Iterator[Entry]:
    for handle in layout.files:
        try:
            yield _Annotation(handle).entry
        except UserError as error:
            report(Fault(str(handle), 0, str(error).removeprefix(f"{handle}: "), "unreadable annotations"))


class _Annotation:
    """One XML file, from the events of a parser that knows no entities. Pixels are counted from 1."""

    def __init__(self, handle: Handle) -> None:
        self.handle, self.path, self.text = handle, [], ""  # type: ignore[var-annotated]
        self.found: dict[str, str] = {}
        self.entry = Entry(Path(handle.name).stem, str(handle))
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler, self.parser.EndElementHandler = self._start, self._end
        self.parser.CharacterDataHandler = self._read
        self.parser.StartDoctypeDeclHandler = self.parser.EntityDeclHandler = self._refuse
        try:
            self.parser.Parse(handle.read(MOST), True)
        except expat.ExpatError as error:
            raise UserError(
                f"{handle}: it is not valid XML: {expat.errors.messages[error.code]}, line {error.lineno}"
            ) from error

    def _refuse(self, *_: Any) -> None:
        raise UserError(
            f"{self.handle}: it declares a document type or entities, which are refused: remove <!DOCTYPE …>"
        )

    def _start(self, tag: str, _: dict[str, str]) -> None:
        self.path.append(tag)
        self.text = ""
        if self.path[1:] == ["object"]:
            self.found = {"line": str(self.parser.CurrentLineNumber)}

    def _read(self, text: str) -> None:
        self.text += text

    def _end(self, tag: str) -> None:
        where, value = self.path[1:], self.text.strip()
        if where[:1] == ["object"] and where[1:] in ([tag], ["bndbox", tag]):
            self.found[tag] = value
        elif where == ["object"]:
            self._box()
        self.path.pop()
        self.text = ""

    def _box(self) -> None:
        found, line = self.found, int(self.found["line"])
        try:
            left, top, right, bottom = (float(found[key]) for key in EDGES[0])
        except (KeyError, ValueError) as error:
            raise UserError(f"{self.handle}:{line}: expected a bndbox with xmin, ymin, xmax and ymax") from error
        box = Named(found.get("name", ""), (left - 1, top - 1, right, bottom), line)
        self.entry.boxes.append(box)


# ---- YOLO


def _yolo_files(tree: Tree, gallery: Gallery) -> list[Handle]:
    """Return the text files of boxes that have the name of a picture; none where their lines are something else."""
    stems = {Path(handle.name).stem for handle in gallery.handles}
    texts = [h for h in tree.files if h.suffix == ".txt" and Path(h.name).stem in stems and h.name not in NAMES]
    lines = [line for handle in texts[:20] for line in handle.start(4096).decode("utf-8", "replace").splitlines()[:5]]
    filled = [line for line in lines if line.strip()]
    return texts if filled and all(map(YOLO.fullmatch, filled)) else []


def _yolo(layout: Layout, report: OnFault) -> Iterator[Entry]:
    names = _yolo_names(layout)
    by_path = {(*handle.inside[:-1], Path(handle.name).stem): handle for handle in layout.files}
    for picture in layout.gallery.handles:
        stem = Path(picture.name).stem
        folders = tuple("labels" if name == "images" else name for name in picture.inside[:-1])
        handle = by_path.get((*folders, stem)) or by_path.get((*picture.inside[:-1], stem))
        entry = Entry("/".join(picture.inside), str(handle or picture))
        lines = handle.read(MOST).decode("utf-8-sig", "replace").splitlines() if handle is not None else []
        for number, line in enumerate(lines, 1):
            box = _yolo_box(line, number, names, str(handle), report) if line.strip() else None
            if box is not None:
                entry.boxes.append(box)
        yield entry


def _yolo_box(line: str, number: int, names: dict[int, str] | None, file: str, report: OnFault) -> Named | None:
    cells = line.split()
    what = ""
    try:
        kind, (x, y, w, h) = int(cells[0]), map(float, cells[1:5])
    except ValueError:
        kind, x, y, w, h, what = 0, 0, 0, 0, 0, f"expected a class and four numbers, found {line[:60]!r}"
    if not what and len(cells) > 5:
        what = f"expected a class and four numbers, found {len(cells) - 1}: polygons and key points are not boxes"
    if not what and names is not None and kind not in names:
        what = f"there is no class {kind}, expected 0 to {max(names)} ({_some(names.values())})"
    if not what and not all(-0.01 <= value <= 1.01 for value in (x, y, w, h)):
        what = f"expected shares of the picture from 0 to 1, found {' '.join(cells[1:])}"
    if what:
        report(Fault(file, number, what, "faulty lines"))
        return None
    label = names[kind] if names is not None else str(kind)
    return Named(label, (x - w / 2, y - h / 2, x + w / 2, y + h / 2), number, relative=True)


def _yolo_names(layout: Layout) -> dict[int, str] | None:
    """Return the names of the classes: of a data.yaml or a list of names in the folder, or in the one above."""
    assert layout.tree is not None
    above = layout.around.parent
    handles = [*layout.tree.files]
    if not layout.tree.archive and above.is_dir():
        handles += [Handle(str(file), "", (file.name,)) for file in sorted(above.iterdir()) if file.is_file()]
    for handle in handles:
        if handle.suffix in (".yaml", ".yml") and (names := _names_in_yaml(handle)):
            return names
    for handle in handles:
        if handle.name in NAMES:
            lines = handle.read(1 << 20).decode("utf-8-sig", "replace").splitlines()
            return dict(enumerate(line.strip() for line in lines if line.strip())) or None
    return None


def _names_in_yaml(handle: Handle) -> dict[int, str]:
    """Return `names` of a YAML file, a list or the number of each class before its name."""
    try:
        found = plain_yaml(handle.read(1 << 20))
    except NOT_YAML as error:
        raise UserError(f"{handle} cannot be read as YAML ({type(error).__name__}).") from error
    names = found.get("names") if isinstance(found, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict):
        return {}
    other = next((key for key in names if not isinstance(key, int)), None)
    if other is not None:
        raise UserError(f"{handle}: names: expected a list, or each class's number before its name, found {other!r}.")
    return {key: str(names[key]) for key in sorted(names)}


READERS: dict[str, Callable[[Layout, OnFault], Iterator[Entry]]] = {
    "coco": _coco,
    "box table": _table,
    "voc": _voc,
    "yolo": _yolo,
}
DESCRIBED = {
    "coco": "COCO, a JSON file with images, annotations and categories",
    "box table": "a table with a picture, a label and four edges in each row",
    "voc": "Pascal VOC, an XML file for each picture",
    "yolo": "YOLO, a text file of boxes for each picture",
}
