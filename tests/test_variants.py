"""Settings that are no input and no output of their own, at toy size: each trains, stops, resumes to the same bits,
predicts, evaluates, is shown and passes its checks, as the matrix does with the defaults."""

import io
import json
import math
import random
from pathlib import Path

import pytest

import regard
from regard.commands.check import check_run
from regard.commands.evaluate import evaluate
from regard.commands.info import info, render
from regard.commands.predict import predict
from regard.commands.show import show, show_positions
from regard.training.loop import Interrupted, Trainer
from tests import test_matrix as matrix

STEPS, STOP = 4, 2
SET = [*matrix.SET, "training.every=2", "training.accumulate=1"]
RECURRENT = ["model.kind=recurrent"]
TRANSFORMER = ["model.kind=transformer", "model.heads=2", "model.hidden=16"]
# fmt: off
VARIANTS: dict[str, tuple[str, list[str]]] = {
    "before": ("convert", [*RECURRENT, "model.order=before", "model.both_ways=false", "model.cell=forgetting"]),
    "before, heads": ("convert", [*RECURRENT, "model.order=before", "model.heads=2", "model.cell=rnn"]),
    "cell rnn": ("tag", [*RECURRENT, "model.cell=rnn", "tokens.spelling_width=8"]),
    "cell forgetting": ("continue", [*RECURRENT, "model.cell=forgetting", "output.context=48"]),
    "parts": (
        "convert",
        [
            *TRANSFORMER, "model.score=additive", "model.normaliser=sigmoid", "model.heads_see=piece",
            "model.key_width=6", "model.value_width=5",
        ],
    ),
    "positions in heads": (
        "convert", [*TRANSFORMER, "model.layers=2", "model.position=learned", "model.position_way=heads"],
    ),
    "positions everywhere": (
        "continue",
        [
            "model.heads=2", "model.hidden=16", "output.context=48", "model.layers=2", "model.position_way=concatenated",
            "model.position_layers=every", "model.normaliser=relu", "model.score=bilinear",
        ],
    ),
    "gate": ("classify", [*TRANSFORMER, "output.pooling=gate", "model.score=mlp"]),
    "forgetting": ("classify", [*RECURRENT, "output.pooling=forgetting", "model.cell=gru"]),
    "bert's parts": (
        "fill", ["model.kind=bert", "model.heads=2", "model.hidden=16", "model.score=bilinear", "model.key_width=6"],
    ),
    "convolution": ("convert", ["model.kind=convolution", "model.layers=2"]),
    "convolution reads": (
        "convert", ["model.kind=convolution", "encoder.kind=convolution", "encoder.width=12", "encoder.kernel=5"],
    ),
    "convolution tags": ("tag", ["model.kind=convolution", "model.position=sinusoidal", "tokens.spelling_width=8"]),
    "convolution labels": ("classify", ["model.kind=convolution", "model.kernel=1", "model.position=none"]),
    "number": ("numbers", ["model.kind=gpt", "model.heads=2", "model.hidden=16", "model.language=0.5", "output.kind=number"]),
    "number of a pair": ("numbers", ["model.kind=bert", "model.heads=2", "model.hidden=16", "output.kind=number"]),
    "frozen": ("classify", ["model.kind=bert", "model.heads=2", "model.hidden=16", "training.frozen=true"]),
    "matthews": ("classify", [*RECURRENT, "output.metric=matthews"]),
    "one way": ("classify", [*RECURRENT, "model.both_ways=false", "model.language=0.5", "output.pooling=last"]),
}
# fmt: on


def numbers(folder: Path) -> Path:
    """Pairs of sentences and a number for each."""
    chosen = random.Random(1)
    rows = [(matrix.words(chosen, "ab", 3), matrix.words(chosen, "ab", 3)) for _ in range(60)]
    path = folder / "numbers.tsv"
    text = "".join(f"{' '.join(a)} ||| {' '.join(b)}\t{abs(len(str(a)) - len(str(b))) / 2}\n" for a, b in rows)
    path.write_text(text, encoding="utf-8")
    return path


def train(folder: Path, name: str, path: Path, task: str, changes: list[str], until: int | None = None) -> object:
    inner = Trainer._step

    def step(self: Trainer) -> tuple[float, int]:
        found = inner(self)
        self.stop = self.at.step == until
        return found

    Trainer._step = step  # type: ignore[method-assign]
    try:
        return regard.train(path, folder / name, task=task, steps=STEPS, set=[*SET, *changes], quiet=True)
    except Interrupted:
        return None
    finally:
        Trainer._step = inner  # type: ignore[method-assign]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_setting_trains_resumes_answers_is_shown_and_passes_its_checks(name: str, tmp_path: Path) -> None:
    task, changes = VARIANTS[name]
    path, task = (numbers(tmp_path), "classify") if task == "numbers" else (matrix.toy(tmp_path, "tokens", task), task)
    train(tmp_path, "whole", path, task, changes)
    assert train(tmp_path, "parts", path, task, changes, STOP) is None
    assert train(tmp_path, "parts", path, task, changes) is not None
    assert matrix.outcome(tmp_path / "parts") == matrix.outcome(tmp_path / "whole")
    model = regard.load(tmp_path / "whole")
    asked = [model.task.input.text(item.example.source) for item in model.held([path]).items[:2]]
    out = io.StringIO()
    predict(model, iter([[*asked, ""]]), {"seed": 1} if model.task.output.draws else {}, out, as_json=True)
    assert [json.loads(line)["source"] for line in out.getvalue().splitlines()] == [*asked, ""]
    assert all(math.isfinite(score.value) for score in evaluate(model, [str(path)], {}).scores)
    if task != "continue" or "model.kind=recurrent" not in changes:
        assert show(model, asked[:1], tmp_path / "shown.png").read_bytes().startswith(b"\x89PNG")
    if any(change.startswith("model.position_way") for change in changes):
        assert show_positions(model, tmp_path / "tables.png").read_bytes().startswith(b"\x89PNG")
    facts = info(tmp_path / "whole")
    for key in (change.partition("=")[0] for change in changes):
        section, _, last = key.partition(".")
        assert last in facts.settings[section]
        assert last in render(facts).split()
    said, sound = check_run(tmp_path / "whole", accept=False)
    assert sound, said
