"""Backbones: features from the vectors of a batch.

backbone(context) -> context                       everything at once
backbone.steps(context, state) -> context, state   what follows a state, for backbones that only look back
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from regard.attention import Context, State


class Backbone(Protocol):
    """Values, positions and mask in; new values out, all other fields carried over."""

    def __call__(self, context: Context) -> Context: ...


class CausalBackbone(Backbone, Protocol):
    """A backbone that only looks back. Any cut into steps gives the features of all at once."""

    def steps(self, context: Context, state: Any = None) -> tuple[Context, State]:
        """Return the features of what follows a state, and the state after it; None begins one."""


class DecoderBackbone(Protocol):
    """A backbone that looks at its own past and at a memory. The state stands for the memory once it has seen it."""

    def __call__(
        self, x: Context, memory: Context | None, state: Any = None, *, keep: bool = False
    ) -> tuple[Tensor, State | None]: ...
