"""Queries that ask a picture for a set of things (DETR, Carion et al. 2020), as learned vectors or as anchor boxes.

    learned   q_j = x_j + p_j, p_j a learned vector                             box_j = σ(f(x_j))               (3.2)
    anchors   q_j = x_j + g(b_j), b_j the query's own box, refined by each layer:  b_j ← σ(σ⁻¹(b_j) + f(x_j))
              (Liu et al. 2022, DAB-DETR, 4.1 to 4.4)

An anchor also tells where to look. Head h adds a Gaussian around a point that the query chooses in or near its box:

    s_jih = q_jh · k_ih / √d − ½ |(p_i − c_j − δ_jh ⊙ (w_j, h_j)) / σ_jh|²,        σ_jh = e^(s_jh) (w_j, h_j)

p_i is the place of vector i, and δ and s are linear in x_j (Gao et al. 2021, SMCA, 3.2 and 3.3). The square is a dot
product of (x², x, y², y) with numbers of the query, so that the fused kernel computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import Context, Mask, MultiHead, padding, scores
from regard.backbones.transformer import FeedForward, Stack
from regard.layers.residual import Residual

FINEST = 6  # octaves of the sinusoids of a box
SPREAD, AROUND = 0.35, 0.3  # at first: σ, and the distance of heads from the middle, in sizes of the box


class Guess(NamedTuple):
    """The state of each query after a layer (batch, m, width), and its box (batch, m, 4): x, y, w, h from 0 to 1."""

    states: Tensor
    boxes: Tensor


class Gaze(nn.Module):
    """Cross-attention from queries to places, around the queries' boxes where they have some."""

    def __init__(self, width: int, heads: int, *, local: bool) -> None:
        super().__init__()
        self.layer = MultiHead(width, heads, score=scores.dot)
        self.heads, self.wide = heads, width // heads
        self.aim = nn.Linear(width, 4 * heads) if local else None
        if self.aim is not None:
            turns = torch.arange(heads) * (2 * math.pi / heads)
            first = torch.stack((AROUND * turns.cos(), AROUND * turns.sin()), -1)
            spread = torch.full((heads, 2), math.log(SPREAD))
            nn.init.zeros_(self.aim.weight)
            with torch.no_grad():
                self.aim.bias.copy_(torch.cat((first, spread), -1).flatten())

    def forward(
        self, x: Tensor, place: Tensor, boxes: Tensor | None, memory: Context, positions: Tensor, mask: Mask
    ) -> Tensor:
        """Return what queries x (batch, m, width) with their places see of the memory."""
        layer, where = self.layer, memory.where()
        q = self._cut(layer.q_proj(x + place)) / math.sqrt(self.wide)
        k, v = self._cut(layer.k_proj(memory.values)), self._cut(layer.v_proj(memory.values))
        if self.aim is not None and boxes is not None:
            q, k = self._aimed(q, k, self.aim(x), boxes, memory)
        y: Tensor = layer.attention(q, k, v, mask.at(positions), positions, where)
        seen: Tensor = layer.output_proj(y.transpose(1, 2).flatten(2))
        return seen

    def _cut(self, x: Tensor) -> Tensor:
        """Reshape (batch, n, width) to (batch, heads, n, d)."""
        cut: Tensor = x.unflatten(-1, (self.heads, -1))
        return cut.transpose(1, 2)

    def _aimed(self, q: Tensor, k: Tensor, aim: Tensor, boxes: Tensor, memory: Context) -> tuple[Tensor, Tensor]:
        """Append what makes the Gaussian: −½ (p − c)² / σ² = −p² / 2σ² + p c / σ² + what no key changes."""
        aim = self._cut(aim)  # (batch, heads, m, 4)
        size = boxes[:, None, :, 2:]
        centre = boxes[:, None, :, :2] + aim[..., :2] * size - 0.5
        places, cell = grid_places(memory)
        spread = (aim[..., 2:].clamp(-3, 3).exp() * size).clamp(min=cell / 2)
        sharp = spread.reciprocal().square()
        asked = torch.cat((-sharp / 2, centre * sharp), -1)
        there = torch.cat((places.square(), places), -1).to(k).expand(*k.shape[:2], -1, -1)
        return torch.cat((q, asked), -1), torch.cat((k, there), -1)

    def branch_weights(self) -> list[Tensor]:
        return self.layer.branch_weights()


def grid_places(memory: Context) -> tuple[Tensor, float]:
    """Return the middle of each place of a grid, (places, 2) as x and y from −½ to ½, and a place's larger side."""
    if memory.grid is None:
        raise ValueError("anchors need a grid of places: expected a picture")
    _, rows, columns = memory.grid
    down, along = ((torch.arange(n, device=memory.values.device) + 0.5) / n - 0.5 for n in (rows, columns))
    both = torch.stack((along.expand(rows, -1), down[:, None].expand(-1, columns)), -1)
    return both.flatten(0, 1), 1 / min(rows, columns)


class QueryLayer(nn.Module):
    """Queries look at one another, then at the picture, then each thinks alone, with a path around each of these."""

    def __init__(self, own: MultiHead, gaze: Gaze, feed: FeedForward, residual: Callable[[], Residual]) -> None:
        super().__init__()
        self.own, self.gaze, self.feed = own, gaze, feed
        self.around_own, self.around_gaze, self.around_feed = residual(), residual(), residual()

    def forward(
        self, x: Tensor, place: Tensor, boxes: Tensor | None, memory: Context, positions: Tensor, masks: Sequence[Mask]
    ) -> Tensor:
        """Return the queries' next states. `place` (batch, m, width) tells them apart, `masks` are those of both
        attentions."""
        y, _ = self.own(self.around_own.enter(x) + place, None, positions, masks[0].at(positions))
        x = self.around_own.leave(x, y)
        x = self.around_gaze.leave(x, self.gaze(self.around_gaze.enter(x), place, boxes, memory, positions, masks[1]))
        return self.around_feed.leave(x, self.feed(self.around_feed.enter(x)))


class BoxPlaces(nn.Module):
    """g(b): sinusoids of middle and size, and two layers (Liu et al. 2022, 4.1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8 * FINEST, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, boxes: Tensor) -> Tensor:
        angles = boxes.unsqueeze(-1) * (math.pi * 2.0 ** torch.arange(FINEST, device=boxes.device))
        place: Tensor = self.layers(torch.cat((angles.sin(), angles.cos()), -1).flatten(-2))
        return place


class QueryDecoder(Stack):
    """Layers of queries, and what reads a box from the state of each. By default a query looks at all the others."""

    def __init__(
        self, layers: Sequence[QueryLayer], norm: nn.LayerNorm, *, anchors: bool, mask: Mask = padding
    ) -> None:
        super().__init__(layers, norm)
        width = norm.normalized_shape[0]
        self.mask, self.places = mask, BoxPlaces(width) if anchors else None
        self.box = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )
        last = self.box[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.bias)
        if anchors:
            nn.init.zeros_(last.weight)  # at first, a query's box is its anchor

    def forward(self, x: Context, asked: Tensor, memory: Context) -> list[Guess]:
        """Return the guess of each layer. `x` are the queries' first states; `asked` are their anchors (batch, m, 4),
        or the learned vectors (batch, m, width) where there are none."""
        y, positions = x.values, x.where()
        masks = (x.rule(self.mask), padding)
        boxes = asked
        found: list[Guess] = []
        for layer in self.layers:
            if self.places is None:
                y = self.through(layer, y, asked, None, memory, positions, masks)
                boxes = self.box(self.ended(y)).sigmoid()
            else:
                # Each layer corrects the one before, and does not train it; the first trains the anchors.
                before = boxes.detach() if found else asked
                y = self.through(layer, y, self.places(before), before, memory, positions, masks)
                boxes = (inverse_sigmoid(before) + self.box(self.ended(y))).sigmoid()
            found.append(Guess(self.ended(y), boxes))
        return found


def inverse_sigmoid(x: Tensor, least: float = 1e-4) -> Tensor:
    """Return log(x / (1 − x)), of numbers not nearer to 0 and 1 than `least`."""
    return x.clamp(least, 1 - least).logit()


class GridEncoder(nn.Module):
    """Adds the places of a grid to the vectors of a picture, and reads them with an encoder."""

    def __init__(self, place: nn.Module, encoder: nn.Module) -> None:
        super().__init__()
        self.place, self.encoder = place, encoder

    def forward(self, context: Context) -> Context:
        assert context.grid is not None
        _, rows, columns = context.grid
        z = context.values
        marks = z.shape[1] - rows * columns  # vectors before the places have none
        z = torch.cat((z[:, :marks], z[:, marks:] + self.place(rows, columns).to(z)), 1)
        features: Context = self.encoder(context._replace(values=z))
        return features
