"""A trained model in Python: what it shows, what it answers, and errors in terms of arguments."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.attention.grid import GridTable
from regard.attention.windows import WindowAttention
from regard.errors import UserError, shell
from regard.runs.build import _Unfilled


@pytest.fixture(scope="module")
def model(letters: Path) -> regard.Model:
    return regard.load(letters / "run")


def test_names_can_be_completed() -> None:
    assert {"train", "load", "watch", "Model"} <= {*dir(regard)}


def test_a_model_says_what_it_is(model: regard.Model) -> None:
    assert "converts texts, recurrent, " in repr(model)
    assert repr(str(model.folder)) in repr(model)


def test_details_are_what_the_command_prints(model: regard.Model) -> None:
    plain = model.predict(["abc", "bad"])
    found = model.predict(["abc", "bad"], details=True, n_best=2, alignment="soft")
    assert [each["answers"][0]["text"] for each in found] == plain
    assert [len(each["answers"]) for each in found] == [2, 2]
    first = found[0]["answers"][0]
    assert first["score"] < 0
    assert np.allclose(np.sum(first["alignment"], -1), 1, atol=1e-3)


def test_a_figure_is_displayed_by_notebooks(model: regard.Model) -> None:
    figure = model.show("abc")
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert figure.axes[0].images[0].get_clim() == (0.0, 1.0)
    assert model.show("abc", answer="ABC", grid=True).axes


def test_one_path_is_enough(model: regard.Model, letters: Path) -> None:
    one, many = model.evaluate(str(letters / "test.tsv")), model.evaluate([letters / "test.tsv"])
    assert one[0][0].value == many[0][0].value


def test_what_is_no_text_is_refused(model: regard.Model) -> None:
    with pytest.raises(UserError, match="predict takes a list of texts"):
        model.predict("abc")
    with pytest.raises(UserError, match="Text 2 of 2: expected a text, found NoneType"):
        model.predict(["abc", None])


@pytest.mark.parametrize("given", [{"model.width": 8, "training.average": 1}, ["model.width=8", "training.average=1"]])
def test_settings_may_be_a_dictionary(given: object, pairs: Path, tmp_path: Path) -> None:
    small = {"model.kind": "recurrent", "model.layers": 1}
    given = {**small, **given} if isinstance(given, dict) else [f"{k}={v}" for k, v in small.items()] + given  # type: ignore[operator]
    found = regard.train(pairs, tmp_path / "run", steps=1, set=given, quiet=True)  # type: ignore[arg-type]
    assert (found.config.model.width, found.config.training.average) == (8, 1)


SENTENCES = {
    "name another folder with -o.": "name another folder with out=.",
    "give --valid FILE.": "give valid=FILE.",
    "Start from it with --from runs/a and another folder (-o).": 'Start from it with start="runs/a" and another folder (out=).',
    "Try --set tokens.level=bpe.": 'Try set={"tokens.level": "bpe"}.',
    "Try --set a.b=1 c.d=x.": 'Try set={"a.b": 1, "c.d": "x"}.',
    "--set training.rate=0.1: too much": 'set={"training.rate": 0.1}: too much',
    "--n-best is 3 and --beam 2: no.": "n_best is 3 and beam 2: no.",
    "Try --columns source=1,target=2, or name them.": 'Try columns="source=1,target=2", or name them.',
    "expected --format jsonl, found text.": 'expected format="jsonl", found text.',
    "plain text needs --task continue": 'plain text needs task="continue"',
    "see `regard train FILE --set data.encoding=latin-1`": "see `regard train FILE --set data.encoding=latin-1`",
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_errors_name_arguments_in_python_and_options_in_a_shell(sentence: str) -> None:
    assert str(UserError(sentence)) == SENTENCES[sentence]
    with shell():
        assert str(UserError(sentence)) == sentence


@pytest.mark.timeout(30)
@pytest.mark.parametrize("build", [lambda: GridTable(2, 2, 4), lambda: WindowAttention(2, 3)])
def test_weights_that_are_to_be_loaded_may_be_anything_at_first(
    build: Callable[[], torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size: empty(*size).fill_(1e30))
    with _Unfilled():
        assert all(weights.eq(1e30).all() for weights in build().parameters())
