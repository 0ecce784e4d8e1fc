"""Is every file of a run what was written? `regard check RUN` says so, `--accept` takes them as they are."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError

from regard.data.store import Store
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.inputs.input import Use
from regard.outputs import OUTPUTS
from regard.runs import checkpoint, checksums
from regard.runs.folder import CACHE, CHECKED, STORES

LEARNED = {
    *(name for kind in INPUTS.values() for use in Use for name in kind.files(use)),
    *(name for kind in OUTPUTS.values() for name in kind.files),
    "source.json",
}  # by any input and output, also of version 0.1
ACCEPTED = (
    "config.yaml",
    *sorted(LEARNED),
    "model.safetensors",
    "metrics.jsonl",
    "README.md",
    "results.json",
    "examples.json",
)


def verify(run: Path) -> list[str]:
    """A sentence for each file of a run that has changed since it was written."""
    return [*_published(run), *_states(run), *_checkpoints(run), *_cache(run)]


def accept(run: Path) -> None:
    """Take the files of a run as they are: for whoever edits a config.yaml on purpose, or made a folder by hand."""
    checksums.write_sums(run, {name: [checksums.sha256(run / name)] for name in ACCEPTED if (run / name).is_file()})


def check_checkpoints(run: Path) -> None:
    """Refuse to work with weights of which one has changed since it was written."""
    for fault in _checkpoints(run):
        raise UserError(fault)


def _published(run: Path) -> list[str]:
    try:
        listed = checksums.read_sums(run)
        faults = [checksums.fault_of(run, name, listed) for name in listed]
    except UserError as error:
        return [str(error)]
    return [fault for fault in faults if fault]


def _states(run: Path) -> list[str]:
    faults = []
    for folder in checkpoint.states(run):
        try:
            checkpoint.read_state(folder)
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            faults.append(f"{folder} is damaged ({getattr(error, 'strerror', None) or error}).")
    return faults


def _checkpoints(run: Path) -> list[str]:
    """The states name them with their sums."""
    faults = []
    kept = {name: expected for state in checkpoint.named(run) for name, expected in state.items()}
    for name, expected in kept.items():
        path = checksums.inside(run / "checkpoints", name)
        if not path.is_file() or checksums.sha256(path) != expected:
            faults.append(f"{path} is damaged or gone: `regard train` with the run's settings does without it.")
    return faults


def _cache(run: Path) -> list[str]:
    cache = run / CACHE
    if not cache.is_dir():
        return []
    try:
        checksums.check(cache, CHECKED)
        for name in STORES:
            Store.open(cache / name)
    except (OSError, UserError) as error:
        return [str(error)]
    return []
