"""Arrays of pictures: mapped or unpacked, in archives, on the scale of the whole array, and refused in a sentence."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from regard import inputs
from regard.data.example import Example
from regard.data.folders import Handle
from regard.data.pixels import ImageHandle, decoded, named, size_of
from regard.data.stored_arrays import idx_array, npz_array
from regard.errors import UserError
from regard.training.choose import splits_of

IMAGES = np.arange(4 * 6 * 5, dtype=np.uint8).reshape(4, 6, 5)


def read(path: Path | str, task: str | None = None) -> list[Example]:
    return list(inputs.read([path], inputs.recognise([path], task)))


def saved(folder: Path, images: np.ndarray, name: str = "x.npz") -> list[ImageHandle]:
    np.savez(folder / name, images=images, labels=np.arange(len(images)) % 2)
    return [example.source for example in read(folder / name)]


def test_what_is_not_packed_is_mapped_and_the_same(tmp_path: Path) -> None:
    arrays = {"rows": IMAGES, "columns": np.asfortranarray(IMAGES), "none": IMAGES[:0], "labels": np.array(["a", "bc"])}
    np.savez(tmp_path / "plain.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    for name, array in arrays.items():
        plain, packed = (npz_array(Handle(str(tmp_path / f"{kind}.npz")), name) for kind in ("plain", "packed"))
        assert isinstance(plain, np.memmap) == (array.size > 0)
        assert not isinstance(packed, np.memmap)
        assert plain.dtype == packed.dtype == array.dtype
        assert (plain == array).all()
        assert (packed == array).all()
    (tmp_path / "idx").write_bytes(bytes((0, 0, 8, 3)) + struct.pack(">3I", *IMAGES.shape) + IMAGES.tobytes())
    found = idx_array(Handle(str(tmp_path / "idx")))
    assert isinstance(found, np.memmap)
    assert (found == IMAGES).all()


def test_a_changed_bit_of_a_mapped_array_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path, np.tile(IMAGES, (500, 1, 1)))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[40_000] ^= 4
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npz/images cannot be read \(Bad CRC-32"):
        read(tmp_path / "x.npz")


def test_an_array_that_claims_more_than_its_file_holds_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", images=IMAGES, labels=np.arange(1000))
    with zipfile.ZipFile(tmp_path / "plain.npz") as whole, zipfile.ZipFile(tmp_path / "lying.npz", "w") as lying:
        for name in whole.namelist():
            lying.writestr(name, whole.read(name).replace(b"(4, 6, 5)", b"(9, 6, 5)"))
    with pytest.raises(UserError, match=r"lying\.npz/images cannot be read"):
        npz_array(Handle(str(tmp_path / "lying.npz")), "images")


@pytest.mark.parametrize("below", ["", "folder/"])
def test_an_npz_file_in_an_archive(tmp_path: Path, below: str) -> None:
    np.savez(tmp_path / "x.npz", x_train=IMAGES, y_train=[1, 0, 1, 0], x_test=IMAGES[:2], y_test=[1, 0])
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "x.npz", f"{below}x.npz")
        archive.writestr("__MACOSX/x.npz", "junk")
    inside = f"{tmp_path}/x.zip/{below}x.npz"
    assert splits_of(str(tmp_path / "x.zip")) == {"train": f"{inside}/train", "test": f"{inside}/test"}
    found = read(f"{inside}/test")
    assert [(str(e.source), e.target) for e in found] == [(f"{inside}/x_test#0", "1"), (f"{inside}/x_test#1", "0")]
    assert (decoded(named(str(found[1].source)))[:, :, 0] == IMAGES[1]).all()
    assert len(read(tmp_path / "x.zip")) == 4


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (np.array([0, 1, 255], np.int64), [0, 1, 255]),
        (np.array([0, 200, 65535], np.uint16), [0, 1, 255]),
        (np.array([0, 200, 4095], np.uint16), [0, 1, 16]),
        (np.array([0, 1000, 10**6], np.int32), [0, 0, 255]),
        (np.array([0, 0.5, 1], np.float32), [0, 128, 255]),
        (np.array([0, 1, 255], np.float64), [0, 1, 255]),
        (np.array([-1, 0, 1], np.float32), [0, 128, 255]),
        (np.array([False, False, True]), [0, 0, 255]),
    ],
)  # fmt: skip
def test_a_dark_picture_of_an_array_stays_dark(tmp_path: Path, numbers: np.ndarray, expected: list[int]) -> None:
    handles = saved(tmp_path, np.broadcast_to(numbers[:, None, None], (3, 6, 5)))
    assert [int(decoded(handle)[3, 2, 0]) for handle in handles] == expected


def test_channels_come_first_or_last_and_transparent_is_white(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3)).astype(np.uint8)
    for name, images in (("last", colours), ("first", colours.transpose(0, 3, 1, 2))):
        handles = saved(tmp_path, images, f"{name}.npz")
        assert size_of(handles[2]) == (6, 5, 3)
        assert (decoded(handles[2]) == colours[2]).all()
    for images, shown in ((colours, 3), (colours[..., :1], 1)):
        clear = np.concatenate([images, np.zeros((4, 6, 5, 1), np.uint8)], 3)
        clear[0, :, :, -1] = 255
        for factor, kind in ((1, np.uint8), (257, np.uint16), (1 / 255, np.float64)):
            handles = saved(tmp_path, (clear.astype(kind) * kind(factor)).astype(kind), "clear.npz")
            assert size_of(handles[0]) == (6, 5, shown)
            assert (decoded(handles[0]) == images[0]).all()
            assert (decoded(handles[1]) == 255).all()


def test_arrays_that_are_no_pictures_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"1 to 4 channels\]\), found uint8 of shape \(3, 6, 5, 5\)"):
        saved(tmp_path, np.zeros((3, 6, 5, 5), np.uint8))
    numbers = np.zeros((3, 6, 5), np.float32)
    numbers[1, 2, 2] = np.nan
    handles = saved(tmp_path, numbers)
    with pytest.raises(UserError, match=r"x\.npz/images#1 is damaged \(it holds NaN or infinite numbers\)"):
        decoded(handles[1])
    form, skipped = inputs.recognise([tmp_path / "x.npz"]), []
    assert len(list(inputs.read([tmp_path / "x.npz"], form, skipped.append))) == 2
    assert len(skipped) == 1
    np.savez(tmp_path / "alone.npz", images=IMAGES, names=np.zeros(3))
    with pytest.raises(UserError, match="labels or captions beside that of the pictures, found images, names"):
        inputs.recognise([tmp_path / "alone.npz"])
    assert inputs.recognise([tmp_path / "alone.npz"], "imagine").kind == "npz"
