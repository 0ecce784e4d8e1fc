"""The trainings of a comparison: one cell for each variant, amount of data and seed, in an order fair to all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.comparison.variants import Variant
from regard.config import Config
from regard.errors import UserError
from regard.runs import checksums, locations, settings


@dataclass(frozen=True)
class Cell:
    """One training: a variant with one seed, on some of the data or on all of it."""

    variant: Variant
    config: Config
    round: int  # which of the seeds: 0, 1, 2 …
    size: int | None
    run: Path
    record: Path  # its measures, written when it is done

    def __reduce__(self) -> tuple[Any, ...]:
        """The class of the settings is made from input and output: another process makes it again."""
        return _made, (self.variant, self.config.model_dump(), self.round, self.size, self.run, self.record)

    @property
    def said(self) -> str:
        some = "" if self.size is None else f", {self.size:,} examples"
        return f"{self.variant.name}{some}, seed {self.config.training.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, as they are the same wherever the comparison is moved to."""
        found = locations.portable(self.config, self.run).model_dump(mode="json")
        return found | {"data": {name: value for name, value in found["data"].items() if name not in PATHS}}

    def measures(self) -> dict[str, Any] | None:
        """Return its measures if it is done; refuse those of other settings."""
        try:
            found: dict[str, Any] = json.loads(self.record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UserError(f"{self.record} cannot be read ({error}): remove it to measure the run again.") from error
        now = json.loads(json.dumps(self.settings))
        for section, values in now.items():
            before = found["settings"].get(section)
            if before == values:
                continue
            both = isinstance(values, dict) and isinstance(before, dict)
            changed = [f"{section}.{key}" for key in values if values[key] != before.get(key)] if both else [section]
            raise UserError(
                f"{self.record.parent.parent} holds another comparison: {self.variant.name} had another "
                f"{' and '.join(changed)}: name another folder with -o."
            )
        return found

    def write(self, measures: dict[str, Any]) -> None:
        self.record.parent.mkdir(parents=True, exist_ok=True)
        known = {"variant": self.variant.name, "seed": self.config.training.seed, "size": self.size}
        content = json.dumps(known | {"settings": self.settings} | measures, indent=None, ensure_ascii=False)
        checksums.write_whole(self.record, content.encode())


def _made(variant: Variant, config: dict[str, Any], number: int, size: int | None, run: Path, record: Path) -> Cell:
    return Cell(variant, settings.make(config, str(run)), number, size, run, record)


PATHS = ("train", "valid", "test")  # of the data: they may move with the comparison


def cells_of(
    folder: Path,
    variants: Sequence[tuple[Variant, Config]],
    seeds: int,
    sizes: Sequence[int | None],
) -> Iterator[Cell]:
    """Yield all trainings seed by seed, the variants in turn within each, so that noise of the machine meets all alike.

    Seeds count from a variant's own training.seed.
    """
    for number in range(seeds):
        for size in sizes:
            for variant, config in variants:
                name = variant.slug if size is None else f"{variant.slug}-{size}"
                seed = config.training.seed + number
                more = [f"training.seed={seed}", *([] if size is None else [f"data.most={size}"])]
                run, record = folder / "runs" / name / f"seed-{seed}", folder / "measures" / f"{name}-seed-{seed}.json"
                yield Cell(variant, settings.override(config, more), number, size, run, record)
