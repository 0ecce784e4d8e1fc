"""Averaging: a run whose weights are the mean of checkpoints, and statistics of BatchNorm for such weights, through
which no batch has ever passed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from regard.config import render
from regard.data.batches import Batches, BatchReader
from regard.data.store import Store
from regard.errors import UserError
from regard.runs import checkpoint, checksums, locations, verify
from regard.runs.folder import CACHE, WEIGHTS, quoted, refuse_unwritable
from regard.runs.model import Model, load, loaded

BATCHES = 100  # of training data that the statistics are estimated on


def normalised(network: nn.Module) -> list[_BatchNorm]:
    """Return the layers of a network that keep running statistics of their batches."""
    return [module for module in network.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]


@torch.no_grad()
def reestimate(network: nn.Module, batches: Iterable[Any], turn: str = "all") -> None:
    """Replace the running statistics of BatchNorm by their means over batches; `network(batch, turn)` computes one.

    All other layers are in evaluation mode: no dropout, as in later use, and no other buffer changes. Neither do the
    counters of batches, which count those of the training.
    """
    layers = normalised(network)
    before = [(layer.momentum, layer.num_batches_tracked) for layer in layers]
    training = {module: module.training for module in network.modules()}
    network.eval()
    try:
        for layer in layers:
            layer.num_batches_tracked = None if layer.num_batches_tracked is None else layer.num_batches_tracked.clone()
            layer.reset_running_stats()
            layer.momentum = None  # a plain mean of all batches
            layer.train()
        for batch in batches:
            network(batch, turn)
    finally:
        for layer, (momentum, counter) in zip(layers, before, strict=True):
            layer.momentum, layer.num_batches_tracked = momentum, counter
        for module, mode in training.items():
            module.training = mode


def average(run: Path, last: int | None, output: Path) -> Path:
    """Write a new run folder whose weights are the mean of the last checkpoints of another."""
    refuse_unwritable(run, output)
    model = load(run)
    paths = sorted((run / "checkpoints").glob("*.safetensors"))[-model.config.training.average :]
    if not paths:
        raise UserError(f"{run / 'checkpoints'} holds no checkpoints to average.")
    if last is not None and not 1 <= last <= len(paths):
        raise UserError(
            f"--last is {last}, expected 1 to {len(paths)}: so many checkpoints are kept (training.average)."
        )
    if output.exists():
        raise UserError(f"{output} exists already: name another folder with -o.")
    verify.check_checkpoints(run)
    chosen = paths[-(last or len(paths)) :]
    note = (
        f"# {output.name}\n\nThe mean of {len(chosen)} checkpoints of {model.folder.name}.\n\n"
        f"- is it better? `regard evaluate {quoted(output)} DATA` beside `regard evaluate {quoted(run)} DATA`\n"
    )
    mean = checkpoint.average(chosen, checkpoint.weights_of(model.network))
    if normalised(model.network):
        checkpoint.put_weights(model.network, mean, run)
        reestimate(model.network, _batches(model), model.task.turns[0])
        mean = checkpoint.tensors_of(model.network)
    files: dict[str, bytes | Path] = {name: run / name for name in loaded(model.config)}
    config = render(locations.portable(model.config, output), {})
    files |= {WEIGHTS: checkpoint.as_bytes(mean), "README.md": note.encode(), "config.yaml": config.encode()}
    with checksums.writing(output):
        output.mkdir(parents=True)
        checksums.publish(output, files)
    return output


def _batches(model: Model) -> Iterator[Any]:
    """Yield batches of the rows that a run was trained on."""
    store, how = Store.open(model.folder / CACHE / "train"), model.config.training
    batches = Batches(store.lengths, how.budget, how.seed, [field.tokens for field in store.fields])
    reader = BatchReader(store, batches)
    for number in range(min(BATCHES, batches.count(0))):
        yield model.task.batch(reader.at(0, number)[1])
