"""Residual paths around a sub-layer f.

    PostNorm   x ← LayerNorm(x + f(x))            Vaswani et al. 2017, as published
    PreNorm    x ← x + f(LayerNorm(x))            Radford et al. 2019; the whole stack ends with a norm
    DeepNorm   x ← LayerNorm(α x + f(x))          Wang et al. 2022, with f's first weights scaled by β

All are used as `x = around.leave(x, f(around.enter(x)))`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import torch
from torch import Tensor, nn

from regard.layers.dropout import Dropout


class Residual(Protocol):
    """A path around a sub-layer."""

    norm: nn.LayerNorm

    def enter(self, x: Tensor) -> Tensor:
        """Return what the sub-layer reads."""

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        """Join the sub-layer's answer y with x, which went around it."""


class PreNorm(nn.Module):
    """x + f(LayerNorm(x))."""

    def __init__(self, width: int, dropout: float, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width, epsilon), Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        inside: Tensor = self.norm(x)
        return inside

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        joined: Tensor = x + self.dropout(y)
        return joined


class PostNorm(nn.Module):
    """LayerNorm(x + f(x))."""

    def __init__(self, width: int, dropout: float, *, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(width, epsilon), Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        joined: Tensor = self.norm(x + self.dropout(y))
        return joined


class DeepNorm(nn.Module):
    """LayerNorm(α x + f(x)): α > 1 bounds how far one update moves a deep stack (Wang et al. 2022)."""

    def __init__(self, width: int, dropout: float, *, alpha: float, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.norm, self.dropout, self.alpha = nn.LayerNorm(width, epsilon), Dropout(dropout), alpha

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, x: Tensor, y: Tensor) -> Tensor:
        joined: Tensor = self.norm(self.alpha * x + self.dropout(y))
        return joined


def deep_alone(layers: int) -> tuple[float, float]:
    """Return α = (2N)^¼ and β = (8N)^−¼ of N encoder or decoder layers alone (Wang et al. 2022, figure 2)."""
    return (2 * layers) ** 0.25, (8 * layers) ** -0.25


def deep_pair(encoder: int, decoder: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return (α, β) of an encoder of N layers and of its decoder of M layers (Wang et al. 2022, figure 2).

    Encoder: 0.81 (N⁴M)^(1/16) and 0.87 (N⁴M)^(−1/16); decoder: (3M)^¼ and (12M)^−¼.
    """
    both = (encoder**4 * decoder) ** (1 / 16)
    return (0.81 * both, 0.87 / both), ((3 * decoder) ** 0.25, (12 * decoder) ** -0.25)


@torch.no_grad()
def scale(weights: Iterable[Tensor], beta: float) -> None:
    """Multiply first weights by β in place: a Xavier gain of 1 becomes a gain of β."""
    for weight in weights:
        weight.mul_(beta)
