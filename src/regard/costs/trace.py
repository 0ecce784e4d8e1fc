"""One step of training, traced without computing it: operations by part, and the memory in use at its peak."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from regard.attention.layer import Watchable
from regard.costs.operations import operations
from regard.costs.shadow import Shadow, shapes_of, tensors_in, without_weights
from regard.layers.products import heard

PLACES = {"stem": "input", "backbone": "backbone", "head.decoder": "decoder", "head": "output"}
WORDS = {"attention": "self-attention", "own": "self-attention", "cross": "cross-attention"}
WORDS |= dict.fromkeys(("feed", "before", "after"), "feed-forward")  # of a Conformer: one before, one after
LOOKING = "scores and mixing"  # what attention computes without weights: it grows with the square of the length


class Component(NamedTuple):
    """A part of a network: where it lies, and what it does there."""

    place: str
    layer: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.layer}" if self.layer else self.place


@dataclass(frozen=True)
class Trace:
    """The operations of one step by part, and the most bytes that its activations and gradients take at once."""

    forward: Counter[Component]
    backward: Counter[Component]
    peak: int

    @property
    def flops(self) -> int:
        return self.forward.total() + self.backward.total()

    @property
    def looking(self) -> int:
        """The operations of attention itself, without its projections."""
        return sum(
            count for some in (self.forward, self.backward) for part, count in some.items() if part.layer == LOOKING
        )


def traced(network: nn.Module, batch: Any, turn: str = "all", *, learning: bool = True) -> Trace:
    """Return what a step of training on this batch costs, or a pass without gradients.

    The network keeps its weights, gradients and modes, and torch's random numbers go on as if nothing had been tried.
    """
    copied = without_weights(network).train(learning)

    def step() -> None:
        loss = copied(shapes_of(batch), turn).sum()
        if learning:
            loss.backward()

    with torch.random.fork_rng(devices=()), torch.set_grad_enabled(learning):
        return trace(copied, step)


def trace(network: nn.Module, step: Callable[[], object]) -> Trace:
    """Trace whatever a function does with a network that has no weights."""
    live, counter = InUse(), _Counter(network)

    def seen(function: Any, args: Any, result: Any) -> None:
        counter.add(operations(function, args[0], result))
        live.seen(args, result)

    with counter.hooked(), heard(counter.add), Shadow(seen):
        step()
    return Trace(counter.forward, counter.backward, live.peak)


def part_of(name: str, looking: frozenset[str] = frozenset()) -> Component:
    """Return the part that a module or parameter of this name belongs to; `looking` names the attentions."""
    place = next((place for place in ("head.decoder", "stem", "backbone", "head") if _inside(name, place)), "")
    if any(_inside(name, each) for each in looking):
        return Component(PLACES.get(place, "output"), LOOKING)
    words = name.removeprefix(place).strip(".").split(".")
    numbered = [i for i, word in enumerate(words) if word.isdigit()]
    rest = words[numbered[0] + 1 :] if numbered else []
    layer = next((WORDS.get(word.removeprefix("around_"), word) for word in rest if not word.isdigit()), "")
    return Component(PLACES.get(place, "output"), layer)


def _inside(name: str, place: str) -> bool:
    return name == place or name.startswith(place + ".")


def parameters(network: nn.Module) -> Counter[Component]:
    """Return the number of parameters of each part; tied ones count where they come first."""
    looking = attentions(network)
    found: Counter[Component] = Counter()
    for name, parameter in network.named_parameters():
        found[part_of(name, looking)] += parameter.numel()
    return found


def attentions(network: nn.Module) -> frozenset[str]:
    """Return the names of all attentions in a network."""
    return frozenset(name for name, part in network.named_modules() if isinstance(part, Watchable))


class _Counter:
    """Operations by part. In the backward pass, a node of the graph belongs to the part that made it: nodes are
    numbered in the order in which they are made, so the numbers at which one part followed another tell it."""

    def __init__(self, network: nn.Module) -> None:
        looking = attentions(network)
        self.forward: Counter[Component] = Counter()
        self.backward: Counter[Component] = Counter()
        self._parts = {id(module): part_of(name, looking) for name, module in network.named_modules()}
        self._stack: list[Component] = []
        self._since: list[int] = []
        self._whose: list[Component] = []

    def add(self, count: int) -> None:
        if not count:
            return
        node: Any = torch._C._current_autograd_node()
        if node is None:
            self.forward[self._now()] += count
        else:
            self.backward[self._stack[-1] if self._stack else self._maker(node._sequence_nr())] += count

    @contextmanager
    def hooked(self) -> Iterator[None]:
        hooks = [register_module_forward_pre_hook(self._enter), register_module_forward_hook(self._leave)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module: nn.Module, _: Any) -> None:
        self._stack.append(self._parts.get(id(module), self._now()))
        self._mark()

    def _leave(self, *_: Any) -> None:
        self._stack.pop()
        self._mark()

    def _mark(self) -> None:
        self._since.append(torch._C._autograd._get_sequence_nr())
        self._whose.append(self._now())

    def _now(self) -> Component:
        return self._stack[-1] if self._stack else Component("output")

    def _maker(self, number: int) -> Component:
        place = bisect_right(self._since, number)
        return self._whose[place - 1] if place else Component("output")


class InUse:
    """The bytes of all tensors made in a trace that are still in use, and the most of them at once."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self._known: set[int] = set()

    def seen(self, args: Any, result: Any) -> None:
        """Take note of an operation: what it makes is new, unless it is a view of what was there before."""
        self._count(tensors_in((*args[0], *args[1].values())), new=False)
        self._count(tensors_in((result,)), new=True)
        self.peak = max(self.peak, self.now)

    def _count(self, tensors: Iterable[Tensor], *, new: bool) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                size = storage.nbytes() if new else 0
                self._known.add(storage._cdata)
                self.now += size
                weakref.finalize(storage, self._forget, storage._cdata, size)

    def _forget(self, name: int, size: int) -> None:
        self._known.discard(name)
        self.now -= size
