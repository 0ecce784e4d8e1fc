"""Pictures from every layout and in every mode; forty kinds of bad files, each refused in a sentence."""

import contextlib
import gzip
import io
import json
import os
import pickle
import resource
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from regard import inputs
from regard.commands.check import check
from regard.data import pixels
from regard.data.check import Part
from regard.data.check_images import check_images
from regard.data.example import Example
from regard.data.pixels import MOST_BYTES, ImageHandle, decoded, fault_of, fitted, named, size_of
from regard.errors import UserError
from regard.inputs.patches import Patches
from regard.training.choose import choose, splits_of


def picture(shade: int = 200, size: tuple[int, int] = (12, 10), mode: str = "RGB") -> Image.Image:
    return Image.new("RGB", size, (shade, 255 - shade, 30)).convert(mode)


def encoded(kind: str, image: Image.Image | None = None, **options: object) -> bytes:
    file = io.BytesIO()
    (image or picture()).save(file, kind, **options)
    return file.getvalue()


def read(path: Path | str, task: str | None = None) -> list[Example]:
    return list(inputs.read([path], inputs.recognise([path], task)))


def pairs(path: Path | str, task: str | None = None) -> list[tuple[str, str]]:
    return [(Path(str(e.source)).name, e.target) for e in read(path, task)]


# ---- layouts -------------------------------------------------------------------------------------------------------


def folders(root: Path) -> Path:
    for label, shade in (("cat", 10), ("dog", 240)):
        for number in range(3):
            path = root / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded("PNG", picture(shade + number)))
    (root / ".git").mkdir()
    (root / ".git" / "x.png").write_bytes(encoded("PNG"))
    (root / "cat" / "notes.txt").write_text("no picture")
    return root


def zipped(root: Path, name: str = "archive.zip") -> Path:
    path = root.parent / name
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(root.rglob("*")):
            if file.is_file():
                archive.write(file, Path("wrapped") / file.relative_to(root))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_for_each_class(tmp_path: Path, packed: bool) -> None:
    root = folders(tmp_path / "photos")
    path = zipped(root) if packed else root
    form = inputs.recognise([path])
    assert (form.input, form.task) == ("patches", "classify")
    assert "ignored: " in form.description
    assert ".git" in form.description
    assert "notes.txt" in form.description
    assert pairs(path) == [(f"{n}.png", label) for label in ("cat", "dog") for n in range(3)]


def test_train_valid_and_test_folders(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        folders(tmp_path / "data" / part)
    assert {*splits_of(str(tmp_path / "data"))} == {"train", "valid", "test"}
    (tmp_path / "data" / "__MACOSX").mkdir()
    (tmp_path / "data" / "__MACOSX" / "x.png").write_bytes(b"")
    for path, junk in ((tmp_path / "data", "__MACOSX"), (zipped(tmp_path / "data"), "wrapped/__MACOSX")):
        said = choose([str(path)])[1]["data.train"]
        assert said.endswith(f"(ignored: .git, cat/notes.txt); ignored beside the parts: {junk}")


@pytest.mark.parametrize(
    ("name", "text", "task"),
    [
        ("list.tsv", "cat/0.png\tcat\ndog/0.png\tdog\n" * 10, "classify"),
        ("list.tsv", "cat/0.png\ta cat sits there\ndog/0.png\ta dog runs off\n", "convert"),
        ("list.csv", 'image,caption\ncat/0.png,"a cat, asleep"\ndog/0.png,a dog\n', "convert"),
        ("list.csv", "label,path\ncat,cat/0.png\ndog,dog/0.png\n", "classify"),
        ("list.csv", "id;file_name;label\n1;cat/0.png;cat\n2;dog/0.png;dog\n", "classify"),
        (
            "list.jsonl",
            '{"image": "cat/0.png", "caption": "a cat"}\n{"image": "dog/0.png", "caption": "a dog"}\n',
            "convert",
        ),
        ("flickr.token", "cat/0.png#0\ta cat\ncat/0.png#1\tone cat\ndog/0.png#0\ta dog\n", "convert"),
        ("few.token", "cat/0.png#0\tcat\ncat/0.png#1\ta cat\ndog/0.png#0\tdog\n" * 10, "convert"),
        ("results.csv", "image_name| comment_number| comment\ncat/0.png| 0| a cat\ndog/0.png| 0| a dog\n", "convert"),
    ],
)
def test_lists_of_pictures(tmp_path: Path, name: str, text: str, task: str) -> None:
    folders(tmp_path)
    (tmp_path / name).write_text(text)
    form = inputs.recognise([tmp_path / name])
    assert (form.input, form.task) == ("patches", task)
    found = read(tmp_path / name)
    assert {e.target.split()[-1].rstrip(",") for e in found} <= {"cat", "dog", "asleep", "there", "off"}
    assert all(e.refers == (str(e.source),) for e in found)
    assert len({e.key for e in found}) == 2


def test_damaged_lines_leave_a_list_of_pictures_one(tmp_path: Path) -> None:
    folders(tmp_path)
    lines = [json.dumps({"path": f"{label}/{n}.png", "label": label}) for label in ("cat", "dog") for n in range(3)] * 6
    lines[4], lines[9] = lines[4][:20], json.dumps({"path": "cat/lost.png", "label": "cat"})
    (tmp_path / "list.jsonl").write_text("\n".join(lines))
    form, found = inputs.recognise([tmp_path / "list.jsonl"]), []
    assert (form.input, form.task) == ("patches", "classify")
    assert len(list(inputs.read([tmp_path / "list.jsonl"], form, found.append))) == 34
    assert [(fault.line, fault.kind) for fault in found] == [(5, "faulty lines"), (10, "missing pictures")]
    assert "give its path from the list" in str(found[1])


def test_a_list_alone_in_an_archive_is_of_the_pictures_beside_it(tmp_path: Path) -> None:
    folders(tmp_path / "images")
    with zipfile.ZipFile(tmp_path / "list.zip", "w") as archive:
        archive.writestr("list.tsv", "cat/0.png\tcat\ndog/0.png\tdog\n" * 10)
    form = inputs.recognise([tmp_path / "list.zip"])
    assert form.description.startswith("pictures beside the archive")
    assert {e.source.path for e in read(tmp_path / "list.zip")} == {
        str(tmp_path / "images" / label / "0.png") for label in ("cat", "dog")
    }


def test_folders_without_pictures_are_named(tmp_path: Path) -> None:
    root = folders(tmp_path / "photos")
    (root / "bird").mkdir()
    (root / ".cache").mkdir()
    assert inputs.recognise([root]).description.endswith("cat/notes.txt) (without files: bird)")


def test_captions_of_one_picture_are_alternatives(tmp_path: Path) -> None:
    from regard.outputs.convert.output import Convert
    from regard.text.tokenizer import Tokenizer

    folders(tmp_path)
    (tmp_path / "c.jsonl").write_text('{"file_name": "cat/0.png", "captions": ["a cat", "one cat"]}\n' * 2)
    items = Convert(Tokenizer.train(["a"], "words")).items(read(tmp_path / "c.jsonl"))
    assert [item.expected for item in items] == [["a cat", "one cat"]]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_hugging_face_folders(tmp_path: Path, name: str, packed: bool) -> None:
    root = tmp_path / "data"
    (root / "train").mkdir(parents=True)
    for number in range(3):
        (root / "train" / f"{number}.jpg").write_bytes(encoded("JPEG", picture(80 * number)))
    rows = [{"file_name": f"{n}.jpg", "text": f"picture {n}"} for n in range(3)]
    text = "file_name,text\n" + "".join(f"{r['file_name']},{r['text']}\n" for r in rows)
    (root / "train" / name).write_text(text if name.endswith("csv") else "".join(json.dumps(r) + "\n" for r in rows))
    path = zipped(root) if packed else root
    form = inputs.recognise([path])
    assert form.task == "convert"
    assert "ignored" not in form.description  # the list is used
    assert pairs(path) == [(f"{n}.jpg", f"picture {n}") for n in range(3)]


@pytest.mark.parametrize("packed", [False, True])
def test_idx_and_npz(tmp_path: Path, packed: bool) -> None:
    images, labels = np.arange(3 * 5 * 4, dtype=np.uint8).reshape(3, 5, 4), np.array([7, 0, 2], np.uint8)
    end = ".gz" if packed else ""
    for part in ("train", "t10k"):
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            content = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
            (tmp_path / (name + end)).write_bytes(gzip.compress(content) if packed else content)
    path = tmp_path / f"train-images-idx3-ubyte{end}"
    found = read(path)
    assert [e.target for e in found] == ["7", "0", "2"]
    assert (decoded(found[1].source)[:, :, 0] == images[1]).all()
    assert named(str(found[1].source)) == found[1].source
    assert splits_of(str(tmp_path)) == {"train": str(path), "test": str(tmp_path / f"t10k-images-idx3-ubyte{end}")}
    archive = zipped(tmp_path, f"idx{end}.zip")
    inside = splits_of(str(archive))
    assert inside["test"] == f"{archive}/wrapped/t10k-images-idx3-ubyte{end}"
    assert inputs.recognise([inside["train"]]).kind == "idx"
    packed_ones = read(inside["train"])
    assert [e.target for e in packed_ones] == ["7", "0", "2"]
    assert (decoded(named(str(packed_ones[2].source)))[:, :, 0] == images[2]).all()
    assert packed_ones[0].refers == ()  # the archive is all there is
    parts = {
        f"{part}_{what}": array
        for part in ("train", "val", "test")
        for what, array in (("images", images), ("labels", labels[:, None]))
    }
    np.savez(tmp_path / "med.npz", **parts)
    assert splits_of(str(tmp_path / "med.npz")) == {
        p: str(tmp_path / "med.npz" / p) for p in ("train", "valid", "test")
    }
    found = read(tmp_path / "med.npz" / "valid")
    assert [e.target for e in found] == ["7", "0", "2"]
    assert (decoded(named(str(found[2].source)))[:, :, 0] == images[2]).all()


# ---- modes ---------------------------------------------------------------------------------------------------------


def made(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.full((10, 12), 200 * 257, np.uint16))
    if mode == "F":
        return Image.fromarray(np.full((10, 12), 0.5, np.float32))
    return picture(mode=mode)


@pytest.mark.parametrize(
    ("mode", "kind", "expected"),
    [
        ("RGB", "PNG", (200, 55, 30)), ("RGB", "BMP", (200, 55, 30)), ("RGB", "TIFF", (200, 55, 30)),
        ("RGB", "WEBP", (200, 55, 30)), ("RGB", "JPEG", (200, 55, 30)), ("RGB", "PPM", (200, 55, 30)),
        ("L", "PNG", (95,)), ("1", "PNG", None), ("P", "GIF", (200, 55, 30)), ("P", "PNG", None),
        ("RGBA", "PNG", (200, 55, 30)), ("LA", "PNG", (95,)), ("CMYK", "JPEG", None), ("CMYK", "TIFF", None),
        ("I;16", "PNG", (200,)), ("I;16", "TIFF", (200,)), ("F", "TIFF", (128,)),
    ],
)  # fmt: skip
def test_modes_and_formats(tmp_path: Path, mode: str, kind: str, expected: tuple[int, ...] | None) -> None:
    path = tmp_path / f"x.{kind.lower()}"
    path.write_bytes(encoded(kind, made(mode), **({"lossless": True} if kind == "WEBP" else {})))
    found = decoded(ImageHandle(str(path)))
    assert found.dtype == np.uint8
    assert found.shape[:2] == (10, 12)
    assert size_of(ImageHandle(str(path))) == found.shape
    if expected is not None:
        assert np.abs(found.reshape(-1, found.shape[2]).mean(0) - expected).max() < 4


def test_transparent_is_white_and_exif_turns(tmp_path: Path) -> None:
    clear = Image.new("RGBA", (8, 8), (10, 20, 30, 0))
    (tmp_path / "clear.png").write_bytes(encoded("PNG", clear))
    assert (decoded(ImageHandle(str(tmp_path / "clear.png"))) == 255).all()
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image = Image.fromarray(np.repeat(np.array([[0, 255]], np.uint8), 8, 0).repeat(8, 1))
    (tmp_path / "turned.png").write_bytes(encoded("PNG", image, exif=exif))
    found = decoded(ImageHandle(str(tmp_path / "turned.png")))
    assert found.shape == (16, 8, 1)
    assert size_of(ImageHandle(str(tmp_path / "turned.png"))) == (16, 8, 1)
    assert (found[0] == 0).all()
    assert (found[-1] == 255).all()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "CMYK", "I;16", "I", "F"])
def test_large_pictures_are_converted_a_few_rows_at_a_time(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shades = np.random.default_rng(0).integers(0, 256, (700, 600)).astype(np.uint8)
    numbers = {"I;16": (np.uint16, 257), "I": (np.int32, 10**6), "F": (np.float32, 1 / 255)}.get(mode)
    made = Image.fromarray(shades.astype(numbers[0]) * numbers[0](numbers[1]) if numbers else shades)
    made = made if numbers else Image.merge("RGB", [made, made.rotate(180), made]).convert(mode)
    if mode in ("RGBA", "LA"):
        made.putalpha(Image.fromarray(shades))
    made.save(tmp_path / "x.tif", **({"transparency": 3} if mode == "P" else {}))
    picture = ImageHandle(str(tmp_path / "x.tif"))
    monkeypatch.setattr(pixels, "BAND", 1000)
    whole = decoded(picture)
    monkeypatch.setattr(pixels, "BAND", 16)
    tracemalloc.start()
    found = decoded(picture)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found == whole).all()
    assert most < 6 * found.size  # Pillow's own memory is not counted
    if numbers:
        assert np.abs(found[:, :, 0].astype(int) - shades).max() <= 1


def test_a_long_strip_is_filled_up_within_little_memory() -> None:
    strip = np.zeros((30, 30_000, 1), np.uint8)
    strip[:, 15_000:] = 200
    tracemalloc.start()
    found = fitted(strip, 32, 1, "pad")
    assert tracemalloc.get_traced_memory()[1] < 10 * strip.size  # a square of its side has 900 MB
    tracemalloc.stop()
    assert abs(int(found[16, 2, 0]) - int(found[16, 29, 0])) < 110  # a thousandth of the height, over the mean colour
    strip = np.zeros((400, 1200, 1), np.uint8)
    strip[:, 600:] = 200
    found = fitted(strip, 24, 1, "pad")[:, :, 0]
    assert found[12, :11].max() < 20
    assert found[12, 13:].min() > 180
    assert (np.abs(found[[0, 6, 17, 23]].astype(int) - found[0, 0]) < 12).all()


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_every_picture_comes_to_one_size(fit: str) -> None:
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 18:22] = 255
    found = fitted(pixels, 8, 1, fit)
    assert found.shape == (8, 8, 1)
    assert found[4, 3:5].max() > 60
    assert (fitted(pixels[:, :20], 20, 3, fit) == pixels[:, :20]).all()


# ---- bad files -----------------------------------------------------------------------------------------------------


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, data: bytes = b"", depth: int = 8, colour: int = 2) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def cut(kind: str, share: float = 0.6) -> bytes:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3)).astype(np.uint8))
    whole = encoded(kind, noise)
    return whole[: int(share * len(whole))]


def changed(content: bytes, place: int, new: bytes) -> bytes:
    return content[:place] + new + content[place + len(new) :]


JPEG_SIZE = encoded("JPEG").index(b"\xff\xc0") + 5
BAD: dict[str, Callable[[], bytes]] = {
    "empty.png": lambda: b"",
    "text.png": lambda: b"not a picture\n" * 20,
    "page.jpg": lambda: b"<!doctype html><title>404</title>",
    "drawing.png": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "cut.png": lambda: cut("PNG"),
    "cut.jpg": lambda: cut("JPEG"),
    "cut.gif": lambda: cut("GIF"),
    "cut.bmp": lambda: cut("BMP"),
    "cut.webp": lambda: cut("WEBP"),
    "cut.tif": lambda: cut("TIFF"),
    "cut.ppm": lambda: cut("PPM"),
    "header.png": lambda: encoded("PNG")[:20],
    "header.jpg": lambda: encoded("JPEG")[:30],
    "sum.png": lambda: changed(encoded("PNG"), 20, b"\xff\xff"),
    "inside.png": lambda: changed(cut("PNG", 1), 500, b"\0" * 900),
    "no_data.png": lambda: png(8, 8),
    "bad_zlib.png": lambda: png(8, 8, b"\x78\x9cnonsense"),
    "short_zlib.png": lambda: png(800, 800, zlib.compress(b"\0" * 50)),
    "no_width.png": lambda: png(0, 8),
    "depth.png": lambda: png(8, 8, depth=7),
    "bomb.png": lambda: png(60_000, 60_000, zlib.compress(b"\0" * 10_000)),
    "wide_bomb.png": lambda: png(2_000_000, 1, zlib.compress(b"\0" * 1000)),
    "bomb.gif": lambda: changed(encoded("GIF"), 6, struct.pack("<HH", 65_000, 65_000)),
    "bomb.bmp": lambda: changed(encoded("BMP"), 18, struct.pack("<ii", 60_000, 60_000)),
    "bomb.jpg": lambda: changed(encoded("JPEG"), JPEG_SIZE, struct.pack(">HH", 65_500, 65_500)),
    "bomb.ppm": lambda: b"P6 65000 65000 255\n" + b"\0" * 100,
    "letters.ppm": lambda: b"P6 ab cd 255\n",
    "random.png": lambda: np.random.default_rng(1).bytes(3000),
    "zeros.jpg": lambda: b"\0" * 3000,
    "pickle.png": lambda: pickle.dumps({"a": list(range(100))}),
    "archive.png": lambda: b"PK\x03\x04" + b"\0" * 100,
    "packed.png": lambda: gzip.compress(encoded("PNG")),
    "paper.jpg": lambda: b"%PDF-1.7\n%\xe2\xe3\n1 0 obj",
    "film.jpg": lambda: b"\0\0\0\x18ftypmp42" + b"\0" * 100,
    "phone.jpg": lambda: b"\0\0\0\x18ftypheic" + b"\0" * 100,
    "icon.png": lambda: b"\0\0\x01\0\x01\0" + b"\0" * 60,
    "layers.png": lambda: b"8BPS\0\x01" + b"\0" * 60,
    "program.gif": lambda: b"\x7fELF" + b"\0" * 100,
    "circle.tif": lambda: b"II*\0\x08\0\0\0" + struct.pack("<H", 1) + b"\0" * 12 + struct.pack("<I", 8),
    "nowhere.tif": lambda: b"II*\0\xff\xff\xff\x7f",
    "no_frame.gif": lambda: encoded("GIF")[:13] + b";",
    "sound.webp": lambda: b"RIFF\x24\0\0\0WAVEfmt " + b"\0" * 40,
}


@contextlib.contextmanager
def within(most: int) -> Iterator[None]:
    """Let this process have no more memory than it has now and so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_forty_kinds_of_bad_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    began = time.process_time()
    assert len(BAD) >= 40
    for name, content in BAD.items():
        (tmp_path / name).write_bytes(content())
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "dangling.png").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "pipe.png")
    with (tmp_path / "sparse.png").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with within(2**30):
        for name in (*BAD, "folder.png", "dangling.png", "pipe.png", "sparse.png", "missing.png"):
            with pytest.raises(UserError) as refused:
                decoded(ImageHandle(str(tmp_path / name)))
            said = str(refused.value)
            with contextlib.suppress(UserError):  # a header alone may be sound
                size_of(ImageHandle(str(tmp_path / name)))
            assert said.startswith(str(tmp_path / name)), said
            assert "\n" not in said
            assert len(said) < 400, said
    assert time.process_time() - began < 10


def test_bad_arrays_and_archives_are_refused_in_a_sentence(tmp_path: Path) -> None:
    short = bytes((0, 0, 8, 3)) + struct.pack(">3I", 100, 28, 28) + b"\0" * 50
    giant = bytes((0, 0, 8, 3)) + struct.pack(">3I", 2**31, 2**15, 2**15)
    for name, content in (("short", short), ("giant", giant)):
        (tmp_path / f"{name}-images-idx3-ubyte").write_bytes(content)
        (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(bytes((0, 0, 8, 1)) + struct.pack(">I", 1) + b"\0")
        with pytest.raises(UserError, match=r"damaged IDX|claims to hold"):
            read(tmp_path / f"{name}-images-idx3-ubyte")
    np.savez(tmp_path / "objects.npz", images=np.zeros((2, 4, 4)), labels=np.array([{}, []], dtype=object))
    with pytest.raises(UserError, match="Python objects"):
        read(tmp_path / "objects.npz")
    np.savez(tmp_path / "uneven.npz", images=np.zeros((3, 4, 4)), labels=np.array([1, 2]))
    with pytest.raises(UserError, match="3 pictures, but labels has 2"):
        read(tmp_path / "uneven.npz")
    root = folders(tmp_path / "photos")
    damaged = bytearray(zipped(root).read_bytes())
    damaged[200:260] = b"\xff" * 60
    (tmp_path / "damaged.zip").write_bytes(damaged)
    with pytest.raises(UserError):
        [decoded(e.source) for e in read(tmp_path / "damaged.zip")]
    one = tmp_path / "one" / "only"
    one.mkdir(parents=True)
    (one / "x.png").write_bytes(encoded("PNG"))
    with pytest.raises(UserError, match="without labels"):
        inputs.recognise([tmp_path / "one"])


def test_check_names_every_fault_by_its_file(tmp_path: Path) -> None:
    root = folders(tmp_path / "photos")
    (root / "cat" / "again.png").write_bytes((root / "cat" / "0.png").read_bytes())
    (root / "cat" / "wrong.png").write_bytes((root / "dog" / "0.png").read_bytes())
    (root / "dog" / "cut.jpg").write_bytes(cut("JPEG"))
    (root / "dog" / "empty.png").write_bytes(b"")
    (root / "dog" / "vast.png").write_bytes(encoded("PNG", picture(size=(900, 30))))
    test = folders(tmp_path / "test")
    parts = [Part(name, [path], inputs.recognise([path])) for name, path in (("training", root), ("test", test))]
    report = check_images(parts[0], parts[1:], "utf-8", inputs.read)
    assert report.stops == {"training": 2}
    assert report.counts == {
        "duplicate pictures": 1,
        "unreadable pictures": 2,
        "equal pictures with different labels": 1,
        "test pictures in the training data": 6,
        "oversized pictures": 1,
    }
    said, sound = check([str(root)], [str(test)])
    assert not sound
    assert f"{root}/dog/cut.jpg: is truncated" in said
    assert f"{root}/dog/empty.png: is empty" in said
    assert f"{root}/cat/again.png: is the same picture as {root}/cat/0.png" in said


def test_a_damaged_picture_stops_or_is_skipped(tmp_path: Path) -> None:
    root = folders(tmp_path / "photos")
    (root / "dog" / "cut.png").write_bytes(cut("PNG"))
    form = inputs.recognise([root])
    skipped: list[object] = []
    assert len(list(inputs.read([root], form, skipped.append))) == 6
    assert len(skipped) == 1
    reader = Patches(Patches.settings(None)(), [0.5] * 3, [0.5] * 3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"cut\.png is truncated"):
        reader.encode([example.source for example in inputs.read([root], form)])
    assert fault_of(ImageHandle(str(root / "dog" / "1.png"))) == ""
