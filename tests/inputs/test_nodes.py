"""Graphs as an input: what is drawn around nodes, where nodes lie, commands on one graph and on many."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.commands.evaluate import evaluate
from regard.commands.predict import predict
from regard.commands.show import show
from regard.data.graph import Graph, make_graph
from regard.data.graphs import GraphSource
from regard.errors import UserError
from regard.inputs.input import Use
from regard.inputs.node_features import laplacian, returns
from regard.inputs.nodes import Nodes, NodeSettings
from regard.layers.stem import Stem
from regard.runs.model import Model

KINDS = ("gcn", "gat", "gatv2", "graph", "transformer", "deepsets")


def random_graph(count: int = 30, seed: int = 0, **more: Any) -> Graph:
    draw = np.random.default_rng(seed)
    pairs = np.argwhere(np.triu(draw.random((count, count)) < 4 / count, 1))
    labels = ["ab"[i % 2] for i in range(count)]
    return make_graph("here", count, pairs, numbers=draw.normal(size=(count, 3)), labels=labels, **more)


def written(folder: Path, graph: Graph, name: str = "graph.npz", **more: Any) -> Path:
    path = folder / name
    labels = np.array(["ab".index(str(label)) for label in graph.labels or ()])
    kept = graph.edges[graph.edges[:, 0] < graph.edges[:, 1]]
    np.savez(path, edges=kept, features=graph.numbers, labels=labels, **more)
    return path


def trained(path: Path, run: Path, *changes: str, steps: int = 12, **how: Any) -> Model:
    quick = ["training.every=6", "model.width=8", *changes]
    return regard.train(path, run, steps=steps, set=quick, quiet=True, **how)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    folder = tmp_path_factory.mktemp("nodes")
    parts = {"train_idx": np.arange(15), "val_idx": np.arange(15, 20), "test_idx": np.arange(20, 30)}
    path = written(folder, random_graph(), **parts)
    return path, trained(path, folder / "run")


def lines(model: Model, texts: list[str], **how: Any) -> list[str]:
    out = io.StringIO()
    predict(model, iter([texts]), {}, out, **how)
    return out.getvalue().splitlines()


# ---- commands -------------------------------------------------------------------------------------------------------


def test_predict_prints_a_line_for_each_node_and_some_with_node(toy: tuple[Path, Model]) -> None:
    path, model = toy
    whole = lines(model, [str(path)])
    assert [line.split("\t")[0] for line in whole] == [str(i) for i in range(30)]
    scored = lines(model, [str(path)], with_score=True)
    some = lines(model, [str(path)], with_score=True, nodes=["7", "21"])
    assert some == [scored[7], scored[21]], "what a node sees is enough to answer it"
    (found,) = lines(model, [str(path)], as_json=True, nodes=["7"])
    assert json.loads(found)["tags"] == [whole[7].split("\t")[1]]


def test_evaluate_scores_the_test_nodes(toy: tuple[Path, Model]) -> None:
    path, model = toy
    (score, *_) = evaluate(model, [str(path)], {}).scores
    tags = [line.split("\t")[1] for line in lines(model, [str(path)])]
    right = [tags[i] == str(i % 2) for i in range(20, 30)]
    assert score.value == pytest.approx(100 * np.mean(right))


def test_show_draws_a_node_and_its_neighbours(toy: tuple[Path, Model], tmp_path: Path) -> None:
    path, model = toy
    assert show(model, [str(path)], tmp_path / "a.png", nodes=["3"]).read_bytes()[1:4] == b"PNG"
    page = show(model, [str(path)], tmp_path / "a.html", nodes=["3"]).read_text(encoding="utf-8")
    assert '"places"' in page
    show(model, [str(path)], tmp_path / "a.npz", nodes=["3"])
    with np.load(tmp_path / "a.npz") as numbers:
        weights = next(numbers[name] for name in numbers.files if numbers[name].ndim == 4)
    assert weights.shape[0] == 2
    assert weights[-1].sum(-1).max() <= 1 + 1e-5


def test_faults_of_the_command_line(toy: tuple[Path, Model], tmp_path: Path) -> None:
    path, model = toy
    with pytest.raises(UserError, match="there is no node '99'"):
        lines(model, [str(path)], nodes=["99"])
    other = written(tmp_path, random_graph(6), features_=np.zeros(1))
    with np.load(other) as found:
        arrays = dict(found)
    np.savez(other, **arrays | {"features": np.ones((6, 2))})
    with pytest.raises(UserError, match="nodes have 2 features, expected 3 as in training"):
        lines(model, [str(other)])
    large = written(tmp_path, random_graph(250), "large.npz")
    with pytest.raises(UserError, match=r"250 nodes, expected at most 200 in a picture: choose some with (--)?node"):
        show(model, [str(large)], tmp_path / "b.png")
    with pytest.raises(UserError, match="there is no such file"):
        lines(model, ["nowhere.npz"])


def test_a_text_model_has_no_nodes(tmp_path: Path) -> None:
    from regard.commands.predict import listed

    class Stub:
        class task:
            class input:
                naming, noun = None, "texts"

    with pytest.raises(UserError, match=r"(--)?node chooses nodes of a graph, and this model reads texts"):
        listed(Stub, "a", ["1"])  # type: ignore[arg-type]
    assert listed(Stub, "a") == ["a"]  # type: ignore[arg-type]
    del tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_renumbered_nodes_get_the_same_answers(kind: str, tmp_path: Path) -> None:
    """F(PX, PAPᵀ) = P F(X, A) from file to answer, for every kind of network."""
    graph = random_graph()
    to = np.random.default_rng(5).permutation(graph.count)
    back = np.argsort(to)
    assert isinstance(graph.numbers, np.ndarray)
    turned = make_graph(
        "here",
        graph.count,
        to[graph.edges],
        directed=True,
        numbers=graph.numbers[back],
        labels=[graph.labels[i] for i in back],  # type: ignore[index]
    )
    one, other = written(tmp_path, graph), written(tmp_path, turned, "turned.npz")
    more = ["model.position=none", "model.heads=2"] if kind == "transformer" else []
    width = ["model.kind=" + kind, *more]
    model = trained(one, tmp_path / "run", *width, steps=6)
    plain, found = (model.answers([str(path)])[0].probabilities for path in (one, other))
    assert np.allclose(np.array(found)[to], plain, atol=1e-5)


# ---- sampled neighbours ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gcn", "gat", "graph"])
def test_sampled_neighbourhoods_with_all_neighbours_are_the_whole_graph(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, random_graph(60))
    more = ["nodes.hops=3" if kind == "gcn" else "nodes.hops=2", *["model.attention_dropout=0"] * (kind == "gat")]
    whole, parts = (
        trained(
            path, tmp_path / name, f"model.kind={kind}", *more, f"nodes.neighbours={most}", "model.dropout=0", steps=6
        )
        for name, most in (("whole", 0), ("parts", 1000))
    )
    parts.network.load_state_dict(whole.network.state_dict())
    one, other = (model.answers([str(path)])[0].probabilities for model in (whole, parts))
    assert np.allclose(one, other, atol=1e-5)
    batches = [model.task.batch(model.held([path]).rows) for model in (whole, parts)]
    losses = [
        float(model.network.train()(batch).sum().detach()) for model, batch in zip((whole, parts), batches, strict=True)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4), "in training, too, if as many are drawn as there are"


def test_neighbours_are_drawn_anew_in_training_and_all_are_there_in_answers(tmp_path: Path) -> None:
    path = written(tmp_path, random_graph(60))
    model = trained(path, tmp_path / "run", "nodes.neighbours=2", "nodes.hops=2", "model.dropout=0")
    stem, batch = model.network.stem, model.task.batch(model.held([path]).rows)
    sizes = [len(stem.train()(batch.source).mask) for _ in range(4)]
    full = len(stem.eval()(batch.source).mask)
    assert max(sizes) < full
    assert len({*sizes}) > 1 or sizes[0] < full
    again = regard.load(tmp_path / "run")
    assert again.answers([str(path)])[0].tags == model.answers([str(path)])[0].tags


def test_a_large_graph_is_read_in_pieces_and_its_edges_are_mapped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("regard.data.graphs.LARGE_NODES", 50)
    monkeypatch.setattr("regard.data.graphs.PIECE", 16)
    monkeypatch.setattr("regard.data.graph.MAPPED", 10)
    graph = random_graph(60)
    assert isinstance(graph.edges, np.memmap)
    path = written(tmp_path, graph)
    model = trained(path, tmp_path / "run", "training.budget=32")
    assert model.config.reading.neighbours == 10
    rows = model.held([path]).rows
    assert max(len(row[0]) for row in rows) <= 16
    assert len(model.answers([str(path)])[0].tags) == 60
    again = trained(
        path, tmp_path / "run", "training.budget=32", steps=14
    )  # rows refer to the graph; it is found again
    assert again is not None


# ---- where nodes lie ------------------------------------------------------------------------------------------------


def ring(count: int) -> Graph:
    return make_graph("here", count, np.array([(i, (i + 1) % count) for i in range(count)]))


def test_laplacian_positions_are_eigenvectors_of_the_smallest_eigenvalues() -> None:
    for count in (12, 500):  # by all eigenvectors, and by a few
        graph = random_graph(count)
        found = laplacian(graph, 4)
        adjacency = np.zeros((count, count))
        adjacency[graph.edges[:, 1], graph.edges[:, 0]] = 1
        degree = adjacency.sum(1)
        root = np.diag(np.maximum(degree, 1) ** -0.5)
        matrix = np.eye(count) - root @ adjacency @ root
        values = np.linalg.eigvalsh(matrix)[1:5]
        assert np.allclose(matrix @ found, found * values, atol=1e-3)
        assert np.allclose((found**2).sum(0), count, rtol=1e-3)


def test_random_walks_return_to_even_rings_after_even_steps() -> None:
    found = returns(ring(6), 4)
    assert np.allclose(found, [0, 0.5, 0, 0.375])


@pytest.mark.parametrize("positions", ["laplacian", "walk"])
def test_positions_tell_nodes_of_a_ring_with_a_tail_apart(positions: str, tmp_path: Path) -> None:
    path = tmp_path / "tail.npz"
    np.savez(path, edges=np.array([(i, i + 1) for i in range(19)]), labels=np.array([int(i < 10) for i in range(20)]))
    sets = [
        f"nodes.positions={positions}",
        "nodes.frequencies=4",
        "model.kind=transformer",
        "model.position=none",
        "model.heads=2",
    ]
    model = trained(path, tmp_path / "run", *sets, "model.layers=1")
    assert model.task.input.facts.dense == 4  # type: ignore[attr-defined]
    assert len(model.answers([str(path)])[0].tags) == 20


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, random_graph())
    with pytest.raises(UserError, match=r"nodes have no order: set model\.position=none"):
        trained(path, tmp_path / "a", "model.kind=transformer")
    with pytest.raises(UserError, match=r"nodes\.hops is 1, expected at least 2"):
        trained(path, tmp_path / "b", "nodes.hops=1")
    with pytest.raises(UserError, match=r"model\.edge_width asks for features of edges"):
        trained(path, tmp_path / "c", "model.edge_width=4")


def test_texts_have_no_edges(tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("".join(f"a{i} b\tx\nc{i} d\ty\n" for i in range(30)))
    with pytest.raises(UserError, match="needs edges, and this input has none"):
        regard.train(
            tmp_path / "labels.tsv", tmp_path / "run", steps=2, set=["model.kind=gcn", "model.width=8"], quiet=True
        )


# ---- batches --------------------------------------------------------------------------------------------------------


def test_edges_with_weights_and_features_reach_the_network(tmp_path: Path) -> None:
    graph = random_graph(strength=None)
    count = len(graph.edges) // 2
    draw = np.random.default_rng(0)
    path = written(tmp_path, graph, edge_weight=draw.random(count) + 0.1, edge_features=draw.normal(size=(count, 2)))
    model = trained(path, tmp_path / "run")
    assert model.config.model.edge_width == 16
    batch = model.task.batch(model.held([path]).rows)
    mask = batch.source.mask
    assert mask is not None
    assert mask.features.shape == (len(mask), 2)  # type: ignore[union-attr]
    assert mask.strength.shape == (len(mask),)  # type: ignore[union-attr]
    loss = model.network.train()(batch).sum()
    loss.backward()
    assert model.network.stem.carried.weight.grad.abs().max() > 0  # type: ignore[union-attr]


def test_sparse_features_give_what_a_dense_product_gives() -> None:
    draw = np.random.default_rng(0)
    dense = (draw.random((7, 40)) < 0.1) * draw.random((7, 40)).astype(np.float32)
    rows, columns = np.nonzero(dense)
    from regard.data.graph import Sparse

    sparse = Sparse(np.bincount(rows, minlength=7), columns, dense[rows, columns], 40)
    graph = make_graph("here", 7, np.array([(0, 1)]), numbers=sparse)
    how = NodeSettings()
    nodes = Nodes.learn(how, Use.UNITS, [GraphSource(graph, "x")], None)
    stem = nodes.module(Stem(5, None, 0.0)).eval()
    found = stem(nodes.collate(nodes.encode([GraphSource(graph, "x")]))).values[0]
    assert stem.weight is not None
    assert torch.allclose(found, torch.from_numpy(dense.astype(np.float32)) @ stem.weight, atol=1e-5)
