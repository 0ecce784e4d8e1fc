"""Backbones: features from the vectors of a batch.

backbone(context) -> context                       everything at once
backbone.steps(context, state) -> context, state   what follows a state, for backbones that only look back
"""

from __future__ import annotations

from typing import Protocol

from regard.attention import Context


class Backbone(Protocol):
    """Values, positions and mask in; new values out, all other fields carried over."""

    def __call__(self, context: Context) -> Context: ...
