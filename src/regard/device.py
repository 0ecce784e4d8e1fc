"""Where the network computes: batches go there, products have its precision, random numbers are its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from regard.config import Training
from regard.errors import UserError


def moved(batch: Any, device: torch.device) -> Any:
    """A batch where the network is. From pinned memory it is copied while the GPU still computes."""
    if device.type == "cpu":
        return batch

    def move(part: Any) -> Any:
        return part.pin_memory().to(device, non_blocking=True) if isinstance(part, Tensor) else part

    return tree_map(move, batch)


@contextmanager
def rounded(how: Training, device: torch.device) -> Iterator[None]:
    """Matrix products in the precision of the settings; weights, gradients and moments stay float32."""
    half = how.precision == "bfloat16"
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            yield
    except RuntimeError as error:
        if not half or "primitive" not in str(error):
            raise
        raise UserError(
            "training.precision is bfloat16, but this processor has no kernels for it that this network needs: "
            "--set training.precision=float32."
        ) from error


def random_state(device: torch.device) -> Tensor:
    """The state of the random numbers: the CPU's, and behind it the GPU's if that is where dropout is drawn."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


def set_random_state(state: Tensor, device: torch.device) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if device.type == "cuda" and len(state) > size:
        torch.cuda.set_rng_state(state[size:], device)
