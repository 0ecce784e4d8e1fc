"""The parts of the equation by name, for all attentions of a Transformer: score, normaliser, heads and positions.

    head_h = normalise( score(W_Q x + p, W_K c + p) ) (W_V c + p)        y = W_O [head_1; …; head_H]

p is there where positions come in inside the heads (`position_way=heads`; with `queries_keys` values have none).
Elsewhere a table is added to x, or joined to it by a linear map, before the first layer or before every layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from regard.attention import MultiHead, normalisers, pieces, positions, scores
from regard.models.position_kinds import TABLES, inside

# Scores from the width of queries and keys.
SCORES: dict[str, Callable[[int], scores.Score]] = {
    "dot": lambda width: scores.dot,  # noqa: ARG005
    "scaled_dot": lambda width: scores.scaled_dot,  # noqa: ARG005
    "bilinear": lambda width: scores.Bilinear(width, width),
    "additive": lambda width: scores.Additive(width, width, width),
    "mlp": lambda width: scores.MLP(width, width, width),
}

NORMALISERS: dict[str, normalisers.Normaliser] = {
    "softmax": normalisers.softmax,
    "sigmoid": normalisers.sigmoid,
    "relu": normalisers.relu,
    "exponential": normalisers.exponential,
    "none": normalisers.none,
    "mean": normalisers.mean,
}


WITHIN_HEADS = ("heads", "queries_keys")  # ways of positions


@dataclass(frozen=True)
class AttentionParts:
    """The parts of all attentions of a stack. Widths of keys and values are those of one head; None: width ÷ heads."""

    score: str = "scaled_dot"
    normaliser: str = "softmax"
    heads_see: str = "all"  # or "piece"
    key_width: int | None = None
    value_width: int | None = None
    position: str = "none"
    position_way: str = "added"  # or "concatenated", "heads", "queries_keys"
    position_layers: str = "first"  # or "every"

    def cross(self, width: int, heads: int) -> MultiHead:
        """Return an attention to a memory, whose positions it does not read."""
        return MultiHead(width, heads, **self._common(width, heads))

    def own(self, width: int, heads: int, number: int, length: int, *, both: bool) -> MultiHead:
        """Return the self-attention of layer `number`; positions go up to `length`."""
        return MultiHead(width, heads, **self.own_parts(width, heads, number, length, both=both))

    def own_parts(self, width: int, heads: int, number: int, length: int, *, both: bool) -> dict[str, Any]:
        """Return the arguments of MultiHead for the self-attention of layer `number`."""
        k_width, v_width = (each or width // heads for each in (self.key_width, self.value_width))
        if self.position_way not in WITHIN_HEADS:
            where = inside(self.position, heads, width, both=both, key_width=k_width, value_width=v_width)
        elif number == 0 or self.position_layers == "every":
            keys = positions.AddedToHeads(self._table(length, k_width))
            where = {"rotate": keys}
            if self.position_way == "heads":
                same = k_width == v_width
                where["rotate_values"] = keys if same else positions.AddedToHeads(self._table(length, v_width))
        else:
            where = {}
        return {**self._common(width, heads), **where}

    def before(self, number: int, length: int, width: int) -> nn.Module | None:
        """Return the module that brings positions in before layer `number`, if any; before layer 0 is the stem's."""
        if self.position not in TABLES or self.position_way in WITHIN_HEADS:
            return None
        if number and self.position_layers == "first":
            return None
        table = self._table(length, width)
        return positions.Added(table) if self.position_way == "added" else positions.Concatenated(table, width, width)

    def _common(self, width: int, heads: int) -> dict[str, Any]:
        project = pieces(heads) if self.heads_see == "piece" else nn.Linear
        return {
            "score": SCORES[self.score](self.key_width or width // heads),
            "normalise": NORMALISERS[self.normaliser],
            "project": project,
            "key_width": self.key_width,
            "value_width": self.value_width,
        }

    def _table(self, length: int, width: int) -> nn.Module:
        if self.position not in TABLES:
            raise ValueError(
                f"model.position_way={self.position_way} brings a table in, found model.position={self.position}: "
                f"expected one of {', '.join(TABLES)}"
            )
        return TABLES[self.position](length, width)
