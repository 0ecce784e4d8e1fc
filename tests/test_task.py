"""The task: answers in order under a watch, options that belong elsewhere, files read few times, a network built once."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.data import reading, survey
from regard.data.example import Example
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.outputs import OUTPUTS
from regard.runs import build, settings
from regard.task import Task
from tests.conftest import write_letters
from tests.inputs import example
from tests.outputs.tasks import config_of, fresh
from tests.outputs.tasks import lines as plain

OLD = Path(__file__).parent / "runs" / "old"
DEEP = {"layers": 2, "width": 16, "hidden": 32, "heads": 2, "dropout": 0.0}
TEXTS = ["a b c d e f g", "b", "c a b", "", "g f e d", "a a"]
LAYER = "backbone.layers.1.attention"


def task_of(name: str) -> Task:
    """A task with fresh weights that looks by Transformer layers."""
    model = {"kind": "bert" if name == "fill" else "transformer", **DEEP}
    tokens = {"level": "bpe" if name == "fill" else "words", "size": 60}
    config = config_of(task=name, model=model, tokens=tokens | ({"spelling_width": 4} if name == "tag" else {}))
    if name == "fill":
        return fresh(config, plain(TEXTS))
    targets = ["X" if len(text) > 4 else "Y" for text in TEXTS]
    if name == "tag":
        targets = [" ".join("X" if word < "d" else "Y" for word in text.split()) for text in TEXTS]
    known = zip(TEXTS, targets, strict=True)
    return fresh(config, [Example(text, target, "here", 1) for text, target in known if text])


@pytest.mark.parametrize("name", ["classify", "tag", "fill"])
def test_a_watch_around_predict_sees_the_texts_in_their_order(name: str) -> None:
    """Answers are computed sorted by length and in several batches; what is watched has the order of the texts."""
    task = task_of(name)
    texts = [text.replace("b", "___", 1) for text in TEXTS] if name == "fill" else TEXTS
    expected = task.predict(texts)
    with regard.watch(task, LAYER) as seen:
        assert task.predict(texts) == expected
    weights = seen[LAYER].weights
    assert len(weights) == len(texts)
    for row, text in zip(weights, texts, strict=True):
        if not text:
            continue
        with regard.watch(task, LAYER) as alone:
            task.predict([text])
        own = alone[LAYER].weights[0]
        m, n = own.shape[-2:]
        torch.testing.assert_close(row[:, :m, :n], own, rtol=1e-4, atol=1e-6)
        assert float(row[:, :m, n:].abs().sum()) == 0


@pytest.mark.parametrize(
    ("run", "changes", "sentence"),
    [
        ("convert_recurrent", {"alignment": "hard"}, "'alignment' changes what is printed: use `answers`"),
        ("continue_gpt", {"stride": 3}, "'stride' is an option of `evaluate`"),
        ("fill_bert", {"embeddings": True}, "'embeddings' changes what is printed: use `answers`"),
        ("tag", {"beam": 3}, "'beam' changes nothing about a model that tags parts of texts"),
    ],
)
def test_options_that_predict_does_not_have_are_refused(run: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        regard.load(OLD / run).predict(["ab"], **changes)


@pytest.mark.parametrize(
    ("task", "source", "does"),
    [
        ("classify", "patches", "labels images"),
        ("classify", "tokens", "labels texts"),
        ("tag", "nodes", "tags parts of graphs"),
        ("convert", "frames", "converts recordings"),
        ("fill", "tokens", "fills in blanks of texts"),
        ("detect", "patches", "finds things in images"),
        ("imagine", "patches", "makes new images"),
    ],
)
def test_a_verb_of_the_output_and_a_noun_of_the_input(task: str, source: str, does: str) -> None:
    assert settings.does(settings.make({"task": task, "input": source, "data": {"train": ["x"]}}, "here")) == does
    assert not any(input.noun in output.does for input in INPUTS.values() for output in OUTPUTS.values())


@pytest.mark.parametrize("kept", [10, 10_000], ids=["larger than its survey", "in the survey whole"])
def test_a_file_is_opened_for_parsing_twice_at_most(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the survey, and once for the store if the survey could not keep all."""
    parsed: Counter[str] = Counter()

    def counted(path: Path | str, *how: Any) -> Iterator[Any]:
        parsed[str(path)] += 1
        return read_table(path, *how)

    pairs, read_table = write_letters(tmp_path / "pairs.tsv", count=3000), reading.READERS["tsv"]
    monkeypatch.setitem(reading.READERS, "tsv", counted)
    monkeypatch.setattr(survey, "SAMPLE", kept)
    regard.train(pairs, tmp_path / "run", steps=1, set=["model.width=8"], quiet=True)
    assert parsed[str(pairs)] == (2 if kept == 10 else 1)


def test_loading_builds_the_network_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    inner = build._network

    def counted(config: Any, parts: Any) -> Any:
        built.append(config.task)
        return inner(config, parts)

    monkeypatch.setattr(build, "_network", counted)
    regard.load(OLD / "classify")
    assert built == ["classify"]


def test_only_a_shortage_of_memory_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in our own code is not the machine's."""
    config = config_of(task="classify", model={"kind": "deepsets", "width": 8})
    examples = [Example("a", "X", "here", 1), Example("b", "Y", "here", 2)]
    output = type(fresh(config, examples).output)

    def failing(*_: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(output, "network", failing)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        fresh(config, examples)


def test_a_fault_while_answering_is_not_blamed_on_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    model = regard.load(OLD / "convert_recurrent")

    def failing(*_: Any, **__: Any) -> Any:
        raise ValueError("expected ../x")

    monkeypatch.setattr(model.task.output, "by_torch", failing)
    with pytest.raises(ValueError, match=r"^expected \.\./x$"):
        model.predict(["ab"])


def test_the_input_of_the_pages_is_one_file_of_135_lines() -> None:
    assert example.source().count("\n") <= 135
