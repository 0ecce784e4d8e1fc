"""The memory of a training: predicted before it begins, and measured when it has ended.

    needed = program + weights + moments + max(gradients + activations, saving)

Activations are those of the heaviest batch: its pass is traced on shapes alone, so that any batch of any network can be
asked about (`regard.costs.trace`). Several processes share a batch. Under DDP each of them has all weights, gradients
and moments, and buckets in which gradients travel; under FSDP2 each has its share, the layer that is being computed,
and a whole copy of the weights, which validates.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.config import Training
from regard.costs.trace import traced
from regard.data.batches import Batches, Rows, share
from regard.errors import UserError
from regard.layers.roles import BETWEEN, roles_of
from regard.machine import is_shortage, memory

# Measured on Linux (docs/performance.md): what lies between blocks that are in use, and what the libraries take once
# they have begun to compute. A GPU's own count has neither: it is of tensors alone.
GAPS, LIBRARIES = 1.3, 70 * 2**20
WRONG = 1.2  # predictions were within 15 % of what was needed
SAVING = 12  # bytes for each weight while a state is written or checkpoints are averaged; no batch is in memory then
ROW = 64  # bytes for each row of the training data while the batches of an epoch are made


@dataclass(frozen=True)
class Need:
    """Bytes that a process of a training needs at its peak."""

    program: int  # what the process has before it trains
    weights: int
    moments: int  # of the optimiser
    gradients: int
    activations: int  # of the heaviest batch, or what saving takes
    there: int  # what the machine or the GPU has for this process

    @property
    def model(self) -> int:
        return self.weights + self.moments

    @property
    def batch(self) -> int:
        return self.gradients + self.activations

    @property
    def total(self) -> int:
        return self.program + self.model + self.batch

    @property
    def hopeless(self) -> bool:
        """True if it is more than there is, even if the prediction is as wrong as one has been."""
        return self.total > WRONG * self.there

    def sentence(self, how: Training) -> str:
        """Say what is needed, and what to do if that is more than there is."""
        total, model, batch, program = map(gigabytes, (self.total, self.model, self.batch, self.program))
        needs = f"training needs about {total} of memory"
        if self.total > self.there:
            needs += f", more than the {gigabytes(self.there)} of this machine"
        parts = f"{model} for weights and optimiser, {batch} for a batch, {program} for the program"
        return f"{needs} ({parts})" + (f": {self.remedy(how)}" if self.total > self.there else "")

    def remedy(self, how: Training) -> str:
        """Return settings that make it fit, or bring it nearer."""
        helps = self.total - self.batch // 2 < self.there or self.batch > self.model
        return smaller(how) if helps else "reduce model.width, model.layers or tokens.size"


def smaller(how: Training) -> str:
    """Return settings that halve a batch and leave the steps as they are."""
    return f"--set training.budget={max(1, how.budget // 2)} training.accumulate={2 * how.accumulate}"


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count < 10e9 else f"{count / 1e9:,.0f} GB"


# ---- measuring -----------------------------------------------------------------------------------------------------


def peak(device: torch.device | None = None) -> int:
    """Return the most memory this process has had so far: of the GPU if it computes there, else of the machine."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    # The system's own figure begins with that of the process which started this one; the one of /proc does not.
    found = _status("VmHWM")
    return found or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Return the memory that this process has now."""
    return _status("VmRSS") or peak()


def _status(key: str) -> int:
    """Return the bytes of an entry of /proc/self/status; 0 without one."""
    path = Path("/proc/self/status")
    found = re.search(rf"^{key}:\s+(\d+) kB", path.read_text(), re.MULTILINE) if path.is_file() else None
    return 1024 * int(found[1]) if found else 0


# ---- predicting ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The device of one process of a training, and how many processes share a batch."""

    there: int  # bytes of memory
    processes: int = 1
    program: int = 0  # bytes that a process has before it trains
    gaps: float = 1.0  # bytes taken for each byte in use


def here(device: torch.device, network: nn.Module, rows: int) -> Place:
    """Return this process on this machine: its weights are in memory already, `rows` will be ordered."""
    if device.type == "cuda":
        return Place(torch.cuda.get_device_properties(device).total_memory)
    there = sum(parameter.nbytes for parameter in network.parameters() if not parameter.is_meta)
    return Place(memory(), program=resident() - there + LIBRARIES + ROW * rows, gaps=GAPS)


def predict(
    network: nn.Module,
    batch_of: Callable[[Rows], Any],
    turns: Sequence[str],
    batches: Batches,
    place: Place,
    how: Training,
) -> Need:
    """Predict the need of a process of a training of this network; `batch_of(rows)` collates some rows."""
    return need_of(network, peak_of(network, batch_of, turns, batches, place.processes), place, how)


def peak_of(
    network: nn.Module, batch_of: Callable[[Rows], Any], turns: Sequence[str], batches: Batches, processes: int = 1
) -> int:
    """Return the most bytes that gradients and activations of a process take together."""
    found = 0
    for rows in batches.heaviest():
        own = share(rows, 0, processes)
        batch = batch_of(own if len(own) else rows[:1])
        found = max(found, *(traced(network, batch, turn).peak for turn in turns))
    return found


def need_of(network: nn.Module, peak: int, place: Place, how: Training) -> Need:
    """Return the need of a process whose gradients and activations take `peak` bytes together where there is one."""
    count = sum(parameter.numel() for parameter in network.parameters())
    weights, learned, moments = 4 * count, 4 * learning(network), moments_of(network, how)
    work = int(place.gaps * peak)
    saving = (4 + SAVING) * count if place.gaps > 1 else 4 * count
    if place.processes == 1:
        return Need(place.program, weights, moments, learned, max(work, saving) - learned, place.there)
    if how.parallel == "ddp":
        return Need(place.program, weights, moments, 2 * learned, max(work - learned, saving - learned), place.there)
    parts, largest = place.processes, 4 * largest_unit(network)
    work = max(0, work - learned) + 2 * largest
    return Need(
        place.program, weights + weights // parts, moments // parts, learned // parts, max(work, saving), place.there
    )


def learning(network: nn.Module) -> int:
    """Return the number of weights that are learned."""
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def moments_of(network: nn.Module, how: Training) -> int:
    """Return the bytes of an optimiser's moments: two for each weight that is learned, one where Muon turns it."""
    one = how.optimiser == "muon"
    learned = ((parameter, role) for _, parameter, role in roles_of(network) if parameter.requires_grad)
    return sum(4 * parameter.numel() * (1 if one and role == BETWEEN else 2) for parameter, role in learned)


def largest_unit(network: nn.Module) -> int:
    """Return the weights of the largest part that FSDP2 puts together at once: a layer, or all outside of layers."""
    layers = [each for part in network.modules() if isinstance(part, nn.ModuleList) for each in part]
    sizes = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    rest = sum(parameter.numel() for parameter in network.parameters() if id(parameter) not in inside)
    return rest + max(sizes, default=0)


# ---- running out ---------------------------------------------------------------------------------------------------


@contextmanager
def shortage(what: Callable[[], str], how: Training) -> Iterator[None]:
    """Turn "out of memory" into a sentence that begins with `what` and ends with the settings that help."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        raise UserError(f"{what()} {smaller(how)}.") from error
