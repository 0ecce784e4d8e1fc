"""Boxes from four forms, in folders and archives and with parts; what is wrong is named with its file and its place."""

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard import inputs
from regard.commands.check import check
from regard.data.boxes import Box, parsed, written
from regard.data.lines import Fault
from regard.data.pixels import fitted, fitting
from regard.errors import UserError
from regard.training.choose import parts_of, split_paths

Content = dict[str, bytes | str]
BOXES = {"a": [("cat", 10, 20, 40, 60), ("dog", 50, 10, 90, 70)], "b": [], "c": [("cat", 0, 0, 100, 80)]}
CORNERS = "image,label,xmin,ymin,xmax,ymax"


def png(size: tuple[int, int] = (100, 80)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (90, 120, 200)).save(file, "PNG")
    return file.getvalue()


def pictures(folder: str = "") -> Content:
    return {f"{folder}{name}.png": png() for name in BOXES}


def coco(**changes: object) -> Content:
    numbers = {name: 10 * i for i, name in enumerate(BOXES)}  # ids have gaps
    found = {
        "images": [{"id": number, "file_name": f"{name}.png"} for name, number in numbers.items()],
        "annotations": [
            {"id": 7 * i, "image_id": numbers[name], "category_id": 3 if label == "cat" else 9, "bbox": [x, y, r - x, b - y]}
            for i, (name, (label, x, y, r, b)) in enumerate((n, box) for n, some in BOXES.items() for box in some)
        ],
        "categories": [{"id": 3, "name": "cat"}, {"id": 9, "name": "dog"}],
    }  # fmt: skip
    return {"annotations.json": json.dumps(found | changes), **pictures()}


def table(header: str = CORNERS, row: Callable[..., str] = lambda n, *box: ",".join(map(str, (n, *box)))) -> Content:
    rows = [row(name, *box) for name, some in BOXES.items() for box in some or [("", "", "", "", "")]]
    return {"boxes.csv": "\n".join((header, *rows)) + "\n", **pictures()}


def xml(name: str, boxes: list[tuple[str, int, int, int, int]], start: str = "") -> str:
    each = (
        f"<object><name>{label}</name><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{r}</xmax><ymax>{b}</ymax>"
        f"</bndbox><part><name>tail</name><bndbox><xmin>1</xmin></bndbox></part></object>"
        for label, x, y, r, b in boxes
    )
    return f"{start}<annotation>\n<filename>{name}.jpg</filename>\n{''.join(each)}</annotation>"


def voc() -> Content:
    found: Content = {f"Annotations/{name}.xml": xml(name, boxes) for name, boxes in BOXES.items()}
    return found | pictures("JPEGImages/")


def yolo(names: str = "names: [cat, dog]\n") -> Content:
    found: Content = {"data.yaml": names, **pictures("images/")}
    for name, some in BOXES.items():
        lines = [
            f"{label == 'dog':d} {(x + r) / 200} {(y + b) / 160} {(r - x) / 100} {(b - y) / 80}"
            for label, x, y, r, b in some
        ]
        if lines:  # a picture without a file has no boxes
            found[f"labels/{name}.txt"] = "\n".join(lines)
    return found


def folder(path: Path, content: Content) -> Path:
    for name, each in content.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(each if isinstance(each, bytes) else each.encode())
    return path


def archive(path: Path, content: Content) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as packed:
        for name, each in content.items():
            packed.writestr(name, each)
    return path


def read(path: Path, faults: list[Fault] | None = None) -> dict[str, list[Box]]:
    form = inputs.recognise([path])
    assert (form.task, form.input) == ("detect", "patches")
    examples = inputs.read([path], form, None if faults is None else faults.append)
    return {Path(str(example.source)).stem: parsed(example.target) for example in examples}


def sized(x: object, y: object, r: object, b: object) -> tuple[object, ...]:
    return (x, y, r - x, b - y) if isinstance(x, int) else (x, y, r, b)  # type: ignore[operator]


EXPECTED = {name: [Box(label, *map(float, edges)) for label, *edges in some] for name, some in BOXES.items()}
SIZED = table("file_name;class;x;y;width;height", lambda n, c, *e: ";".join(map(str, (n + ".png", c, *sized(*e)))))
FORMS = {"coco": coco(), "table": table(), "voc": voc(), "yolo": yolo(), "sizes": SIZED}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_hold_the_same_boxes_in_a_folder_and_in_an_archive(form: str, tmp_path: Path) -> None:
    for path in (folder(tmp_path / "data", FORMS[form]), archive(tmp_path / "data.zip", FORMS[form])):
        found = read(path)
        assert found.keys() == EXPECTED.keys()
        for name, boxes in EXPECTED.items():
            assert [box.label for box in found[name]] == [box.label for box in boxes]
            for one, other in zip(found[name], boxes, strict=True):
                assert one[1:] == pytest.approx(other[1:], abs=1e-3)


@pytest.mark.parametrize(("form", "file"), [("coco", "annotations.json"), ("table", "boxes.csv")])
def test_a_file_finds_its_pictures_beside_it_or_in_an_archive(form: str, file: str, tmp_path: Path) -> None:
    assert read(folder(tmp_path / "one", FORMS[form]) / file).keys() == EXPECTED.keys()
    apart = folder(tmp_path / "two", {file: FORMS[form][file]})
    archive(apart / "images.zip", pictures("deep/"))
    assert read(apart / file) == read(tmp_path / "one" / file)


def test_lists_and_folders_are_parts(tmp_path: Path) -> None:
    lists = {"train.txt": "a\nb\n", "val.txt": "c.png\n"}
    sets = {"ImageSets/Main/train.txt": "a\nb\n", "ImageSets/Main/val.txt": "c\n"}
    parts = {
        name.replace("/a.", "/train/a.").replace("/b.", "/train/b.").replace("/c.", "/val/c."): each
        for name, each in yolo().items()
    }
    paths = [folder(tmp_path / "csv", table() | lists) / "boxes.csv", folder(tmp_path / "voc", voc() | sets)]
    for path in (*paths, archive(tmp_path / "voc.zip", voc() | sets), folder(tmp_path / "yolo", parts)):
        form = inputs.recognise([path])
        train, valid, _ = parts_of(form, [str(path)], [], [])
        assert (train, valid) == ([f"{path}/train"], [f"{path}/valid"])
        assert read(Path(train[0])).keys() == {"a", "b"}
        assert read(Path(valid[0])).keys() == {"c"}


def test_folders_for_training_and_validation_share_the_names_of_classes(tmp_path: Path) -> None:
    content = {
        f"{part}/{name}": each for part in ("train", "valid") for name, each in yolo().items() if "yaml" not in name
    }
    folder(tmp_path, content | {"data.yaml": "names:\n  0: cat\n  1: dog\n"})
    train, valid, _ = split_paths([str(tmp_path)], [], [])
    assert (Path(train[0]).name, Path(valid[0]).name) == ("train", "valid")
    assert read(Path(train[0]))["a"][1].label == "dog"


def test_a_crowd_and_the_border_are_kept(tmp_path: Path) -> None:
    boxes = [{"image_id": 0, "category_id": 3, "bbox": [-1, 0, 50, 81], "iscrowd": 1}]
    found = read(folder(tmp_path, coco(annotations=boxes)))
    assert found["a"] == [Box("cat", 0, 0, 49, 80, 0.0)]
    assert parsed(written(found["a"])) == found["a"]


def annotation(**changes: object) -> Content:
    return coco(annotations=[{"id": 5, "image_id": 0, "category_id": 3, "bbox": [1, 2, 3, 4]} | changes])


BAD: dict[str, tuple[Content, str]] = {
    "outside": (annotation(bbox=[50, 50, 80, 20]), "annotations.json: annotation 5: .* outside its picture a.png.* 0 to 100"),
    "negative": (annotation(bbox=[5, 5, -3, 4]), "annotations.json: annotation 5: .*has no size.*found 5, 5, 2, 9"),
    "no size": (annotation(bbox=[5, 5, 0, 4]), "annotation 5: .*has no size"),
    "nan": (annotation(bbox=[float("nan"), 5, 1, 4]), "annotation 5: .*has no size"),
    "short": (annotation(bbox=[5, 5, 1]), r"annotation 5: expected bbox as \[x, y, width, height\], found"),
    "category": (annotation(category_id=4), "annotation 5: its category_id 4 is not among the categories.*3, 9"),
    "list": (annotation(category_id=[3]), r"annotation 5: its category_id \[3\] is not among the categories"),
    "object": (annotation(image_id={}), "annotation 5: its image_id {} is not among the images"),
    "image": (annotation(image_id=99), "annotation 5: its image_id 99 is not among the images"),
    "no key": ({"annotations.json": '{"images": [{}], "annotations": [{"bbox": []}]}', **pictures()}, "the key 'categories' is missing"),
    "missing": (coco(images=[{"id": i, "file_name": "x.png"} for i in (0, 10, 20)]), "there is no picture 'x.png' beside it"),
    "line": ({"boxes.csv": f"{CORNERS}\na,cat,1,2,3,4\na,cat,9,2,3,4\n", **pictures()}, "boxes.csv:3: .*has no size"),
    "number": ({"boxes.csv": f"{CORNERS}\na,cat,1,2,x,4\n", **pictures()}, "boxes.csv:2: expected four numbers, found 1, 2, x, 4"),
    "columns": ({"boxes.csv": f"{CORNERS}\na,cat,1\n", **pictures()}, "boxes.csv:2: expected 6 or more columns, found 3"),
    "label": ({"boxes.csv": f"{CORNERS}\na,,1,2,3,4\n", **pictures()}, "boxes.csv:2: the box 1, 2, 3, 4 has no label"),
    "gone": ({"boxes.csv": f"{CORNERS}\nz,cat,1,2,3,4\n", **pictures()}, "boxes.csv:2: there is no picture 'z'"),
    "entity": (voc() | {"Annotations/a.xml": xml("a", [], '<!DOCTYPE a [<!ENTITY b "cc">]>')}, "a.xml: .*document type or entities"),
    "not closed": (voc() | {"Annotations/a.xml": "<annotation><object>"}, "a.xml: it is not valid XML"),
    "no box": (voc() | {"Annotations/a.xml": "<annotation>\n<object><name>x</name></object></annotation>"}, "a.xml:2: expected a bndbox"),
    "class": (yolo() | {"labels/a.txt": "0 .5 .5 .1 .1\n2 .5 .5 .1 .1\n"}, r"a.txt:2: there is no class 2, expected 0 to 1 \(cat, dog\)"),
    "polygon": (yolo() | {"labels/a.txt": "0 .5 .5 .1 .1 .2 .2\n"}, "a.txt:1: .*polygons and key points are not boxes"),
    "pixels": (yolo() | {"labels/a.txt": "0 50 50 10 10\n"}, "a.txt:1: expected shares of the picture from 0 to 1"),
    "names": (yolo("names: [cat, ["), "data.yaml cannot be read as YAML"),
    "alias": (yolo("names: [&a cat, *a]"), "data.yaml cannot be read as YAML"),
    "number of a name": (yolo("names: {0: cat, dog: 1}"), "data.yaml: .*each class's number before its name, found 'dog'"),
    "gap": (yolo("names: {0: cat, 2: dog}"), r"a.txt:2: there is no class 1, expected 0 to 2 \(cat, dog\)"),
    "picture": (coco() | {"a.png": b"no picture"}, "a.png is not a readable picture"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_what_is_wrong_is_named_with_its_place(fault: str, tmp_path: Path) -> None:
    content, expected = BAD[fault]
    with pytest.raises(UserError, match=expected) as refused:
        read(folder(tmp_path, content))
    assert "\n" not in str(refused.value)


def test_faulty_boxes_are_left_out_if_faults_are_skipped_and_check_counts_them(tmp_path: Path) -> None:
    content = {"boxes.csv": f"{CORNERS}\na,cat,1,2,3,4\na,cat,9,2,3,4\nz,cat,1,2,3,4\n", **pictures()}
    faults: list[Fault] = []
    assert read(folder(tmp_path, content) / "boxes.csv", faults) == {"a": [Box("cat", 1, 2, 3, 4)]}
    assert [fault.kind for fault in faults] == ["boxes without size", "missing pictures"]
    report, sound = check([str(tmp_path / "boxes.csv")])
    assert not sound
    assert "1 labels of 1 boxes: cat 100.0 %" in report


def test_a_text_without_boxes_is_refused_for_the_task(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    with path.open("w", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t").writerows([("one", "two"), ("three", "four")] * 20)
    with pytest.raises(UserError, match=r"pairs.tsv does not hold pictures with boxes: expected a COCO JSON file"):
        inputs.recognise([path], "detect")


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
@pytest.mark.parametrize("size", [(60, 100), (100, 60), (64, 64)])
def test_the_window_is_what_is_read_of_a_picture(fit: str, size: tuple[int, int]) -> None:
    """A black rectangle is found again where the window says that it lies."""
    pixels = np.full((*size, 1), 255, np.uint8)
    pixels[25:37, 30:50] = 0
    left, top, wide, tall = fitting(*size, fit)
    dark = np.argwhere(fitted(pixels, 64, 1, fit)[..., 0] < 128)
    expected = [64 * (25 - top) / tall, 64 * (30 - left) / wide, 64 * (37 - top) / tall, 64 * (50 - left) / wide]
    assert [*dark.min(0), *(dark.max(0) + 1)] == pytest.approx(expected, abs=1.0)
