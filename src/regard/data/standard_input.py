"""Standard input as data: `-` is written to a file, for data is read more than once."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from regard.errors import UserError

NAME = "-"


@contextmanager
def spooled(*lists: Sequence[str]) -> Iterator[list[list[str]]]:
    """Yield lists of paths in which `-` is a file with what standard input holds; it is removed at the end."""
    count = sum(path == NAME for paths in lists for path in paths)
    if not count:
        yield [list(paths) for paths in lists]
        return
    if count > 1:
        raise UserError("-: expected standard input once, found it twice. Save one of them to a file.")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("-: several processes cannot read one standard input. Save it to a file.")
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("-: expected data on standard input, found a terminal. Try `regard train - < FILE`.")
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        path = Path(folder) / "stdin"
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield [[str(path) if name == NAME else name for name in paths] for paths in lists]


def kept(path: str, folder: Path) -> Path:
    """Move a file that `spooled` made into a folder, under a name that tells other content from it."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    to = folder / f"stdin-{digest[:12]}"
    shutil.move(path, to)
    return to
