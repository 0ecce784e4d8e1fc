"""Watching: record where each layer looked, without giving up the fast kernel.

    with regard.watch(model, layers=["decoder.2.cross"], heads=[0, 3]) as seen:
        model(...)
    seen["decoder.2.cross"].weights      # (batch, heads, m, n)

Fused kernels never hold the weights. A watched layer's queries and keys are kept instead, and the weights are computed
from them when they are asked for, only for the rows and heads asked for, by the attention itself (`Watchable.weights`).
The forward pass is untouched: its outputs are bit for bit those without watching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import Edges, Watchable
from regard.attention.equation import AnyMask, rule_of

_watching: ContextVar[int] = ContextVar("watching", default=0)
# None, or in a pause: the recordings that began inside of it, by their ids.
_paused: ContextVar[frozenset[int] | None] = ContextVar("paused", default=None)


def watched() -> bool:
    """Return True while somebody is watching."""
    return _watching.get() > 0 and _paused.get() is None


@contextmanager
def paused() -> Iterator[None]:
    """Record nothing inside: a search pauses the watching of its tries and shows the final answers in one pass.

    A watch that begins inside is the search's own, and records."""
    token = _paused.set(frozenset())
    try:
        yield
    finally:
        _paused.reset(token)


@dataclass(frozen=True)
class Call:
    """One call of a watched layer: all that its weights can be computed from."""

    attention: Watchable
    q: Tensor  # (batch, heads, rows, d)
    k: Tensor
    mask: AnyMask  # the rule, or the rows of a tensor
    q_pos: Tensor  # (rows,) or (batch, rows)
    k_pos: Tensor

    def weights(self, heads: Sequence[int] | None = None) -> Tensor:
        """Return the weights (batch, heads, rows, keys) in the order in which the layer was given rows and keys."""
        return self.attention.weights(self.q, self.k, self.mask, self.q_pos, self.k_pos, heads)

    def by_batch(self) -> tuple[Tensor, Tensor]:
        """Return the positions of queries and keys for each row of the batch, (batch, rows) and (batch, keys).

        Projected columns have none: they are numbered.
        """
        batch, where = max(len(self.q), len(self.k)), self.k_pos
        if self.attention.projected:
            where = torch.arange(self.weights([0]).shape[-1], device=self.k_pos.device)
        return self.q_pos.expand(batch, -1), where.expand(batch, -1)


@dataclass
class Seen:
    """The calls of one layer. `weights` joins those of a step-by-step decoding into one matrix."""

    heads: Sequence[int] | None
    calls: list[Call] = field(default_factory=list)

    @property
    def projected(self) -> bool:
        """True if columns are mixtures of positions, not positions."""
        return any(call.attention.projected for call in self.calls)

    @property
    def before(self) -> int:
        """The number of positions before the input's own."""
        return max((call.attention.before for call in self.calls), default=0)

    @property
    def weights(self) -> Tensor:
        """The weights (batch, heads, m, n): how much each watched position looked at positions 0 … n − 1.

        Columns are key positions; rows are query positions in ascending order, over all calls. What a call could not
        see and padding have weight 0. The rows of one call stay in its order if they are the same for the whole batch,
        or if it asks twice at a position (two streams).
        """
        if not self.calls:
            raise ValueError("nothing was seen: call the model inside the `with` block")
        where = [call.by_batch() for call in self.calls]
        _refuse_unrelated([q_pos for q_pos, _ in where])
        columns = 1 + max((int(k_pos.max()) for _, k_pos in where if k_pos.numel()), default=-1)
        pairs = zip(self.calls, where, strict=True)
        weights = torch.cat([placed(call.weights(self.heads), k_pos, columns) for call, (_, k_pos) in pairs], -2)
        asked = torch.cat([q_pos for q_pos, _ in where], -1)
        if len(self.calls) == 1 and (_shared(asked) or _repeated(asked)):
            return weights
        rows = asked.unique()
        rows = rows[rows >= 0]
        return placed(weights.mT, _rank(asked, rows), len(rows)).mT


def placed(weights: Tensor, where: Tensor, size: int) -> Tensor:
    """Move the last dimension of (batch, heads, m, n) to the places `where` (batch, n) of `size`; −1 is left out."""
    if where.shape[-1] <= size and bool((where == torch.arange(where.shape[-1], device=where.device)).all()):
        return nn.functional.pad(weights, (0, size - where.shape[-1]))
    index = where.clamp(min=0)[:, None, None].expand(weights.shape)
    real = weights.masked_fill(where[:, None, None] < 0, 0.0)
    return weights.new_zeros(*weights.shape[:-1], max(size, 1)).scatter_add(-1, index, real)[..., :size]


def _rank(positions: Tensor, among: Tensor) -> Tensor:
    """Return the index of each position in a sorted list, −1 for padding."""
    return torch.where(positions < 0, -1, torch.searchsorted(among, positions.contiguous()))


def _shared(positions: Tensor) -> bool:
    """Return True if all rows of (batch, m) have the same positions, without padding."""
    return bool((positions == positions[:1]).all() and (positions >= 0).all())


def _repeated(positions: Tensor) -> bool:
    """Return True if some row of (batch, m) has a position more than once."""
    ordered = positions.sort(-1).values
    return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())


def _refuse_unrelated(calls: Sequence[Tensor]) -> None:
    """Refuse calls that are not the steps of one decoding: the same rows at ever later positions."""
    last = None
    for q_pos in calls:
        if last is not None:
            first = q_pos.masked_fill(q_pos < 0, torch.iinfo(q_pos.dtype).max)
            if len(q_pos) != len(last) or bool((first <= last.unsqueeze(-1)).any()):
                raise ValueError(
                    f"the layer was called {len(calls)} times on batches that are no steps of one decoding (the same "
                    "rows at later positions): read each with `calls[i].weights()`, or watch one batch at a time"
                )
        most = q_pos.amax(-1) if q_pos.shape[-1] else q_pos.new_full((len(q_pos),), -1)
        last = most if last is None else torch.maximum(last, most)


class Recording(Mapping[str, Seen]):
    """The watched layers by name."""

    def __init__(self, layers: dict[str, Seen]) -> None:
        self._layers = layers

    def __getitem__(self, name: str) -> Seen:
        if name not in self._layers:
            raise KeyError(f"no watched layer is called {name!r}; there are: {', '.join(self._layers) or 'none'}")
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)


def watch(
    model: Any,
    layers: Sequence[str] | str | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | slice | None = None,
) -> AbstractContextManager[Recording]:
    """Record where `layers` (names or patterns such as "encoder.*"; all by default) look, for some `heads` and `rows`.

    `model` is a module, or a trained model of `regard.load`. A layer is called by the path of the module that holds its
    attention: "decoder.2.cross". Rows are query indices within each call. Memory: the keys of each watched layer and
    the asked rows of its queries, until `seen` is dropped.
    """
    network = getattr(model, "network", model)
    if not isinstance(network, nn.Module):
        name = model.__name__ if isinstance(model, type) else type(model).__name__
        raise TypeError(f"model: expected a module or a trained model to watch, found {name}")
    found = attentions(network)
    if layers is None and not found:
        raise ValueError(_nothing_to_watch(network))
    wanted = [layers] if isinstance(layers, str) else layers
    chosen = [n for n in found if wanted is None or any(fnmatchcase(n, pattern) for pattern in wanted)]
    for pattern in wanted or ():
        if not any(fnmatchcase(n, pattern) for n in found):
            raise ValueError(f"no attention layer is called {pattern!r}; there are: {', '.join(found) or 'none'}")
    return _recording({name: found[name] for name in chosen}, heads, rows)


def _nothing_to_watch(network: nn.Module) -> str:
    if any(isinstance(module, nn.MultiheadAttention) for module in network.modules()):
        return (
            f"{type(network).__name__} has torch's own attention inside, whose queries and keys cannot be recorded. "
            "Try regard.attention.MultiHead in its place"
        )
    return f"{type(network).__name__} has no attention inside, expected a model with at least one layer of it"


@contextmanager
def _recording(
    found: Mapping[str, Watchable], heads: Sequence[int] | None, rows: Sequence[int] | slice | None
) -> Iterator[Recording]:
    """Record the calls of these layers."""
    recording = Recording({name: Seen(heads) for name in found})
    own = id(recording)
    hooks = [
        layer.register_forward_pre_hook(partial(_record, recording[name], rows, own), with_kwargs=True)
        for name, layer in found.items()
    ]
    pause = _paused.get()
    token, inside = _watching.set(_watching.get() + 1), _paused.set(None if pause is None else pause | {own})
    try:
        yield recording
    finally:
        _watching.reset(token)
        _paused.reset(inside)
        for hook in hooks:
            hook.remove()


def attentions(model: nn.Module) -> dict[str, Watchable]:
    """Return every attention in a model, by the path of the module that holds it."""
    named = {name: m for name, m in model.named_modules() if isinstance(m, Watchable)}
    return {name.rpartition(".")[0] or name: m for name, m in named.items()}


def _record(
    seen: Seen,
    rows: Sequence[int] | slice | None,
    own: int,
    module: nn.Module,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    pause = _paused.get()
    if pause is not None and own not in pause:
        return
    names = ("q", "k", "v", "mask", "q_pos", "k_pos")
    given = {**dict(zip(names, inputs, strict=False)), **named}
    q, q_pos, mask = given["q"].detach(), given["q_pos"], given["mask"]
    if rows is not None:
        index = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=q.device)
        # A clone: a view would keep all queries alive for the sake of a few rows.
        q, q_pos = q[..., index, :].clone(), q_pos[..., index].clone()
        if isinstance(mask, Tensor) and mask.shape[-2] > 1:
            mask = mask[..., index, :]
        if isinstance(mask, Edges):
            mask = mask.receiving(index, given["q"].shape[-2])
    assert isinstance(module, Watchable)
    # The rule alone: a laid mask would keep its matrix alive.
    seen.calls.append(Call(module, q, given["k"].detach(), rule_of(mask), q_pos, given["k_pos"]))
