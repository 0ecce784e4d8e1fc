"""A run folder: what is in it, written whole or not at all. No pickle anywhere.

config.yaml  model.safetensors  source.json  target.json  metrics.jsonl  README.md  pictures/
state/STEP/      everything needed to go on exactly: weights, optimiser, random state, position in the data
checkpoints/     weights at the last validations, for averaging
cache/           the tokens of the training data, memory-mapped
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import UserError

KEEP = 2  # states


def save_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Weights as safetensors under their final name only when complete."""
    partial = path.with_name(path.name + ".partial")
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}, partial)
    partial.chmod(0o644)  # the library leaves 0600
    _sync(partial)
    os.replace(partial, path)


def load_weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: the run has no saved model yet.") from error
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or train again.") from error


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, tied ones once."""
    return dict(model.named_parameters())


def put_weights(model: nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    own = weights_of(model)
    if own.keys() != weights.keys() or any(own[name].shape != weights[name].shape for name in own):
        wrong = sorted(own.keys() ^ weights.keys()) or [n for n in own if own[n].shape != weights[n].shape]
        raise UserError(f"{where} does not fit the model its config.yaml describes: {wrong[0]!r} differs.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def save_state(run: Path, step: int, tensors: dict[str, dict[str, Tensor]], facts: dict[str, Any]) -> None:
    """A new folder with all files and their SHA-256, then one rename; the newest KEEP states stay."""
    home = run / "state"
    home.mkdir(parents=True, exist_ok=True)
    partial, final = home / f".{step:08d}.partial", home / f"{step:08d}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for name, group in tensors.items():
        save_weights(group, partial / f"{name}.safetensors")
    (partial / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    sums = {file.name: _sha256(file) for file in sorted(partial.iterdir())}
    (partial / "sums.json").write_text(json.dumps(sums, indent=1), encoding="utf-8")
    for file in partial.iterdir():
        _sync(file)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(partial, final)
    _sync(home)
    for old in sorted(home.glob("[0-9]*"))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def load_state(run: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any], list[str]] | None:
    """The newest undamaged state, its facts, and a warning for each damaged one that was passed over."""
    warnings: list[str] = []
    for folder in sorted((run / "state").glob("[0-9]*"), reverse=True):
        try:
            sums = json.loads((folder / "sums.json").read_text(encoding="utf-8"))
            for name, expected in sums.items():
                if _sha256(folder / name) != expected:
                    raise ValueError(f"{name} is not what was written")
            facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
            return {file.stem: load_file(file) for file in sorted(folder.glob("*.safetensors"))}, facts, warnings
        except (OSError, ValueError, SafetensorError) as error:
            warnings.append(f"{folder} is damaged ({error}), going back to the one before")
    return None if not warnings else ({}, {}, warnings)


def average(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights."""
    total: dict[str, Tensor] = {}
    for path in paths:
        for name, tensor in load_weights(path).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
