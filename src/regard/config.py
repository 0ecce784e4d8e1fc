"""A run's settings: typed, written out in full with a comment each, overridden by `--set key=value`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.errors import UserError

Level = Literal["characters", "words", "symbols", "bpe", "unigram"]
Position = Literal[
    "sinusoidal", "learned", "recurrent", "floater", "rotary", "alibi", "t5", "shaw", "transformer-xl", "none"
]
Score = Literal["none", "mean", "dot", "scaled_dot", "bilinear", "additive", "mlp"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


class Data(Section):
    train: list[str] = Field(description="files of pairs; two line-aligned files are one corpus", min_length=1)
    valid: list[str] = Field([], description="the same for validation; empty: some of train is held out")
    test: list[str] = Field([], description="the same for the final test, used once")
    faults: Literal["stop", "skip"] = Field("stop", description="a faulty line stops, or is skipped and counted")
    held_out: int = Field(500, ge=1, description="pairs held out for validation if none are given")
    longest: int = Field(256, ge=1, le=10**6, description="pairs with a side of more tokens are left out of training")


class Tokens(Section):
    source_level: Level = Field("characters", description="what a source token is")
    target_level: Level = Field("characters", description="what a target token is")
    joint: bool = Field(False, description="one vocabulary for both sides")
    lowercase: bool = Field(False, description="both sides in lower case")
    size: int | None = Field(None, ge=5, description="largest number of tokens of a vocabulary (sub-words and words)")


class Transformer(Section):
    kind: Literal["transformer"] = Field("transformer", description="transformer or recurrent")
    layers: int = Field(3, ge=1, le=1000, description="layers of the encoder, and of the decoder")
    width: int = Field(256, ge=2, le=65536, description="width of the vectors between layers")
    hidden: int = Field(512, ge=1, le=1_000_000, description="inner width of the feed-forward parts")
    heads: int = Field(4, ge=1, le=4096, description="attention heads; they divide the width")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of numbers dropped in training")
    norm: Literal["pre", "post"] = Field("pre", description="layer normalisation before or after each part")
    position: Position = Field("sinusoidal", description="how positions come in")
    tied: bool = Field(True, description="the output layer is the target's embedding table")


class Recurrent(Section):
    kind: Literal["recurrent"] = Field("recurrent", description="transformer or recurrent")
    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm or gru")
    layers: int = Field(1, ge=1, le=100, description="layers of the encoder, and of the decoder")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    attention: Score = Field("additive", description="none, mean, or a score: dot, scaled_dot, bilinear, additive, mlp")
    heads: int = Field(0, ge=0, le=4096, description="0: states are keys and values; 1: projected; more: multi-head")
    feeding: bool = Field(True, description="the last output is fed back into the next step")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of numbers dropped in training")
    tied: bool = Field(True, description="the output layer is the target's embedding table")


Model = Annotated[Transformer | Recurrent, Field(discriminator="kind")]
KINDS: dict[str, type[Transformer] | type[Recurrent]] = {"transformer": Transformer, "recurrent": Recurrent}


class Training(Section):
    budget: int = Field(4096, ge=1, description="source and target tokens of a batch, padding included")
    accumulate: int = Field(1, ge=1, description="batches per step")
    rate: float = Field(1e-3, gt=0, le=10, description="highest learning rate")
    schedule: Literal["cosine", "inverse_sqrt", "constant"] = Field("cosine", description="after the warm-up")
    warmup: int = Field(400, ge=0, description="steps in which the learning rate rises")
    decay: float = Field(0.0, ge=0, description="weight decay (AdamW)")
    smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    steps: int | None = Field(None, ge=1, description="steps in all; empty: as many as fit into the minutes")
    minutes: float | None = Field(20.0, gt=0, description="time for training; empty: no limit")
    every: int | None = Field(None, ge=1, description="steps between validations; empty: 25 over the run")
    patience: int = Field(10, ge=1, description="validations without a better score before it stops")
    average: int = Field(5, ge=1, description="checkpoints averaged at the end, if that scores better")
    parallel: Literal["ddp", "fsdp"] = Field("ddp", description="under torchrun: whole copies, or sharded weights")
    seed: int = Field(1, ge=0, lt=2**63, description="governs weights, order and dropout")


class Decoding(Section):
    beam: int = Field(5, ge=1, le=1000, description="hypotheses kept by the search")
    length_penalty: float = Field(1.0, ge=0, le=10, description="score ÷ length to this power")
    factor: float = Field(3.0, gt=0, description="an answer to n tokens has at most factor · (n + 3) + 3")
    longest: int = Field(256, ge=1, le=10**6, description="most tokens of an answer in any case")


class Config(Section):
    task: Literal["convert"] = Field("convert", description="what comes out: a sequence")
    data: Data
    tokens: Tokens = Tokens()
    model: Model = Transformer()
    training: Training = Training()
    decoding: Decoding = Decoding()


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


def load(path: Path) -> Config:
    """The settings of a YAML file."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Plain)  # a safe loader: it makes no objects
    except OSError as error:
        raise UserError(f"{path}: the settings cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date such as 2024-13-01 is a ValueError
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line} is not valid YAML: {getattr(error, 'problem', None) or error}.") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no settings: expected `task:`, `data:`, `model:` and so on.")
    return make(found, str(path))


def make(found: dict[str, Any], where: str) -> Config:
    """Settings from a nested dictionary; the first fault is named with its key, what was expected and found."""
    try:
        config = Config.model_validate(found)
    except ValidationError as error:
        raise UserError(_sentence(error, where)) from error
    _refuse_giant(config, where, 4)
    return config


def override(config: Config, settings: list[str]) -> Config:
    """`key.of.setting=value` on top of a config."""
    found = config.model_dump()
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: expected key=value, such as --set training.rate=0.001.")
        try:
            parsed = yaml.safe_load(value) if value else None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"--set {setting}: the value {value!r} cannot be read.") from error
        if key == "model.kind" and parsed != found["model"]["kind"] and str(parsed) in KINDS:
            found["model"] = KINDS[str(parsed)]().model_dump()  # the other kind has other settings
            continue
        *path, last = key.split(".")
        section: Any = found
        for name in path:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict) or last not in section:
            raise UserError(f"--set {setting}: there is no setting {key!r}{nearest(key, list(_keys(found)))}")
        section[last] = parsed
    config = make(found, "--set")
    _refuse_giant(config, "--set", 16)  # training keeps a gradient and two moments of each weight
    return config


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence about an unknown name: ", did you mean …?", or "." if nothing is near."""
    ends = {key.rpartition(".")[2]: key for key in known}
    close = difflib.get_close_matches(name, known, 1) or difflib.get_close_matches(name.rpartition(".")[2], ends, 1)
    return f", did you mean {ends.get(close[0], close[0])!r}?" if close else "."


def parameters(config: Config) -> int:
    """About how many weights a model has; a vocabulary whose size depends on the data counts as 200 tokens."""
    model, size = config.model, config.tokens.size or 200
    if isinstance(model, Transformer):
        layers = model.layers * (12 * model.width**2 + 4 * model.width * model.hidden)
    else:
        gates = 4 if model.cell == "lstm" else 3
        layers = model.width**2 * ((8 * model.layers - 1) * gates + 12)
    return layers + (1 if config.tokens.joint else 2) * size * model.width


def memory() -> int:
    """Bytes of memory there are for this process: the machine's, or less if a container allows less."""
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else ""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, int(allowed)) if allowed.isdigit() else machine


def _refuse_giant(config: Config, where: str, each: int) -> None:
    """A model that cannot fit is refused while it is still a number: afterwards the system ends the process."""
    needed = each * parameters(config)
    if needed > memory():
        raise UserError(
            f"{where}: model.width={config.model.width} and model.layers={config.model.layers} need about "
            f"{needed / 1e9:,.0f} GB of memory for {parameters(config):,} weights, there are {memory() / 1e9:,.0f} GB: "
            "make the model smaller."
        )


def write(config: Config, path: Path, reasons: dict[str, str] | None = None) -> None:
    """Everything written out, a comment to each setting; `reasons` tell why a value was chosen."""
    path.write_text(render(config, reasons or {}), encoding="utf-8")


def render(config: Config, reasons: dict[str, str]) -> str:
    lines = [
        "# All settings of this run. Change any of them with --set key=value, or edit a copy and train from it.",
        "",
    ]
    for name, value in config:
        description = type(config).model_fields[name].description
        if not isinstance(value, Section):
            lines.append(f"{name}: {_scalar(value)}  # {description}")
            continue
        lines += ["", f"{name}:"]
        for key, setting in value:
            why = reasons.get(f"{name}.{key}")
            if why:
                lines.append(f"  # {why}")
            lines.append(f"  {key}: {_scalar(setting)}  # {type(value).model_fields[key].description}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9).strip()
    return text.removesuffix("\n...").strip()


def _keys(found: dict[str, Any], prefix: str = "") -> list[str]:
    keys = []
    for name, value in found.items():
        keys += _keys(value, f"{prefix}{name}.") if isinstance(value, dict) else [prefix + name]
    return keys


def _sentence(error: ValidationError, where: str) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part not in ("transformer", "recurrent")]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        known = _keys(Config(data=Data(train=["…"])).model_dump()) + [
            f"model.{name}" for name in Recurrent.model_fields
        ]
        if len(path) == 1:
            known = list(Config.model_fields) + known
        return f"{where}: there is no setting {key!r}{nearest(key, known)}"
    if first["type"] == "missing":
        return f"{where}: the setting {key!r} is missing."
    found = "" if isinstance(first["input"], dict) else f", found {first['input']!r}"
    return f"{where}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}{found}."
