"""Paths in config.yaml: written relative to the folder of the file, so that they lead to the data from any folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from regard.config import Config

SETS = ("train", "valid", "test")


def portable(config: Config, folder: Path) -> Config:
    """Return settings whose relative paths, which are relative to the working directory, are relative to `folder`."""

    def moved(name: str) -> str:
        return os.path.relpath(name, folder) if _there(Path(name)) else name

    return _mapped(config, moved)


def resolved(config: Config, folder: Path) -> Config:
    """Return settings read from a file in `folder`, with paths as the working directory needs them.

    What does not lie where the file says is left alone: recipes name data relative to the working directory.
    """

    def found(name: str) -> str:
        return os.path.relpath(folder / name) if _there(folder / name) else name

    return _mapped(config, found)


def _mapped(config: Config, change: Callable[[str], str]) -> Config:
    """Return settings with every relative path changed."""

    def path(name: str) -> str:
        return name if os.path.isabs(name) else change(name)

    data = {key: [path(name) for name in getattr(config.data, key)] for key in SETS}
    start = config.training.start
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "training": config.training.model_copy(update={"start": start and path(start)}),
        }
    )


def _there(path: Path) -> bool:
    """Return True if a path exists; of one inside an archive, the archive."""
    return path.exists() or any(parent.is_file() for parent in path.parents)
