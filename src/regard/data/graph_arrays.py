"""Graphs as arrays: NPZ files, folders of NPY files, and TU files (Morris et al. 2020). Nothing is unpickled."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.folders import SPLITS, Handle, tree_of
from regard.data.graph import Graph, Sparse, make_graph
from regard.errors import UserError

TU_FILE = re.compile(
    r"(.+)_(A|graph_indicator|graph_labels|node_labels|node_attributes|edge_labels|edge_attributes)\.txt"
)
KINDS = 10_000  # of edges at most: each is a column of their features
NO_PICKLE = "which only pickle can write; pickles may run any program and are refused: save plain numbers"


# ---- NPZ and NPY ----------------------------------------------------------------------------------------------------


class _Arrays(Mapping[str, Any]):
    """The arrays of an NPZ file, or of a folder of NPY files, which are mapped into memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            if path.is_dir():
                files = {file.stem: file for file in sorted(path.glob("*.npy"))}
                self._arrays: Any = {name: np.load(f, mmap_mode="r", allow_pickle=False) for name, f in files.items()}
            else:
                with np.load(path, allow_pickle=False) as found:
                    self._arrays = {name: found[name] for name in found.files}
        except (
            ValueError,
            EOFError,
            OSError,
            KeyError,
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
        ) as error:
            if "allow_pickle" in str(error) or "pickle" in str(error).lower():
                raise UserError(f"{path} holds Python objects, {NO_PICKLE}.") from error
            raise UserError(f"{path} is damaged ({error}); fetch or write it again.") from error

    def __getitem__(self, name: str) -> Any:
        return self._arrays[name]

    def __iter__(self) -> Any:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)


def _first(arrays: Mapping[str, Any], *names: str) -> Any:
    """Return the first array of these names that is there."""
    return next((arrays[name] for name in names if name in arrays), None)


def from_arrays(path: Path) -> list[Graph]:
    arrays = _Arrays(path)
    pairs = _npz_edges(path, arrays)
    many = _first(arrays, "node_graph", "batch")
    labels = _first(arrays, "labels", "y") if many is not None else _first(arrays, "labels", "y", "node_labels")
    numbers = _npz_features(path, arrays)
    count = _npz_count(path, arrays, numbers, labels if many is None else many, pairs)
    carried = _first(arrays, "edge_features", "edge_attr")
    edge_labels = _first(arrays, "edge_labels")
    if carried is None and edge_labels is not None:
        carried = _one_hot(path, _whole(path, "edge_labels", edge_labels))
    for name, array in (("labels", labels), ("graph_labels", _first(arrays, "graph_labels"))):
        if array is not None and array.ndim != 1:
            raise UserError(f"{path}: {name} have the shape {array.shape}, expected one label for each.")
    how: dict[str, Any] = {
        "directed": bool(_one(path, arrays, "directed")) if "directed" in arrays else False,
        "numbers": numbers,
        "strength": _first(arrays, "edge_weight", "edge_weights", "weights"),
        "carried": carried,
        "names": None if "names" not in arrays else [str(name) for name in arrays["names"]],
    }
    if many is None:
        known = None if labels is None else [label_of(label) for label in labels.tolist()]
        return [make_graph(str(path), count, pairs, labels=known, splits=_npz_splits(arrays), **how)]
    kinds = _first(arrays, "node_labels")
    words = None if kinds is None else [(f"label={kind}",) for kind in kinds.tolist()]
    whole = make_graph(
        str(path),
        count,
        pairs,
        words=words,
        labels=None if labels is None else [label_of(x) for x in labels.tolist()],
        **how,
    )
    return _apart(path, whole, _whole(path, "node_graph", many), arrays)


def _one(path: Path, arrays: _Arrays, name: str) -> Any:
    if arrays[name].size != 1:
        raise UserError(f"{path}: {name} has the shape {arrays[name].shape}, expected one value.")
    return arrays[name].item()


def _all_of(path: Path, arrays: _Arrays, first: str, *others: str) -> None:
    """Refuse an array whose partners are missing."""
    missing = next((name for name in others if name not in arrays), None)
    if missing:
        raise UserError(f"{path}: {missing} is missing beside {first}, expected all of {', '.join((first, *others))}.")


def _size(path: Path, arrays: _Arrays, name: str) -> tuple[int, int]:
    """Return nodes and columns of features that stand apart from their size."""
    array = arrays[name]
    if array.shape != (2,) or array.dtype.kind not in "iu":
        raise UserError(f"{path}: {name} is {array.dtype} {array.shape}, expected two numbers: nodes and columns.")
    return int(array[0]), int(array[1])


def _one_hot(path: Path, labels: Any) -> Any:
    last = int(labels.max(initial=0))
    if last >= KINDS:
        raise UserError(f"{path}: edge_labels reach {last}, expected 0 to {KINDS - 1}: number them without gaps.")
    return np.eye(last + 1, dtype=np.float32)[labels]


def _npz_edges(path: Path, arrays: _Arrays) -> Any:
    if "adj_indptr" in arrays:
        _all_of(path, arrays, "adj_indptr", "adj_indices")
        ends, columns = arrays["adj_indptr"], arrays["adj_indices"]
        if len(ends) < 2 or ends[-1] != len(columns):
            raise UserError(
                f"{path}: adj_indptr ends at {ends[-1]}, expected {len(columns)}, the length of adj_indices."
            )
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        return np.stack((rows, columns.astype(np.int64)), 1)
    pairs = _first(arrays, "edges", "edge_index")
    if pairs.dtype.kind not in "iu" and pairs.size:
        raise UserError(f"{path}: edges are {pairs.dtype}, expected whole numbers, a pair for each edge.")
    if pairs.ndim != 2 or 2 not in pairs.shape:
        raise UserError(f"{path}: edges have the shape {pairs.shape}, expected (edges, 2).")
    return pairs.T if "edges" not in arrays and pairs.shape[0] == 2 else pairs


def _npz_features(path: Path, arrays: _Arrays) -> Any:
    if "feat_row" in arrays:
        _all_of(path, arrays, "feat_row", "feat_col", "feat_val", "feat_shape")
        count, width = _size(path, arrays, "feat_shape")
        return _sparse(path, arrays["feat_row"], arrays["feat_col"], arrays["feat_val"], count, width)
    if "attr_indptr" in arrays:
        _all_of(path, arrays, "attr_indptr", "attr_indices", "attr_data", "attr_shape")
        count, width = _size(path, arrays, "attr_shape")
        ends = _whole(path, "attr_indptr", arrays["attr_indptr"])
        if len(ends) != count + 1 or (np.diff(ends) < 0).any():
            raise UserError(f"{path}: attr_indptr has {len(ends)} entries, expected {count + 1} that never fall.")
        rows = np.repeat(np.arange(count), np.diff(ends))
        return _sparse(path, rows, arrays["attr_indices"], arrays["attr_data"], count, width)
    return _first(arrays, "features", "x", "feat", "node_features", "node_attributes", "attr_matrix")


def _sparse(path: Path, rows: Any, columns: Any, amounts: Any, count: int, width: int) -> Sparse:
    rows, columns = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
    if len(rows) != len(columns) or len(rows) != len(amounts):
        raise UserError(
            f"{path}: features have {len(rows)} row numbers, {len(columns)} column numbers and {len(amounts)} values, "
            "expected as many of each."
        )
    if len(rows) and (rows.min() < 0 or rows.max() >= count or columns.min() < 0 or columns.max() >= width):
        raise UserError(f"{path}: a feature lies outside of {count:,} nodes and {width:,} columns (feat_shape).")
    order = np.lexsort((columns, rows))
    counts = np.bincount(rows, minlength=count)
    return Sparse(counts, columns[order], np.asarray(amounts, np.float32)[order], width)


def _npz_count(path: Path, arrays: _Arrays, numbers: Any, labels: Any, pairs: Any) -> int:
    if "num_nodes" in arrays:
        return int(_one(path, arrays, "num_nodes"))
    if isinstance(numbers, Sparse):
        return len(numbers.counts)
    sized = numbers if numbers is not None else labels
    if sized is not None:
        return len(sized)
    if not pairs.size:
        raise UserError(f"{path}: it has neither features nor labels nor edges, expected a graph.")
    return int(pairs.max()) + 1


def _npz_splits(arrays: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, array in arrays.items():
        stem = re.fullmatch(r"(\w+?)_(?:idx|index|mask|nodes)", name)
        if stem and stem[1].lower() in SPLITS:
            found[SPLITS[stem[1].lower()]] = array
    return found


def _whole(path: Path, name: str, array: Any) -> Any:
    if array.dtype.kind not in "iu" or array.ndim != 1 or (array.size and array.min() < 0):
        raise UserError(f"{path}: {name} are {array.dtype} {array.shape}, expected a row of numbers from 0.")
    return array.astype(np.int64)


def label_of(value: Any) -> str | None:
    """Return a label as text; −1, null and nothing mean that there is none."""
    if value is None or value == -1 or value == "" or value != value:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _apart(path: Path, whole: Graph, member: Any, arrays: Mapping[str, Any]) -> list[Graph]:
    """Cut one list of nodes into the graphs that they belong to."""
    labels, folds = (_first(arrays, *names) for names in (("graph_labels", "graph_targets"), ("fold", "folds")))
    parts = _npz_splits(arrays)
    count = int(member.max()) + 1 if labels is None else len(labels)
    if len(member) != whole.count:
        raise UserError(f"{path}: node_graph has {len(member):,} entries for {whole.count:,} nodes, expected one each.")
    if member.max() >= count:
        raise UserError(f"{path}: a node belongs to graph {member.max()}, expected 0 to {count - 1} (graph_labels).")
    across = whole.edges[member[whole.edges[:, 0]] != member[whole.edges[:, 1]]]
    if len(across):
        raise UserError(f"{path}: an edge joins nodes {across[0, 0]} and {across[0, 1]} of different graphs.")
    if folds is not None and len(folds) != count:
        raise UserError(f"{path}: fold has {len(folds):,} entries for {count:,} graphs, expected one each.")
    order = np.argsort(member, kind="stable")
    ends = np.searchsorted(member[order], np.arange(count + 1))
    edge_order = np.argsort(member[whole.edges[:, 0]], kind="stable")
    edge_ends = np.searchsorted(member[whole.edges[edge_order, 0]], np.arange(count + 1))
    of_part = {int(i): part for part, chosen in parts.items() for i in np.asarray(chosen)} if parts else {}
    graphs = []
    for i in range(count):
        if ends[i] == ends[i + 1]:
            raise UserError(f"{path}: graph {i} has no nodes, expected at least one.")
        one = whole.within(order[ends[i] : ends[i + 1]], edge_order[edge_ends[i] : edge_ends[i + 1]])
        part = f"fold{int(folds[i])}" if folds is not None else of_part.get(i, "")
        label = None if labels is None else label_of(labels[i].item() if hasattr(labels[i], "item") else labels[i])
        names = None if whole.names is None else one.names
        graphs.append(replace(one, label=label, part=part, names=names))
    return graphs


# ---- TU files -------------------------------------------------------------------------------------------------------


def from_tu(path: Path) -> list[Graph]:
    """Read DS_A.txt, DS_graph_indicator.txt, DS_graph_labels.txt and what is beside them; numbers begin at 1."""
    tree = tree_of(path)
    assert tree is not None
    files: dict[str, Handle] = {}
    for handle in tree.files:
        found = TU_FILE.fullmatch(handle.name)
        if found:
            files[found[2]] = handle
    for needed in ("A", "graph_indicator"):
        if needed not in files:
            raise UserError(f"{path}: there is no file …_{needed}.txt, expected one beside …_A.txt.")
    member = _tu_numbers(files["graph_indicator"], 1)[:, 0] - 1
    pairs = _tu_numbers(files["A"], 2) - 1
    arrays: dict[str, Any] = {"node_graph": member, "edges": pairs, "num_nodes": np.array(len(member))}
    for name, key in (("graph_labels", "graph_labels"), ("node_labels", "node_labels"), ("edge_labels", "edge_labels")):
        if name in files:
            arrays[key] = _tu_numbers(files[name], 1)[:, 0]
    if "edge_labels" in arrays:
        arrays["edge_labels"] = np.unique(arrays["edge_labels"], return_inverse=True)[1]
    for name, key in (("node_attributes", "features"), ("edge_attributes", "edge_features")):
        if name in files:
            arrays[key] = _tu_numbers(files[name], None, np.float32)
    return _tu_graphs(path, arrays)


def _tu_graphs(path: Path, arrays: dict[str, Any]) -> list[Graph]:
    labels = arrays.get("node_labels")
    carried = arrays.get("edge_features")
    if carried is None and "edge_labels" in arrays:
        carried = _one_hot(path, arrays["edge_labels"])
    if labels is not None and len(labels) != len(arrays["node_graph"]):
        raise UserError(
            f"{path}: {len(labels):,} node labels for {len(arrays['node_graph']):,} nodes, expected one each."
        )
    words = None if labels is None else [(f"label={x}",) for x in labels.tolist()]
    numbers = arrays.get("features")
    count = len(arrays["node_graph"])
    whole = make_graph(str(path), count, arrays["edges"], numbers=numbers, words=words, carried=carried, directed=True)
    graph_labels = arrays.get("graph_labels")
    found = _apart(path, whole, arrays["node_graph"], arrays)
    if graph_labels is not None:  # −1 is a class here
        found = [replace(graph, label=str(label)) for graph, label in zip(found, graph_labels.tolist(), strict=True)]
    return found


def _tu_numbers(handle: Handle, columns: int | None, dtype: Any = np.int64) -> Any:
    text = handle.read().decode("utf-8", "replace").replace(",", " ")
    try:
        found = np.loadtxt(io.StringIO(text), dtype=dtype, ndmin=2)
    except ValueError as error:
        raise UserError(f"{handle}: expected numbers with commas between them: {error}.") from error
    if not found.size or (columns is not None and found.shape[1] != columns):
        width = found.shape[1] if found.size else 0
        raise UserError(f"{handle}: {width} columns of numbers, expected {columns or 'some'}.")
    return found
