"""Settings: written out in full and read back, overridden, and refused with the key, the value and a suggestion."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from regard.config import Config, render
from regard.errors import UserError
from regard.models.settings import RecurrentPair
from regard.runs import settings


def some(**model: object) -> Config:
    return settings.make({"data": {"train": ["a.tsv"]}, **({"model": model} if model else {})}, "here")


@pytest.mark.parametrize(
    "model", [{}, {"kind": "recurrent", "attention": "mlp"}, {"kind": "transformer", "position": "t5"}]
)
def test_what_is_written_is_read_back(model: dict[str, object], tmp_path: Path) -> None:
    before = some(**model)
    text = render(before, {"model.kind": "because: of # this"})
    (tmp_path / "config.yaml").write_text(text)
    assert settings.load(tmp_path / "config.yaml") == before
    assert "# because: of # this" in text
    for section in (before.data, before.model, before.training, before.decoding, before.tokens, before.output):
        for name in type(section).model_fields:
            assert f"  {name}: " in text, "every setting is written out"


def test_numbers_like_1e_3_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {train: [a.tsv]}\ntraining: {rate: 1e-3}\n")
    assert settings.load(tmp_path / "c.yaml").training.rate == 0.001
    assert settings.override(some(), ["training.rate=2e-3"]).training.rate == 0.002


def test_overrides() -> None:
    changed = settings.override(
        some(), ["model.kind=recurrent", "model.cell=gru", "training.steps=5", "training.minutes="]
    )
    assert isinstance(changed.model, RecurrentPair)
    assert changed.model.cell == "gru"
    assert changed.training.steps == 5
    assert changed.training.minutes is None


@pytest.mark.parametrize("label", ["yes", "1", "no", "2024-01-01"])
def test_a_setting_that_is_a_text_stays_one(label: str) -> None:
    given = settings.make({"task": "classify", "data": {"train": ["a.tsv"]}}, "here")
    found: Any = settings.override(given, [f"output.positive={label}"])
    assert found.output.positive == label
    for nothing in ("", "null"):
        after: Any = settings.override(found, [f"output.positive={nothing}"])
        assert after.output.positive is None


def test_the_order_of_settings_does_not_matter() -> None:
    given = ["model.width=32", "model.cell=gru", "training.steps=5", "model.kind=recurrent"]
    found = [settings.override(some(), list(order)) for order in itertools.permutations(given)]
    assert all(each == found[0] for each in found)
    assert (found[0].model.kind, found[0].model.width, found[0].model.cell) == ("recurrent", 32, "gru")


def test_a_named_size_stands_for_its_numbers(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {train: [a.tsv]}\nmodel: {kind: transformer, size: base, heads: 16}\n")
    read = settings.load(tmp_path / "c.yaml").model
    assert (read.layers, read.width, read.hidden, read.heads) == (6, 512, 2048, 16)
    for order in itertools.permutations(["model.width=64", "model.size=tiny", "model.kind=transformer"]):
        model = settings.override(some(kind="recurrent"), list(order)).model
        assert (model.layers, model.width, model.hidden, model.heads) == (4, 64, 256, 4)


@pytest.mark.parametrize(("setting", "sentence"), [
    ("model.size=huge", "model.size: expected one of tiny, small, base, big, found 'huge'"),
    ("model.size=[1]", r"expected one of tiny, small, base, big, found \[1\]"),
    ("training.ratte=1", "there is no setting 'training.ratte', did you mean 'training.rate'"),
    ("rate=1", "there is no setting 'rate', did you mean 'training.rate'"),
    ("model.head=4", "did you mean 'model.heads'"),
    ("training.rate=fast", "training.rate: expected a number, found 'fast'"),
    ("training.rate=-1", "training.rate: expected more than 0.*, found -1"),
    ("decoding.factor=1e308", "decoding.factor: expected at most 1000000"),
    ("model.norm=middle", "model.norm: expected 'pre', 'post' or 'deep', found 'middle'"),
    ("model.kind=cnn", "model.kind: expected one of transformer, recurrent, convolution, show-attend-tell, found 'cnn'"),
    ("model.kind=transfomer", "found 'transfomer': did you mean 'transformer'?"),
    ("model.layers=2,model.width=8", "model.layers: expected a whole number, found '2,model.width=8'. Separate settings by blanks"),
    ("training.steps=0", "steps is 0, expected 1 or more"),
    ("training.minutes=-1", "minutes is -1, expected more than 0"),
    ("output.pooling=mean", "the task convert has no setting 'output.pooling'; the task classify has it"),
    ("model.cell=gru", "this kind of model has no setting 'model.cell': it goes with model.kind=recurrent"),
    ("model.sell=gru", "there is no setting 'model.sell', did you mean 'model.cell'"),
    ("training.rate", "expected key=value"),
    ("training.rate=[1", "the value '\\[1' cannot be read"),
])  # fmt: skip
def test_refusals_name_the_key_and_the_nearest(setting: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        settings.override(some(), [setting])


@pytest.mark.parametrize(("text", "sentence"), [
    ("data: {train: [a.tsv]}\nmodel: {kind: recurrent, size: base}\n", "this kind of model has no named sizes"),
    ("data: {train: [a.tsv]}\nmodel: {kind: [], size: base}\n", "this kind of model has no named sizes"),
    ("data: {train: [a.tsv]}\nmodel: {kind: cnn, size: base}\n", "this kind of model has no named sizes"),
    ("data: {train: [a.tsv]}\nmodel: {size: 3}\n", "model.size: expected one of tiny.*found 3"),
    ("data: {train: [a.tsv]}\nmodell: {}\n", "there is no setting 'modell'"),
    ("model: {}\n", "the setting 'data' is missing"),
    ("- a\n", "holds no settings"),
    ("data: {train: [a.tsv]}\nmodel: {kind: transformer, layers: [\n", r"c.yaml:3 is not valid YAML"),
    ("data: {train: []}\n", "data.train: list should have at least 1 item"),
])  # fmt: skip
def test_files_are_refused_with_their_name(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UserError, match=sentence) as raised:
        settings.load(tmp_path / "c.yaml")
    assert "c.yaml" in str(raised.value)


@pytest.mark.parametrize("task", [{}, [["convert"]], None, 1, "convvert"])
def test_a_task_that_does_not_exist_is_refused(task: object) -> None:
    with pytest.raises(UserError, match=r"here: there is no task .*, expected one of convert"):
        settings.make({"task": task, "data": {"train": ["a.tsv"]}}, "here")
