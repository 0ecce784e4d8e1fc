"""Settings: typed sections, read from YAML and written out in full with a comment each.

What a run's settings are made of depends on its input and output: see `regard.runs.settings`.
"""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails

from regard.errors import UserError


class Section(BaseModel):
    """A group of settings. `vocabulary`: they say what a vocabulary is, and come along when another run uses it."""

    vocabulary: ClassVar[bool] = False

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


class Tables(Section):
    """Settings that ask for tables of vectors, as those of a vocabulary do."""

    @abstractmethod
    def rows(self) -> int:
        """Return about how many rows these tables have."""


class Data(Section):
    train: list[str] = Field(description="files to learn from; two line-aligned files are one corpus", min_length=1)
    valid: list[str] = Field([], description="the same for validation; empty: some of train is held out")
    test: list[str] = Field([], description="the same for the final test, used once")
    faults: Literal["stop", "skip"] = Field("stop", description="a faulty line stops, or is skipped and counted")
    encoding: str = Field("utf-8", description="encoding of the files, such as latin-1")
    format: str = Field("", description="format of the files, such as csv or jsonl; empty: recognised")
    columns: str = Field("", description="columns to read, such as source=2,target=4; empty: recognised")
    apart: bool = Field(False, description="examples that are also in the validation data are left out of training")
    most: int | None = Field(None, ge=1, description="examples to train on, drawn from all; empty: all of them")
    held_out: int = Field(500, ge=1, description="pairs (lines, texts) held out for validation if none are given")
    longest: int = Field(256, ge=1, le=10**6, description="longer examples are trained on in parts, or left out")


class Training(Section):
    budget: int = Field(4096, ge=1, description="source and target tokens of a batch, padding included")
    accumulate: int = Field(1, ge=1, description="batches per step (gradient accumulation)")
    optimiser: Literal["adamw", "adam", "muon"] = Field(
        "adamw", description="adamw; adam adds decay to the gradient; muon needs fewer steps, each slower"
    )
    rate: float = Field(1e-3, gt=0, le=10, description="peak learning rate")
    schedule: Literal["cosine", "inverse_sqrt", "constant"] = Field(
        "cosine", description="learning rate after the warm-up"
    )
    warmup: int = Field(400, ge=0, description="steps of warm-up, in which the learning rate rises")
    decay: float = Field(0.0, ge=0, description="weight decay")
    smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing")
    clip: float = Field(1.0, gt=0, description="maximum norm of the gradient, clipped above")
    steps: int | None = Field(None, ge=1, description="steps in all; empty: as many as fit into the minutes")
    minutes: float | None = Field(20.0, gt=0, description="time for training; empty: no limit")
    every: int | None = Field(None, ge=1, description="steps between validations; empty: 25 over the run")
    validated: int | None = Field(
        None, ge=1, description="items of each validation; empty: as many as take a tenth of the time"
    )
    patience: float | None = Field(
        None, gt=0, description="minutes (steps, if given) without a better score before it stops; empty: 2/5 of them"
    )
    best: Literal["metric", "loss"] = Field(
        "metric", description="what of the validation data decides about the best weights; loss where items are few"
    )
    ceiling: bool = Field(True, description="stop when the score is perfect twice in a row or more, on 30 items in all")
    average: int = Field(5, ge=1, description="checkpoints averaged at the end, unless the best is clearly better")
    parallel: Literal["ddp", "fsdp"] = Field("ddp", description="under torchrun: whole copies, or sharded weights")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="precision of matrix products; weights are float32"
    )
    checkpointing: bool = Field(False, description="activation checkpointing: less memory, more time")
    compile: bool = Field(False, description="torch.compile: takes minutes first, pays off on a GPU")
    seed: int = Field(1, ge=0, lt=2**63, description="random seed of weights, order and dropout")
    frozen: bool = Field(False, description="train only the head; all other weights stay frozen")
    start: str | None = Field(None, description="run to start from; empty: none")


class Config(Section):
    """The settings that every run has. An output's own class adds its sections, and its input one under its name."""

    task: str = Field(description="what comes out")
    input: str = Field("tokens", description="what goes in")
    data: Data
    model: Any
    training: Training = Training()

    @property
    def reading(self) -> Any:
        """The section of the input, which has the input's name."""
        return getattr(self, self.input)

    @property
    def joint(self) -> bool:
        """True if the input learns its alphabet from sources and targets, because the output shares it."""
        return bool(getattr(getattr(self, "output", None), "joint", False))

    def sections(self) -> Iterator[tuple[str, Any]]:
        """Yield all settings in the order in which they are written: what goes in stands before the model."""
        first = ("task", "input", "data", self.input)
        names = [*first, *(name for name in type(self).model_fields if name not in first)]
        return ((name, getattr(self, name)) for name in names)

    def parameters(self) -> int:
        """Return about how many weights the model has; a vocabulary whose size depends on the data counts as 200."""
        tables = sum(section.rows() for _, section in self.sections() if isinstance(section, Tables))
        return int(self.model.parameters() + tables * self.model.width)


NOT_YAML = (yaml.YAMLError, ValueError, RecursionError)  # a date such as 2024-13-01 is a ValueError


class _Plain(yaml.SafeLoader):
    """YAML without aliases, of which ten lines can stand for more than any memory holds, and without endless depth."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent) or self.depth > 20:
            problem = "it is nested too deep" if self.depth > 20 else "an alias (*) is not allowed here"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def plain_yaml(text: str | bytes) -> Any:
    """Return what a YAML text says, or raise one of NOT_YAML."""
    return yaml.load(text, _Plain)  # a safe loader: it makes no objects


def is_settings(path: str | Path) -> bool:
    """Return True for a file whose name says that it holds settings, not data."""
    return Path(path).suffix.lower() in (".yaml", ".yml")


def parse(path: Path, expected: str = "`task:`, `data:`, `model:` and so on") -> dict[str, Any]:
    """Read the settings of a YAML file as a nested dictionary."""
    try:
        found = plain_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: the settings cannot be read: {error.strerror}.") from error
    except NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no settings: expected {expected}.")
    return found


EXPECTED = {  # by pydantic's name of a fault
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "literal_error": "{expected}",
}


def expected_by(fault: ErrorDetails) -> str | None:
    """Return what a setting expects instead of the value that pydantic refused; None for other faults."""
    found = EXPECTED.get(fault["type"])
    return None if found is None else found.format(**fault.get("ctx", {}))


def nearest(name: str, known: list[str]) -> str:
    """Return the end of a sentence about an unknown name: ", did you mean …?", or "." if nothing is near."""
    ends = {key.rpartition(".")[2]: key for key in known}
    close = difflib.get_close_matches(name, known, 1) or difflib.get_close_matches(name.rpartition(".")[2], ends, 1)
    return f", did you mean {ends.get(close[0], close[0])!r}?" if close else "."


def render(config: Config, reasons: dict[str, str]) -> str:
    lines = [
        "# All settings of this run. Change any of them with --set key=value, or edit a copy and train from it.",
        "",
    ]
    for name, value in config.sections():
        description = type(config).model_fields[name].description
        if not isinstance(value, Section):
            lines.append(f"{name}: {_scalar(value)}  # {description}")
            continue
        lines += ["", f"{name}:" if type(value).model_fields else f"{name}: {{}}"]
        for key, setting in value:
            why = reasons.get(f"{name}.{key}")
            if why:
                lines.append(f"  # {why}")
            lines.append(f"  {key}: {_scalar(setting)}  # {type(value).model_fields[key].description}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9).strip()
    return text.removesuffix("\n...").strip()


def keys_of(found: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for name, value in found.items():
        keys += keys_of(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return keys
