"""Path lengths: the steps that a change of one element takes to reach another: `python -m regard.comparison.paths`.

A step is a state of an RNN that follows from the one before, or an operation that joins elements: a convolution, the
largest of neighbours, attention (Vaswani et al. 2017, table 1). They are not derived but measured: an element is
changed, and the first operation is looked for whose result differs n elements away. Operations that belong to one
element each, such as a linear map, take no step. So is the cost: the floating-point operations of a pass, traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Context, MultiHead
from regard.backbones.recurrent import CausalRNN
from regard.costs.shadow import shapes_of, without_weights
from regard.costs.trace import trace
from regard.layers.stem import Shape, Stem
from regard.models.cnn import cnn
from regard.models.convolution import convolution
from regard.models.encoder import deepsets, encoder
from regard.models.lstm import lstm
from regard.models.speech import neighbours
from regard.models.vit import vit

JOINING = (nn.Conv1d, nn.Conv2d, nn.MaxPool2d, MultiHead)
WIDTH, PATCH, TRIES = 32, 4, 8  # a change is tried in so many ways: a ReLU hides some
LONGEST = 256
DISTANCES = (1, 4, 16, 64, 255)
LENGTHS = (64, 1024)  # at which operations are counted


@dataclass(frozen=True)
class Paths:
    """The steps from an element to those at each distance, where there is a way, and the operations for an element in
    a row of each length."""

    steps: dict[int, int | None]
    operations: dict[int, float]


def sequences() -> dict[str, nn.Module]:
    """Return networks over rows of vectors, with the sizes that `regard train` begins with."""
    sizes: dict[str, Any] = {"layers": 2, "width": WIDTH, "hidden": 2 * WIDTH, "heads": 4, "length": LENGTHS[-1]}
    return {
        "LSTM": lstm(layers=1, width=WIDTH)[1],
        "convolution: 4 layers, 3 wide": convolution(layers=4, width=WIDTH, kernel=3, length=LENGTHS[-1])[1],
        "self-attention: 2 layers": encoder(**sizes)[1],
        "local attention: 2 layers, 8 each way": encoder(**sizes, attention="local", reach=8)[1],
        "window: 5 each way": neighbours(width=WIDTH, hidden=2 * WIDTH, radius=5)[1],
        "DeepSets": deepsets(width=WIDTH)[1],
    }


def over_pictures() -> dict[str, nn.Module]:
    """Return networks over a strip of pixels, one patch high, so that what lies along it is one row."""
    sizes: dict[str, Any] = {"layers": 2, "width": WIDTH, "hidden": 2 * WIDTH, "heads": 4, "length": LENGTHS[-1]}
    found = {
        "CNN: 3 stages of 2 convolutions, 3 wide": cnn(layers=2, stages=3, width=WIDTH, norm="batch"),
        "Vision Transformer: patches of 4": vit(**sizes, position="sinusoidal"),
    }
    return {name: _whole(*parts) for name, parts in found.items()}


def _whole(stem: Stem, backbone: nn.Module) -> nn.Module:
    assert stem.pixels is not None
    return nn.Sequential(stem.pixels(Shape(PATCH, LONGEST, 1, PATCH)), backbone)


def paths() -> dict[str, Paths]:
    """Return the paths of each network with random weights; distances are in elements, or in pixels of a row."""
    torch.manual_seed(0)
    found = {}
    for name, network in sequences().items():
        steps = steps_along(network) if isinstance(network, CausalRNN) else steps_through(network, _row(LONGEST))
        found[name] = Paths(steps, _operations(network, lambda n: Context(_row(n)[:1])))
    for name, network in over_pictures().items():
        found[name] = Paths(steps_through(network, _strip(LONGEST)), _operations(network, lambda n: _strip(n)[:1]))
    return found


def _row(n: int) -> Tensor:
    return torch.randn(TRIES, n, WIDTH)


def _strip(n: int) -> Tensor:
    return torch.randn(TRIES, 1, PATCH, n)


# ---- steps -----------------------------------------------------------------------------------------------------------


def steps_through(network: nn.Module, x: Tensor, distances: Sequence[int] = DISTANCES) -> dict[int, int | None]:
    """Return the number of the first joining operation whose result at a distance depends on the first element.

    x is (tries, n, width), or (tries, channels, rows, n); None: no operation's does.
    """
    row = x.dim() == 3
    other = x.clone()
    (other[:, 0] if row else other[..., 0]).normal_()
    results = []
    for given in (x, other):
        with joined(network) as made, torch.no_grad():
            network.eval()(Context(given) if row else given)
        results.append(made)
    farthest = [_farthest(one != two, x.shape[1 if row else -1]) for one, two in zip(*results, strict=True)]
    return {n: next((at for at, far in enumerate(farthest, 1) if far >= n), None) for n in distances}


@contextmanager
def joined(network: nn.Module) -> Iterator[list[Tensor]]:
    """Collect what each operation gives that joins elements, (tries, elements, numbers), in order."""
    made: list[Tensor] = []

    def hear(part: nn.Module, _: Any, result: Any) -> None:
        if isinstance(part, MultiHead):
            made.append(result[0])
        elif not isinstance(part, nn.MaxPool2d) and {*part.kernel_size} == {1}:  # type: ignore[misc]
            return
        else:
            made.append(result.movedim(-1, 1).flatten(2))

    hooks = [part.register_forward_hook(hear) for part in network.modules() if isinstance(part, JOINING)]
    try:
        yield made
    finally:
        for hook in hooks:
            hook.remove()


def _farthest(differs: Tensor, n: int) -> int:
    """Return the last of n elements that a result which differs is made for; −1 without one."""
    there = differs.any(-1).any(0).nonzero()
    each = n // differs.shape[1]
    return -1 if not len(there) else (int(there.max()) + 1) * each - 1


def steps_along(network: CausalRNN, distances: Sequence[int] = DISTANCES) -> dict[int, int | None]:
    """Return the states that follow one another until the one at each distance differs, whose input is the same."""
    x = _row(max(distances) + 1)
    first = [x[:, :1], torch.randn_like(x[:, :1])]
    states: list[Any] = []
    found: dict[int, int | None] = {}
    with torch.no_grad():
        states = [network.eval().steps(Context(each))[1] for each in first]
        for n in range(1, x.shape[1]):
            both = [network.steps(Context(x[:, n : n + 1]), state) for state in states]
            states = [state for _, state in both]
            if n in distances:
                found[n] = n if bool((both[0][0].values != both[1][0].values).any()) else None
    return found


# ---- cost ------------------------------------------------------------------------------------------------------------


def _operations(network: nn.Module, made: Callable[[int], Any]) -> dict[int, float]:
    """Return the operations of a pass for each element, in rows of some lengths."""
    found = {}
    for n in LENGTHS:
        copied, x = without_weights(network), shapes_of(made(n))
        found[n] = trace(copied, lambda copied=copied, x=x: copied(x)).forward.total() / n  # type: ignore[misc]
    return found


def as_table(found: dict[str, Paths]) -> str:
    """Return the table in Markdown; a dash where there is no way."""
    heads = [*(f"{n} apart" for n in DISTANCES), *(f"kFLOP, {n:,} long" for n in LENGTHS)]
    lines = [f"| steps between two elements | {' | '.join(heads)} |", f"|---{'|---:' * len(heads)}|"]
    for name, each in found.items():
        cells = ["–" if steps is None else str(steps) for steps in each.steps.values()]
        cells += [f"{count / 1e3:.1f}" for count in each.operations.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(as_table(paths()))
