"""The device that computes: batches move to it, products have its precision, random numbers are its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.config import Training
from regard.errors import UserError


def named(name: str | None) -> torch.device | None:
    """Return the device of this name, such as cpu, cuda, cuda:1 or mps; None if there is no name."""
    if name is None:
        return None
    try:
        found = torch.device(name)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # unknown, not here, or not in this torch
        raise UserError(f"--device {name}: expected a device of this machine, such as cpu or cuda:0.") from error
    return found


@contextmanager
def rounded(how: Training, device: torch.device) -> Iterator[None]:
    """Compute matrix products in the precision of the settings; weights, gradients and moments stay float32."""
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
    """Return the state of the random numbers: the CPU's, followed by the GPU's if dropout is drawn there."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return torch.cat(states)


@contextmanager
def trial(network: nn.Module, device: torch.device) -> Iterator[None]:
    """Leave no trace of what is tried: gradients, buffers, random numbers and modes are as they were."""
    random, training = random_state(device), network.training
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    network.train()
    try:
        yield
    finally:
        network.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        set_random_state(random, device)
        network.train(training)


def set_random_state(state: Tensor, device: torch.device) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if device.type == "cuda" and len(state) > size:
        torch.cuda.set_rng_state(state[size:], device)
