"""Starting from another run: what is taken over, value by value, before the first step; and what cannot be."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import regard
from regard.errors import UserError
from regard.runs import checkpoint, settings
from regard.text.tokenizer import Tokenizer
from regard.training.loop import Trainer
from tests.conftest import write_letters

WORDS = ["red", "green", "blue", "small", "large", "round", "flat", "old", "new", "soft"]
SMALL = ["model.layers=1", "model.width=16", "model.hidden=24", "model.heads=2", "model.dropout=0", "training.every=3"]
Once = Callable[[str, Callable[[Path], object]], Path]


def write_text(path: Path, seed: int, count: int = 60) -> Path:
    chosen = random.Random(seed)
    path.write_text("".join(" ".join(chosen.choices(WORDS, k=6)) + " .\n" for _ in range(count)))
    return path


def write_labels(path: Path, names: tuple[str, str] = ("warm", "cold"), count: int = 60) -> Path:
    chosen = random.Random(5)
    lines = [chosen.choices(WORDS, k=5) for _ in range(count)]
    path.write_text("".join(f"{' '.join(line)}\t{names['red' in line]}\n" for line in lines))
    return path


def write_tags(path: Path, count: int = 60) -> Path:
    chosen = random.Random(6)
    lines = [chosen.choices(WORDS, k=5) for _ in range(count)]
    path.write_text(
        "".join("".join(f"{w}\t{'COLOUR' if w in WORDS[:3] else 'OTHER'}\n" for w in line) + "\n" for line in lines)
    )
    return path


@pytest.fixture(scope="session")
def filled(once: Once) -> Path:
    """A fill run on sub-words, bert/, with its text; and one of the other kind, xlnet/."""

    def make(folder: Path) -> None:
        write_text(folder / "text", 0)
        for kind in ("bert", "xlnet"):
            chosen = [f"model.kind={kind}", *SMALL, "tokens.size=40", "training.rate=0.003"]
            regard.train(folder / "text", folder / kind, task="fill", steps=4, set=chosen, quiet=True)

    return once("filled", make)


@pytest.fixture
def first(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The weights of the last training before its first step."""
    found: dict[str, Tensor] = {}

    class Watched(Trainer):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            found.clear()
            found.update(
                {name: weight.detach().clone() for name, weight in checkpoint.weights_of(self.network).items()}
            )

    monkeypatch.setattr("regard.training.train.Trainer", Watched)
    return found


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return next(line for line in capsys.readouterr().err.split("\n") if line.startswith("starting from"))


def begin(data: Path, out: Path, start: Path, **more: Any) -> regard.Model:
    return regard.train(data, out, start=start, steps=more.pop("steps", 3), **more)


def test_the_same_task_on_other_text_begins_with_all_weights(
    filled: Path, tmp_path: Path, first: dict[str, Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    model = begin(write_text(tmp_path / "other", 1), tmp_path / "run", filled / "bert", task="fill")
    old = regard.load(filled / "bert")
    weights = checkpoint.weights_of(old.network)
    assert first.keys() == weights.keys()
    assert all(first[name].equal(weight) for name, weight in weights.items())
    assert (
        said(capsys)
        == f"starting from {filled / 'bert'}: {len(weights)} of {len(weights)} weights; the others are fresh"
    )
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (filled / "bert" / "tokenizer.json").read_bytes()
    assert model.config.model == old.config.model
    assert model.config.tokens == old.config.tokens
    assert model.config.training.start == str(filled / "bert")
    assert model.config.training.rate == pytest.approx(old.config.training.rate / 3)
    assert "started from" in (tmp_path / "run" / "README.md").read_text()
    assert regard.load(tmp_path / "run").predict(["red ___ ."])[0].startswith("red ")


@pytest.mark.parametrize("task", ["classify", "tag"])
def test_labels_and_tags_begin_with_a_model_that_filled(
    filled: Path, tmp_path: Path, first: dict[str, Tensor], capsys: pytest.CaptureFixture[str], task: str
) -> None:
    data = write_labels(tmp_path / "data.tsv") if task == "classify" else write_tags(tmp_path / "data.tsv")
    model = begin(data, tmp_path / "run", filled / "bert", task=task)
    old = regard.load(filled / "bert")
    weights = checkpoint.weights_of(old.network)
    size = Tokenizer.load(tmp_path / "run" / "tokenizer.json").size
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (filled / "bert" / "tokenizer.json").read_bytes()
    backbone = [name for name in first if name.startswith("backbone.")]
    assert len(backbone) > 10
    assert all(first[name].equal(weights[name]) for name in backbone)
    assert first["stem.embedding.table.weight"].equal(weights["stem.embedding.table.weight"][:size]), "all but the mask"
    rows = min(len(first["stem.embedding.places.table"]), len(weights["stem.embedding.places.table"]))
    assert first["stem.embedding.places.table"][:rows].equal(weights["stem.embedding.places.table"][:rows])
    assert "head.output.weight" in first
    line = said(capsys)
    assert f"of {len(first)} weights and " in line
    assert " in part; the others are fresh" in line
    assert model.config.model.model_dump() == old.config.model.model_dump()
    moved = checkpoint.weights_of(model.network)
    assert any(not first[name].equal(moved[name]) for name in backbone), "and it goes on learning from there"
    assert len(regard.load(tmp_path / "run").predict(["red old flat"])) == 1


def test_labels_begin_with_a_model_that_continued(filled: Path, tmp_path: Path, first: dict[str, Tensor]) -> None:
    chosen = ["model.kind=gpt", *SMALL, "tokens.level=bpe", "tokens.size=40", "output.context=12"]
    old = regard.train(filled / "text", tmp_path / "old", task="continue", steps=3, set=chosen, quiet=True)
    model = begin(write_labels(tmp_path / "l.tsv"), tmp_path / "run", tmp_path / "old", task="classify", quiet=True)
    assert getattr(model.config.model, "kind", "") == "gpt"
    weights = checkpoint.weights_of(old.network)
    backbone = [name for name in first if name.startswith("backbone.")]
    assert len(backbone) > 10
    assert all(first[name].equal(weights[name]) for name in [*backbone, "stem.embedding.table.weight"])
    place = next(name for name in first if name.startswith("stem.embedding.place"))
    assert first[place][:12].equal(weights[place])
    assert len(first[place]) > 12, "positions beyond the context are fresh"


def test_classes_are_those_of_the_new_data(filled: Path, tmp_path: Path, first: dict[str, Tensor]) -> None:
    begin(write_labels(tmp_path / "a.tsv"), tmp_path / "a", filled / "bert", task="classify")
    old = checkpoint.weights_of(regard.load(tmp_path / "a").network)
    begin(write_labels(tmp_path / "b.tsv", ("hot", "icy")), tmp_path / "b", tmp_path / "a", task="classify")
    assert first["backbone.layers.0.attention.q_proj.weight"].equal(old["backbone.layers.0.attention.q_proj.weight"])
    assert not first["head.output.weight"].equal(old["head.output.weight"])
    assert set(regard.load(tmp_path / "b").predict(["red red", "blue old"])) <= {"hot", "icy"}
    begin(write_labels(tmp_path / "c.tsv"), tmp_path / "c", tmp_path / "a", task="classify")
    assert first["head.output.weight"].equal(old["head.output.weight"])


def test_pairs_begin_with_pairs(letters: Path, tmp_path: Path, first: dict[str, Tensor]) -> None:
    data = write_letters(tmp_path / "more.tsv", 60, seed=9)
    model = begin(data, tmp_path / "run", letters / "run", set=["training.every=3", "training.rate=1e-6"])
    old = regard.load(letters / "run")
    assert all(first[name].equal(weight) for name, weight in checkpoint.weights_of(old.network).items())
    assert model.predict(["abc", "jig"]) == old.predict(["abc", "jig"]), "three tiny steps have not made it forget"


def test_resumed_without_the_other_run_equals_uninterrupted(filled: Path, tmp_path: Path) -> None:
    text, start = write_text(tmp_path / "other", 1), tmp_path / "start"
    shutil.copytree(filled / "bert", start)
    steady = ["training.schedule=constant", "training.warmup=0", "training.every=2"]
    begin(text, tmp_path / "whole", start, task="fill", steps=6, set=steady, quiet=True)
    begin(text, tmp_path / "parts", start, task="fill", steps=2, set=steady, quiet=True)
    shutil.rmtree(start)
    shutil.rmtree(tmp_path / "parts" / "cache")
    begin(text, tmp_path / "parts", start, task="fill", steps=6, set=steady, quiet=True)
    whole, parts = (checkpoint.read_state(checkpoint.states(tmp_path / name)[-1])[0] for name in ("whole", "parts"))
    assert all(value.equal(parts["weights"][name]) for name, value in whole["weights"].items())
    with pytest.raises(UserError, match="does not exist"):
        begin(text, tmp_path / "new", start, task="fill")


def test_a_written_config_starts_from_the_run_it_names(filled: Path, tmp_path: Path, first: dict[str, Tensor]) -> None:
    text = write_text(tmp_path / "other", 1)
    begin(text, tmp_path / "run", filled / "bert", task="fill", quiet=True)
    before = {name: weight.clone() for name, weight in first.items()}
    regard.train(tmp_path / "run" / "config.yaml", tmp_path / "again", quiet=True)
    assert all(weight.equal(first[name]) for name, weight in before.items())
    assert settings.load(tmp_path / "again" / "config.yaml") == settings.load(tmp_path / "run" / "config.yaml")
    other = (tmp_path / "run" / "config.yaml").read_text().replace("level: bpe", "level: words")
    (tmp_path / "words.yaml").write_text(other)
    with pytest.raises(UserError, match=r"its tokens.level is bpe, found words"):
        regard.train(tmp_path / "words.yaml", tmp_path / "words", quiet=True)


def test_what_does_not_go_together_is_said(filled: Path, letters: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path / "other", 1)
    for data, start, more, sentence in (
        (text, letters / "run", {"task": "fill"}, "converts texts: a model that fills in blanks of texts has no use"),
        (
            letters / "data.tsv",
            filled / "bert",
            {},
            "fills in blanks of texts: a model that converts texts has no use",
        ),
        (write_labels(tmp_path / "l.tsv"), filled / "xlnet", {"task": "classify"}, "of the kind 'xlnet'"),
        (text, tmp_path / "none", {"task": "fill"}, "none is not a run folder: it does not exist"),
        (text, tmp_path, {"task": "fill"}, "has no config.yaml"),
        (text, filled / "bert", {"task": "fill", "set": ["model.width=20"]}, "weights fit: leave the settings"),
    ):
        with pytest.raises(UserError, match=sentence) as found:
            begin(data, tmp_path / "run", start, **{"quiet": True, **more})
        assert "\n" not in str(found.value)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)


def test_another_start_does_not_go_on_with_a_run(filled: Path, tmp_path: Path) -> None:
    text = write_text(tmp_path / "other", 1)
    begin(text, tmp_path / "run", filled / "bert", task="fill", quiet=True)
    shutil.copytree(filled / "bert", tmp_path / "copy")
    with pytest.raises(UserError, match=r"begun with start="):
        begin(text, tmp_path / "run", tmp_path / "copy", task="fill", quiet=True)
