"""Several processes: torch's own DDP and FSDP2 under `torchrun`, one program for any number of them.

    torchrun --nproc-per-node 2 -m regard train words.tsv -o runs/words

Every process sees the same global batches and takes its share of the rows. Losses and gradients are means over the
whole global batch, so the number of processes changes nothing but rounding. Process 0 alone validates and writes.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.errors import UserError

WAIT = timedelta(minutes=30)  # for a process that has not come yet
LOST = re.compile(r"gloo|NCCL|Connection (closed|reset|refused)|Broken pipe", re.IGNORECASE)


class World:
    """All processes of this run; a single one if `torchrun` has not started it. A device may be given; else each
    process has a GPU, if there are any."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = device or torch.device("cpu")
        if device is None and torch.cuda.is_available():
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
            torch.cuda.set_device(self.device)
        if self.size > 1 and not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            store = own_part(next(rendezvous("env://", timeout=WAIT))[0], self.rank, self.size)
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size)

    @property
    def first(self) -> bool:
        """True for process 0, which validates, writes and logs."""
        return self.rank == 0

    def sum(self, value: float) -> float:
        """Return the sum of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return float(total)

    def broadcast(self, value: Any) -> Any:
        """Return the value of process 0 (anything that JSON can write) on all processes."""
        if self.size == 1:
            return value
        raw = json.dumps(value).encode() if self.first else b""
        length = torch.tensor(len(raw), device=self.device)
        dist.broadcast(length, 0)
        text = torch.zeros(int(length), dtype=torch.uint8)
        if self.first:
            text.copy_(torch.frombuffer(bytearray(raw), dtype=torch.uint8))
        text = text.to(self.device)
        dist.broadcast(text, 0)
        return json.loads(bytes(text.cpu().tolist()))

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensor of every process (all of one shape), in the order of their ranks."""
        if self.size == 1:
            return [tensor]
        found = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(found, tensor)
        return found

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def part(self, count: int) -> tuple[int, int]:
        """Return the start and end of this process's share of `count` consecutive things."""
        each = -(-count // self.size)
        return min(count, self.rank * each), min(count, (self.rank + 1) * each)

    def gather(self, lines: list[str]) -> list[list[str]]:
        """Return the lines of every process, in the order of their ranks; empty lists on all but process 0."""
        if self.size == 1:
            return [lines]
        return [self._from(rank, lines) for rank in range(self.size)]

    def _from(self, rank: int, lines: list[str]) -> list[str]:
        """Return the lines of one process, at process 0."""
        if rank == 0:
            return lines if self.first else []
        if self.rank == rank:
            raw = torch.tensor(list(json.dumps(lines).encode()), dtype=torch.uint8, device=self.device)
            dist.send(torch.tensor(len(raw), device=self.device), 0)
            dist.send(raw, 0)
        elif self.first:
            length = torch.tensor(0, device=self.device)
            dist.recv(length, rank)
            raw = torch.zeros(int(length), dtype=torch.uint8, device=self.device)
            dist.recv(raw, rank)
            found: list[str] = json.loads(bytes(raw.cpu().tolist()))
            return found
        return []


def own_part(store: Store, rank: int, size: int) -> Store:
    """Return a part of the store that no earlier attempt has written to, the same for all processes of this attempt.

    `torchrun` keeps one store when it starts workers again, and the addresses of the dead ones stay in it. Its count of
    restarts cannot tell attempts apart, as each machine counts its own. So process 0 draws a name: every other process
    asks for it under a name of its own, which no answer of an earlier attempt can bear, and says when it has heard.
    """
    if rank:
        own = uuid.uuid4().hex
        store.set(f"regard/asks/{rank}", own)
        name = store.get(f"regard/answers/{own}").decode()  # waits for it
        store.set(f"regard/heard/{name}/{rank}", "")
    else:
        name = uuid.uuid4().hex
        _answer(store, name, set(range(1, size)))
    return PrefixStore(f"regard/{name}", store)


def _answer(store: Store, name: str, missing: set[int]) -> None:
    """Tell the name to all. A question may be that of a dead process: it is answered until the living one has heard."""
    end = time.monotonic() + WAIT.total_seconds()
    while missing:
        for rank in sorted(missing):
            if store.check([f"regard/heard/{name}/{rank}"]):
                missing.remove(rank)
            elif store.check([f"regard/asks/{rank}"]):
                store.set(f"regard/answers/{store.get(f'regard/asks/{rank}').decode()}", name)
        if missing and time.monotonic() > end:
            raise UserError(f"Process {min(missing)} did not join within {WAIT}: see its log.")
        time.sleep(0.01)


@contextmanager
def together() -> Iterator[None]:
    """Turn the loss of a process into one sentence: the others cannot go on, and `torchrun` may start all again.

    They also leave together: a process that ends while another still uses their connection may be aborted by it.
    """
    try:
        yield
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and not LOST.search(str(error)):
            raise
        reason = re.sub(r"^\[\S+\] ", "", str(error).partition("\n")[0]).partition(". ")[0]
        raise UserError(
            f"Another process of this run has ended or cannot be reached ({reason}): what was saved is safe; "
            "run the same command again, or let `torchrun --max-restarts 20` do so."
        ) from error


def wrap(loss: nn.Module, world: World, how: str, turns: tuple[str, ...] = ("all",)) -> nn.Module:
    """Wrap a loss for this process's share of a batch: gradients are averaged over all processes."""
    if world.size == 1:
        return loss
    if how == "ddp":
        # Gradients of convolutions over pixels have the layout of the pixels: correct, and no concern of a user.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        return nn.parallel.DistributedDataParallel(loss, find_unused_parameters=len(turns) > 1)
    if how != "fsdp":
        raise UserError(f"training.parallel is {how!r}, expected ddp or fsdp.")
    if len(turns) > 1:
        raise UserError(
            f"training.parallel is fsdp, but this model is trained in turns ({', '.join(turns)}): "
            "--set training.parallel=ddp."
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for module in list(loss.modules()):  # every layer of a stack is a unit; the rest belongs to the whole
        if isinstance(module, nn.ModuleList) and len(list(module.parameters())):
            for layer in module:
                fully_shard(layer, mesh=mesh)
    fully_shard(loss, mesh=mesh)
    return loss


def without_sync(loss: nn.Module, last: bool) -> AbstractContextManager[Any]:
    """Keep the gradients of all but the last of several accumulated batches on their own process."""
    if isinstance(loss, nn.parallel.DistributedDataParallel) and not last:
        return loss.no_sync()
    return nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """Put a sharded tensor together, on every process; return any other as it is."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(value: Tensor, model: Tensor) -> Tensor:
    """Shard a whole tensor as another one is."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    if not isinstance(model, DTensor):
        return value
    return distribute_tensor(value, model.device_mesh, model.placements)
