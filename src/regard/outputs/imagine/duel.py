"""The head of a GAN: two players in turns.

    critic          Σ max(0, 1 − D(x, y)) + Σ max(0, 1 + D(G(z, y), y))       hinge loss (Zhang et al. 2019, eq. 4)
    generator       −Σ D(G(z, y), y)

The critic is the network's stem and backbone with the layers of this head; y are the classes of the batch, so that
both players meet the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from regard.attention import Context
from regard.inputs.input import Batch
from regard.models.sagan import Generator, MovingAverage, bound
from regard.network import Network, Player, StatesHead, TurnsHead

CRITIC, GENERATOR = TURNS = ("critic", "generator")


class AdversarialHead(StatesHead, TurnsHead):
    """D = w · φ + e_y · φ over the sum φ of all states; `classes` is 1 where there are no labels."""

    def __init__(
        self,
        generator: Generator,
        width: int,
        latent: int,
        classes: int,
        restore: Callable[[Tensor], Tensor],
        *,
        rates: tuple[float, float],
        average: float,
    ) -> None:
        super().__init__()
        self.generator, self.latent, self.restore, self.rates = generator, latent, restore, rates
        self.judge = nn.Linear(width, 1)
        bound(self.judge)
        self.classes = nn.Linear(width, classes, bias=False) if classes > 1 else None
        if self.classes is not None:
            bound(self.classes)
        self.average = MovingAverage(generator, average)

    def players(self, body: Network) -> Mapping[str, Player]:
        own = {id(parameter) for parameter in self.generator.parameters()}
        others = tuple(parameter for parameter in body.parameters() if id(parameter) not in own)
        critic, generator = self.rates
        return {
            CRITIC: Player(others, critic, (0.0, 0.9)),
            GENERATOR: Player(tuple(self.generator.parameters()), generator, (0.0, 0.9)),
        }

    def of(self, states: Context) -> Tensor:
        """Return how real each row looks, whatever its class: (batch, 1, 1)."""
        found: Tensor = self.judge(states.values.sum(1))
        return found.unsqueeze(1)

    def judged(self, body: Network, batch: Batch) -> Tensor:
        """Return D of each row and its class, (batch,)."""
        pooled = body.features(batch.source).values.sum(1)
        found: Tensor = self.judge(pooled).squeeze(-1)
        if self.classes is not None:
            found = found + self.classes(pooled).gather(1, batch.target.unsqueeze(1)).squeeze(1)
        return found

    def made(self, z: Tensor, label: Tensor) -> Tensor:
        """Return new values by the averaged weights, (batch, …shape)."""
        return self.restore(self.average(z, label))

    def loss(self, body: Network, batch: Batch, turn: str) -> Tensor:
        label = batch.target
        z = torch.randn(len(label), self.latent, device=label.device)
        with torch.set_grad_enabled(turn == GENERATOR and torch.is_grad_enabled()):
            made = self.restore(self.generator(z, label))
        fake = batch._replace(source=batch.source._replace(values=(made, *batch.source.values[1:])))
        if turn == GENERATOR:
            return -self.judged(body, fake).sum().unsqueeze(0)
        real, other = torch.relu(1 - self.judged(body, batch)), torch.relu(1 + self.judged(body, fake))
        return (real.sum() + other.sum()).unsqueeze(0)
