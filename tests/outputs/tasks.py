"""Tasks with fresh weights from settings and a few examples, without files; and the state of a run."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.config import Config
from regard.data.example import Example
from regard.data.survey import take_survey
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.runs.build import build
from regard.runs.settings import make
from regard.task import Task
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
