"""The kinds of self-attention by name, for every Transformer: full, local, linear, performer, linformer, bigbird.

A Mechanism says whom a token looks at and at which cost; the parts of the equation are those of AttentionParts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from torch import nn

from regard import attention
from regard.attention import Cache, Layer, Mask, MultiHead, Rolling, State, Sums, causal, padding
from regard.attention.kernels import EluFeatures, FavorFeatures, Kernel
from regard.attention.normalisers import divide
from regard.attention.patterns import bigbird
from regard.attention.shortened import LengthProjection, Shortened
from regard.models.parts import AttentionParts
from regard.models.position_kinds import INSIDE
from regard.models.settings import fault_of

ENDLESS = ("local", "linear", "performer")  # their state does not grow with what was read


@dataclass(frozen=True)
class Mechanism:
    """A kind of self-attention and its sizes; each size is of the kind that its comment names."""

    kind: str = "full"
    window: tuple[int, int] | None = None  # full, bigbird: positions back and ahead, where both ways are looked
    reach: int = 128  # local: positions that each looks back, and ahead where it may
    features: int = 128  # performer: random features of each head
    redraw: int = 0  # performer: training steps between two draws of them; 0: never
    columns: int = 256  # linformer: columns to which keys and values are projected
    shared: bool = True  # linformer: keys and values have one projection
    block: int = 64  # bigbird: positions in a block
    near: int = 3  # bigbird: blocks of the window
    landmarks: int = 2  # bigbird: global blocks, at the beginning and at the end
    random: int = 3  # bigbird: random blocks of each block
    extra: int = 0  # bigbird: blocks of learned global tokens instead (ETC)

    def __post_init__(self) -> None:
        if self.kind == "bigbird" and self.near % 2 == 0:
            raise ValueError(f"model.near: expected an odd number of blocks, found {self.near}")

    def layers(
        self, count: int, width: int, heads: int, parts: AttentionParts, *, length: int, back: bool = False
    ) -> list[Layer]:
        """Return so many layers of self-attention over at most `length` positions, looking both ways or only `back`."""
        refuse(self.kind, parts.position, back=back)
        if self.kind == "linformer":
            return [self._shortened(width, heads, length) for _ in range(count)]
        return [self._layer(width, heads, parts, number, length, back=back) for number in range(count)]

    def places(self, count: int, width: int, parts: AttentionParts, *, length: int) -> list[nn.Module | None]:
        """Return the modules that bring positions in before each layer; the first is the stem's."""
        more = [parts.before(number, length + self.tokens, width) for number in range(1, count)]
        return [parts.before(0, length, width), *more]

    def _layer(
        self, width: int, heads: int, parts: AttentionParts, number: int, length: int, *, back: bool
    ) -> MultiHead:
        made = parts.own_parts(width, heads, number, length + self.tokens, both=not back)
        if self.kind == "linear":
            made |= {"score": Kernel(EluFeatures()), "normalise": divide}
        if self.kind == "performer":
            features = FavorFeatures(parts.key_width or width // heads, self.features, redraw=self.redraw)
            made |= {"score": Kernel(features), "normalise": divide}
        if self.kind == "bigbird":
            made["mask"] = self._pattern(number, back=back)
        return MultiHead(width, heads, **made)

    def _pattern(self, number: int, *, back: bool) -> Mask:
        """Return the mask of a layer: its number is the seed of its random blocks."""
        last = 0 if self.extra or back else self.landmarks // 2
        first = self.extra or self.landmarks - last
        return bigbird(self.block, window=self.near, first=first, last=last, random=self.random, seed=number, back=back)

    def _shortened(self, width: int, heads: int, length: int) -> Shortened:
        keys = LengthProjection(length, self.columns)
        return Shortened(width, heads, keys, keys if self.shared else LengthProjection(length, self.columns))

    def mask(self, *, back: bool = False) -> Mask:
        """Return the rule that all layers share; BigBird's layers have one of their own beside it."""
        if self.kind == "local":
            return attention.window(self.reach, 0 if back else self.reach)
        if back:
            return causal
        return padding if self.window is None else attention.window(*self.window)

    def start(self) -> Callable[[], State]:
        """Return how the state of a layer begins that only looks back."""
        if self.kind == "local":
            return partial(Rolling, self.reach)
        return Sums if self.kind in ("linear", "performer") else Cache

    @property
    def tokens(self) -> int:
        """The number of learned global tokens before the input."""
        return self.extra * self.block if self.kind == "bigbird" else 0


def chosen(*, attention: str = "full", **given: Any) -> tuple[Mechanism, AttentionParts]:
    """Return the mechanism and the parts of settings that hold both, each under the name of its field."""
    names = {field.name for field in fields(Mechanism)}
    sizes = {name: value for name, value in given.items() if name in names}
    return Mechanism(attention, **sizes), AttentionParts(**{n: value for n, value in given.items() if n not in names})


def refuse(kind: str, position: str, *, back: bool) -> None:
    """Refuse, in one sentence, a position kind or a direction that an attention kind cannot have."""
    if fault := fault_of(kind, position, back=back):
        raise ValueError(fault)


def endless(kind: str, position: str) -> bool:
    """Return True if such a network writes on for ever with a state of constant size: positions are relative."""
    return kind in ENDLESS and position in INSIDE
