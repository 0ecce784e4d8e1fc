"""Graphs from every form: the same graph is the same whatever it is written in; parts, nodes, and faults in a sentence."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import inputs
from regard.data.check_graphs import describe
from regard.data.graph import Graph, Sparse
from regard.data.graphs import (
    chosen_nodes,
    graph_texts,
    graphs_in,
    named_graph,
    read_graphs,
    recognise_graphs,
    with_nodes,
)
from regard.data.lines import refuse
from regard.errors import UserError
from regard.inputs import recognise
from regard.training.choose import parts_of

EDGES = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]
LABELS = ["a", "b", "a", None]
SIZES = [1.0, 2.5, -1.0, 0.5]
GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrafts.org/xmlns">
<key id="d0" for="node" attr.name="label" attr.type="string"/><key id="d1" for="node" attr.name="size" attr.type="double"/>
<key id="d2" for="edge" attr.name="weight" attr.type="double"/>
<graph edgedefault="undirected">{nodes}{edges}</graph></graphml>"""


def as_npz(folder: Path, **more: Any) -> Path:
    path = folder / "graph.npz"
    labels = np.array([-1 if label is None else "ab".index(label) for label in LABELS])
    np.savez(path, **{"edges": np.array(EDGES), "features": np.array(SIZES)[:, None], "labels": labels} | more)
    return path


def as_npy(folder: Path) -> Path:
    found = folder / "arrays"
    found.mkdir()
    with np.load(as_npz(folder)) as arrays:
        for name, array in arrays.items():
            np.save(found / f"{name}.npy", array)
    return found


def nodes() -> list[dict[str, Any]]:
    named = [{"id": f"n{i}", "size": size} for i, size in enumerate(SIZES)]
    return [node | ({} if label is None else {"label": label}) for node, label in zip(named, LABELS, strict=True)]


def as_json(folder: Path, key: str = "edges", **more: Any) -> Path:
    path = folder / f"{key}.json"
    links = [{"source": f"n{a}", "target": f"n{b}"} for a, b in EDGES]
    path.write_text(json.dumps({"nodes": nodes(), key: links} | more), encoding="utf-8")
    return path


def as_graphml(folder: Path, before: str = "") -> Path:
    path = folder / "graph.graphml"
    written = "".join(
        f'<node id="n{i}"><data key="d1">{size}</data>'
        + (f'<data key="d0">{label}</data>' if label else "")
        + "</node>"
        for i, (size, label) in enumerate(zip(SIZES, LABELS, strict=True))
    )
    edges = "".join(f'<edge source="n{a}" target="n{b}"/>' for a, b in EDGES)
    text = GRAPHML.format(nodes=written, edges=edges)
    path.write_text(text.replace("<graphml", before + "<graphml", 1), encoding="utf-8")
    return path


def as_tables(folder: Path) -> list[Path]:
    edges, table = folder / "edges.csv", folder / "nodes.csv"
    edges.write_text("# friends\nsource,target\n" + "".join(f"n{a},n{b}\n" for a, b in EDGES), encoding="utf-8")
    rows = (f"n{i},{size},{label or ''}\n" for i, (size, label) in enumerate(zip(SIZES, LABELS, strict=True)))
    table.write_text("id,size,label\n" + "".join(rows), encoding="utf-8")
    return [edges, table]


def with_other_names(folder: Path) -> list[Path]:
    """Tables of one's own: what is in the columns says which table is which, and which of them names the nodes."""
    edges, table = (
        path.rename(folder / name) for path, name in zip(as_tables(folder), ("roads.csv", "towns.csv"), strict=True)
    )
    table.write_text(table.read_text().replace("id,size,label", "town,size,Label"))
    (folder / "another.csv").write_text("town,mayor\nn0,Ada\nx,Ben\n")
    return [edges, table]


def as_tu(folder: Path) -> Path:
    found = folder / "TOY"
    found.mkdir()
    both = [(a + 1 + shift, b + 1 + shift) for shift in (0, 4) for a, b in [*EDGES, *((b, a) for a, b in EDGES)]]
    files = {
        "A": [f"{a}, {b}" for a, b in both],
        "graph_indicator": [*"11112222"],
        "graph_labels": ["-1", "1"],
        "node_labels": [*"01010101"],
        "edge_labels": ["0", "1"] * (len(both) // 2),
    }
    for name, lines in files.items():
        (found / f"TOY_{name}.txt").write_text("\n".join(lines) + "\n")
    return found


FORMS: dict[str, Callable[[Path], Any]] = {
    "npz": as_npz,
    "npy": as_npy,
    "edges": as_json,
    "links": lambda folder: as_json(folder, "links"),
    "graphml": as_graphml,
    "tables": as_tables,
    "folder": lambda folder: as_tables(folder)[0].parent,
    "beside": lambda folder: as_tables(folder)[0],
    "other names": lambda folder: with_other_names(folder),
    "nodes first": lambda folder: with_other_names(folder)[::-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_graph_in_every_form(form: str, tmp_path: Path) -> None:
    made = FORMS[form](tmp_path)
    paths = made if isinstance(made, list) else [made]
    found = recognise(paths)
    assert (found.input, found.task) == ("nodes", "tag")
    (graph,) = graphs_in(paths)
    directed = {tuple(pair) for pair in graph.edges.tolist()}
    assert directed == {*EDGES, *((b, a) for a, b in EDGES)}
    assert np.asarray(graph.numbers).ravel().tolist() == SIZES
    known = {"0": "a", "1": "b"} if form in ("npz", "npy") else {"a": "a", "b": "b"}
    assert [label and known[label] for label in graph.labels or ()] == LABELS
    assert [name for name, _ in found.splits] == ["train", "valid"]
    train, valid, _ = parts_of(found, [str(path) for path in paths], [], [])
    assert next(example.target for example in inputs.read(train, found, refuse)).split() == [
        *filter(None, graph.labels or ())
    ]
    assert recognise(valid).kind == found.kind
    assert named_graph(f"{paths[0]}@{graph.name(1)}").graph is graphs_in(paths[:1])[0]


def test_a_check_counts_nodes_edges_features_and_labels(tmp_path: Path) -> None:
    assert list(describe(graphs_in(as_tables(tmp_path)), "tag")) == [
        "4 nodes, 10 edges (an undirected one is two): at most 3 lead to a node, none to 0 of them",
        "features of a node: 1 number, 0 words",
        "3 of 4 nodes have a label",
        "2 labels: a 66.7 %, b 33.3 %.",
    ]
    several = list(describe(graphs_in([as_tu(tmp_path)]), "classify"))
    assert several[0] == "2 graphs: half of them have at most 4 nodes and 10 edges, the largest 4 and 10"
    assert several[-1] == "2 labels: -1 50.0 %, 1 50.0 %."


def test_tu_files_are_many_graphs_also_in_an_archive(tmp_path: Path) -> None:
    folder = as_tu(tmp_path)
    archive = tmp_path / "TOY.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in folder.iterdir():
            packed.write(file, f"TOY/{file.name}")
    for path in (folder, archive):
        form = recognise([path])
        assert (form.task, form.input) == ("classify", "nodes")
        examples = list(read_graphs(path, form, refuse))
        assert [example.target for example in examples] == ["-1", "1"]
        graph = examples[1].source.graph
        assert graph is not None
        assert (graph.count, len(graph.edges)) == (4, 10)
        assert graph.words == [("label=0",), ("label=1",)] * 2
        assert graph.carried is not None
        assert graph.carried.shape == (10, 2)


def test_many_graphs_of_an_npz_file_have_folds(tmp_path: Path) -> None:
    path = tmp_path / "many.npz"
    np.savez(
        path, node_graph=np.array([0, 0, 1, 1, 1]), edges=np.array([[0, 1], [2, 3], [3, 4]]), fold=np.array([3, 0]),
        graph_labels=np.array([1, 0]), node_labels=np.array([0, 1, 0, 2, 0]),
    )  # fmt: skip
    form = recognise([path])
    (only,) = read_graphs(f"{path}/fold3", form, refuse)
    assert (only.target, only.source.text) == ("1", f"{path}#0")
    assert graph_texts(str(path)) == [f"{path}#0", f"{path}#1"]
    other = named_graph(f"{path}#1").graph
    assert other is not None
    assert other.edges.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2]]


def test_directed_edges_weights_and_features_of_edges(tmp_path: Path) -> None:
    links = [
        {"source": "n0", "target": "n1", "weight": 2, "kind": "x"},
        {"source": "n1", "target": "n2", "weight": 1, "kind": "y"},
    ]
    path = as_json(tmp_path, "links", links=links, directed=True)
    (graph,) = graphs_in([path])
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert graph.strength is not None
    assert graph.carried is not None
    assert (graph.strength.tolist(), graph.carried.tolist()) == ([2, 1], [[1, 0], [0, 1]])


def test_duplicate_edges_and_loops_are_there_once_and_never(tmp_path: Path) -> None:
    path = as_npz(tmp_path, edges=np.array([(0, 1), (1, 0), (0, 1), (2, 2)]))
    assert graphs_in([path])[0].edges.tolist() == [[1, 0], [0, 1]]


def test_parts_of_one_graph(tmp_path: Path) -> None:
    path = as_npz(
        tmp_path, train_idx=np.array([0]), val_mask=np.array([False, True, False, False]), test_idx=np.array([2, 3])
    )
    form = recognise([path])
    parts = dict(form.splits)
    assert [*parts] == ["train", "valid", "test"]
    (train,), (valid,), (test,) = (list(read_graphs(parts[name], form, refuse)) for name in parts)
    assert [example.source.asked.tolist() for example in (train, valid, test)] == [[0], [1], [2]]  # 3 has no label
    assert train.source.graph is valid.source.graph
    assert named_graph(parts["test"]).text == parts["test"]


def test_without_stated_parts_a_tenth_is_for_validation() -> None:
    graph = Graph(500, np.empty((0, 2), np.int64), labels=["a", "b"] * 250)
    train, valid = chosen_nodes(graph, "train"), chosen_nodes(graph, "valid")
    assert 30 <= len(valid) <= 70
    assert sorted([*train, *valid]) == list(range(500))


def test_nodes_are_named_on_the_command_line(tmp_path: Path) -> None:
    path = as_json(tmp_path)
    source = named_graph(with_nodes(str(path), ["n2", "n0"]))
    assert source.asked is not None
    assert source.asked.tolist() == [2, 0]
    assert source.text == f"{path}@n2,n0"
    assert named_graph("").text == ""


def test_neighbourhoods(tmp_path: Path) -> None:
    del tmp_path
    line = np.array([(i, i + 1) for i in range(9)])
    graph = Graph(10, np.concatenate((line, line[:, ::-1]))[np.argsort(np.r_[line[:, 1], line[:, 0]], kind="stable")])
    nodes_, edges = graph.around(np.array([5]), 2)
    assert (nodes_[0], sorted(nodes_.tolist())) == (5, [3, 4, 5, 6, 7])
    assert {tuple(pair) for pair in graph.edges[edges].tolist()} == {(4, 5), (6, 5), (3, 4), (5, 4), (5, 6), (7, 6)}
    star = Graph(50, np.array([(i, 0) for i in range(1, 50)]))
    few, drawn = star.around(np.array([0]), 1, 5, np.random.default_rng(0))
    assert (len(few), len(set(drawn.tolist()))) == (6, 5)
    part = graph.within(nodes_, edges)
    assert part.names == [str(i) for i in nodes_]
    assert {(part.names[a], part.names[b]) for a, b in part.edges} == {
        ("4", "5"),
        ("6", "5"),
        ("3", "4"),
        ("5", "4"),
        ("5", "6"),
        ("7", "6"),
    }


def test_sparse_rows_are_picked() -> None:
    rows = Sparse(np.array([2, 0, 1]), np.array([1, 4, 2]), np.array([1, 2, 3], np.float32), 5)
    assert rows.of(np.array([2, 0])).columns.tolist() == [2, 1, 4]


# ---- faults ---------------------------------------------------------------------------------------------------------


def written(name: str, content: str | bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def pickled(folder: Path) -> Path:
    path = folder / "graph.npz"
    np.savez(path, edges=np.array(EDGES), labels=np.array([{"a": 1}, None, 2, 3], dtype=object))
    return path


def tu_without(name: str, content: str | None = None) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        found = as_tu(folder)
        file = found / f"TOY_{name}.txt"
        (found / "TOY_edge_labels.txt").unlink()
        file.unlink() if content is None else file.write_text(content)
        return found

    return made


def edited(old: str, new: str, table: int = 0) -> Callable[[Path], list[Path]]:
    def made(folder: Path) -> list[Path]:
        paths = as_tables(folder)
        paths[table].write_text(paths[table].read_text().replace(old, new, 1))
        return paths

    return made


def renamed_end(folder: Path, end: str = "n77", label: str = "label") -> list[Path]:
    edges, table = with_other_names(folder)
    edges.write_text(edges.read_text().replace("n2,n3", f"n2,{end}" if end[0] == "n" else "n2,n3", 1))
    table.write_text(table.read_text().replace("Label", label))
    return [edges, table]


LAUGHS = '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
FAULTS: list[tuple[str, Callable[[Path], Any], str]] = [
    ("dangling edge", lambda f: as_npz(f, edges=np.array([(0, 1), (1, 9)])), r"edge 1 leads to node 9, expected nodes 0 to 3"),
    ("negative node", lambda f: as_npz(f, edges=np.array([(0, -1)])), r"edge 0 leads to node -1"),
    ("negative part", lambda f: as_npz(f, train_idx=np.array([0, -5, 2])), r"train names node -5"),
    ("NaN feature", lambda f: as_npz(f, features=np.array([[1.0], [np.nan], [0], [0]])), r"node 1 has the feature nan"),
    ("infinite feature", lambda f: as_npz(f, features=np.array([[1.0], [0], [0], [np.inf]])), r"node 3 has the feature inf"),
    ("few features", lambda f: as_npz(f, features=np.ones((3, 2)), num_nodes=4), r"shape \(3, 2\), expected a row for each of 4"),
    ("few labels", lambda f: as_npz(f, labels=np.array([0, 1])), r"2 labels for 4 nodes"),
    ("no label at all", lambda f: as_npz(f, labels=np.array([-1] * 4)), r"no node has a label"),
    ("edges of floats", lambda f: as_npz(f, edges=np.array([(0.5, 1.0)])), r"edges are float64, expected whole numbers"),
    ("three ends", lambda f: as_npz(f, edges=np.ones((4, 3), int)), r"shape \(4, 3\), expected \(edges, 2\)"),
    ("mask too short", lambda f: as_npz(f, train_mask=np.array([True])), r"mask train has the shape \(1,\)"),
    ("part out of range", lambda f: as_npz(f, train_idx=np.array([0, 77])), r"train names node 77"),
    ("negative weight", lambda f: as_npz(f, edge_weight=np.array([1, 1, -2, 1, 1.0])), r"edge 2 has the weight -2"),
    ("weights too few", lambda f: as_npz(f, edge_weight=np.array([1.0])), r"expected a row for each of 5 edges"),
    ("graph without nodes", lambda f: as_npz(f, features=np.ones((0, 1)), labels=np.ones(0, int)), r"has no nodes"),
    ("two directions", lambda f: as_npz(f, directed=np.array([True, False])), r"directed has the shape \(2,\), expected one value"),
    ("two counts", lambda f: as_npz(f, num_nodes=np.array([4, 4])), r"num_nodes has the shape \(2,\), expected one value"),
    ("columns of rows", lambda f: as_npz(f, adj_indptr=np.array([0, 1])), r"adj_indices is missing beside adj_indptr"),
    ("values of rows", lambda f: as_npz(f, attr_indptr=np.array([0, 1])), r"attr_indices is missing beside attr_indptr"),
    ("one size", lambda f: as_npz(f, feat_shape=np.array([4]), **dict.fromkeys(("feat_row", "feat_col", "feat_val"), np.array([0]))),
     r"feat_shape is int64 \(1,\), expected two numbers: nodes and columns"),
    ("edge labels", lambda f: as_npz(f, edge_labels=np.array([0, 1, 10**12, 1, 1])), r"edge_labels reach 1000000000000, expected 0 to"),
    ("a pickle", pickled, r"pickles may run any program and are refused"),
    ("damaged archive", lambda f: written("graph.npz", as_npz(f).read_bytes()[:-60])(f), r"damaged"),
    ("not JSON", written("x.json", '{"nodes": [1, 2], "edges": [[1, 2]'), r"is not valid JSON"),
    ("no edges in JSON", written("x.json", '{"nodes": [{"id": 1}], "elements": [], "edges_": "links"}'), r"no `edges` and no `links`"),
    ("edges and links", written("x.json", '{"nodes": [1, 2], "edges": [[1, 2]], "links": [[2, 1]]}'), r"expected one of them"),
    ("nodes no list", written("x.json", '{"nodes": 3, "edges": []}'), r"expected an object with `nodes`"),
    ("unknown end in JSON", written("x.json", '{"nodes": [{"id": 1, "label": "a"}], "links": [[1, 2]]}'), r"edge 0 leads to node '2'"),
    ("strange edge", written("x.json", '{"nodes": [1], "edges": [7]}'), r"edge 0 is 7, expected \[a, b\]"),
    ("node twice", written("x.json", '{"nodes": [{"id": 1}, {"id": "1"}], "edges": []}'), r"two nodes '1'"),
    ("ragged features", written("x.json", '{"nodes": [{"id": 1, "x": [1]}, {"id": 2, "x": [1, 2]}], "edges": []}'), r"1 to 2 numbers"),
    ("some features", written("x.json", '{"nodes": [{"id": 1, "x": [1, 2]}, {"id": 2}], "edges": []}'), r"'x' has 0 to 2 numbers"),
    ("huge number", written("x.json", '{"nodes": [{"id": 1, "x": [1' + "0" * 400 + ']}], "edges": []}'), r"node 0 has 10*, expected a number"),
    ("no graphs", written("x.json", '{"graphs": [], "nodes": [], "edges": 1}'), r"there is no graph in it"),
    ("entities", lambda f: as_graphml(f, LAUGHS), r"declares a document type or entities, which are refused"),
    ("broken XML", written("x.graphml", "<graphml><graph>"), r"x.graphml:1 is not valid GraphML"),
    ("XML without a graph", written("x.graphml", "<graphml></graphml>"), r"there is no <graph>"),
    ("edge without target", written("x.graphml", '<graphml><graph><edge source="a"/></graph></graphml>'), r"no source or no target"),
    ("node outside", written("x.graphml", '<graphml><node id="a"/></graphml>'), r"a <node> stands outside of a <graph>"),
    ("unknown end in a table of other names", lambda f: renamed_end(f), r"edge 2 leads to node 'n77'"),
    ("labels of another name", lambda f: renamed_end(f, "a", "kind"), r"or a column or attribute `label` \(one of kind, perhaps: rename it\)"),
    ("unknown end in a table", edited("n2,n3", "n2,n77"), r"edge 2 leads to node 'n77'"),
    ("short row", edited("n1,2.5,b", "n1,2.5", 1), r"nodes.csv:3: 2 columns, expected 3"),
    ("short row below a comment", edited("n1,2.5,b", "# a comment\n\nn1,2.5", 1), r"nodes.csv:5: 2 columns, expected 3"),
    ("TU without graphs", tu_without("graph_indicator"), r"no file …_graph_indicator.txt"),
    ("TU with words", tu_without("A", "one, two\n"), r"expected numbers"),
    ("edge across graphs", tu_without("A", "1, 8\n"), r"an edge joins nodes 0 and 7 of different graphs"),
    ("TU labels too few", tu_without("graph_labels", "1\n"), r"a node belongs to graph 1, expected 0 to 0"),
]  # fmt: skip


def everything(paths: list[Path]) -> list[Any]:
    form = recognise_graphs(paths, None)
    assert form is not None, "the file is no graph"
    return list(read_graphs(paths[0], form, refuse))


@pytest.mark.parametrize(
    ("make", "message"), [(make, message) for _, make, message in FAULTS], ids=[name for name, *_ in FAULTS]
)
def test_a_fault_is_one_sentence(make: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    made = make(tmp_path)
    paths = made if isinstance(made, list) else [made]
    with pytest.raises(UserError, match=message) as refused:
        everything(paths)
    assert "\n" not in str(refused.value)
    assert str(tmp_path) in str(refused.value)


def test_gzipped_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "graph.json.gz"
    path.write_bytes(gzip.compress(as_json(tmp_path).read_bytes()))
    assert graphs_in([path])[0].count == 4


def test_other_files_are_no_graphs(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, images=np.zeros((2, 3)))
    (tmp_path / "images.npz").write_bytes(buffer.getvalue())
    (tmp_path / "pairs.csv").write_text("source,target\na,b\nc,d\n")
    (tmp_path / "rows.json").write_text('{"text": "a", "label": "b"}\n')
    for path in tmp_path.iterdir():
        assert recognise_graphs([path], None) is None, path
