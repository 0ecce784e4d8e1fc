"""The Self-Attention GAN (Zhang et al. 2019): generator and critic with a self-attention block, under spectral norm.

    o_j = W_o Σ_i a_ji W_h x_i,   a_j = softmax_i((W_g x_j) · (W_f x_i)),   y = γ o + x,   γ = 0 at first   (eq. 1–3)
    W̄ = W / σ(W) in every layer, σ the largest singular value (Miyato et al. 2018)
    D(x, y) = w · φ(x) + e_y · φ(x), φ the sum over all places (Miyato and Koyama 2018)

The generator learns a scale and a shift of each normalised channel for each class. The paper's keys are 8 times and its
values 2 times narrower than states: `MultiHead` with one head, these widths and the plain dot product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from regard.attention import Context, MultiHead
from regard.attention.scores import dot
from regard.layers.renewal import Renewed
from regard.layers.stem import Shape
from regard.models.decoders import channels_last, convolution, doubled, halved, halvings

BOUND = 3.0  # deviations from the mean that a generator reaches
BOUNDED = (nn.Linear, nn.Conv1d, nn.Conv2d)


class Places(nn.Module):
    """The stem of a critic: every pixel is a place with its channels."""

    def forward(self, x: Tensor) -> Context:
        rows, columns = x.shape[2:]
        where = torch.arange(rows * columns, device=x.device)
        return Context(x.flatten(2).mT, where, grid=(1, rows, columns), stride=(1, 1, 1))


def every_place(shape: Shape) -> Places:
    """Return the stem of pictures of this shape."""
    if shape.marks:
        raise ValueError("a critic looks at places: it has no class token")
    return Places()


class AttentionBlock(nn.Module):
    """y = γ · attention(x) + x over all places of a map (batch, channels, …); γ is 0 at first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = MultiHead(width, 1, score=dot, key_width=max(1, width // 8), value_width=max(1, width // 2))
        self.gamma = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        seen, _ = self.attention(x.flatten(2).mT)
        y: Tensor = self.gamma * seen.mT.unflatten(2, x.shape[2:]) + x
        return y


class ClassNorm(nn.Module):
    """s_y ⊙ (x − mean) / deviation + t_y: BatchNorm whose scale and shift are those of the class y."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width, affine=False)
        self.scale, self.shift = nn.Embedding(classes, width), nn.Embedding(classes, width)
        nn.init.ones_(self.scale.weight)
        nn.init.zeros_(self.shift.weight)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        scale, shift = (part(label)[(..., *[None] * (x.dim() - 2))] for part in (self.scale, self.shift))
        y: Tensor = scale * self.norm(x.flatten(2)).view_as(x) + shift
        return y


class GrowingBlock(nn.Module):
    """A residual block of the generator: twice the places."""

    def __init__(self, axes: int, before: int, after: int, classes: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([ClassNorm(before, classes), ClassNorm(after, classes)])
        self.convs = nn.ModuleList([convolution(axes, before, after), convolution(axes, after, after)])
        self.around = convolution(axes, before, after, 1)

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        grown = self.convs[0](doubled(torch.relu(self.norms[0](x, label))))
        y: Tensor = self.convs[1](torch.relu(self.norms[1](grown, label)))
        return y + doubled(self.around(x))


class ShrinkingBlock(nn.Module):
    """A residual block of the critic: half the places."""

    def __init__(self, axes: int, before: int, after: int, *, first: bool) -> None:
        super().__init__()
        self.first = first  # of all: its input is no sum of states yet
        self.convs = nn.ModuleList([convolution(axes, before, after), convolution(axes, after, after)])
        self.around = convolution(axes, before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.first else torch.relu(x)
        y = halved(self.convs[1](torch.relu(self.convs[0](y))))
        around: Tensor = self.around(halved(x))
        return y + around


class Generator(nn.Module):
    """z and a class to values (batch, …places, channels) within ±3; `attention` at half of all places."""

    def __init__(self, latent: int, shape: Sequence[int], width: int, classes: int, *, attention: bool) -> None:
        super().__init__()
        *places, channels = shape
        axes, stages = len(places), halvings(places)
        self.places = tuple(places)
        self.first = tuple(-(-size // 2**stages) for size in places)
        widths = _widths(width, stages)[::-1]
        self.map = nn.Linear(latent, widths[0] * math.prod(self.first))
        self.stages = nn.ModuleList(
            GrowingBlock(axes, before, after, classes) for before, after in itertools.pairwise(widths)
        )
        self.attention = AttentionBlock(widths[-2]) if attention else None
        self.norm = ClassNorm(widths[-1], classes)
        self.last = convolution(axes, widths[-1], channels)
        bound(self)

    def forward(self, z: Tensor, label: Tensor) -> Tensor:
        x = self.map(z).unflatten(-1, (-1, *self.first))
        for number, stage in enumerate(self.stages):
            if number == len(self.stages) - 1 and self.attention is not None:
                x = self.attention(x)
            x = stage(x, label)
        x = BOUND * torch.tanh(self.last(torch.relu(self.norm(x, label))))
        return channels_last(x, self.places)


class CriticTrunk(nn.Module):
    """φ before its sum: a Context of places to a Context of the places of the smallest map."""

    def __init__(self, before: int, places: Sequence[int], width: int, *, attention: bool) -> None:
        super().__init__()
        self.places = tuple(places)
        axes, stages = len(places), halvings(places)
        widths = [before, *_widths(width, stages)[1:]]
        self.stages = nn.ModuleList(
            ShrinkingBlock(axes, before, after, first=not number)
            for number, (before, after) in enumerate(itertools.pairwise(widths))
        )
        self.attention = AttentionBlock(widths[1]) if attention else None
        self.width = widths[-1]
        bound(self)

    def forward(self, context: Context) -> Context:
        count = math.prod(self.places)
        x = context.values[:, :count].mT.unflatten(2, self.places)
        for number, stage in enumerate(self.stages):
            x = stage(x)
            if not number and self.attention is not None:
                x = self.attention(x)
        values = torch.relu(x).flatten(2).mT
        return Context(values, torch.arange(values.shape[1], device=values.device))


def _widths(width: int, stages: int) -> list[int]:
    """Return the channels from the largest map to the smallest: twice as many from stage to stage, up to 4 times."""
    return [width * min(4, 2**number) for number in range(stages + 1)]


def bound(module: nn.Module) -> None:
    """Divide every matrix of a module by its largest singular value, which one step of power iteration follows."""
    for part in [part for part in module.modules() if isinstance(part, BOUNDED)]:
        spectral_norm(part)


class MovingAverage(Renewed):
    """θ̄ ← d θ̄ + (1 − d) θ after each step, d = min(decay, (1 + t) / (10 + t)): weights that a generator answers with.

    They are buffers: saved and resumed, but no weights that a player updates.
    """

    steps: Tensor

    def __init__(self, module: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay, self._of = decay, (module,)  # in a tuple: its weights are not this module's
        self.names = [name for name, _ in module.named_parameters()]
        for number, (_, parameter) in enumerate(module.named_parameters()):
            self.register_buffer(f"mean{number}", parameter.detach().clone())
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def renew(self) -> None:
        self.steps += 1
        steps = int(self.steps)
        share = 1 - min(self.decay, (1 + steps) / (10 + steps))
        for number, parameter in enumerate(self._of[0].parameters()):
            self.get_buffer(f"mean{number}").lerp_(parameter, share)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return what the module answers with these weights."""
        means = {name: self.get_buffer(f"mean{number}") for number, name in enumerate(self.names)}
        found: Tensor = torch.func.functional_call(self._of[0], means, inputs)
        return found
