"""The optimiser: the learning rate, and AdamW for every weight or Muon for matrices between states.

Muon (Jordan et al. 2024) steps along the nearest orthogonal matrix to the averaged gradient, so that every direction of
a matrix moves alike, also those in which the gradient is small:

    M ← M + (1 − β)(G − M)        U = G + β(M − G)        W ← W − rate · 0.2 √max(m, n) · UVᵀ of U

The factor 0.2 √max(m, n) gives the step the size that AdamW's has (Liu et al. 2025, §2.2): one rate serves both. UVᵀ
comes from five rounds of a Newton–Schulz iteration, x ← a x + (b xxᵀ + c (xxᵀ)²) x, which takes every singular value to
between 0.7 and 1.2; that is near enough and needs products alone.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.config import Training
from regard.layers.roles import BETWEEN, TABLE, roles_of
from regard.network import BETAS, Network, Player
from regard.training.distributed import like, whole

MOMENTUM = 0.95
ROUNDS = ((3.4445, -4.775, 2.0315),) * 5


def rate_at(step: int, steps: int | None, how: Training) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine to zero, 1/√step, or constant."""
    warm = max(1, min(how.warmup, (steps or 10**9) // 3))
    if step <= warm:
        return how.rate * step / warm
    if how.schedule == "inverse_sqrt":
        return how.rate * math.sqrt(warm / step)
    if how.schedule == "constant" or steps is None:
        return how.rate
    return how.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about UVᵀ for each matrix UΣVᵀ of a batch (…, m, n)."""
    tall = matrix.shape[-2] > matrix.shape[-1]
    x: Tensor = matrix.mT if tall else matrix  # the square xxᵀ is then the smaller one
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)  # no singular value above one
    for a, b, c in ROUNDS:
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon(torch.optim.AdamW):
    """Muon for the groups that are marked `orthogonal`, AdamW for the others."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        for group in self.param_groups:
            if group["orthogonal"]:
                self._turn(group)
        return super().step(closure)

    def _turn(self, group: dict[str, Any]) -> None:
        alike: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = self.state[weight]
            if not state:
                state["momentum"] = torch.zeros_like(weight)
                state["step"] = torch.zeros(())  # AdamW looks for it when a state is loaded
            mean = state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
            alike[weight.shape].append((weight, whole(weight.grad.lerp(mean, MOMENTUM))))
            weight.grad = None  # AdamW passes it by
        for shape, pairs in alike.items():  # one product for all matrices of a shape
            size = 0.2 * max(shape) ** 0.5
            for (weight, _), turned in zip(
                pairs, orthogonal(torch.stack([update for _, update in pairs])), strict=True
            ):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.sub_(like(turned, weight), alpha=group["lr"] * size)


def players_of(network: Network, turns: tuple[str, ...]) -> dict[str, Player]:
    """Return the player of each turn; every parameter belongs to exactly one."""
    found = dict(network.players())
    if {*found} != {*turns}:
        raise ValueError(f"players are {[*found]}, expected one for each turn: {[*turns]}")
    owned = [id(parameter) for player in found.values() for parameter in player.parameters]
    if len(owned) != len({*owned}) or {*owned} != {id(parameter) for parameter in network.parameters()}:
        raise ValueError("expected every parameter of the network to belong to exactly one player")
    return found


def optimiser(
    network: nn.Module, how: Training, *, fused: bool, players: Mapping[str, Player] | None = None
) -> torch.optim.Adam:
    """Build the optimiser of the settings, with groups of its own for each player; without any there is one.

    Tables and vectors do not decay. Muon takes matrices between states; tables and output layers are AdamW's anyway.
    """
    muon = how.optimiser == "muon"
    roles = {id(parameter): role for _, parameter, role in roles_of(network)}
    groups: list[dict[str, Any]] = []
    for player in (players or {"all": Player(tuple(network.parameters()))}).values():
        own = {id(parameter) for parameter in player.parameters}
        between, matrices, rest = [], [], []
        for parameter in network.parameters():
            if id(parameter) not in own:
                continue
            role = roles[id(parameter)]
            if parameter.dim() < 2 or role == TABLE:
                rest.append(parameter)
            elif muon and role == BETWEEN:
                between.append(parameter)
            else:
                matrices.append(parameter)
        own_rates = {"factor": player.rate, "betas": player.betas}
        groups += [
            {"params": between, "weight_decay": how.decay, "orthogonal": True, **own_rates},
            {"params": matrices, "weight_decay": how.decay, "orthogonal": False, **own_rates},
            {"params": rest, "weight_decay": 0.0, "orthogonal": False, **own_rates},
        ]
    # Adam divides the gradient of the decay by its size, as it does with that of the loss: weights that no example
    # needs are soon 0. That is the L2 penalty of papers on small graphs.
    kinds: dict[str, type[torch.optim.Adam]] = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "muon": Muon}
    return kinds[how.optimiser](
        [group for group in groups if group["params"]], lr=how.rate, betas=BETAS, eps=1e-9, fused=fused
    )
