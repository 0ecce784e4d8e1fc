"""Folders and zip archives as data: handles of the files in them, which are opened only when their content is needed.

A path may lead into an archive: `photos.zip/train` is the folder `train` of `photos.zip`.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

from regard.errors import UserError

NAMED = 6  # of files and folders in a sentence
MOST_BYTES = 2**30  # of one file that is read whole
JUNK = re.compile(r"\..*|__MACOSX|__pycache__|@eaDir|Thumbs\.db|desktop\.ini|lost\+found", re.IGNORECASE)
SPLITS = {
    "train": "train", "training": "train", "trn": "train",
    "valid": "valid", "validation": "valid", "val": "valid", "dev": "valid", "development": "valid",
    "test": "test", "testing": "test", "tst": "test",
}  # fmt: skip
ZIP = b"PK\x03\x04"


@dataclass(frozen=True, slots=True, order=True)
class Handle:
    """A file, the member of a zip archive, or bytes that somebody sent. `inside` are its folders below the data's own,
    and its name."""

    path: str
    member: str = ""
    inside: tuple[str, ...] = ()
    content: bytes | None = None  # of what is no file

    def __str__(self) -> str:
        return f"{self.path}/{self.member}" if self.member else self.path

    @property
    def name(self) -> str:
        return PurePosixPath(self.member or Path(self.path).as_posix()).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix.lower()

    def size(self) -> int:
        """Return the number of bytes, before any of them is unpacked."""
        if self.content is not None:
            return len(self.content)
        if not self.member:
            return os.path.getsize(self.path)
        return _archive(self.path).getinfo(self.member).file_size

    def start(self, count: int = 64) -> bytes:
        """Return the first bytes."""
        return self._read(count)

    def read(self, most: int = MOST_BYTES) -> bytes:
        """Return all bytes; a file of more than `most` is refused, also one whose archive lies about its size."""
        content = self._read(most + 1)
        if len(content) > most:
            raise UserError(f"{self} is too large: expected at most {most:,} bytes.")
        return content

    def opened(self) -> IO[bytes]:
        """Open it for reading, a member of an archive as it is unpacked."""
        if self.content is not None:
            return BytesIO(self.content)
        return _archive(self.path).open(self.member) if self.member else open(self.path, "rb")

    def _read(self, count: int) -> bytes:
        try:
            with self.opened() as file:
                return file.read(count)
        except (OSError, KeyError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile) as error:
            raise UserError(f"{self} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
        except Exception as error:  # zlib.error, lzma.LZMAError and others have no common base
            raise UserError(f"{self} cannot be unpacked: {error}.") from error


def _archive(path: str) -> zipfile.ZipFile:
    """Open an archive once: its list of members is read anew only if it has changed."""
    about = os.stat(path)
    return _open_archive(path, about.st_mtime_ns, about.st_size, os.getpid())


@lru_cache(maxsize=8)
def _open_archive(path: str, _changed: int, _size: int, _process: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)  # a forked process has its own: they would share a place in the file


@dataclass(frozen=True)
class Tree:
    """A folder, or a zip archive or a folder in one: the files below it in order, without hidden and junk ones."""

    path: str
    archive: str = ""  # the archive that the path leads into
    below: str = ""  # the folder in the archive

    @cached_property
    def files(self) -> list[Handle]:
        return sorted(handle for handle in self._all() if not any(map(JUNK.fullmatch, handle.inside)))

    @cached_property
    def ignored(self) -> list[str]:
        """The hidden and junk files and folders that are passed over, by the first such name of their path."""
        paths = (handle.inside for handle in self._all())
        junk = ("/".join(p[: i + 1]) for p in paths for i, name in enumerate(p) if JUNK.fullmatch(name))
        return sorted(set(junk))

    @cached_property
    def folders(self) -> list[str]:
        """The names of the folders directly below that hold files."""
        return sorted({handle.inside[0] for handle in self.files if len(handle.inside) > 1})

    @cached_property
    def empty(self) -> list[str]:
        """The names of the folders directly below, on the disk, that hold no files but hidden and junk ones."""
        if self.archive:
            return []
        below = [path.name for path in Path(self.path).iterdir() if path.is_dir() and not JUNK.fullmatch(path.name)]
        return sorted(set(below) - set(self.folders))

    def _all(self) -> Iterator[Handle]:
        if not self.archive:
            yield from (Handle(str(path), "", inside) for path, inside in _walk(Path(self.path)))
            return
        try:
            with zipfile.ZipFile(self.archive) as archive:
                names = [info.filename for info in archive.infolist() if not info.is_dir()]
        except (OSError, zipfile.BadZipFile) as error:
            raise UserError(f"{self.archive} is a damaged zip archive ({error}); fetch or pack it again.") from error
        for name in names:
            if name.startswith(self.below):
                inside = tuple(part for part in name[len(self.below) :].split("/") if part)
                yield Handle(self.archive, name, inside)


def _walk(root: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}.") from error

    for folder, _, names in os.walk(root, onerror=refuse, followlinks=False):
        for name in names:
            path = Path(folder) / name
            yield path, path.relative_to(root).parts


def tree_of(path: Path | str) -> Tree | None:
    """Return the tree of a folder, of a zip archive, or of a folder in one; None for any other path."""
    path = Path(path)
    if path.is_dir():
        return Tree(str(path))
    if not path.exists():
        archive = next((parent for parent in path.parents if parent.is_file() and is_zip(parent)), None)
        if archive is None:
            return None
        below = path.relative_to(archive).as_posix() + "/"
        found = Tree(str(path), str(archive), below)
        return found if found.files else None
    return Tree(str(path), str(path)) if path.is_file() and is_zip(path) else None


def member_of(path: Path | str) -> Handle | None:
    """Return the file in a zip archive that a path leads to; None for any other path."""
    path = Path(path)
    archive = next((parent for parent in path.parents if parent.is_file() and is_zip(parent)), None)
    if archive is None:
        return None
    inside = path.relative_to(archive).as_posix()
    members = Tree(str(archive), str(archive)).files
    return next((handle for handle in members if "/".join(handle.inside) == inside), None)


def is_zip(path: Path | str) -> bool:
    """Return True for a zip archive, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(4) == ZIP
    except OSError:
        return False


def splits_in(path: Path | str) -> dict[str, str]:
    """Return the paths of the folders for training, validation and test in a folder or archive that has such ones.

    A single folder around everything, as archives often have, is looked into.
    """
    tree = tree_of(path)
    if tree is None:
        return {}
    found = {SPLITS[name.lower()]: str(Path(path) / name) for name in tree.folders if name.lower() in SPLITS}
    if "train" in found and len(found) > 1:
        return found
    only = tree.folders[0] if len(tree.folders) == 1 and all(len(h.inside) > 2 for h in tree.files) else None
    return splits_in(Path(path) / only) if only is not None else {}


def some(names: Sequence[str]) -> str:
    """Return names in a sentence, the first of them if there are many."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def ignored_beside(path: Path | str, parts: Sequence[str]) -> list[str]:
    """Return the hidden and junk files and folders of a folder or archive that lie in none of its parts."""
    tree = tree_of(path)
    inside = tuple(f"{part}/" for part in parts)
    return [] if tree is None else [name for name in tree.ignored if not f"{tree.path}/{name}".startswith(inside)]


def split_files(path: Path | str) -> dict[str, list[str]]:
    """Return the files for training, validation and test that lie side by side: `train.tsv` and `test.tsv`, or
    `train.en`, `train.de`, `valid.en`, `valid.de`."""
    tree = tree_of(path)
    found: dict[str, list[str]] = {}
    for handle in tree.files if tree is not None else ():
        if handle.suffix == ".npy":  # an array of a graph, not a file of its own
            return {}
        words = re.split(r"[._-]", handle.name.lower())
        split = next((SPLITS[word] for word in words[:-1] if word in SPLITS), None)
        if split is not None:
            found.setdefault(split, []).append(str(handle))
    return found if "train" in found and len(found) > 1 else {}


def by_folder(tree: Tree) -> list[tuple[str, Handle]]:
    """Return the name of the folder that each file lies in, directly below the data's own: its label.

    A single folder around everything is no label.
    """
    level = 0
    while tree.files and all(len(h.inside) > level + 2 for h in tree.files) and _same(tree.files, level):
        level += 1
    return [(handle.inside[level], handle) for handle in tree.files if len(handle.inside) > level + 1]


def _same(files: list[Handle], level: int) -> bool:
    return len({handle.inside[level] for handle in files}) == 1


def leaf_files(path: Path | str) -> list[str]:
    """Return the files on disk that a data path stands for: itself, those of a folder, or the archive."""
    tree = tree_of(path)
    if tree is None:
        parent = Path(path).parent
        part = Path(path).name in SPLITS.values() or re.fullmatch(r"fold\d+", Path(path).name)
        if part and parent.exists() and not Path(path).exists():  # cora.npz/train is a part of cora.npz
            return leaf_files(parent)
        member = None if Path(path).exists() else member_of(path)
        parts = (Path(path), *Path(path).parents)  # a part of a file, such as arrays.npz/train, is in that file
        return [member.path if member else str(next((part for part in parts if part.is_file()), path))]
    return [tree.archive] if tree.archive else [handle.path for handle in tree.files]
