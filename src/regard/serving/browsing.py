"""Runs of a folder, read only: their settings, curves, scores, pictures and cards, and tables of comparisons."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.config import NOT_YAML, plain_yaml
from regard.serving.queue import Refused

DEPTH = 4  # folders below the one that is browsed
MOST_RUNS, MOST_TEXT = 500, 1 << 20
PICTURES = {".png": "image/png", ".svg": "image/svg+xml", ".jpg": "image/jpeg", ".webp": "image/webp"}


def is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


class Browser:
    """The runs of some folders, and those that are served. They are looked for anew each time, as trainings come."""

    def __init__(self, folders: tuple[Path, ...], served: Mapping[str, str]) -> None:
        self.folders, self.served = folders, dict(served)

    def found(self) -> dict[str, Path]:
        """Return the folder of each run by its name."""
        runs = {name: Path(path) for name, path in self.served.items()}
        known = {path.resolve() for path in runs.values()}
        for root in self.folders:
            for folder in _below(root, DEPTH):
                if is_run(folder) and folder.resolve() not in known and len(runs) < MOST_RUNS:
                    name = folder.relative_to(root).as_posix()
                    runs[name if name not in runs else f"{root.name}/{name}"] = folder
        return runs

    def listed(self) -> dict[str, Any]:
        """Return a line for each run, and the tables of comparisons."""
        runs = [self._line(name, path) for name, path in self.found().items()]
        tables = [
            {"name": f"{root.name}/{path.relative_to(root).as_posix()}", "text": _text(path)}
            for root in self.folders
            for folder in (root, *_below(root, DEPTH))
            for path in (folder / "README.md",)
            if (folder / "comparison.json").is_file() and path.is_file()
        ]
        return {"runs": sorted(runs, key=lambda run: run["name"]), "tables": tables[:20]}

    def _line(self, name: str, path: Path) -> dict[str, Any]:
        settings, curve, results = _settings(path), _curve(path), _results(path)
        last = curve[-1] if curve else {}
        first = next((scores[0] for scores in results.values() if scores), None)
        return {
            "name": name,
            "task": settings.get("task", ""),
            "kind": settings.get("model.kind", ""),
            "score": first or _newest(last),
            "steps": last.get("step"),
            "minutes": last.get("minutes"),
            "training": _held(path),
            "served": name if name in self.served else None,
        }

    def run(self, name: str) -> dict[str, Any]:
        """Return all that is known of a run."""
        path = self._path(name)
        return {
            "name": name,
            "settings": _settings(path),
            "curve": _curve(path),
            "results": _results(path),
            "card": _text(path / "README.md"),
            "pictures": sorted(each.name for each in _pictures(path)),
            "training": _held(path),
        }

    def picture(self, run: str, name: str) -> tuple[bytes, str]:
        """Return a picture of a run, and what it is."""
        for path in _pictures(self._path(run)):
            if path.name == name:
                return path.read_bytes(), PICTURES[path.suffix.lower()]
        raise Refused(404, "There is no such picture.", kind="not_found")

    def _path(self, name: str) -> Path:
        runs = self.found()
        if name not in runs:
            raise Refused(404, "There is no run of this name.", kind="not_found")
        return runs[name]


def _below(root: Path, depth: int) -> Iterator[Path]:
    """Yield the folders below one; not those of a run, and no links."""
    try:
        inside = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.is_symlink())
    except OSError:
        return
    for folder in inside:
        if folder.name.startswith("."):
            continue
        yield folder
        if depth > 1 and not is_run(folder):
            yield from _below(folder, depth - 1)


def _pictures(run: Path) -> list[Path]:
    found = [path for folder in (run / "pictures", run) if folder.is_dir() for path in sorted(folder.iterdir())]
    return [path for path in found if path.suffix.lower() in PICTURES and path.is_file() and not path.is_symlink()][:60]


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(MOST_TEXT)
    except OSError:
        return ""


def _settings(run: Path) -> dict[str, str]:
    """Return the settings by their full names, as text."""
    try:
        found = plain_yaml(_text(run / "config.yaml"))
    except NOT_YAML:
        return {}
    flat: dict[str, str] = {}
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, dict):
            flat |= {f"{key}.{name}": _plain(inner) for name, inner in value.items()}
        else:
            flat[str(key)] = _plain(value)
    return flat


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _curve(run: Path) -> list[dict[str, Any]]:
    """Return the validations so far; a line that is not whole yet is left out."""
    found = []
    for line in _text(run / "metrics.jsonl").splitlines():
        try:
            entry = json.loads(line, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            found.append({key: value for key, value in entry.items() if isinstance(value, int | float)})
    step = max(1, len(found) // 500)
    return found[:-1:step] + found[-1:]


def _results(run: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        found = json.loads(_text(run / "results.json"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        str(name): [one for one in scores if isinstance(one, dict) and isinstance(one.get("value"), int | float)]
        for name, scores in found.items()
        if isinstance(scores, list)
    }


def _newest(last: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first metric of the newest validation, which stands behind the counts."""
    names = [*last][[*last].index("items") + 1 :] if "items" in last else []
    return {"name": names[0], "value": last[names[0]], "unit": ""} if names else None


def _held(run: Path) -> bool:
    """Return True while a training holds the lock of a run."""
    try:
        handle = os.open(run / ".lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
