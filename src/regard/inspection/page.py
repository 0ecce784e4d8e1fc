"""One HTML file that shows attention weights: it opens offline and makes no network requests.

The file is `page.html` with the data put in. Tokens reach the page only as JSON in a data block and are shown only
as text; the content security policy admits the template's own script and style by their hashes and nothing else.
"""

import base64
import hashlib
import html
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.errors import UserError
from regard.inspection.sound import SoundView
from regard.inspection.view import Drawing, View
from regard.pictures.sketch import Sketch
from regard.text.display import visible

if TYPE_CHECKING:
    from regard.inspection.recording import Seen

# prefix: START and the target but its end, as a decoder reads it; projected: mixtures of all positions (Linformer)
Side = Literal["source", "target", "prefix", "projected"]
BEGINNING = "▷"  # START, with a sign that every font has; ▶ is an emoji on some telephones


@dataclass(frozen=True)
class Map:
    """One kind of attention: `weights` (layers, heads, m, n) of m `rows` tokens looking at n `columns` tokens."""

    name: str
    rows: Side
    columns: Side
    weights: ArrayLike


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
    view: View | None = None  # of a source that is a picture
    sound: SoundView | None = None  # of a source that is a recording
    sketch: Sketch | None = None  # where the source is a graph

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

    Layers of one kind may differ in their number of heads: a head is then shown several times. On the `view` of a
    picture, layers with fewer places (Swin) are spread over all of them.
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
        result.append(Map(name.removeprefix("head."), rows, columns, weights))
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


def write(path: str | Path, exhibits: Sequence[Exhibit], title: str = "Attention") -> Path:
    """Write the page for `exhibits` to `path` (.html) and return the path."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path}: a page is written as .html, not as {path.suffix or 'a file without suffix'}.")
    if not exhibits:
        raise UserError(f"{path}: there is no example to show, give at least one.")
    packed = [_packed(exhibit, f"Example {number}") for number, exhibit in enumerate(exhibits, 1)]
    try:
        path.write_text(_filled(packed, title), encoding="utf-8", newline="\n")
    except OSError as fault:
        raise UserError(
            f"{path} cannot be written ({fault.strerror}): give a file in an existing folder you may write to."
        ) from fault
    return path


def _filled(packed: list[dict[str, Any]], title: str) -> str:
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    parts = {
        "title": html.escape(one_line(title)),
        "data": as_json({"examples": packed}),
        "style-hash": hash_of(template, "style"),
        "script-hash": hash_of(template, "script"),
    }
    # one pass, so that a token that looks like a place-holder stays a token
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda match: parts[match[1]], template)


def one_line(title: str) -> str:
    """Return a title on one line: blanks stay blanks, and what cannot be written in UTF-8 is replaced."""
    return " ".join(visible(word) for word in title.split())


def hash_of(template: str, tag: str) -> str:
    """Return the hash of an inline element, of the text between its tags, for the content security policy."""
    match = re.search(rf"<{tag}>(.*?)</{tag}>", template, re.DOTALL)
    assert match is not None
    return "sha256-" + base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()


def as_json(data: object) -> str:
    """Return JSON that cannot end its script element or open a comment: < > & and non-ASCII are escaped."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda match: f"\\u{ord(match[0]):04x}", text)


def _packed(exhibit: Exhibit, where: str) -> dict[str, Any]:
    if not exhibit.maps:
        raise UserError(f"{where} has no attention map to show.")
    return {
        **{side: [visible(token) for token in tokens] for side, tokens in exhibit.tokens().items()},
        "text": None if exhibit.text is None else one_line(exhibit.text),
        "words": {
            side: {"names": [visible(name) for name in words.names], "of": [*words.of]}
            for side, words in exhibit.all_words().items()
        },
        "picture": None if exhibit.view is None else _packed_picture(exhibit.view, exhibit.drawing),
        "scene": None if exhibit.sketch is None else _packed_scene(exhibit.sketch),
        "maps": [packed_map(exhibit, a_map, f"{where}, map {a_map.name!r}") for a_map in exhibit.maps],
    }


def _packed_picture(view: View, drawing: Drawing | None) -> dict[str, Any]:
    """Return a picture as PNG, the grid of its places, and the boxes of the targets in it."""
    from PIL import Image

    assert view.picture is not None
    assert view.grid is not None
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(view.picture)).save(file, "PNG")
    rows, columns = view.grid
    png = base64.b64encode(file.getvalue()).decode()
    tall, wide = view.picture.shape[:2]
    boxes = [[round(edge, 4) for edge in box] for box in (drawing.boxes if drawing is not None else ())]
    return {"png": png, "rows": rows, "columns": columns, "ratio": wide / tall, "boxes": boxes}


def _packed_scene(drawn: Sketch) -> dict[str, Any]:
    """Return the places of nodes, edges, and what is known of each node."""
    return {
        "places": np.round(drawn.places, 4).tolist(),
        "edges": drawn.edges.tolist(),
        "groups": [None if group is None else visible(group) for group in drawn.groups],
        "centres": [*drawn.centres],
        "title": one_line(drawn.title),
    }


def packed_map(exhibit: Exhibit, a_map: Map, where: str) -> dict[str, Any]:
    """Return weights as 16-bit steps from the least (or 0) to the greatest: half a step of softmax is below 0.00001."""
    weights = _checked(exhibit, a_map, where)
    low, high = min(float(weights.min()), 0.0), float(weights.max())
    span = high - low or 1.0
    steps = np.rint((weights - low) / span * 65535).astype("<u2")
    return {
        "name": a_map.name,
        "rows": a_map.rows,
        "columns": a_map.columns,
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "low": low,
        "span": span,
        "data": base64.b64encode(steps.tobytes()).decode(),
    }


def _checked(exhibit: Exhibit, a_map: Map, where: str) -> NDArray[np.float64]:
    tokens = exhibit.tokens()
    for side in (a_map.rows, a_map.columns):
        if side not in tokens:
            raise UserError(f"{where}: rows and columns are 'source', 'target' or 'prefix', found {side!r}.")
    weights = np.asarray(a_map.weights, dtype=np.float64)
    expected = (len(tokens[a_map.rows]), len(tokens[a_map.columns]))
    if weights.ndim != 4 or weights.shape[2:] != expected or 0 in weights.shape:
        raise UserError(
            f"{where}: expected weights (layers, heads, {expected[0]}, {expected[1]}) for {expected[0]} {a_map.rows} "
            f"and {expected[1]} {a_map.columns} tokens, at least one of each, found shape {weights.shape}."
        )
    if not np.isfinite(weights).all():
        bad = int((~np.isfinite(weights)).sum())
        raise UserError(f"{where}: the weights hold {bad} NaN or infinite values, only finite ones can be shown.")
    return weights
