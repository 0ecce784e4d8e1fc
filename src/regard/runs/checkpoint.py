"""A run folder: what is in it, written whole or not at all. No pickle anywhere.

config.yaml  model.safetensors  source.json  target.json  metrics.jsonl  README.md  sums.json  pictures/
state/STEP/      everything needed to resume exactly: weights, buffers, optimiser, random state, position in the data
checkpoints/     weights and buffers at the last validations, for averaging, and those of the best one
cache/           the rows of the training data, memory-mapped

Persistent buffers (statistics of BatchNorm, singular vectors of spectral norm, random features, counters) are state,
as weights are: they are in every file that weights are in, under their own names and in their own dtypes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn

from regard.errors import UserError
from regard.runs import checksums

KEEP = 2  # states
FACTS = "facts.json"
Shapes = dict[str, tuple[int, ...]]
State = tuple[dict[str, dict[str, Tensor]], dict[str, Any], list[str]]  # tensors by group, facts, warnings


# ---- weights -------------------------------------------------------------------------------------------------------


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write weights as safetensors; the file has its final name only when it is complete."""
    with checksums.writing(path):
        partial = path.with_name(path.name + ".partial")
        try:
            _write(weights, partial)
        except OSError:
            partial.unlink(missing_ok=True)  # a full disk needs the room
            raise
        os.replace(partial, path)
        checksums.sync(path.parent)


def as_bytes(weights: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})


def load_weights(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path} does not exist: the run has no saved model yet.")
    try:
        return load_file(path)
    except (SafetensorError, OSError, MemoryError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error


def shapes_in(path: Path) -> Shapes:
    """Return names and shapes from a file's header, which the library compares with the file's size; nothing is
    allocated."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: the run has no saved model yet.")
    try:
        with safe_open(path, "pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.offset_keys()}
    except (SafetensorError, OSError, MemoryError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by name, tied ones once."""
    return dict(model.named_parameters())


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers by name, shared ones once; the others follow from the settings."""
    persistent = {
        f"{prefix}{'.' if prefix else ''}{name}"
        for prefix, module in model.named_modules()
        for name in module._buffers.keys() - module._non_persistent_buffers_set
    }
    return {name: buffer for name, buffer in model.named_buffers() if name in persistent}


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return everything that a model is saved as: its parameters and persistent buffers."""
    return weights_of(model) | buffers_of(model)


def shapes_of(model: nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in tensors_of(model).items()}


def refuse_unfit(own: Shapes, found: Shapes, where: Path) -> None:
    if own != found:
        wrong = sorted(own.keys() ^ found.keys()) or [name for name in own if own[name] != found[name]]
        raise UserError(f"{where} does not fit the model its config.yaml describes: {wrong[0]!r} differs.")


def put_weights(model: nn.Module, weights: Mapping[str, Tensor], where: Path) -> None:
    """Copy saved weights and buffers into a model; refuse other names, shapes or dtypes than its own."""
    refuse_unfit(shapes_of(model), {name: tuple(tensor.shape) for name, tensor in weights.items()}, where)
    own = tensors_of(model)
    for name, tensor in own.items():
        if weights[name].dtype != tensor.dtype:
            raise UserError(f"{where}: {name!r}: expected {_plain(tensor)}, found {_plain(weights[name])}.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def _plain(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def average(paths: Sequence[Path], parameters: Collection[str]) -> dict[str, Tensor]:
    """Return the mean of several checkpoints' parameters, with the buffers of the newest checkpoint, which is the last.

    A mean of counters, singular vectors or random features has no meaning. The statistics of BatchNorm are those of the
    newest weights, not of the mean: see `regard.training.averaging.reestimate`.
    """
    newest = load_weights(paths[-1])
    total: dict[str, Tensor] = {}
    for path in paths:
        found = load_weights(path)
        for name in parameters:
            total[name] = total[name] + found[name].double() if name in total else found[name].double()
    return newest | {name: (tensor / len(paths)).to(newest[name].dtype) for name, tensor in total.items()}


def _write(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # its own word for what the system said
        raise OSError(None, str(error).removeprefix("Error while serializing: ")) from error
    path.chmod(0o644)  # the library leaves 0600
    checksums.sync(path)


# ---- states --------------------------------------------------------------------------------------------------------


def save_state(run: Path, step: int, tensors: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
    """Write a new folder with all files and their SHA-256 to disk, then rename it; the newest KEEP states stay.

    Whatever goes wrong, the states that were there stay as they are.
    """
    home = run / "state"
    with checksums.writing(home):
        home.mkdir(parents=True, exist_ok=True)
        tidy(run)
        partial = home / f".{step:08d}.partial"
        try:
            _fill(partial, tensors, facts)
            os.replace(partial, _unused(home, step))
        except (OSError, UserError):
            shutil.rmtree(partial, ignore_errors=True)  # a full disk needs the room
            raise
        checksums.sync(home)
        tidy(run)


def tidy(run: Path) -> None:
    """Remove the states before the newest KEEP, and what is left of processes that ended in the middle of a save."""
    for old in states(run)[:-KEEP]:
        os.replace(old, old.with_name(f".{old.name}.partial"))  # first: a state is never seen half removed
    for left in (run / "state").glob(".*.partial"):
        shutil.rmtree(left)


def _fill(folder: Path, tensors: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
    folder.mkdir()
    for name, group in tensors.items():
        _write(group, folder / f"{name}.safetensors")
    (folder / FACTS).write_text(json.dumps(facts, indent=1), encoding="utf-8")
    checksums.sync(folder / FACTS)
    checksums.write_sums(folder, {file.name: [checksums.sha256(file)] for file in sorted(folder.iterdir())})


def _unused(home: Path, step: int) -> Path:
    """Return the name of a new state: a step may be saved twice, and the first is not touched."""
    again = [int(path.name.partition("-")[2] or 0) for path in home.glob(f"{step:08d}*")]
    return home / (f"{step:08d}-{1 + max(again)}" if again else f"{step:08d}")


def states(run: Path) -> list[Path]:
    """Return the complete states of a run, oldest first."""
    found = [path for path in (run / "state").glob("[0-9]*") if re.fullmatch(r"\d+(-\d+)?", path.name)]
    return sorted(found, key=lambda path: [int(part) for part in path.name.split("-")])


def load_state(run: Path) -> State | None:
    """Return the newest undamaged state, its facts, and a warning for each damaged one that was passed over.

    If none is undamaged, the tensors are empty. Damaged ones are set aside when there is a sound one to resume from:
    they must not push it out when the next is saved.
    """
    warnings: list[str] = []
    damaged: list[Path] = []
    for folder in reversed(states(run)):
        try:
            tensors, facts = read_state(folder)
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            warnings.append(f"{folder} is damaged ({reason}), going back to the one before")
            damaged.append(folder)
            continue
        for other in damaged:
            _set_aside(other)
        return tensors, facts, warnings
    return None if not warnings else ({}, {}, warnings)


def read_state(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors and facts of one state, if every file is as it was written."""
    listed = checksums.parse_sums(folder)
    facts = read_facts(folder)
    groups = [name for name in listed if name != FACTS]
    for name in groups:
        if checksums.sha256(checksums.inside(folder, name)) not in listed[name]:
            raise ValueError(f"{name} has changed since it was written")
    return {name.removesuffix(".safetensors"): load_file(folder / name) for name in groups}, facts


def read_facts(folder: Path) -> dict[str, Any]:
    """Return everything in a state that is not a tensor."""
    path = checksums.inside(folder, FACTS)
    if checksums.sha256(path) not in checksums.parse_sums(folder).get(FACTS, []):
        raise ValueError(f"{FACTS} has changed since it was written")
    facts = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise ValueError(f"{FACTS} holds no facts")
    return facts


def named(run: Path) -> list[dict[str, str]]:
    """Return for each state, oldest first, the checkpoints that it names, with their sums."""
    found = []
    for folder in states(run):
        with suppress(OSError, ValueError, RecursionError):
            found.append(dict(read_facts(folder).get("kept", {})))
    return found


def newest_facts(run: Path) -> dict[str, Any] | None:
    """Return the facts of the newest state whose facts are sound."""
    for folder in reversed(states(run)):
        try:
            return read_facts(folder)
        except (OSError, ValueError, RecursionError):
            continue
    return None


def _set_aside(folder: Path) -> None:
    try:
        os.replace(folder, folder.with_name(f".{folder.name}.damaged"))
    except OSError:
        return  # then it is passed over again
