"""ONNX as an export and as an engine: the scores and answers of torch for batches of any size, from sound files only."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.attention import Edges, edges, normalisers, scores
from regard.errors import UserError
from regard.exchange import conversion, engine, onnx
from regard.inputs import node_stem
from regard.inputs.input import Source
from regard.layers import recurrence
from regard.layers.recurrence import cells, walk
from regard.layers.stem import Stem
from regard.runs.model import Model
from tests import test_matrix as matrix
from tests.conftest import Regard
from tests.runs.test_old_runs import compare

pytest.importorskip("onnxruntime")
load_graph = pytest.importorskip("onnx").load
OLD = Path(__file__).parents[1] / "runs" / "old"
TEXTS = {
    "classify": ["a good film", "dull", "the plot was poor and it was bad", ""],
    "tag": ["the dog runs", "a", "to be or not to be"],
    "fill_bert": ["the ___ dog", "___", "a ___ in the ___"],
}
DENSE = ["model.heads=2", "model.hidden=16"]
KINDS = {  # of every input, and the kinds of layers that have a form of their own for graphs
    "frames-tag": ["model.hidden=16", "model.kernel=5", "model.window=4,4", "frames.bins=8"],
    "frames-classify": ["model.hidden=16", "frames.bins=8", "training.budget=100"],
    "patches-classify": ["model.kind=vit", *DENSE],
    "patches-classify-swin": ["model.kind=swin"],
    "patches-classify-cnn": ["model.norm=batch"],
    "nodes-classify": [],
    "nodes-tag": [],
    "tokens-tag-lstm": ["tokens.spelling_width=8", "tokens.spelling=lstm", "model.layers=2"],
    "tokens-tag-crf": ["model.kind=transformer", *DENSE, "output.kind=crf", "tokens.spelling_width=8"],
    "tokens-classify-gru": ["model.cell=gru"],
    "tokens-classify-forgetting": ["model.cell=forgetting"],
    "tokens-classify-xl": ["model.kind=transformer", *DENSE, "model.position=transformer-xl"],
    "tokens-classify-linformer": ["model.kind=transformer", *DENSE, "model.attention=linformer"],
    "tokens-classify-performer": ["model.kind=transformer", *DENSE, "model.attention=performer"],
    "tokens-fill-xlnet": ["model.kind=xlnet", *DENSE],
}
SUITE = ("nodes-tag", "frames-classify")  # the others take their time, and run in `make soak`


def copied(folder: Path, run: str) -> Model:
    shutil.copytree(OLD / run, folder / run)
    return regard.load(folder / run)


def trained(folder: Path, kind: str) -> Model:
    source, task, *_ = kind.split("-")
    path = matrix.toy(folder, source, task)
    changes = [*matrix.SET, *KINDS[kind]]
    return regard.train(path, folder / "run", task=task, steps=10, set=changes, quiet=True)


def exported(model: Model, folder: Path) -> dict[str, Any]:
    said: list[str] = []
    assert onnx.export(model, folder, said.append) <= onnx.TOLERANCE
    assert said[0].startswith("int8: ")
    found: dict[str, Any] = json.loads((folder / onnx.ABOUT).read_text())
    return found


def whole_products(path: Path) -> list[str]:
    """The products of a graph with a matrix of floating-point weights, as it is or turned."""
    graph = load_graph(str(path)).graph
    weights = {table.name for table in graph.initializer if table.data_type == table.FLOAT and len(table.dims) == 2}
    weights |= {node.output[0] for node in graph.node if node.op_type == "Transpose" and node.input[0] in weights}
    return [node.name for node in graph.node if node.op_type in ("MatMul", "Gemm") and node.input[1] in weights]


@pytest.mark.parametrize("run", TEXTS)
def test_answers_by_onnx_are_those_of_torch(tmp_path: Path, run: str) -> None:
    model, texts = copied(tmp_path, run), TEXTS[run]
    expected = model.predict(texts, details=True)
    said: list[str] = []
    engine.use(model, "onnx", {}, said.append)
    assert "exported to ONNX; scores differ by at most" in said[0]
    assert model.network.engine is not None
    compare(model.predict(texts, details=True), expected)
    for text, answer in zip(texts, expected, strict=True):
        compare(model.predict([text], details=True), [answer])
    again = regard.load(tmp_path / run)
    engine.use(again, "onnx", {}, said.append)
    assert len(said) == 1, "a sound export is not made again"
    if run != "classify":
        return
    (tmp_path / run / "onnx" / onnx.GRAPH).write_bytes(b"damaged")
    engine.use(again, "onnx-int8", {}, said.append)
    assert len(said) == 3, "a damaged one is"
    shares = [answer["probabilities"] for answer in expected]
    small = [answer["probabilities"] for answer in again.predict(texts, details=True)]
    for one, other in zip(shares, small, strict=True):
        assert other == pytest.approx(one, abs=0.1)
    assert small != shares, "int8 rounds"
    assert again.task.exhibit(texts[0], None).maps, "what is looked at is computed by torch"


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[] if k in SUITE else pytest.mark.soak) for k in KINDS])
def test_every_input_and_kind_of_layer_has_one_graph_for_all_batches(tmp_path: Path, kind: str) -> None:
    model = trained(tmp_path, kind)
    about = exported(model, tmp_path / "export")
    assert {"values0", "positions"} <= {each["name"] for each in about["inputs"]} | {"positions"}
    assert isinstance(about["inputs"][0]["shape"][0], str), "the size of a batch is free"
    rows = [row for row in onnx.examples(model) if len(row[0])]
    graph = onnx.OnnxScores(tmp_path / "export" / onnx.GRAPH)
    unseen = onnx.batches(model, rows[::-1][:7]) + onnx.batches(model, rows[2:5])
    assert onnx.compared(model, graph, unseen) <= onnx.TOLERANCE
    assert not whole_products(tmp_path / "export" / onnx.SMALL), "every product with a matrix is one of 8 bits"
    engine.use(model, "onnx-int8", {}, lambda _: None)
    assert model.evaluate([matrix.toy(tmp_path, *kind.split("-")[:2])])[0]


def test_a_graph_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copied(tmp_path, "classify")
    some = onnx.batches(model, onnx.examples(model))

    def wrong(batch: Any) -> torch.Tensor:
        return model.network.by_torch(batch) + 1e-3

    with pytest.raises(UserError, match=r"differs by 1\.0e-03 in its scores, expected 1e-04 at most"):
        onnx.compared(model, wrong, some)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="the size of one batch fixed in it"):
        onnx.compared(model, lambda _: model.network.by_torch(some[0]), some)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("convert_transformer", "is not exported to ONNX, because its answers are written step by step"),
        ("continue_gpt", "is not exported to ONNX, because its answers are written step by step"),
    ],
)
def test_what_has_no_graph_is_refused_with_the_reason(tmp_path: Path, run: str, sentence: str) -> None:
    model = copied(tmp_path, run)
    with pytest.raises(UserError, match=sentence):
        onnx.export(model, tmp_path / "out", print)
    with pytest.raises(UserError, match=sentence):
        engine.use(model, "onnx", {}, print)


def test_reasons_beyond_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = copied(tmp_path, "tag")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(UserError, match="exists already"):
        onnx.export(model, tmp_path / "taken", print)
    monkeypatch.setattr(conversion, "write", lambda *_: pytest.fail("it was not refused"))
    monkeypatch.setattr(model.task, "others", (model.task,))
    with pytest.raises(UserError, match="ONNX knows one model"):
        engine.use(model, "onnx", {}, print)
    monkeypatch.setattr(model.task, "others", ())
    monkeypatch.setattr(model.network, "stem", node_stem.NodeStem(3, 0, 0, Stem(width=4), around=lambda *_: None))  # type: ignore[arg-type, return-value]
    monkeypatch.setattr(model.task, "input", type("Asked", (), {"how": type("How", (), {"neighbours": 10})}))
    with pytest.raises(UserError, match="neighbours is 10: ONNX cannot express it, because"):
        engine.use(model, "onnx", {}, print)


def test_the_command_line(cli: Regard, tmp_path: Path) -> None:
    shutil.copytree(OLD / "tag", cli.folder / "run")
    expected = cli.lines("predict", "run", "the dog runs")
    assert cli.lines("predict", "run", "the dog runs", "--engine", "onnx") == expected
    assert cli.lines("export", "run", "--to", "onnx", "-o", "out") == ["out"]
    assert "read back and compared: scores differ by at most" in cli.said
    assert {path.name for path in (cli.folder / "out").iterdir()} >= {onnx.GRAPH, onnx.SMALL, onnx.ABOUT, "sums.json"}
    cli.run("export", "run", "--to", "steam", "-o", "x", code=1)
    assert "expected one of huggingface, ctranslate2, onnx" in cli.said


# ---- forms of layers for graphs, beside those that torch runs ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn", "forgetting"])
@pytest.mark.parametrize("both", [False, True])
def test_recurrence_without_packing(monkeypatch: pytest.MonkeyPatch, kind: str, both: bool) -> None:
    torch.manual_seed(1)
    rnn, x = cells(kind, 5, 4, 2, 0.0, both=both).double(), torch.randn(4, 7, 5).double()
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, -1, -1, -1, -1], [-1] * 7, [-1, 0, 1, -1, 2, 3, -1]])
    states, last = walk(rnn, x, positions)
    monkeypatch.setattr(recurrence, "is_exporting", lambda: True)
    found, (h,) = walk(rnn, x, positions)
    assert found.allclose(states, atol=1e-12)
    assert h.allclose(last[0], atol=1e-12)


@pytest.mark.parametrize("score", [scores.dot, scores.scaled_dot, scores.uniform])
@pytest.mark.parametrize("normalise", [normalisers.softmax, normalisers.mean, normalisers.symmetric])
@pytest.mark.parametrize("loops", [True, False])
def test_attention_along_edges_without_sorting(
    monkeypatch: pytest.MonkeyPatch, score: Any, normalise: Any, loops: bool
) -> None:
    draw = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 3, 6, 4, generator=draw) for _ in range(3))
    pairs = torch.randint(6, (2, 20), generator=draw).unique(dim=1)
    row = torch.randint(2, (pairs.shape[1],), generator=draw)

    def answer() -> torch.Tensor:
        given = Edges(row, pairs[0], pairs[1])
        some = given if loops else given.without_loops()
        return edges.attend_edges(q, k, v, some, score=score, normalise=normalise)

    expected = answer()
    monkeypatch.setattr(edges, "is_exporting", lambda: True)
    assert answer().allclose(expected, atol=1e-6)


def test_sparse_features_without_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    stem = node_stem.NodeStem(9, 0, 0, Stem(width=4)).eval()
    counts = torch.tensor([[2, 0, 3], [0, 1, 0]])
    draw = np.random.default_rng(1)
    columns, amounts = torch.from_numpy(draw.integers(0, 9, 6)), torch.from_numpy(draw.random(6).astype(np.float32))
    source = Source((counts, columns, amounts, torch.zeros(2, 3, 0)), torch.arange(3))
    expected = stem(source).values
    monkeypatch.setattr(node_stem, "is_exporting", lambda: True)
    assert stem(source).values.allclose(expected, atol=1e-6)
