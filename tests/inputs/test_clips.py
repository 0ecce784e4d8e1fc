"""Clips: recognised by content, read as a film strip, each frame as a picture is."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from regard.data.clips import even, sampled
from regard.data.pixels import ImageHandle
from regard.errors import UserError
from regard.inputs import INPUTS, read, recognise
from regard.inputs.clips import Clips, ClipSettings, ClipStem
from regard.inputs.input import Opens, Source
from regard.models.cnn import cnn
from regard.models.swin import swin
from regard.models.vit import vit


def frames(count: int, start: int = 0, side: int = 12) -> list[Image.Image]:
    """A bright square that moves to the right."""
    found = []
    for t in range(count):
        pixels = np.full((side, side, 3), 20, np.uint8)
        pixels[4:8, start + t : start + t + 4] = (250, 40, 40)
        found.append(Image.fromarray(pixels))
    return found


def animated(count: int, start: int = 0, kind: str = "GIF") -> bytes:
    file, (first, *others) = io.BytesIO(), frames(count, start)
    more = {"lossless": True} if kind == "WEBP" else {}
    first.save(file, kind, save_all=True, append_images=others, duration=100, **more)
    return file.getvalue()


def write_frames(folder: Path, count: int, start: int = 0) -> None:
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames(count, start), 1):
        frame.save(folder / f"frame_{number:04d}.png")


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_animated_files_in_a_folder_for_each_class_are_clips(kind: str, tmp_path: Path) -> None:
    for label in ("left", "right"):
        (tmp_path / label).mkdir()
        for i in range(3):
            (tmp_path / label / f"{i}.{kind.lower()}").write_bytes(animated(4, i, kind))
    form = recognise([tmp_path])
    assert (form.input, form.task, form.kind) == ("clips", "classify", "picture folders")
    assert "animated pictures" in form.description
    examples = [*read([tmp_path], form)]
    assert [example.target for example in examples] == ["left"] * 3 + ["right"] * 3
    assert len(sampled(examples[0].source, 8)) == 4


def test_a_list_of_animated_files_in_an_archive_has_captions(tmp_path: Path) -> None:
    path = tmp_path / "clips.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(4):
            archive.writestr(f"{i}.gif", animated(3, i))
        archive.writestr("metadata.csv", "file_name,caption\n" + "".join(f"{i}.gif,it moves {i}\n" for i in range(4)))
    form = recognise([path])
    assert (form.input, form.task) == ("clips", "convert")
    assert [example.target for example in read([path], form)] == [f"it moves {i}" for i in range(4)]


def test_folders_of_numbered_frames_are_clips(tmp_path: Path) -> None:
    for label in ("left", "right"):
        for clip in ("one", "two"):
            write_frames(tmp_path / "data" / label / clip, 12)
    form = recognise([tmp_path / "data"])
    assert (form.input, form.task, form.kind) == ("clips", "classify", "frame folders")
    examples = [*read([tmp_path / "data"], form)]
    assert [example.target for example in examples] == ["left", "left", "right", "right"]
    assert len(sampled(examples[0].source, 20)) == 12  # 2 comes before 10
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for file in sorted((tmp_path / "data").rglob("*.png")):
            archive.write(file, file.relative_to(tmp_path / "data"))
    packed = [*read([tmp_path / "data.zip"], recognise([tmp_path / "data.zip"]))]
    assert [example.target for example in packed] == ["left", "left", "right", "right"]
    assert np.array_equal(sampled(packed[1].source, 3), sampled(examples[1].source, 3))


def test_a_list_names_folders_of_frames(tmp_path: Path) -> None:
    for clip in ("one", "two", "three"):
        write_frames(tmp_path / clip, 3)
    known = [f"{clip},it moves {i} steps to the right\n" for i in range(10) for clip in ("one", "two", "three")]
    (tmp_path / "metadata.csv").write_text("clip,caption\n" + "".join(known) + "four,it is missing\n")
    form = recognise([tmp_path])
    assert (form.input, form.task, form.kind) == ("clips", "convert", "frame list")
    with pytest.raises(UserError, match=r"metadata.csv:32: there is no clip four"):
        [*read([tmp_path], form)]


def test_pictures_stay_pictures(tmp_path: Path) -> None:
    for label in ("a", "b"):
        write_frames(tmp_path / "numbered" / label, 5)  # label/0001.png: a class of pictures, not a clip
    assert recognise([tmp_path / "numbered"]).input == "patches"
    for label in ("a", "b"):
        (tmp_path / "still" / label).mkdir(parents=True)
        for i in range(3):
            frames(1)[0].save(tmp_path / "still" / label / f"{i}.gif")
    assert recognise([tmp_path / "still"]).input == "patches"


def reader(**how: int) -> Clips:
    return Clips(ClipSettings(size=12, patch=4, frames=6, **how), [0.2, 0.1, 0.1], [0.3, 0.2, 0.2])


@pytest.mark.parametrize("build", [
    lambda: vit(layers=1, width=8, hidden=8, heads=2, dropout=0.0)[0],
    lambda: cnn(layers=1, stages=2, width=8, dropout=0.0)[0],
])  # fmt: skip
def test_each_frame_is_read_as_a_picture_and_stands_in_the_strip(build: object, tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "clip.gif"
    path.write_bytes(animated(5))
    own = reader()
    stem = own.module(build()).eval()  # type: ignore[operator]
    assert isinstance(stem, ClipStem)
    rows = own.encode([ImageHandle(str(path))])
    context = stem(own.collate(rows))
    assert context.grid is not None
    _, down, along = context.grid
    columns = along // 5
    strip = context.values.view(down, along, 8)
    for t, frame in enumerate(rows[0][0]):
        x = (torch.tensor(np.asarray(frame), dtype=torch.float32) / 255 - torch.tensor(own.mean)) / torch.tensor(
            own.deviation
        )
        alone = stem.picture(x.permute(2, 0, 1)[None]).values.view(down, columns, 8) + stem.time[t]
        assert strip[:, t * columns : (t + 1) * columns].allclose(alone, atol=1e-5)
    padded = stem(own.collate(rows, extra=2))
    real = padded.positions[0] >= 0
    assert padded.values[0, real].allclose(context.values[0], atol=1e-6)
    assert int(real.sum()) == len(strip.flatten(0, 1))
    view = own.view(ImageHandle(str(path)))
    assert view.picture is not None
    assert view.picture.shape == (12, 60, 3)
    assert view.grid == (3, 15)


@pytest.mark.parametrize("stages", [1, 2])
def test_windows_that_would_lie_across_frames_are_refused(stages: int) -> None:
    stem, _ = swin(layers=1, stages=stages, width=8, hidden=8, heads=2, window=2)
    with pytest.raises(ValueError, match="would lie across frames: choose another"):
        reader().module(stem)


def test_all_frames_of_a_clip_are_varied_alike() -> None:
    from regard.data.draws import Draws

    own = reader(shift=0.2, flip=1)
    still = np.repeat(np.asarray(frames(1, 3)[0])[None], 4, 0)
    source = own.collate([(still,), (still,)])
    draws = Draws(1, 0, np.arange(2), 2, lambda rows: rows)
    changed = own.vary(source, draws)
    assert isinstance(changed, Source)
    first, second = changed.values[0]
    assert all(frame.equal(first[0]) for frame in first)
    assert not first[0].allclose(source.values[0][0, 0].float(), atol=1)
    assert not first[0].allclose(second[0], atol=1)


def test_frames_are_spread_from_the_first_to_the_last() -> None:
    assert even(3, 8).tolist() == [0, 1, 2]
    assert even(100, 4).tolist() == [0, 33, 66, 99]


def test_a_bad_clip_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.gif").write_bytes(animated(4)[:60])
    (tmp_path / "text.gif").write_text("no clip")
    write_frames(tmp_path / "gap", 4)
    (tmp_path / "gap" / "frame_0002.png").unlink()
    for name, what in (
        ("text.gif", "is not a readable picture"),
        ("gap", "consecutive numbers"),
        ("none.gif", "cannot be read"),
    ):
        fault = Clips.unreadable(ImageHandle(str(tmp_path / name)))
        assert what in fault
        assert fault.count(". ") == 0
    with pytest.raises(UserError, match="expected image/gif"):
        reader().open(b"x", "text/plain")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_place_of_one_frame_is_covered(channels: int, tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    path.write_bytes(animated(4))
    own = Clips(ClipSettings(size=12, patch=4, frames=6, channels=channels), [0.2] * channels, [0.3] * channels)  # type: ignore[arg-type]
    source = ImageHandle(str(path))
    view = own.view(source)
    parts = own.coverable(source, view)
    assert len(parts) == 3 * 12
    part = parts[12 + 5]  # the second row, in the second frame its last column
    (before,), (after,) = own.encode([source]), own.encode([own.cover(source, view, part)])
    changed = np.argwhere(np.asarray(before[0]) != np.asarray(after[0]))
    assert {tuple(place) for place in changed[:, :3].tolist()} <= {(1, r, c) for r in range(4, 8) for c in range(8, 12)}
    assert (np.asarray(after[0])[1, 4:8, 8:12] == 51).all()


OPEN = {name: each for name, each in INPUTS.items() if issubclass(each, Opens)}


@pytest.mark.parametrize("input", OPEN.values(), ids=OPEN)
def test_a_refused_media_type_is_not_repeated(input: Any) -> None:
    """The words of a request never stand in the answer of a server."""
    with pytest.raises(UserError, match="The media type does not fit this model") as refused:
        input.open(input.__new__(input), b"", "text/<script>")
    assert "script" not in str(refused.value)
