"""Effects: what the answer becomes when a part of the input is covered, and how probable it still finds the first one.

An attention weight says where a network looked, not what decided. Covering is the test: the input without a part is
answered anew. With p_i the probability of element i of the first answer and p_i\\j without part j, the effect is
p_i − p_i\\j (occlusion; Zeiler and Fergus 2014, 4.2; Li et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import UserError
from regard.inference.passes import Passes
from regard.inputs.input import Covers
from regard.inspection.page import Effects, Exhibit, Map
from regard.inspection.view import Coverable, View
from regard.outputs.abilities import Believes, in_short
from regard.outputs.output import Output

NAME = "effect of covering (probability lost)"
MOST = 400  # parts that are covered one after the other


def shown_parts(exhibit: Exhibit, view: View, parts: Sequence[Coverable]) -> list[tuple[Coverable, Coverable]]:
    """Return the parts that an exhibit shows, each as the input knows it and with the exhibit's own columns."""
    column = _columns(exhibit, view)
    if column is None:
        return []
    found = []
    for part in parts:
        columns = tuple(dict.fromkeys(c for v in part.vectors for c in column[v]))
        receiver = None if part.receiver is None else next(iter(column[part.receiver]), -1)
        if columns and receiver != -1:
            found.append((part, Coverable(part.name, columns, receiver)))
    return found


def _columns(exhibit: Exhibit, view: View) -> list[tuple[int, ...]] | None:
    """Return the columns of an exhibit for each vector of a view; None if they do not belong together."""
    count, shown = len(view.names), [*exhibit.source]
    if exhibit.sketch is not None and exhibit.sketch.kept:
        place = {node: i for i, node in enumerate(exhibit.sketch.kept)}
        return [(place[i],) if i in place else () for i in range(count)]
    if len(shown) == count:
        return [(i,) for i in range(count)]
    if view.groups is not None and len(shown) == len(view.labels):
        return [(group,) for group in view.groups]
    words = exhibit.words.get("source")
    if words is not None and view.groups is not None and len(words.names) == len(view.labels):
        return [tuple(i for i, word in enumerate(words.of) if word == group) for group in view.groups]
    for shift in range(min(3, len(shown) - count + 1)):
        if shown[shift : shift + count] == [*view.names]:
            return [(shift + i,) for i in range(count)]
    return None


def effects(
    passes: Passes, output: Output[Any], source: Any, answer: Any, parts: dict[int, Coverable], view: View
) -> Effects:
    """Return what the answer becomes without each of some parts."""
    assert isinstance(passes.input, Covers)
    if len(parts) > MOST:
        raise UserError(f"There are {len(parts):,} parts, expected at most {MOST} to cover one by one.")
    sources, numbers = [], []
    for number, part in parts.items():
        covered = passes.input.cover(source, view, part)
        if len(passes.input.encode([covered])[0][0]):  # nothing can be said of nothing
            sources.append(covered)
            numbers.append(number)
    answers: list[str | None] = [None] * len(sources)
    if not output.draws and sources:
        found = output.answers(passes, sources, output.how)
        answers = [in_short(output, output.as_target(one)) for one in found]
    each, after = None, [None] * len(sources)
    if isinstance(output, Believes):
        believed = output.beliefs(passes, [source, *sources], answer)
        each, after = believed[0].tolist(), [row.tolist() for row in believed[1:]]
    covered = {n: (text, shares) for n, text, shares in zip(numbers, answers, after, strict=True)}
    return Effects(in_short(output, output.as_target(answer)), each, covered)


def with_effects(exhibit: Exhibit, found: Effects, *, drawn: bool) -> Exhibit:
    """Return an exhibit with effects, and where all are known as probabilities with the map of them."""
    exhibit = replace(exhibit, effects=found)
    drawn = drawn and found.each is not None and bool(found.covered)
    return replace(exhibit, maps=[*exhibit.maps, _map(exhibit, found)]) if drawn else exhibit


def _map(exhibit: Exhibit, found: Effects) -> Map:
    """Return how much of the probability of each element is lost without each part. What a part loses is shared by its
    columns. Along edges, what a receiver loses is the mean over the elements."""
    assert found.each is not None
    count, edges = len(exhibit.source), any(part.receiver is not None for part in exhibit.parts)
    rows = count if edges else len(exhibit.target)
    weights = np.zeros((rows, count))
    places = exhibit.element_rows(len(found.each))
    for number, (_, after) in found.covered.items():
        part = exhibit.parts[number]
        differences: NDArray[np.float64] = np.subtract(found.each, after or found.each)
        if edges:
            lost = np.full(rows, differences.mean())
        else:
            lost = np.bincount(places, differences, rows) / np.maximum(np.bincount(places, minlength=rows), 1)
        chosen = slice(None) if part.receiver is None else part.receiver
        for column in part.vectors:
            weights[chosen, column] += lost[chosen] / len(part.vectors)
    return Map(NAME, "source" if edges else "target", "source", weights[None, None])
