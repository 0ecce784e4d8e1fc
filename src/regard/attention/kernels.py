"""Kernels: scores that are dot products of features,  s_ji = φ(q_j) · φ(k_i).

With the normaliser `divide` the weights are φ(q_j) · φ(k_i) / Σ_i' φ(q_j) · φ(k_i'), and the sums over keys no longer
depend on the query: linear.py computes them once. A feature map gives φ(x) as `features · exp(scale)`, one scale for
each vector, so that exponentials neither overflow nor vanish. The scale of a query cancels in the division.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from regard.attention.scores import query
from regard.layers.renewal import Renewed

LOWEST = -1e30  # the scale of what is not there; finite, for −∞ − (−∞) is NaN
FLOOR = 1e-3  # of ReLU features: a query whose features were all 0 would have no weights


class FeatureMap(nn.Module, ABC):
    """φ from vectors (..., n, d) to features (..., n, m) that are never negative."""

    @abstractmethod
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return features (..., n, m) and the logarithm of their scale (..., n); None is a scale of 1.

        No vector's features or scale depend on another vector: a maximum over positions would tell of later ones.
        """

    @abstractmethod
    def queries(self, x: Tensor) -> Tensor:
        """Return features (..., n, m) up to a factor of each vector's own, which cancels."""

    @abstractmethod
    def together(self, x: Tensor, gone: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return features (..., n, m) and the logarithm of one scale for all n vectors, (..., 1, 1), which are only
        seen all at once; those that are `gone` (..., n, 1) have features 0."""


class PlainFeatures(FeatureMap):
    """A feature map without a scale."""

    @abstractmethod
    def queries(self, x: Tensor) -> Tensor:
        """Return φ(x)."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return self.queries(x), None

    def together(self, x: Tensor, gone: Tensor | None) -> tuple[Tensor, None]:
        features = self.queries(x)
        return features if gone is None else features.masked_fill(gone, 0.0), None


class EluFeatures(PlainFeatures):
    """φ(x) = elu(x) + 1 (Katharopoulos et al. 2020, eq. 7)."""

    def queries(self, x: Tensor) -> Tensor:
        return elu(x) + 1


class ReluFeatures(PlainFeatures):
    """φ(x) = max(0, x) + ε: the generalised kernel of Choromanski et al. 2021 (section 2.2) without directions."""

    def queries(self, x: Tensor) -> Tensor:
        return x.relu() + FLOOR


class FavorFeatures(FeatureMap, Renewed):
    """FAVOR+: φ(x)_f = exp(ω_f · x' − |x'|²/2) / √m with x' = x / d^¼ (Choromanski et al. 2021, lemma 1).

    For ω ~ N(0, I) the mean of φ(q) · φ(k) is exp(q · k / √d), softmax's own kernel; features are positive, so small
    weights stay small. Orthogonal directions (section 2.4) estimate it with a smaller error than independent ones.
    The directions are a function of `seed` and `draws` alone, both buffers: a run that resumes has the same ones, and
    so have all processes. `redraw` is the number of training steps between two draws; 0 keeps the first for ever.
    """

    seed: Tensor
    steps: Tensor
    directions: Tensor

    def __init__(self, width: int, features: int, *, orthogonal: bool = True, redraw: int = 0) -> None:
        super().__init__()
        if features < 1:
            raise ValueError(f"FAVOR+ needs 1 or more random features, found {features}")
        self.redraw, self.orthogonal = redraw, orthogonal
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("directions", torch.empty(features, width))
        self._draw()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        products, half = self._products(x), self._half(x)
        # The largest feature of each vector becomes 1. The scale is a constant to the gradient: it cancels out.
        scale = (products.detach().amax(-1, keepdim=True) - half).detach()
        return (products - (half + scale)).exp_(), scale.squeeze(-1) - 0.5 * math.log(len(self.directions))

    def queries(self, x: Tensor) -> Tensor:
        products = self._products(x)  # |x'|² is the same for all features: it cancels too
        return (products - products.detach().amax(-1, keepdim=True)).exp_()

    def together(self, x: Tensor, gone: Tensor | None) -> tuple[Tensor, Tensor]:
        products, half = self._products(x), self._half(x)
        if not x.shape[-2]:
            return products, x.new_full((*x.shape[:-2], 1, 1), LOWEST)
        highest = products.detach().amax(-1, keepdim=True) - half.detach()
        if gone is not None:
            highest = highest.masked_fill(gone, LOWEST)
        highest = highest.amax(-2, keepdim=True)
        shift = half + highest
        if gone is not None:
            shift = shift.masked_fill(gone, math.inf)
        return (products - shift).exp_(), highest

    def _products(self, x: Tensor) -> Tensor:
        """Return ω_f · x'."""
        directions: Tensor = self.directions * self.directions.shape[1] ** -0.25
        return x @ directions.to(x.dtype).mT

    def _half(self, x: Tensor) -> Tensor:
        """Return |x'|²/2, (..., n, 1)."""
        half: Tensor = x.square().sum(-1, keepdim=True) * (0.5 * x.shape[-1] ** -0.5)
        return half

    def renew(self) -> None:
        self.steps += 1
        if self.redraw and int(self.steps) % self.redraw == 0:
            self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        if self.directions.is_meta:
            return
        draws = int(self.steps) // self.redraw if self.redraw else 0
        generator = torch.Generator().manual_seed((int(self.seed) + 1_000_003 * draws) % 2**63)
        draw = orthogonal_directions if self.orthogonal else independent_directions
        features, width = self.directions.shape
        self.directions.copy_(draw(features, width, generator))


def independent_directions(features: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw ω_f ~ N(0, I), each by itself."""
    return torch.randn(features, width, generator=generator, dtype=torch.float64)


def orthogonal_directions(features: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw ω_f ~ N(0, I) that are orthogonal to each other within blocks of `width` (Choromanski et al. 2021, 2.4)."""
    blocks = math.ceil(features / width)
    q, r = torch.linalg.qr(torch.randn(blocks, width, width, generator=generator, dtype=torch.float64))
    turned = q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)  # uniform over rotations only with these signs
    lengths = independent_directions(features, width, generator).norm(dim=-1, keepdim=True)
    directions: Tensor = turned.mT.flatten(0, 1)[:features] * lengths
    return directions


class Kernel(nn.Module):
    """s_ji = φ(q_j) · φ(k_i), up to a factor for each query and one for all keys, which `divide` takes out."""

    def __init__(self, features: FeatureMap) -> None:
        super().__init__()
        self.features = features

    def forward(self, q: Tensor | None, k: Tensor) -> Tensor:
        queries = self.features.queries(query(q))
        keys, scale = self.features(k)
        scores: Tensor = queries @ keys.mT
        if scale is None or not scale.shape[-1]:
            return scores
        relative: Tensor = (scale - scale.amax(-1, keepdim=True)).exp().unsqueeze(-2)
        return scores * relative
