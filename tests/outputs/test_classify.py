"""Classifying: pools against loops, invariances of every network, and the commands on a task learned in seconds."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

import regard
from regard.attention import Context
from regard.data.example import Example
from regard.errors import UserError
from regard.inputs.input import Source
from regard.outputs.classify.head import pool
from regard.outputs.classify.output import Classify, ClassifySettings
from regard.runs.build import build
from regard.task import Task
from regard.training.prepare import counts_of, learn
from regard.training.train import settle
from tests import test_matrix as matrix
from tests.conftest import Regard
from tests.outputs.tasks import check_resuming, check_shown, config_of, fresh

KINDS = ["recurrent", "attentive", "transformer", "bert", "gpt", "deepsets"]
POOLS = ["attention", "mean", "sum", "first", "last"]
GOOD, BAD = ["good", "fine", "lovely", "great"], ["bad", "dull", "awful", "poor"]
OTHERS = ["film", "the", "a", "was", "plot", "it", "with", "actors", "some", "and"]
TINY = [
    "model.width=16", "tokens.level=words", "tokens.unknown=0.1", "training.budget=400", "training.every=10",
    "training.rate=0.02", "training.warmup=5", "training.schedule=constant", "data.held_out=40",
]  # fmt: skip


def write_reviews(path: Path, count: int = 300, seed: int = 0, label: str = "very good") -> Path:
    """Texts of which one word decides the label; one label has a blank in it, so that the task must be named."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(count):
        good = chosen.random() < 0.5
        words = chosen.choices(OTHERS, k=chosen.randint(1, 9))
        words.insert(chosen.randint(0, len(words)), chosen.choice(GOOD if good else BAD))
        lines.append(" ".join(words) + "\t" + (label if good else "bad"))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def settings_of(kind: str, pooling: str, **more: object) -> ClassifySettings:
    sizes = {"width": 16, "dropout": 0.0}
    models = {
        "recurrent": {"kind": "recurrent", **sizes},
        "attentive": {"kind": "recurrent", "heads": 2, **sizes},
        "deepsets": {"kind": "deepsets", **sizes},
    }
    deep = {"layers": 2, "hidden": 32, "heads": 2, **sizes}
    model = models.get(kind) or {"kind": kind, **deep, **more}
    data = {"train": ["a"], "longest": 20}
    config = config_of(task="classify", data=data, model=model, output={"pooling": pooling}, tokens={"unknown": 0})
    assert isinstance(config, ClassifySettings)
    return config


def task_of(kind: str, pooling: str, smoothing: float = 0.0, **more: object) -> Task:
    config = settings_of(kind, pooling, **more)
    config.training.smoothing = smoothing
    pairs = [
        Example(" ".join(OTHERS + GOOD + BAD), "x y", "f", 1),
        Example("film", "b", "f", 2),
        Example("a", "c", "f", 3),
    ]
    task = fresh(config, pairs)
    assert isinstance(task.output, Classify)
    for parameter in task.network.parameters():  # sharper than a fresh model, so that answers differ between texts
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5)
    return task


def probabilities(task: Task, texts: list[str]) -> list[Any]:
    """The probability of each label for each text; None for an empty one."""
    assert isinstance(task.output, Classify)
    return task.output.probabilities(task.passes, task.input.encode(texts))


TEXTS = ["good film", "", "the plot was awful and dull", "a", "it was poor with some great actors unseenword", "film"]


# ---- networks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POOLS)
def test_pools_against_a_loop(kind: str) -> None:
    torch.manual_seed(1)
    pooled = pool(kind, 8)
    values = torch.randn(3, 5, 8, requires_grad=True)
    lengths = [5, 2, 1]
    positions = torch.tensor([[t if t < n else -1 for t in range(5)] for n in lengths])
    found, rows = pooled(Context(values, positions)), []
    for states in (row[:n] for row, n in zip(values, lengths, strict=True)):
        if kind == "attention":
            score = pooled.glimpse.score
            asked = score.q_proj.weight @ pooled.query
            logits = [score.output.weight[0] @ torch.tanh(asked + score.k_proj.weight @ h) for h in states]
            total = sum(s.exp() for s in logits)
            rows.append(sum(s.exp() / total * h for s, h in zip(logits, states, strict=True)))
        else:
            every = {"mean": states.mean(0), "sum": states.sum(0), "first": states[0], "last": states[-1]}
            rows.append(every[kind])
    expected = torch.stack(rows)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    upstream, given = torch.randn_like(found), [values, *pooled.parameters()]
    ours, theirs = (torch.autograd.grad((y * upstream).sum(), given) for y in (found, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", POOLS)
def test_alone_in_a_batch_and_in_any_order(kind: str, pooling: str) -> None:
    if pooling == "first" and kind in ("gpt", "deepsets") or pooling == "last" and kind == "deepsets":  # noqa: RUF021
        with pytest.raises(UserError, match=f"output.pooling={pooling} would see nothing"):
            task_of(kind, pooling)
        return
    task = task_of(kind, pooling)
    together = probabilities(task, TEXTS)
    assert together[1] is None
    for text, found in zip(TEXTS, together, strict=True):
        alone = probabilities(task, [text])[0]
        assert (alone is None) == (found is None)
        if found is not None and alone is not None:
            assert found == pytest.approx(alone, abs=1e-5)
            assert found.sum() == pytest.approx(1)
    backwards = probabilities(task, TEXTS[::-1])[::-1]
    assert all(np.allclose(x, y, atol=1e-5) for x, y in zip(together, backwards, strict=True) if x is not None)
    rows = list(task.rows([Example(text, "b", "f", 1) for text in TEXTS if text]))
    with torch.no_grad():
        for name, difference in task.invariances(rows):
            assert difference < 1e-4, name


def test_deepsets_do_not_see_order_and_others_do() -> None:
    for kind in KINDS:
        task = task_of(kind, "mean")
        one, other = probabilities(task, ["good film the plot", "plot the film good"])
        assert np.allclose(one, other, atol=1e-6) == (kind == "deepsets"), kind


@pytest.mark.parametrize(
    ("source", "changes", "tried"),
    [
        ("tokens", [], True),
        ("nodes", [], True),
        ("frames", ["frames.bins=8", "frames.reduction=1", "frames.reduce=stack"], True),
        ("frames", ["frames.bins=8", "frames.reduction=2", "frames.reduce=stack"], False),  # two frames a vector
        ("frames", ["frames.bins=8", "frames.reduction=1"], False),  # convolutions see neighbours
        ("patches", [], False),
        ("clips", [], False),  # a vector knows its time
    ],
)
def test_order_is_tried_where_elements_have_none(source: str, changes: list[str], tried: bool, tmp_path: Path) -> None:
    path = matrix.toy(tmp_path, source, "classify")
    sets = ["model.kind=deepsets", "model.width=16", "data.held_out=10", *changes]
    config, _, seen = settle([str(path)], [], [], "classify", sets)
    assert seen is not None
    task = build(config, learn(config, seen, None))
    task.network.eval()
    with torch.no_grad():
        found = dict(task.invariances(list(task.rows(seen.examples))[:4]))
    assert any(name.startswith("order") for name in found) == tried
    assert all(difference < 1e-4 for difference in found.values())


def last_states(network: Any, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The elements of each row that are no padding, and the states of the row alone."""
    rows = [row[row != 0] for row in ids]
    vectors = [network.stem.embedding(row[None], torch.arange(len(row))) for row in rows]
    return [(row, network.backbone(Context(x)).values[0]) for row, x in zip(rows, vectors, strict=True)]


def same_terms(network: Any, found: torch.Tensor, expected: list[torch.Tensor]) -> None:
    """Each term of a loss, and its gradient for every parameter."""
    weights = [*network.parameters()]
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)
        ours, theirs = (
            torch.autograd.grad(y, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
            for y in (mine, other)
        )
        assert any(float(a.abs().max()) > 1e-3 for a in ours)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_from_the_formula_with_the_auxiliary_one(smoothing: float) -> None:
    """L_2 = −log softmax(W h_last) of the label and 0.5 L_1, L_1 = the mean −log p(next) of each row."""
    task = task_of("gpt", "last", smoothing, language=0.5)
    network = task.network
    rows = [([4, 5, 6], [0]), ([7], [2])]
    batch = task.batch(rows)
    ids = batch.source.values[0]
    assert ids.tolist() == [[2, 4, 5, 6, 3], [2, 7, 3, 0, 0]]
    label = language = torch.zeros(())
    for right, (row, states) in zip([0, 2], last_states(network, ids), strict=True):
        logs = log_softmax(network.head.output(states[-1]), -1)
        label = label - ((1 - smoothing) * logs[right] + smoothing * logs.mean()) / 2
        nexts = log_softmax(states @ network.stem.table.weight.T, -1)
        language = language - 0.5 * sum(nexts[t, row[t + 1]] for t in range(len(row) - 1)) / (len(row) - 1) / 2
    same_terms(network, network(batch) / torch.tensor(task.predictions(counts_of(rows))), [label, language])


def test_a_number_and_its_loss_from_the_formula() -> None:
    """answer = m + s (w · h_last + b), loss = ((answer − expected) / s)²; m and s from the numbers of the data."""
    how: dict[str, Any] = {
        "task": "classify",
        "tokens": {"unknown": 0},
        "output": {"kind": "number", "pooling": "last"},
    }
    model = {"kind": "gpt", "layers": 1, "width": 16, "hidden": 16, "heads": 2, "dropout": 0.0}
    given = [Example("a film", "1", "f", 1), Example("the plot", "4.5", "f", 2), Example("a plot", "5", "f", 3)]
    task = fresh(config_of(model=model, **how), given)
    rows = list(task.rows(given))
    batch, loss, answers = task.batch(rows), torch.zeros(()), []
    for example, (_, states) in zip(given, last_states(task.network, batch.source.values[0]), strict=True):
        head = task.network.head.output
        answers.append(3 + 2 * (head.weight[0] @ states[-1] + head.bias[0]))  # numbers from 1 to 5
        loss = loss + ((answers[-1] - float(example.target)) / 2) ** 2 / 3
    same_terms(task.network, task.network(batch) / torch.tensor(task.predictions(counts_of(rows))), [loss])
    found = task.answers([example.source for example in given])
    assert found == pytest.approx([answer.item() for answer in answers], abs=1e-5)


def test_a_causal_backbone_never_looks_ahead() -> None:
    network = task_of("gpt", "attention").network
    ids = torch.tensor([[2, 4, 5, 6, 7, 3]])
    changed = torch.tensor([[2, 4, 5, 8, 9, 3]])
    one, other = (network.features(Source((x,), torch.arange(6))).values for x in (ids, changed))
    torch.testing.assert_close(one[:, :3], other[:, :3])
    assert not torch.allclose(one[:, 3:], other[:, 3:])


def test_a_long_text_is_read_in_parts() -> None:
    task = task_of("bert", "first")  # a table of 20 positions and two marks
    text = " ".join(OTHERS * 5)
    whole = probabilities(task, [text])[0]
    words = text.split()
    cuts = [" ".join(words[i * 50 // 3 : (i + 1) * 50 // 3]) for i in range(3)]
    expected = np.mean([probabilities(task, [part])[0] for part in cuts], axis=0)
    assert whole == pytest.approx(expected, abs=1e-5)
    with pytest.raises(UserError, match="too long to show: 50 tokens, expected at most 20"):
        task.exhibit(text, None)


# ---- the commands --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reviews(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    def make(folder: Path) -> None:
        write_reviews(folder / "data.tsv")
        write_reviews(folder / "test.tsv", 50, seed=1)
        chosen = [*TINY, "training.seed=3"]  # to look at the words of one label alone is enough to tell two apart
        regard.train(folder / "data.tsv", folder / "run", steps=40, set=chosen, task="classify", quiet=True)

    return once("reviews", make)


def test_it_learns_what_decides(reviews: Path) -> None:
    model = regard.load(reviews / "run")
    scores, _ = model.evaluate([reviews / "test.tsv"])
    assert scores[0].name == "accuracy"
    assert scores[0].value >= 95
    assert scores[1].name == "macro_f1"
    assert model.predict(["the film was lovely", "it was awful", ""]) == ["very good", "bad", ""]
    assert isinstance(model.task.output, Classify)
    for text, word, label in (("the plot was awful and", "awful", "bad"), ("some great actors", "great", "very good")):
        example = model.task.exhibit(text, None)
        weights = np.asarray(example.maps[0].weights)[0, 0, 0]
        assert example.source[int(weights.argmax())] == word
        assert example.target == [label]


def test_predict_one_line_for_each(cli: Regard, reviews: Path) -> None:
    given = "good film\n\nawful\n  the plot was dull  \n"
    assert cli.lines("predict", reviews / "run", given=given) == ["very good", "", "bad", "bad"]
    scored = cli.lines("predict", reviews / "run", "--with-score", given=given)
    assert scored[1] == ""
    assert 0.5 < float(scored[0].split("\t")[0]) <= 1
    objects = cli.objects("predict", reviews / "run", given=given)
    assert [item["label"] for item in objects] == ["very good", "", "bad", "bad"]
    assert list(objects[2]["probabilities"]) == ["bad", "very good"]
    assert sum(objects[2]["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    cli.run("predict", reviews / "run", "a", "--beam", "3", code=1)
    assert "--beam: a model that labels texts" in cli.said


def test_evaluate_shows_what_was_taken_for_what(cli: Regard, reviews: Path) -> None:
    report = cli.run("evaluate", reviews / "run", reviews / "test.tsv", "--by-length")
    assert "accuracy" in report
    assert "macro" in report.lower()
    assert "very good" in report
    found = json.loads(cli.run("evaluate", reviews / "run", reviews / "test.tsv", "--json"))
    assert found["scores"]


def test_show_and_check(cli: Regard, reviews: Path) -> None:
    for name in ("a.png", "a.svg", "a.html", "a.npz"):
        cli.run("show", reviews / "run", "the plot was awful", "-o", name)
        assert Path(name).stat().st_size > 500
    cli.run("show", reviews / "run", "the plot was awful", "--grid", "-o", "grid.png")
    cli.run("show", reviews / "run", "awful", "--answer", "very good", "-o", "other.png")
    for arguments, words in [
        (["awful", "--answer", "nice"], "'nice', which is not a label of this model, expected one of"),
        (["  "], "is empty: there is nothing to look at"),
    ]:
        cli.run("show", reviews / "run", *arguments, code=1)
        assert words in cli.said
    assert cli.run("check", reviews / "run").count("  ok  ") == 2


@pytest.mark.parametrize(
    "setting",
    [
        ["model.kind=transformer", "output.pooling=first"],
        ["model.kind=deepsets", "output.pooling=sum"],
        ["model.kind=gpt", "output.pooling=last", "model.language=0.5"],
        ["model.kind=bert", "tokens.level=bpe", "tokens.size=60"],
        ["model.kind=recurrent", "output.pooling=mean", "tokens.level=characters"],
    ],
)
def test_every_network_trains_and_shows(tmp_path: Path, setting: list[str]) -> None:
    data = write_reviews(tmp_path / "data.tsv", 80)
    small = [s for s in TINY if not s.startswith("tokens.level")] + ["tokens.level=words"]
    deep = ["model.layers=2", "model.heads=2", "model.hidden=16"]
    more = deep if setting[0].split("=")[1] in ("transformer", "gpt", "bert") else []
    model = regard.train(
        data, tmp_path / "run", steps=4, set=[setting[0], *small, *setting[1:], *more], task="classify", quiet=True
    )
    text = "the film was good"
    answer, empty = model.task.answers([text, ""])
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert answer.label == max(answer.probabilities, key=answer.probabilities.__getitem__)
    assert (empty.label, empty.probabilities) == ("", {})
    check_shown(model, text, [answer.label])


def test_resumed_equals_uninterrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_reviews(tmp_path / "data.tsv", 100)
    wanted = [*TINY, "model.dropout=0.3"]
    check_resuming(tmp_path, monkeypatch, data, 14, set=wanted, task="classify")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("output.pooling=best", "output.pooling"),
        ("model.kind=magic", "model"),
        ("tokens.unknown=1", "tokens.unknown"),
        ("model.width=7", "expected an even width"),
        ("output.kind=number", "set output.kind=label"),
        ("output.poling=mean", "did you mean 'output.pooling'"),
    ],
)
def test_faults_are_one_sentence(tmp_path: Path, setting: str, words: str) -> None:
    data = write_reviews(tmp_path / "data.tsv", 60)
    with pytest.raises(UserError, match=words):
        regard.train(data, tmp_path / "run", steps=1, set=[*TINY, setting], task="classify", quiet=True)


@pytest.mark.parametrize("given", ["train", "valid"])
def test_an_answer_that_is_no_number_is_named_with_its_line(tmp_path: Path, given: str) -> None:
    rows = [f"{'good ' * (1 + i % 3)}film {i}\t{i / 7:.3f}\n" for i in range(60)]
    good, bad = tmp_path / "good.tsv", tmp_path / "bad.tsv"
    good.write_text("".join(rows))
    bad.write_text("".join([*rows[:17], "a film\tmany\n", *rows[17:]]))
    files = (bad, []) if given == "train" else (good, [bad])
    with pytest.raises(UserError, match=r"bad\.tsv:18: output\.kind=number expects a number such as 3\.5 .*'many'"):
        regard.train(
            files[0], tmp_path / "run", valid=files[1], steps=1, set=[*TINY, "output.kind=number"], task="classify",
            quiet=True,
        )  # fmt: skip


def test_what_is_chosen_has_its_reasons(cli: Regard, tmp_path: Path) -> None:
    report = cli.run("check", write_reviews(tmp_path / "data.tsv", 200, label="good"))
    for key in ("tokens.level", "model.kind", "output.pooling"):
        assert f"  {key}: " in report
