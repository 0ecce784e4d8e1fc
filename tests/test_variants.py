"""Settings that are no input and no output of their own, at toy size: each trains, stops, resumes to the same bits,
predicts, evaluates, is shown and passes its checks, as the matrix does with the defaults."""

import io
import json
import math
import random
from itertools import pairwise
from pathlib import Path

import pytest

import regard
from regard.attention.multihead import unfused
from regard.commands.check import check_run
from regard.commands.evaluate import evaluate
from regard.commands.info import info, render
from regard.commands.predict import predict
from regard.commands.show import show, show_positions
from regard.training.loop import Interrupted, Trainer
from tests import test_matrix as matrix

STEPS, STOP = 4, 2
SET = [*matrix.SET, "training.every=2", "training.accumulate=1"]
YES = {"true": "yes", "false": "no"}
RECURRENT = ["model.kind=recurrent"]
TRANSFORMER = ["model.kind=transformer", "model.heads=2", "model.hidden=16"]
DEEP = ["model.heads=2", "model.hidden=16"]
PARTS = ["model.score=additive", "model.normaliser=sigmoid"]
# fmt: off
VARIANTS: dict[str, tuple[str, str, list[str]]] = {  # the input, the task, and what is set
    "before": ("tokens", "convert", [*RECURRENT, "model.order=before", "model.both_ways=false", "model.cell=forgetting"]),
    "before, heads": (
        "tokens", "convert",
        [*RECURRENT, "model.order=before", "model.feeding=true", "model.heads=2", "model.cell=rnn"],
    ),
    "after, normalised": (
        "tokens", "convert", [*RECURRENT, "model.order=after", "model.attention=bilinear", "model.normaliser=relu"],
    ),
    "cell rnn": ("tokens", "tag", [*RECURRENT, "model.cell=rnn", "tokens.spelling_width=8"]),
    "cell forgetting": ("tokens", "continue", [*RECURRENT, "model.cell=forgetting", "output.context=48"]),
    "parts": (
        "tokens", "convert",
        [*TRANSFORMER, *PARTS, "model.heads_see=piece", "model.key_width=6", "model.value_width=5"],
    ),
    "positions in heads": (
        "tokens", "convert",
        [*TRANSFORMER, "model.layers=2", "model.position=learned", "model.position_way=heads"],
    ),
    "positions in scores": (
        "tokens", "fill", [*DEEP, "model.position=learned", "model.position_way=queries_keys"],
    ),
    "positions everywhere": (
        "tokens", "continue",
        [
            *DEEP, "output.context=48", "model.layers=2", "model.position_way=concatenated",
            "model.position_layers=every", "model.normaliser=relu", "model.score=bilinear",
        ],
    ),
    "floater": (
        "tokens", "tag",
        [
            *TRANSFORMER, "model.position=floater", "model.position_way=heads", "model.position_layers=every",
            "model.value_width=6", "model.normaliser=exponential", "model.score=dot", "tokens.spelling_width=8",
        ],
    ),
    "gate": ("tokens", "classify", [*TRANSFORMER, "output.pooling=gate", "model.score=mlp", "model.normaliser=none"]),
    "forgetting": (
        "tokens", "classify", [*RECURRENT, "output.pooling=forgetting", "output.forgetting=0.8", "model.cell=gru"],
    ),
    "bert's parts": (
        "tokens", "fill",
        [
            "model.kind=bert", *DEEP, "model.layers=2", "model.score=bilinear", "model.key_width=6",
            "model.position=sinusoidal", "model.position_way=concatenated", "model.position_layers=every",
        ],
    ),
    "gpt's parts": ("tokens", "classify", ["model.kind=gpt", *DEEP, *PARTS, "model.position=recurrent"]),
    "vit's parts": ("patches", "classify", ["model.kind=vit", *DEEP, *PARTS, "model.heads_see=piece"]),
    "conformer's parts": (
        "frames", "tag",
        [
            "model.kind=conformer", "model.hidden=16", "model.heads=2", *PARTS, "model.position=sinusoidal",
            "model.layers=2", "model.position_way=concatenated", "model.position_layers=every", "frames.bins=8",
        ],
    ),
    "an encoder's parts": (
        "frames", "convert",
        [
            "encoder.kind=transformer", "encoder.width=12", "encoder.layers=1", "encoder.heads=2", "encoder.hidden=12",
            "encoder.score=additive", "encoder.normaliser=relu", "frames.bins=8",
        ],
    ),
    "convolution": ("tokens", "convert", ["model.kind=convolution", "model.layers=2"]),
    "convolution reads": (
        "tokens", "convert",
        ["model.kind=convolution", "encoder.kind=convolution", "encoder.width=12", "encoder.kernel=5"],
    ),
    "convolution tags": (
        "tokens", "tag", ["model.kind=convolution", "model.position=sinusoidal", "tokens.spelling_width=8"],
    ),
    "convolution labels": ("tokens", "classify", ["model.kind=convolution", "model.kernel=1", "model.position=none"]),
    "convolution hears": ("frames", "tag", ["model.kind=convolution", "model.kernel=5", "frames.bins=8"]),
    "convolution hears all": ("frames", "classify", ["model.kind=convolution", "model.kernel=5", "frames.bins=8"]),
    "convolution writes down": (
        "frames", "convert",
        ["model.kind=convolution", "encoder.kind=convolution", "encoder.width=12", "frames.bins=8"],
    ),
    "number": (
        "numbers", "classify", ["model.kind=gpt", *DEEP, "model.language=0.5", "output.kind=number"],
    ),
    "number of a pair": ("numbers", "classify", ["model.kind=bert", *DEEP, "output.kind=number"]),
    "frozen": ("tokens", "classify", ["model.kind=bert", *DEEP, "training.frozen=true"]),
    "matthews": ("tokens", "classify", [*RECURRENT, "output.metric=matthews"]),
    "f1": ("tokens", "classify", [*RECURRENT, "output.metric=f1", "output.positive=high"]),
    "one way": (
        "tokens", "classify", [*RECURRENT, "model.both_ways=false", "model.language=0.5", "output.pooling=last"],
    ),
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
        return regard.train(path, folder / name, task=task, steps=STEPS, set=[*SET, *changes])
    except Interrupted:
        return None
    finally:
        Trainer._step = inner  # type: ignore[method-assign]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_setting_trains_resumes_answers_is_shown_and_passes_its_checks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, task, changes = VARIANTS[name]
    path = numbers(tmp_path) if source == "numbers" else matrix.toy(tmp_path, source, task)
    train(tmp_path, "whole", path, task, changes)
    log = capsys.readouterr().err
    assert train(tmp_path, "parts", path, task, changes, STOP) is None
    assert train(tmp_path, "parts", path, task, changes) is not None
    assert matrix.outcome(tmp_path / "parts") == matrix.outcome(tmp_path / "whole")
    model = regard.load(tmp_path / "whole")
    slow = unfused(model.network)
    assert slow or not any(change.endswith("score=additive") for change in changes)
    assert all(line in log for line in slow)  # why there is no fused kernel
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
    words = render(facts).replace(",", "").split()
    for key, _, value in (change.partition("=") for change in changes):
        section, _, last = key.partition(".")
        assert last in facts.settings[section]
        assert (last, YES.get(value, value)) in pairwise(words), key
    said, sound = check_run(tmp_path / "whole", accept=False)
    assert sound, said
