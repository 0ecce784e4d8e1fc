"""Symmetries: which architecture commutes with which change of its input: `python -m regard.comparison.symmetries`.

A network F is equivariant to a change g if F(g x) = g F(x). The table has max |F(g x) − g F(x)| / max |F(x)|, on a
periodic grid of pixels that are also elements of a set and nodes of a graph, so that every change can be applied to
every network. A change of local frames turns the two components of each pixel's vector by an angle of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.attention.multihead import MultiHead
from regard.layers.p4 import P4Convolution, P4Lift

SIDE, WIDTH = 6, 2
NODES = SIDE * SIDE
SAME = 1e-5  # differences below it are those of rounding
Network = Callable[[Tensor, Tensor, Tensor], Tensor]  # features (nodes, 2), neighbours (nodes, nodes), frames (nodes,)
Change = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def torus() -> Tensor:
    """Return which pixels of a periodic grid are neighbours, (nodes, nodes)."""
    place = torch.arange(NODES).view(SIDE, SIDE)
    found = torch.zeros(NODES, NODES, dtype=torch.float64)
    for shift in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        found[place.flatten(), place.roll(shift, (0, 1)).flatten()] = 1
    return found


def networks() -> dict[str, Network]:
    """Return one small network of each architecture, with random weights; all give (nodes, 2)."""
    perceptron = nn.Sequential(nn.Linear(2 * NODES, 64), nn.Tanh(), nn.Linear(64, 2 * NODES))
    convolution = nn.Sequential(_conv(2, 8), nn.Tanh(), _conv(8, 2))
    lift, group = P4Lift(2, 4), P4Convolution(4, 2)
    each, pooled = nn.Linear(2, 2), nn.Linear(2, 2)
    look = MultiHead(2, 1)
    own, others = nn.Linear(2, 2), nn.Linear(2, 2)
    kernel = torch.randn(4, dtype=torch.float64)
    for part in (perceptron, convolution, lift, group, each, pooled, look, own, others):
        part.double()

    def map_of(layer: Callable[[Tensor], Tensor]) -> Network:
        return lambda x, _, __: _pixels(layer(_grid(x)))

    return {
        "perceptron": lambda x, _, __: perceptron(x.flatten()).view(NODES, 2),
        "CNN": map_of(convolution),
        "group CNN (p4)": map_of(lambda x: group(lift(x).tanh()).mean(2)),
        "DeepSets": lambda x, _, __: (each(x) + pooled(x.mean(0))).tanh(),
        "Transformer without positions": lambda x, _, __: look(x[None])[0][0],
        "graph network": lambda x, near, _: (own(x) + near @ others(x)).tanh(),
        "intrinsic CNN": lambda x, near, frames: _intrinsic(x, near, frames, kernel),
    }


def _conv(given: int, made: int) -> nn.Conv2d:
    return nn.Conv2d(given, made, 3, padding=1, padding_mode="circular")


def _grid(x: Tensor) -> Tensor:
    return x.T.view(1, 2, SIDE, SIDE)


def _pixels(x: Tensor) -> Tensor:
    return x[0].flatten(1).T


def _intrinsic(x: Tensor, near: Tensor, frames: Tensor, kernel: Tensor) -> Tensor:
    """y_q = (a + b J) x_q + Σ over neighbours k of (c + d J) R(θ_k − θ_q) x_k, J the turn by 90°.

    A neighbour's vector is carried into the frame of the receiver, and the kernel commutes with turns, so the result
    does not depend on the choice of frames (Cohen et al. 2019, the isotropic kernels of gauge-equivariant CNNs).
    """
    angles = frames[None, :] - frames[:, None]
    carried = torch.einsum("qkij,kj->qki", turns(angles), x)
    gathered = torch.einsum("qk,qki->qi", near, carried)

    def mixed(v: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return a * v + b * torch.stack((-v[:, 1], v[:, 0]), -1)

    y = mixed(x, kernel[0], kernel[1]) + mixed(gathered, kernel[2], kernel[3])
    found: Tensor = y / (1 + y.norm(dim=-1, keepdim=True))  # what bends it looks at lengths alone
    return found


def turns(angles: Tensor) -> Tensor:
    """Return the matrices that turn a vector by these angles, (…, 2, 2)."""
    c, s = angles.cos(), angles.sin()
    return torch.stack((torch.stack((c, -s), -1), torch.stack((s, c), -1)), -2)


def changes() -> dict[str, Change]:
    """Return each change of the input: of features, of who is whose neighbour, and of the frames."""
    place, draw = torch.arange(NODES).view(SIDE, SIDE), torch.Generator().manual_seed(1)
    moved, turned = place.roll((1, 2), (0, 1)).flatten(), torch.rot90(place).flatten()
    shuffled = torch.randperm(NODES, generator=draw)
    angles = 2 * math.pi * torch.rand(NODES, generator=draw, dtype=torch.float64)

    def ordered(order: Tensor, *, graph: bool) -> Change:
        return lambda x, near, frames: (x[order], near[order][:, order] if graph else near, frames[order])

    def framed(x: Tensor, near: Tensor, frames: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.einsum("nij,nj->ni", turns(-angles), x), near, frames + angles

    return {
        "translation": ordered(moved, graph=False),
        "rotation by 90°": ordered(turned, graph=False),
        "permutation of elements": ordered(shuffled, graph=False),
        "permutation of nodes and edges": ordered(shuffled, graph=True),
        "choice of local frames": framed,
    }


def symmetries() -> dict[str, dict[str, float]]:
    """Return, for each architecture and each change, how far F(g x) is from g F(x)."""
    torch.manual_seed(0)
    x, near, frames = torch.randn(NODES, 2, dtype=torch.float64), torus(), torch.zeros(NODES, dtype=torch.float64)
    found: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for name, network in networks().items():
            y = network(x, near, frames)
            found[name] = {}
            for change, apply in changes().items():
                apart = network(*apply(x, near, frames)) - apply(y, near, frames)[0]
                found[name][change] = float(apart.abs().max() / y.abs().max())
    return found


def as_table(found: dict[str, dict[str, float]]) -> str:
    """Return the table in Markdown: where a network commutes with a change there is a tick."""
    heads = list(next(iter(found.values())))
    lines = [f"| architecture | {' | '.join(heads)} |", f"|---{'|---' * len(heads)}|"]
    for name, row in found.items():
        cells = [f"✓ ({value:.0e})" if value < SAME else f"{value:.2f}" for value in row.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_table(symmetries()))
