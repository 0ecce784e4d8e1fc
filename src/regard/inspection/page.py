"""Exhibits: an input, its answer, and the maps between and within them, as pictures and pages show them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.inspection.sound import SoundView
from regard.inspection.view import Coverable, Drawing, View
from regard.pictures.sketch import Sketch

if TYPE_CHECKING:
    from regard.inspection.recording import Seen

# prefix: START and the target but its end, as a decoder reads it; projected: mixtures of all positions (Linformer)
Side = Literal["source", "target", "prefix", "projected"]
BEGINNING = "▷"  # START, with a sign that every font has; ▶ is an emoji on some telephones


@dataclass(frozen=True)
class Map:
    """One kind of attention: `weights` (layers, heads, m, n) of m `rows` tokens looking at n `columns` tokens.

    `heads` are those of each layer where they differ: each head of a layer with fewer is there several times.
    """

    name: str
    rows: Side
    columns: Side
    weights: ArrayLike
    heads: Sequence[int] = ()


@dataclass(frozen=True)
class WordGroups:
    """The words that the sub-words of a side make up: their `names`, and for each token the index of its word."""

    names: Sequence[str]
    of: Sequence[int]

    def members(self) -> NDArray[np.float64]:
        """Return 1 where a token (a row) belongs to a word (a column), else 0."""
        return np.asarray(np.equal.outer(self.of, range(len(self.names))), dtype=np.float64)

    def then(self, mark: str) -> "WordGroups":
        """Return the groups with one more token at the end, a word of its own."""
        return WordGroups([*self.names, mark], [*self.of, len(self.names)])

    def after(self, mark: str) -> "WordGroups":
        """Return the groups with one more token in front, a word of its own."""
        return WordGroups([mark, *self.names], [0, *(word + 1 for word in self.of)])


@dataclass(frozen=True)
class Effects:
    """An answer, the probability of each of its elements (None where it is not known), and for each part that was
    covered, by its number, the answer without it (None where answers are drawn) and the same probabilities."""

    answer: str
    each: Sequence[float] | None
    covered: Mapping[int, tuple[str | None, Sequence[float] | None]]


@dataclass(frozen=True)
class Exhibit:
    """An input, its output, and the maps between and within them.

    `text` is the input as it was written. `words` is there for sides whose tokens are sub-words. `drawing` is what a
    picture shows of it.
    """

    source: Sequence[str]
    target: Sequence[str]
    maps: Sequence[Map]
    text: str | None = None
    words: Mapping[Side, WordGroups] = field(default_factory=dict)
    drawing: Drawing | None = None
    view: View | None = None  # of a source that is a picture or a graph
    sound: SoundView | None = None  # of a source that is a recording
    sketch: Sketch | None = None  # where the source is a graph
    elements: Sequence[int] | None = None  # the row of the target of each element of the answer; None: its own
    parts: Sequence[Coverable] = ()  # what can be covered, with columns of the source as vectors
    effects: Effects | None = None

    @classmethod
    def of(cls, source: View, target: View, maps: Sequence[Map], text: str, drawing: Drawing | None = None) -> Self:
        """Return the exhibit of two views: the words of each that is shown in words are known."""
        views: dict[Side, View] = {"source": source, "target": target}
        words = {side: WordGroups(v.labels, v.groups) for side, v in views.items() if v.groups is not None and v.merged}
        return cls(source.names, target.names, maps, text, words, drawing)

    def tokens(self) -> dict[Side, list[str]]:
        """Return the tokens of each side that the maps use."""
        sides: dict[Side, list[str]] = {"source": [*self.source], "target": [*self.target]}
        if any("prefix" in (each.rows, each.columns) for each in self.maps):
            sides["prefix"] = [BEGINNING, *self.target[:-1]]
        columns = [np.shape(each.weights)[-1] for each in self.maps if each.columns == "projected"]
        if columns:
            sides["projected"] = projected_names(max(columns))
        return sides

    def element_rows(self, count: int | None) -> list[int]:
        """Return the row of the target for each of so many elements of the answer."""
        rows = [*self.elements] if self.elements is not None else [*range(len(self.target))]
        return rows if count is None or len(rows) == count else [0] * count

    def all_words(self) -> dict[Side, WordGroups]:
        """Return `words` of each side; that of the prefix is made from that of the target."""
        words = dict(self.words)
        if "target" in words and "prefix" in self.tokens():
            of = words["target"].of[:-1]
            words["prefix"] = WordGroups(words["target"].names[: max(of, default=-1) + 1], of).after(BEGINNING)
        return words

    def in_words(self, a_map: Map) -> tuple[NDArray[np.float64], list[str], list[str]]:
        """Return the weights of a map with the names of its rows and columns, sub-words merged into words.

        A mean over the tokens that look and a sum over those looked at: rows still add to 1.
        """
        weights = np.asarray(a_map.weights, dtype=np.float64)
        tokens, words = self.tokens(), self.all_words()
        rows, columns = tokens[a_map.rows], tokens[a_map.columns]
        if a_map.rows in words:
            members = words[a_map.rows].members()
            weights, rows = (members / members.sum(0)).T @ weights, [*words[a_map.rows].names]
        if a_map.columns in words:
            weights, columns = weights @ words[a_map.columns].members(), [*words[a_map.columns].names]
        return weights, rows, columns


def maps(seen: "Mapping[str, Seen]", sides: Callable[[str], tuple[Side, Side]], view: View | None = None) -> list[Map]:
    """Return one map for each kind of recorded layer, cross-attention first; `sides` gives its rows and columns.

    Layers of one kind may differ in their number of heads (Swin): a head is then there several times. On the `view` of
    a picture, layers with fewer places (Swin) are spread over all of them.
    """
    kinds = sorted({_kind(key): None for key in seen}, key=lambda kind: sides(kind) != ("target", "source"))
    result = []
    for name in kinds:
        own = [layer for key, layer in seen.items() if _kind(key) == name]
        layers = [shown_weights(layer) for layer in own]
        rows, columns = sides(name)
        if any(layer.projected for layer in own):
            columns = "projected"
        if view is not None:
            layers = [_spread(layer, view, (rows, columns)) for layer in layers]
        most = max(len(layer) for layer in layers)
        weights = np.stack([np.repeat(layer, most // len(layer), 0) for layer in layers])
        heads = [len(layer) for layer in layers]
        differ = heads if len({*heads}) > 1 else ()
        result.append(Map(name.removeprefix("head."), rows, columns, weights, differ))
    return result


def influence(weights: NDArray[np.float32]) -> Map:
    """Return the map of how much each of m answers depends on each of n vectors, (m, n), where no attention says it."""
    return Map("influence (by the gradient)", "target", "source", weights[None, None])


def _spread(weights: NDArray[Any], view: View, sides: tuple[Side, Side]) -> NDArray[Any]:
    weights = view.filled(view.spread(weights)) if sides[1] == "source" else weights
    return view.spread(weights, -2) if sides[0] == "source" else weights


def shown_weights(layer: "Seen") -> NDArray[np.float32]:
    """Return the weights (heads, m, n) of the first row of a batch, without the network's own global tokens."""
    weights: NDArray[np.float32] = layer.weights[0].cpu().numpy()
    return weights[:, layer.before :, 0 if layer.projected else layer.before :]


def projected_names(count: int) -> list[str]:
    """Return names of columns that are no positions: each mixes all of them."""
    return [f"mix{number}" for number in range(1, count + 1)]


def _kind(key: str) -> str:
    """Return the kind of a layer: encoder.layers.1.attention → encoder.attention."""
    return ".".join(part for part in key.split(".") if not part.isdigit() and part != "layers")
