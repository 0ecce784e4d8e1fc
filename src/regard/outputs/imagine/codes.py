"""The head of autoencoders: from the states of an encoder to a code z, and from z to the input again.

    autoencoder     z = μ(x)                                    loss  Σ (x − x̂)²
    VAE             z = μ(x) + σ(x) ⊙ ε,  ε ~ N(0, I)           loss  (m/n) Σ (x − x̂)² + β Σ (μ² + σ² − log σ² − 1)

m is the number of rows of a batch, n that of the training data, x is summed over all its components. The second sum
is *twice* the divergence of N(μ, σ²) from N(0, 1): KL = ½ Σ (μ² + σ² − log σ² − 1). `loss` returns both sums bare, and
`totals` what the loop divides them by: their quotients add up to the loss above times n / m², so that a step follows
the same direction, and the number that is logged is one for each row.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.inputs.input import Batch, Source
from regard.layers.dropout import Dropout
from regard.network import Network, StatesHead


class Code(NamedTuple):
    """The distribution of the code of each row: μ and log σ, (batch, latent); an autoencoder has no σ."""

    mean: Tensor
    log_sigma: Tensor | None

    def drawn(self, noise: Tensor) -> Tensor:
        """Return z = μ + σ ⊙ ε."""
        return self.mean if self.log_sigma is None else self.mean + self.log_sigma.exp() * noise

    def divergence(self) -> Tensor:
        """Return μ² + σ² − log σ² − 1, which is 2 KL, of each number of each code: (batch, latent)."""
        if self.log_sigma is None:
            return torch.zeros_like(self.mean)
        return self.mean.square() + (2 * self.log_sigma).exp() - 2 * self.log_sigma - 1


def totals(rows: int, beta: float | None, n: int | None) -> tuple[float, float]:
    """Return what the two sums of a batch of m rows are divided by: m and m² / (β n); without β both by m."""
    if beta is None:
        return float(rows), float(rows)
    return float(rows), rows**2 / (beta * n) if beta and n else math.inf


class Reader(nn.Module):
    """The first `count` states side by side, hidden layers, and the numbers of a code."""

    def __init__(self, count: int, width: int, hidden: Sequence[int], out: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.count = count
        sizes = [count * width, *hidden]
        layers = [(nn.Linear(a, b), nn.ReLU(), Dropout(dropout)) for a, b in itertools.pairwise(sizes)]
        self.layers = nn.Sequential(*(part for pair in layers for part in pair), nn.Linear(sizes[-1], out))

    def forward(self, states: Context) -> Tensor:
        found: Tensor = self.layers(states.values[:, : self.count].flatten(1))
        return found


class CodeHead(StatesHead):
    """`read` gives μ, and where `variational` log σ as well; unless one σ is `shared`. `restore` and `distance` are the
    input's; `noise` is the deviation of what is added to the values that are read in training."""

    def __init__(
        self,
        read: nn.Module,
        decoder: nn.Module,
        restore: Callable[[Tensor], Tensor],
        distance: Callable[[Tensor, Tensor], Tensor],
        *,
        variational: bool,
        shared: bool = False,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.read, self.decoder, self.restore, self.distance = read, decoder, restore, distance
        self.variational, self.noise = variational, noise
        self.log_sigma = nn.Parameter(torch.zeros(())) if variational and shared else None

    def code(self, states: Context) -> Code:
        """Return the distribution of each row's code."""
        found: Tensor = self.read(states)
        if not self.variational:
            return Code(found, None)
        if self.log_sigma is not None:
            return Code(found, self.log_sigma.expand_as(found))
        mean, log_sigma = found.chunk(2, -1)
        return Code(mean, log_sigma.clamp(-20, 20))  # e^20 is still finite when squared

    def decoded(self, z: Tensor) -> Tensor:
        """Return the values that codes stand for, (batch, …shape)."""
        return self.restore(self.decoder(z))

    def of(self, states: Context) -> Tensor:
        """Return μ, (batch, 1, latent)."""
        return self.code(states).mean.unsqueeze(1)

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        del turn
        values = batch.source.values[0]
        code = self.code(body.features(self._noisy(batch.source)))
        squares = self.distance(values, self.decoded(code.drawn(torch.randn_like(code.mean)))).sum()
        if not self.variational:
            return squares.unsqueeze(0)
        return torch.stack((squares, code.divergence().sum()))

    def _noisy(self, source: Source) -> Source:
        if not self.noise or not self.training:
            return source
        values, *others = source.values
        values = values if values.is_floating_point() else values.float()
        return source._replace(values=(values + self.noise * torch.randn_like(values), *others))
