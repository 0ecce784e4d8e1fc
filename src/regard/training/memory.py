"""The memory of a training: predicted before it begins, and measured when it has ended.

    needed = program + weights + moments + max(batch, saving)

`batch` is the memory of the activations of the largest batch and of the gradients so far. It is measured on two small
parts of the batch: after operation t of a step with n rows, padded to the same lengths, live(t, n) = c(t) + n · r(t)
bytes are in use, so two values of n give the need of the whole batch for any network.
"""

from __future__ import annotations

import re
import resource
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.config import Training
from regard.data.batches import Batches, Rows
from regard.errors import UserError
from regard.machine import is_shortage, memory
from regard.training.device import trial

PART = 8  # this share of the largest batch is tried, and twice as much
# Measured on Linux (docs/performance.md): what lies between blocks that are in use, and what the libraries take once
# they have begun to compute. A GPU's own count has neither: it is of tensors alone.
GAPS, LIBRARIES = 1.3, 70 * 2**20
WRONG = 1.2  # predictions were within 15 % of what was needed
SAVING = 12  # bytes for each weight while a state is written or checkpoints are averaged; no batch is in memory then
ROW = 64  # bytes for each row of the training data while the batches of an epoch are made


@dataclass(frozen=True)
class Need:
    """Bytes that a training needs at its peak."""

    program: int  # what the process has before it trains
    model: int  # weights, and two moments of each
    batch: int  # gradients and activations of the largest batch, or what saving takes
    there: int  # what the machine or the GPU has

    @property
    def total(self) -> int:
        return self.program + self.model + self.batch

    @property
    def hopeless(self) -> bool:
        """True if it is more than there is, even if the prediction is as wrong as one has been."""
        return self.total > WRONG * self.there

    def sentence(self, how: Training) -> str:
        """Say what is needed, and what to do if that is more than there is."""
        total, model, batch = (gigabytes(count) for count in (self.total, self.model, self.batch))
        said = f"training needs about {total} of memory: {model} for weights and optimiser, {batch} for a batch"
        if self.total <= self.there:
            return said
        helps = self.total - self.batch // 2 < self.there or self.batch > self.model
        remedy = smaller(how) if helps else "reduce model.width, model.layers or tokens.size"
        return f"{said}, which is more than the {gigabytes(self.there)} of this machine: {remedy}"


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


class Live(TorchDispatchMode):
    """A mode that records, after every operation, the bytes of all tensors made inside it that are still in use."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.after: list[int] = []
        self._now = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, torch would load its compiler: seconds, and nothing is compiled here

    def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._count((args, kwargs), new=False)  # weights and data were there before; a view of them is not new
        result = function(*args, **(kwargs or {}))
        self._count(result, new=True)
        self.after.append(self._now)
        return result

    def _count(self, tensors: Any, *, new: bool) -> None:
        for leaf in tree_leaves(tensors):
            storage = leaf.untyped_storage() if isinstance(leaf, Tensor) else None
            if storage is not None and storage._cdata not in self._known:
                size = storage.nbytes() if new else 0
                self._known.add(storage._cdata)
                self._now += size
                weakref.finalize(storage, self._forget, storage._cdata, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self._now -= size


# ---- predicting ----------------------------------------------------------------------------------------------------


def predict(
    network: nn.Module,
    loss: Callable[[Rows], Tensor],
    batches: Batches,
    device: torch.device,
    rows: int | None = None,
) -> Need:
    """Predict the need of a training of this network whose loss of some rows is `loss(rows)`; `batches` may be those of
    a sample of so many `rows`.

    The network keeps neither gradients nor changed buffers, and torch's random numbers go on as if nothing had been
    tried.
    """
    count = sum(parameter.numel() for parameter in network.parameters())
    program = resident() - 4 * count  # the weights are there already
    with trial(network, device):
        found = max((_of_batch(loss, network, *batch) for batch in batches.heaviest()), default=0)
    if device.type == "cuda":
        return Need(0, 12 * count, max(found, 4 * count), torch.cuda.get_device_properties(device).total_memory)
    data = ROW * (batches.rows if rows is None else rows)
    batch = max(int(GAPS * found), (4 + SAVING) * count)
    return Need(program + LIBRARIES + data, 12 * count, batch, memory())


def _of_batch(loss: Callable[[Rows], Tensor], network: nn.Module, rows: Rows, widest: int) -> int:
    """Return the bytes that a batch needs; its first `widest` rows hold the longest of each field."""
    few = max(widest, len(rows) // PART)
    twice = min(len(rows), 2 * few)
    small = _live(loss, network, rows[:few])
    if twice == few:
        return int(small.max(initial=0))
    large = _live(loss, network, rows[:twice])
    more = (len(rows) - few) / (twice - few)
    if len(small) != len(large):  # the rows themselves decide what is computed
        return int(small.max() + more * (large.max() - small.max()))
    return int((small + more * (large - small)).max())


def _live(loss: Callable[[Rows], Tensor], network: nn.Module, rows: Rows) -> NDArray[np.int64]:
    network.zero_grad(set_to_none=True)
    with Live() as live:
        loss(rows).backward()
    return np.array(live.after, dtype=np.int64)


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
