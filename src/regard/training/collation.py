"""The batches of one step of training, shared by its turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Collated:
    """The batches of a step, collated when they are asked for, and kept if several turns ask."""

    def __init__(self, collate: Callable[[Any], Any], rows: Sequence[Any], *, keep: bool) -> None:
        self._collate, self._rows, self._keep = collate, rows, keep
        self._kept: dict[int, Any] = {}

    def __getitem__(self, number: int) -> Any:
        if number in self._kept:
            return self._kept[number]
        batch = self._collate(self._rows[number])
        if self._keep:
            self._kept[number] = batch
        return batch
