"""Tasks with fresh weights from settings and a few examples, without files; and what holds for trained ones."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

import regard
from regard.config import Config
from regard.data.example import Example
from regard.data.survey import take_survey
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.runs.build import build
from regard.runs.settings import make
from regard.task import Task
from regard.training.loop import Interrupted, Trainer
from regard.training.prepare import learn


def config_of(**found: Any) -> Config:
    """Return settings from sections; there is always some data."""
    return make({"data": {"train": ["a"]}, **found}, "here")


def fresh(config: Config, examples: Sequence[Example[Any, Any]]) -> Task:
    """Return the task of these settings, which has learned from these examples what may be read and answered."""
    seen = take_survey(iter(examples), names_in(OUTPUTS[config.task]), "")
    task = build(config, learn(config, seen, None))
    task.network.eval()
    return task


def lines(texts: Sequence[str], file: str = "text") -> list[Example[str, str]]:
    """Return lines of a text as examples without targets."""
    return [Example(text, "", file, number) for number, text in enumerate(texts, 1)]


def digest(run: Path) -> str:
    """Return a checksum of all tensors of a run's newest state: weights, buffers, optimiser."""
    newest = sorted((run / "state").glob("[0-9]*"))[-1]
    files = sorted(newest.glob("*.safetensors"))
    assert {"weights", "optimiser"} <= {file.stem for file in files}
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def check_shown(model: regard.Model, text: str, target: Sequence[str]) -> None:
    """Maps have a column for each vector that was read, weights between vectors are shares, and pictures name words."""
    exhibit = model.task.exhibit(text, None)
    assert [*exhibit.target] == [*target]
    for one in exhibit.maps:
        weights = np.asarray(one.weights)
        assert weights.shape[-1] == len(exhibit.source)
        assert (weights >= 0).all()
        if one.rows == "source":
            assert weights.sum(-1) == pytest.approx(np.ones(weights.shape[:-1]), abs=1e-5)
    for grid in (False, True):
        shown = {label.get_text() for label in model.show(text, grid=grid).findobj(Text)}
        assert len(shown & {*exhibit.source, *text.split()}) > 1, "the words, or their parts, are named"


def check_resuming(folder: Path, patched: pytest.MonkeyPatch, data: Path, steps: int, **how: Any) -> None:
    """A training that is stopped after 7 steps and resumed ends with every tensor of one that never paused."""
    regard.train(data, folder / "whole", steps=steps, quiet=True, **how)
    inner = Trainer._step

    def step(self: Trainer) -> tuple[float, int]:
        found = inner(self)
        self.stop = self.at.step == 7
        return found

    with patched.context() as stopping:
        stopping.setattr(Trainer, "_step", step)
        with pytest.raises(Interrupted):
            regard.train(data, folder / "parts", steps=steps, quiet=True, **how)
    regard.train(data, folder / "parts", steps=steps, quiet=True, **how)
    assert digest(folder / "parts") == digest(folder / "whole")
