"""TensorBoard, where it is installed: `tensorboard --logdir runs` shows the curves of all runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any


class Board:
    """The numbers of each validation as curves in RUN/tensorboard; nothing at all without the package."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "tensorboard"
        self.writer: Any = None

    def add(self, entry: dict[str, Any]) -> None:
        """One validation. What an interrupted run had shown beyond its last state is taken back."""
        with suppress(ImportError, OSError):  # a full disk must not end a training for the sake of its picture
            if self.writer is None:
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(self.folder), purge_step=entry["step"])
            for name, value in entry.items():
                if name not in ("step", "epoch", "minutes", "items", "perfect"):
                    self.writer.add_scalar(name, value, entry["step"])
            self.writer.flush()

    def close(self) -> None:
        if self.writer is not None:
            with suppress(OSError):
                self.writer.close()
