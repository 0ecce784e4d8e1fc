"""Watching: where did each layer look?  Without giving up the fast kernel.

    with regard.watch(model, layers=["decoder.2.cross"], heads=[0, 3]) as seen:
        model(...)
    seen["decoder.2.cross"].weights      # (batch, heads, m, n)

Fused kernels never hold the weights. A watched layer's queries and keys are kept instead, and the weights are computed
from them when they are asked for, only for the rows and heads asked for. The forward pass itself is untouched: its
outputs are bit for bit those without watching.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.equation import AnyMask, lay, match_heads
from regard.attention.multihead import Attention
from regard.attention.normalisers import Dropout

_watching: ContextVar[int] = ContextVar("watching", default=0)
_paused: ContextVar[bool] = ContextVar("paused", default=False)


def watched() -> bool:
    """Whether somebody is watching now."""
    return _watching.get() > 0 and not _paused.get()


@contextmanager
def paused() -> Iterator[None]:
    """Nothing is recorded inside: a search pauses the watching of its tries and shows the final answers in one pass."""
    token = _paused.set(True)
    try:
        yield
    finally:
        _paused.reset(token)


@dataclass(frozen=True)
class Call:
    """One call of a watched layer: all that its weights can be computed from."""

    attention: Attention
    q: Tensor  # (batch, heads, rows, d)
    k: Tensor
    mask: AnyMask  # the rule, or the rows of a tensor
    q_pos: Tensor  # (rows,) or (batch, rows)
    k_pos: Tensor

    @torch.no_grad()
    def weights(self, heads: Sequence[int] | None) -> Tensor:
        parts = self.attention
        k, _ = match_heads(self.q, self.k, self.k)
        chosen = slice(None) if heads is None else list(heads)
        scores: Tensor = parts.score(self.q[:, chosen], k[:, chosen])
        if parts.bias is not None:
            added = parts.bias(self.q, k, self.q_pos, self.k_pos)
            scores = scores + (added[..., chosen, :, :] if added.dim() >= 3 and added.shape[-3] > 1 else added)
        mask = self.mask if isinstance(self.mask, Tensor) else lay(self.mask, self.q_pos, self.k_pos).rows(self.q_pos)
        if mask.dim() >= 3 and mask.shape[-3] > 1:
            mask = mask[..., chosen, :, :]
        normalise = parts.normalise.normalise if isinstance(parts.normalise, Dropout) else parts.normalise
        return normalise(scores, mask)


@dataclass
class Seen:
    """What one layer did, call by call. `weights` joins the calls of a step-by-step decoding into one matrix."""

    heads: Sequence[int] | None
    calls: list[Call] = field(default_factory=list)

    @property
    def weights(self) -> Tensor:
        """(batch, heads, m, n) over all calls; keys that a call did not have yet get weight 0."""
        parts = [call.weights(self.heads) for call in self.calls]
        if not parts:
            raise ValueError("nothing was seen: call the model inside the `with` block")
        width = max(part.shape[-1] for part in parts)
        return torch.cat([nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts], -2)


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


@contextmanager
def watch(
    model: Any,
    layers: Sequence[str] | str | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | slice | None = None,
) -> Iterator[Recording]:
    """Records where `layers` (names or patterns such as "encoder.*"; all by default) look, for some `heads` and `rows`.

    `model` is a module, or a trained model of `regard.load`. A layer is called by the path of the module that holds its
    `Attention`: "decoder.2.cross". Rows are query indices within each call. Memory: the keys of each watched layer and
    the asked rows of its queries, until `seen` is dropped.
    """
    found = attentions(getattr(model, "network", model))
    wanted = [layers] if isinstance(layers, str) else layers
    chosen = [n for n in found if wanted is None or any(fnmatchcase(n, pattern) for pattern in wanted)]
    for pattern in wanted or ():
        if not any(fnmatchcase(n, pattern) for n in found):
            raise ValueError(f"no attention layer is called {pattern!r}; there are: {', '.join(found) or 'none'}")
    seen = {name: Seen(heads) for name in chosen}
    hooks = [found[n].register_forward_pre_hook(partial(_record, seen[n], rows), with_kwargs=True) for n in chosen]
    token = _watching.set(_watching.get() + 1)
    try:
        yield Recording(seen)
    finally:
        _watching.reset(token)
        for hook in hooks:
            hook.remove()


def attentions(model: nn.Module) -> dict[str, Attention]:
    """Every Attention in a model, by the path of the module that holds it."""
    named = {name: m for name, m in model.named_modules() if isinstance(m, Attention)}
    return {name.rpartition(".")[0] or name: m for name, m in named.items()}


def _record(
    seen: Seen,
    rows: Sequence[int] | slice | None,
    module: nn.Module,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    if _paused.get():
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
    if not isinstance(mask, Tensor | None):
        mask = getattr(mask, "mask", mask)  # the rule alone: a laid mask would keep its matrix alive
    assert isinstance(module, Attention)
    seen.calls.append(Call(module, q, given["k"].detach(), mask, q_pos, given["k_pos"]))
