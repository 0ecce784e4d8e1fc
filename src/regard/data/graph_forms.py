"""The forms of graphs on disk, each read into a list of graphs: arrays (graph_arrays.py), JSON, GraphML and tables.

GraphML's entities are not expanded.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

import numpy as np

from regard.data.folders import SPLITS, Tree, tree_of
from regard.data.graph import Graph, make_graph
from regard.data.graph_arrays import from_arrays, from_tu, label_of
from regard.data.lines import from_json, open_bytes
from regard.errors import UserError

START = 1 << 16  # bytes by which a form is recognised
TABLES = 20  # of a folder, among which the other table of a graph is looked for
EDGE_NAMES = (
    ("source", "target"),
    ("src", "dst"),
    ("src_id", "dst_id"),
    ("from", "to"),
    ("u", "v"),
    ("sender", "receiver"),
)
NODE_NAMES = ("id", "node", "node_id", "name")
LABEL_NAMES = ("label", "class", "y", "category")
WEIGHT_NAMES = ("weight", "strength", "value")


def graph_form(paths: Sequence[Path | str]) -> str:
    """Return the name of the form of a file (or of two tables) that holds graphs; nothing for other files."""
    if len(paths) == 2:
        return "tables" if any(_names_column(*map(Path, pair)) for pair in (paths, paths[::-1])) else ""
    path = Path(paths[0])
    tree = tree_of(path)
    if tree is not None:
        return _tree_form(tree)
    if not path.is_file():
        return ""
    with open_bytes(path) as stream:
        start = stream.read(START)
    text = start.decode("utf-8", "replace").lstrip("\ufeff \r\n\t")
    if (
        text[:1] in "{["
        and re.search(r'"nodes"\s*:', text)
        and (len(start) == START or re.search('"(edges|links)"', text))
    ):
        return "JSON"
    if text[:1] in "{[" and re.search(r'"(edges|links)"\s*:', text):
        return "JSON"
    if text[:1] == "<" and "<graphml" in text:
        return "GraphML"
    if re.match(r"edges?\b.*\.csv", path.name.lower()) and beside(path) is not None:
        return "edge list"
    return ""


def graphs_of(paths: Sequence[Path | str]) -> list[Graph]:
    """Return all graphs of a file, or of two tables."""
    if len(paths) == 2:
        return [_from_tables(*paths)]
    path = Path(paths[0])
    form = graph_form(paths)
    readers: dict[str, Callable[[Path], list[Graph]]] = {
        "NPZ": from_arrays,
        "NPY": from_arrays,
        "JSON": _from_json,
        "GraphML": _from_graphml,
        "TU files": from_tu,
        "folder of tables": lambda folder: [_from_tables(*_tables_in(folder))],
        "edge list": lambda edges: [_from_tables(edges, beside(edges) or edges)],
    }
    if not form and (other := _companion(path)):
        return [_from_tables(path, other)]
    if not form:
        raise UserError(
            f"{path} holds no graph: expected NPZ with `edges`, JSON with `nodes` and `edges`, GraphML, TU files, or "
            "an edge list with a table of nodes."
        )
    return readers[form](path)


def _tree_form(tree: Tree) -> str:
    names = [handle.name for handle in tree.files]
    arrays = {name.removesuffix(".npy") for name in names if name.endswith(".npy")}
    if arrays & {"edges", "edge_index", "adj_indptr"}:
        return "NPZ" if tree.archive else "NPY"
    if any(name.endswith("_A.txt") for name in names):
        return "TU files"
    if not tree.archive and _tables_in(Path(tree.path)):
        return "folder of tables"
    return ""


# ---- JSON -----------------------------------------------------------------------------------------------------------


def _from_json(path: Path) -> list[Graph]:
    text = _text(path)
    try:
        found = from_json(text)
    except (ValueError, RecursionError) as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            found = [from_json(line) for line in lines] if len(lines) > 1 else _refuse_json(path, error)
        except (ValueError, RecursionError):
            _refuse_json(path, error)
    if isinstance(found, dict) and isinstance(found.get("graphs"), list):
        found = found["graphs"]
    several = isinstance(found, list)
    graphs = found if several else [found]
    if not graphs:
        raise UserError(f"{path}: there is no graph in it, expected at least one.")
    return [json_graph(f"{path}: graph {i}" if several else str(path), graph) for i, graph in enumerate(graphs)]


def _refuse_json(path: Path, error: Exception) -> NoReturn:
    raise UserError(f"{path} is not valid JSON: {error}.") from error


def json_graph(where: str, found: Any) -> Graph:
    """Return the graph of a JSON object with `nodes` and `edges` or `links`."""
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list):
        raise UserError(f"{where}: expected an object with `nodes` and `edges` (or `links`).")
    lists = [name for name in ("edges", "links") if name in found]
    if not lists:
        raise UserError(f"{where}: there are no `edges` and no `links`, expected a list of either.")
    if len(lists) == 2 and found["edges"] and found["links"]:
        raise UserError(f"{where}: there are `edges` and `links`, expected one of them.")
    edges = found["edges"] if found.get("edges") else found[lists[-1]]
    if not isinstance(edges, list):
        raise UserError(
            f"{where}: `{lists[0]}` is not a list, expected one of pairs or of objects with source and target."
        )
    table = [node if isinstance(node, dict) else {"id": node} for node in found["nodes"]]
    about = found["graph"] if isinstance(found.get("graph"), dict) else {}
    about = about | {name: found[name] for name in ("label", "target", "split", "y") if name in found}
    label = next((about[name] for name in ("label", "target", "y") if name in about), None)
    rows = [_json_edge(where, i, edge) for i, edge in enumerate(edges)]
    directed = bool(found.get("directed", False))
    part = SPLITS.get(str(about.get("split", "")).lower(), "")
    return _from_rows(where, table, rows, directed=directed, label=label_of(label), part=part)


def _json_edge(where: str, number: int, edge: Any) -> dict[str, Any]:
    if isinstance(edge, list) and len(edge) in (2, 3):
        return dict(zip(("source", "target", "weight"), edge, strict=False))
    if isinstance(edge, dict):
        columns = _edge_columns([*edge])
        if columns is not None:
            others = {name: value for name, value in edge.items() if name not in columns}
            return {"source": edge[columns[0]], "target": edge[columns[1]], **others}
    raise UserError(f"{where}: edge {number} is {edge!r:.60}, expected [a, b] or an object with source and target.")


# ---- rows of nodes and edges, as JSON, tables and GraphML have them --------------------------------------------------


def _from_rows(
    where: str,
    nodes: Sequence[Mapping[str, Any]],
    edges: Sequence[Mapping[str, Any]],
    *,
    directed: bool,
    named_by: Sequence[str] = NODE_NAMES,
    **others: Any,
) -> Graph:
    """Return the graph of nodes with attributes: numbers and names are features, `label` and `split` are not."""
    names: dict[str, int] = {}
    for number, node in enumerate(nodes):
        name = str(next((node[key] for key in named_by if key in node), number))
        if name in names:
            raise UserError(f"{where}: there are two nodes {name!r}, expected each once.")
        names[name] = number
    keys = [key for key in dict.fromkeys(key for node in nodes for key in node) if key not in named_by]
    label_key = next((key for name in LABEL_NAMES for key in keys if key.lower() == name), None)
    splits = _row_splits(nodes, keys)
    keys = [key for key in keys if key not in (label_key, "split") and key.lower() not in SPLITS]
    numbers, words = _features(where, nodes, keys)
    pairs = np.array([_ends(where, i, edge, names) for i, edge in enumerate(edges)], np.int64).reshape(-1, 2)
    weight = next((key for key in WEIGHT_NAMES if edges and key in edges[0]), None)
    more = [key for key in (edges[0] if edges else {}) if key not in ("source", "target", weight, "id", "key")]
    carried = _edge_features(edges, more)
    return make_graph(
        where,
        len(nodes),
        pairs,
        directed=directed,
        numbers=numbers,
        words=words,
        names=None if list(names) == [str(i) for i in range(len(names))] else list(names),
        labels=None if label_key is None else [label_of(node.get(label_key)) for node in nodes],
        strength=None
        if weight is None
        else [_number(where, f"edge {i}", edge.get(weight)) for i, edge in enumerate(edges)],
        carried=carried,
        splits=splits,
        **others,
    )


def _ends(where: str, number: int, edge: Mapping[str, Any], names: Mapping[str, int]) -> tuple[int, int]:
    found = []
    for side in ("source", "target"):
        name = str(edge[side])
        if name not in names:
            raise UserError(f"{where}: edge {number} leads to node {name!r}, which is not among the nodes.")
        found.append(names[name])
    return found[0], found[1]


def _features(where: str, nodes: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> tuple[Any, Any]:
    columns: list[list[float]] = []
    words: list[list[str]] = [[] for _ in nodes]
    for key in keys:
        values: list[Any] = [node.get(key) for node in nodes]
        if any(isinstance(value, list) for value in values):
            widths = {len(value) if isinstance(value, list) else 0 for value in values}
            if len(widths) > 1:
                raise UserError(
                    f"{where}: {key!r} has {min(widths)} to {max(widths)} numbers, "
                    "expected the same number at each node."
                )
            columns += [
                [_number(where, f"node {i}", value[k]) for i, value in enumerate(values)] for k in range(widths.pop())
            ]
        elif all(_is_number(value) for value in values):
            columns.append([float(value) for value in values])
        else:
            for row, value in zip(words, values, strict=True):
                row += [] if value in (None, "") else [f"{key}={value}"]
    return np.array(columns, np.float32).T if columns else None, words if any(words) else None


def _edge_features(edges: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Any:
    columns = []
    for key in keys:
        values: list[Any] = [edge.get(key) for edge in edges]
        if all(_is_number(value) for value in values):
            columns.append([float(value) for value in values])
        else:
            kinds = sorted({str(value) for value in values})
            if len(kinds) <= 100:
                columns += [[float(str(value) == kind) for value in values] for kind in kinds]
    return np.array(columns, np.float32).T if columns else None


def _row_splits(nodes: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, list[int]]:
    """Return the nodes of each part: from a column `split`, or from columns train, valid and test of truth values."""
    found: dict[str, list[int]] = {}
    named = [key for key in keys if key.lower() in SPLITS]
    for number, node in enumerate(nodes):
        part = SPLITS.get(str(node.get("split", "")).lower())
        parts = (
            [part] if part else [SPLITS[k.lower()] for k in named if str(node.get(k)).lower() in ("1", "true", "1.0")]
        )
        for each in parts:
            found.setdefault(each, []).append(number)
    return found


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or value is None:
        return isinstance(value, bool)
    if isinstance(value, int | float):
        return isinstance(value, float) or abs(value) < 2**63
    return (
        isinstance(value, str)
        and re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|nan|inf", value) is not None
    )


def _number(where: str, who: str, value: Any) -> float:
    if not _is_number(value):
        raise UserError(f"{where}: {who} has {value!r:.40}, expected a number.")
    return float(value)


# ---- tables ---------------------------------------------------------------------------------------------------------


def _from_tables(one: Path | str, other: Path | str) -> Graph:
    """Return the graph of an edge list and a table of nodes, in either order."""
    paths = [Path(one), Path(other)]
    if _edge_columns(_header(paths[0]) or []) is None:
        paths = paths[::-1]
    edge_rows, columns = _table(paths[0]), _edge_columns(_header(paths[0]) or [])
    if columns is None:
        raise UserError(
            f"{paths[0]}: expected columns such as source and target, found {', '.join(_header(paths[0]) or [])}."
        )
    edges = [
        {"source": row[columns[0]], "target": row[columns[1]]} | {k: v for k, v in row.items() if k not in columns}
        for row in edge_rows
    ]
    directed = any(str(edge.pop("directed", "")).lower() in ("1", "true") for edge in edges)
    where, column = f"{paths[0]} and {paths[1].name}", _names_column(*paths)
    named_by = NODE_NAMES if column is None else (column, *NODE_NAMES)
    return _from_rows(where, _table(paths[1]), edges, directed=directed, named_by=named_by)


def _tables_in(folder: Path) -> list[Path]:
    files = [file for file in sorted(folder.iterdir()) if re.search(r"\.(csv|tsv)(\.gz)?$", file.name, re.IGNORECASE)]
    edges = [file for file in files if file.name.lower().startswith("edge")]
    nodes = [file for file in files if file.name.lower().startswith("node")]
    return [edges[0], nodes[0]] if edges and nodes else []


def beside(path: Path) -> Path | None:
    """Return the table of nodes beside an edge list: nodes.csv beside edges.csv."""
    name = re.sub("edge", "node", path.name, count=1, flags=re.IGNORECASE)
    other = path.with_name(name)
    return other if other != path and other.is_file() else None


def _companion(path: Path) -> Path | None:
    """Return the edge list that a table of nodes in the same folder belongs to, or its table of nodes."""
    tables = [file for file in sorted(path.parent.iterdir()) if file != path and _header(file)] if _header(path) else []
    return next(
        (other for other in tables[:TABLES] if any(_share(*pair) == 1 for pair in ((path, other), (other, path)))), None
    )


def _share(edges: Path, nodes: Path) -> float:
    """Return the share of an edge list's nodes that a table names; 0 for tables that are no such two."""
    column = _names_column(edges, nodes)
    if column is None:
        return 0.0
    try:
        return len(_ends_in(edges) & {row[column] for row in _table(nodes)}) / max(1, len(_ends_in(edges)))
    except UserError:  # other tables, in which lines may be broken in any way
        return 0.0


def _ends_in(edges: Path) -> set[str]:
    return {row[column] for row in _table(edges) for column in _edge_columns(_header(edges) or []) or ()}


def _table(path: Path) -> list[dict[str, str]]:
    text = _text(path)
    numbered = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] not in "#%"]
    if len(numbered) < 2:
        raise UserError(f"{path}: there are no rows below the header.")
    rows = csv.reader((line for _, line in numbered), delimiter=_delimiter(numbered[0][1]))
    header = [name.strip() for name in next(rows)]
    found = []
    for row in rows:
        if len(row) != len(header):
            number, _ = numbered[rows.line_num - 1]
            raise UserError(f"{path}:{number}: {len(row)} columns, expected {len(header)} as in the header.")
        found.append(dict(zip(header, (value.strip() for value in row), strict=True)))
    return found


def _header(path: Path | str) -> list[str] | None:
    path = Path(path)
    if not path.is_file() or not re.search(r"\.(csv|tsv|txt|edges)(\.gz)?$", path.name, re.IGNORECASE):
        return None
    with open_bytes(path) as stream:
        start = stream.read(START).decode("utf-8", "replace").lstrip("\ufeff")
    lines = [line for line in start.splitlines() if line.strip() and line[0] not in "#%"]
    return [name.strip() for name in next(csv.reader(lines[:1], delimiter=_delimiter(lines[0])))] if lines else None


def _delimiter(line: str) -> str:
    return max("\t,;", key=line.count) if any(sign in line for sign in "\t,;") else " "


def _edge_columns(header: Sequence[str]) -> tuple[str, str] | None:
    lower = {name.lower(): name for name in header}
    return next(((lower[a], lower[b]) for a, b in EDGE_NAMES if a in lower and b in lower), None)


def _names_column(edges: Path, nodes: Path) -> str | None:
    """Return the column of a table that names the nodes of an edge list: by its name, else by what is in it."""
    header, columns = _header(nodes) or [], _edge_columns(_header(edges) or [])
    if columns is None or _edge_columns(header) is not None:
        return None
    known = next((name for name in header if name.lower() in NODE_NAMES), None)
    if known is not None or len(header) < 2:
        return known
    try:
        ends, rows = _ends_in(edges), _table(nodes)
    except UserError:  # other tables, in which lines may be broken in any way
        return None
    found = {name: len(ends & {row[name] for row in rows}) for name in header}
    best = max(header, key=lambda name: found[name])
    return best if 2 * found[best] > len(ends) else None  # a node that is missing is named later


# ---- GraphML --------------------------------------------------------------------------------------------------------


def _from_graphml(path: Path) -> list[Graph]:
    reader = _GraphML(str(path))
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.EntityDeclHandler = reader.text, reader.entity
    parser.StartDoctypeDeclHandler = reader.entity
    try:
        parser.Parse(_bytes(path), True)
    except expat.ExpatError as error:
        raise UserError(f"{path}:{error.lineno} is not valid GraphML: {expat.errors.messages[error.code]}.") from error
    if not reader.graphs:
        raise UserError(f"{path}: there is no <graph> in it.")
    several = len(reader.graphs) > 1
    return [
        _from_rows(
            f"{path}: graph {i}" if several else str(path),
            nodes,
            edges,
            directed=directed,
            label=label_of(next((about[key] for key in LABEL_NAMES if key in about), None)),
            part=SPLITS.get(str(about.get("split", "")).lower(), ""),
        )
        for i, (nodes, edges, directed, about) in enumerate(reader.graphs)
    ]


class _GraphML:
    """Nodes, edges and their data from the events of an XML parser."""

    def __init__(self, path: str) -> None:
        self.path, self.keys, self.graphs = path, {}, []  # type: ignore[var-annotated]
        self._current: dict[str, Any] | None = None
        self._key, self._text = "", ""
        self._stack: list[dict[str, Any]] = []

    def entity(self, *_: Any) -> None:
        raise UserError(
            f"{self.path}: it declares a document type or entities, which are refused: remove <!DOCTYPE …>."
        )

    def start(self, tag: str, found: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        if name == "key":
            self.keys[found.get("id", "")] = found.get("attr.name", found.get("id", ""))
        elif name == "graph":
            about: dict[str, Any] = {}
            self.graphs.append(([], [], found.get("edgedefault") == "directed", about))
            self._stack.append(about)
        elif name in ("node", "edge") and not self.graphs:
            raise UserError(f"{self.path}: a <{name}> stands outside of a <graph>.")
        elif name == "node":
            self.graphs[-1][0].append({"id": found.get("id", "")})
            self._stack.append(self.graphs[-1][0][-1])
        elif name == "edge":
            if "source" not in found or "target" not in found:
                raise UserError(f"{self.path}: an <edge> has no source or no target.")
            self.graphs[-1][1].append({"source": found["source"], "target": found["target"]})
            self._stack.append(self.graphs[-1][1][-1])
        elif name == "data":
            self._key, self._text = found.get("key", ""), ""

    def text(self, some: str) -> None:
        self._text += some

    def end(self, tag: str) -> None:
        name = tag.rpartition(" ")[2]
        if name == "data" and self._stack:
            self._stack[-1][self.keys.get(self._key, self._key)] = self._text.strip()
        elif name in ("node", "edge", "graph"):
            self._stack.pop()


def _bytes(path: Path) -> bytes:
    with open_bytes(path) as stream:
        return stream.read()


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start + 1} is not valid UTF-8; save the file as UTF-8.") from error
