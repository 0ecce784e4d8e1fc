"""Variants of one training: every combination of `--vary`, or named ones from a YAML file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from regard import config as config_files
from regard.errors import UserError
from regard.runs import settings

CUT = re.compile(r",(?![^\[{]*[\]}])")  # commas, but those of a list in brackets


@dataclass(frozen=True)
class Variant:
    """Changes of settings, under a name. A `simple` one is a baseline that the comparison adds. `where` begins a
    sentence about what is wrong with them."""

    name: str
    changes: tuple[str, ...]
    simple: bool = False
    where: str = "--vary"

    @property
    def slug(self) -> str:
        """Its name as part of a path."""
        return re.sub(r"[^\w.=+-]+", "-", self.name).strip("-.") or "variant"


def every_combination(vary: Sequence[str]) -> list[Variant]:
    """Return a variant for every combination of `key=a,b,c`; the first is the baseline."""
    axes = [_axis(given) for given in vary]
    keys = [key for key, _ in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UserError(f"--vary {key} is given twice: write all its values in one, such as --vary {key}=a,b,c.")
    found = []
    for values in product(*(values for _, values in axes)):
        named = [_said(key, value) for key, value in zip(keys, values, strict=True)]
        changes = tuple(f"{key}={value}" for key, value in zip(keys, values, strict=True))
        found.append(Variant(" ".join(named), changes))
    return _distinct(found, "--vary")


def _axis(given: str) -> tuple[str, list[str]]:
    key, equals, rest = given.partition("=")
    values = [value.strip() for value in CUT.split(rest)]
    if not key or not equals:
        raise UserError(f"--vary {given}: expected key=a,b,c, such as --vary model.attention=full,linear.")
    if "" in values:
        raise UserError(
            f"--vary {given}: value {values.index('') + 1} of {len(values)} is empty: expected key=a,b,c, such as "
            "model.attention=full,linear."
        )
    return key.strip(), values


def _said(key: str, value: str) -> str:
    """Return a value as part of a name: words speak for themselves, numbers do not."""
    plain = re.fullmatch(r"[a-zA-Z][\w-]+", value) and value not in ("true", "false", "none")
    return value if plain else f"{key.rpartition('.')[2]}={value}"


def named(path: Path) -> list[Variant]:
    """Read variants from a YAML file: a name for each, with its settings; the first is the baseline.

    full: {model.attention: full}
    short window: {model.attention: local, model.reach: 8}
    """
    found = []
    for name, changed in config_files.parse(path, "named variants, such as `full: {model.attention: full}`").items():
        if not isinstance(changed, dict) or not changed:
            raise UserError(
                f"{path}: the variant {str(name)!r} is empty: expected settings, such as {{model.attention: full}}."
            )
        found.append(Variant(str(name), tuple(settings.changes(dict(_flat(changed)))), where=f"{path}, {name}:"))
    return _distinct(found, str(path))


def _flat(changed: dict[Any, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs = []
    for key, value in changed.items():
        pairs += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(f"{prefix}{key}", value)]
    return pairs


def _distinct(found: list[Variant], where: str) -> list[Variant]:
    if len(found) < 2:
        raise UserError(f"{where}: expected at least two variants to compare, found {len(found)}.")
    slugs = [variant.slug for variant in found]
    for variant in found:
        if slugs.count(variant.slug) > 1:
            raise UserError(f"{where}: two variants are called {variant.name!r}: give them names that differ.")
    return found
