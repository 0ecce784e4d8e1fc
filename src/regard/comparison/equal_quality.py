"""Parameters at equal quality: the smallest model of each kind that is as good as another's best."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

Point = tuple[float, float]  # parameters, quality
WIDTH = re.compile(r" ?\bwidth=\d+")  # in the name of a variant


def at_equal_quality(facts: dict[str, Any]) -> tuple[float, dict[str, float]] | None:
    """Return the best quality that every kind reaches with some width, and the parameters that each needs for it.

    A kind is all variants whose names differ in their width alone. None: there are not two kinds of two widths.
    """
    if facts["metric"] is None:
        return None
    sign = 1 if facts["metric"]["higher_is_better"] else -1
    kinds: dict[str, list[Point]] = {}
    for row in facts["rows"]:
        if not row["simple"] and not row["excluded"] and WIDTH.search(row["name"]) and row["quality"] is not None:
            point = row["costs"]["parameters"], sign * row["quality"]
            kinds.setdefault(WIDTH.sub("", row["name"]).strip(), []).append(point)
    if len(kinds) < 2 or any(len(points) < 2 for points in kinds.values()):
        return None
    level = min(max(quality for _, quality in points) for points in kinds.values())
    return sign * level, {kind: parameters_at(level, sorted(points)) for kind, points in kinds.items()}


def parameters_at(level: float, points: Sequence[Point]) -> float:
    """Return the parameters with which a quality is first reached: between two sizes, on a line over their logarithm.

    Of a kind whose smallest is good enough already it is the size of that one. Points are in order of their size.
    """
    size, quality = points[0]
    if quality >= level:
        return size
    for (before, worse), (after, better) in pairwise(points):
        if better >= level:
            share = (level - worse) / (better - worse)
            return math.exp(math.log(before) + share * math.log(after / before))
    raise ValueError(f"no size reaches {level:g}")


def sentences(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what to say about it: the quality, and the parameters of each kind."""
    found = at_equal_quality(facts)
    if found is None:
        return
    level, sizes = found
    label = facts["metric"]["label"]
    told = ", ".join(f"{kind} {float(f'{size:.2g}'):,.0f}" for kind, size in sizes.items())
    yield f"Parameters at equal quality, {label} {level:.3g}, between the widths that were trained: {told}."
