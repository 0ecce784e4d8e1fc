"""Folders and zip archives as data."""

import zipfile
from pathlib import Path

import pytest

from regard.data.folders import Handle, by_folder, leaf_files, splits_in, tree_of
from regard.errors import UserError


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return root


def packed(root: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(root.rglob("*")):
            made.write(path, path.relative_to(root))
    return archive


@pytest.fixture(params=["folder", "archive"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    names = ("pets/train/cat/1.png", "pets/train/dog/2.png", "pets/val/cat/3.png", "pets/.git/x", "__MACOSX/y")
    root = fill(tmp_path / "data", *names)
    return root if request.param == "folder" else packed(root, tmp_path / "data.zip")


def test_files_are_in_order_and_junk_is_named(data: Path) -> None:
    tree = tree_of(data)
    assert tree is not None
    found = ["/".join(handle.inside) for handle in tree.files]
    assert found == ["pets/train/cat/1.png", "pets/train/dog/2.png", "pets/val/cat/3.png"]
    assert tree.ignored == ["__MACOSX", "pets/.git"]
    assert [handle.read().decode() for handle in tree.files] == found
    assert tree.files[0].start(3) == b"pet"
    assert tree.files[0].size() == len(found[0])
    assert (tree.files[0].name, tree.files[0].suffix) == ("1.png", ".png")


def test_splits_are_found_behind_a_single_folder_and_lead_into_archives(data: Path) -> None:
    found = splits_in(data)
    assert found == {"train": str(data / "pets/train"), "valid": str(data / "pets/val")}
    tree = tree_of(found["train"])
    assert tree is not None
    assert [(label, handle.name) for label, handle in by_folder(tree)] == [("cat", "1.png"), ("dog", "2.png")]
    assert splits_in(found["train"]) == {}
    assert all(Path(leaf).is_file() for leaf in leaf_files(found["train"]))


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """One that is called as a part of the data is, beside two such folders, must not become a part."""
    tree = tree_of(fill(tmp_path / "x", "train/a/1", "val/a/2", "test"))
    assert tree is not None
    assert tree.folders == ["train", "val"]
    assert splits_in(tmp_path / "x").keys() == {"train", "valid"}


def test_a_single_folder_around_classes_is_no_class(tmp_path: Path) -> None:
    tree = tree_of(fill(tmp_path / "x", "all/a/1", "all/b/2", "all/b/deep/3"))
    assert tree is not None
    assert [label for label, _ in by_folder(tree)] == ["a", "b", "b"]


def test_other_paths_are_no_trees(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    assert tree_of(file) is None
    assert tree_of(tmp_path / "missing") is None
    assert leaf_files(file) == [str(file)]


def test_faults_are_sentences(tmp_path: Path) -> None:
    archive = packed(fill(tmp_path / "x", "a.txt"), tmp_path / "x.zip")
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-30])
    with pytest.raises(UserError, match="damaged zip archive"):
        _ = tree_of(archive).files  # type: ignore[union-attr]
    with pytest.raises(UserError, match="cannot be read"):
        Handle(str(tmp_path / "none")).read()
    large = tmp_path / "large"
    large.write_bytes(b"x" * 11)
    with pytest.raises(UserError, match="too large: expected at most 10 bytes"):
        Handle(str(large)).read(10)
    assert Handle(str(large)).read(11) == b"x" * 11
