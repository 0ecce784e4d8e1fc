"""Runs of version 0.1: their settings, files and weights by today's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# Settings of each task that have another name today.
KEYS: dict[str, dict[str, str]] = {
    "convert": {
        "tokens.source_level": "tokens.level",
        "tokens.target_level": "output.level",
        "tokens.joint": "output.joint",
    },
    "continue": {"tokens.context": "output.context"},
    "fill": {"tokens.text": "output.text"},
}
# Parts of a network, as the names of their weights began, and begin today.
PREFIXES: dict[str, dict[str, str]] = {
    "convert": {
        "source.": "stem.embedding.",
        "encoder.": "backbone.",
        "target.": "head.target.",
        "decoder.": "head.decoder.",
        "head.": "head.output.",
    },
    "tag": {"head.": "head.output.", "choice.": "head.choice."},
    "classify": {"head.": "head.output.", "pool.": "head.pool."},
    "continue": {"head.": "head.output."},
    "fill": {"transform.": "head.transform.", "bias": "head.bias"},
}
FILES = {"convert": {"tokenizer.json": "source.json"}}  # files that had another name


def is_old(found: Mapping[str, Any]) -> bool:
    """Return True for the settings of a run of version 0.1: they do not say what goes in."""
    return "input" not in found


def key(name: str, task: str) -> str:
    """Return today's name of a setting."""
    return KEYS.get(task, {}).get(name, name)


def settings(found: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose keys have today's names; a new name that is there too counts."""
    made = {name: dict(value) if isinstance(value, dict) else value for name, value in found.items()}
    for old, new in KEYS.get(str(found.get("task", "convert")), {}).items():
        (section, name), (to, new_name) = old.split("."), new.split(".")
        if isinstance(made.get(section), dict) and name in made[section]:
            value = made[section].pop(name)
            made.setdefault(to, {}).setdefault(new_name, value)
    return made


def files(task: str, *, old: bool) -> dict[str, str]:
    """Return the name in the folder of each file that has another name today."""
    return FILES.get(task, {}) if old else {}


def weights(found: Mapping[str, T], task: str) -> dict[str, T]:
    """Return weights of version 0.1 (or their shapes) by today's names."""
    prefixes = {"embedding.": "stem.embedding.", **PREFIXES[task]}
    return {_renamed(name, prefixes): tensor for name, tensor in found.items()}


def _renamed(name: str, prefixes: Mapping[str, str]) -> str:
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
