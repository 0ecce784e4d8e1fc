"""A run's settings: typed, written out in full with a comment each, overridden by `--set key=value`."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from regard.errors import UserError

Level = Literal["characters", "words", "symbols", "bpe", "unigram"]
Position = Literal[
    "sinusoidal", "learned", "recurrent", "floater", "rotary", "alibi", "t5", "shaw", "transformer-xl", "none"
]
Activation = Literal["relu", "gelu", "gelu_tanh", "swish"]
Score = Literal["none", "mean", "dot", "scaled_dot", "bilinear", "additive", "mlp"]
Width = Annotated[int, Field(ge=2, le=65536, description="width of the vectors between layers")]
Hidden = Annotated[int, Field(ge=1, le=1_000_000, description="inner width of the feed-forward parts")]
Heads = Annotated[int, Field(ge=1, le=4096, description="attention heads; they divide the width")]
Ngrams = Annotated[int, Field(ge=1, le=16, description="longest run of source tokens with a vector; 1: only tokens")]
Buckets = Annotated[int, Field(ge=1, le=2**30, description="rows of the table of n-grams, which share them by hashing")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="share of numbers dropped in training")]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)


class Data(Section):
    train: list[str] = Field(description="files to learn from; two line-aligned files are one corpus", min_length=1)
    valid: list[str] = Field([], description="the same for validation; empty: some of train is held out")
    test: list[str] = Field([], description="the same for the final test, used once")
    faults: Literal["stop", "skip"] = Field("stop", description="a faulty line stops, or is skipped and counted")
    encoding: str = Field("utf-8", description="of the files, such as latin-1")
    apart: bool = Field(False, description="what is in the validation data too is left out of training")
    held_out: int = Field(500, ge=1, description="pairs (lines, texts) held out for validation if none are given")
    longest: int = Field(256, ge=1, le=10**6, description="what has more tokens on a side is left out of training")


class Layers(Section):
    """What every kind of Transformer has."""

    products: ClassVar[int] = 4  # matrices of width × width in the attention of a layer
    sizes: ClassVar[dict[str, dict[str, int]]] = {}  # named ones

    kind: str
    layers: int = Field(4, ge=1, le=1000, description="layers, on each side where there are two")
    width: Width = 256
    hidden: Hidden = 1024
    heads: Heads = 4
    dropout: Dropout = 0.1
    norm: Literal["pre", "post"] = Field("pre", description="layer normalisation before or after each part")

    def parameters(self) -> int:
        """The weights of the layers of one side, without tables."""
        return self.layers * (self.products * self.width**2 + 2 * self.width * self.hidden)


class Transformer(Layers):
    # `model.size` stands for layers of each side, width, hidden width of the feed-forward parts, and heads.
    sizes: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": {"layers": 4, "width": 128, "hidden": 256, "heads": 4},
        "small": {"layers": 3, "width": 256, "hidden": 512, "heads": 4},
        "base": {"layers": 6, "width": 512, "hidden": 2048, "heads": 8},
        "big": {"layers": 6, "width": 1024, "hidden": 4096, "heads": 16},
    }

    kind: Literal["transformer"] = Field("transformer", description="transformer or recurrent")
    layers: int = Field(3, ge=1, le=1000, description="layers of the encoder, and of the decoder")
    hidden: Hidden = 512
    position: Position = Field("sinusoidal", description="how positions come in")
    tied: bool = Field(True, description="the output layer is the target's embedding table")
    activation: Activation = Field("relu", description="inside the feed-forward parts")
    scale: bool = Field(True, description="embeddings are multiplied by √width")
    closed: bool = Field(False, description="the encoder reads the end after each source")
    ngrams: Ngrams = 1
    buckets: Buckets = 2**17


class Recurrent(Section):
    kind: Literal["recurrent"] = Field("recurrent", description="transformer or recurrent")
    cell: Literal["lstm", "gru"] = Field("lstm", description="lstm or gru")
    layers: int = Field(1, ge=1, le=100, description="layers of the encoder, and of the decoder")
    width: int = Field(256, ge=2, le=65536, description="width of embeddings and states")
    attention: Score = Field("additive", description="none, mean, or a score: dot, scaled_dot, bilinear, additive, mlp")
    heads: int = Field(0, ge=0, le=4096, description="0: states are keys and values; 1: projected; more: multi-head")
    feeding: bool = Field(True, description="the last output is fed back into the next step")
    dropout: Dropout = 0.1
    tied: bool = Field(True, description="the output layer is the target's embedding table")
    ngrams: Ngrams = 1
    buckets: Buckets = 2**17

    @model_validator(mode="after")
    def _heads_have_a_score(self) -> Self:
        if self.heads and self.attention in ("none", "mean"):
            raise PydanticCustomError(
                "heads",
                "heads={heads} needs a score to look with, found attention={attention}: "
                "set model.heads=0, or a score such as model.attention=additive",
                {"heads": self.heads, "attention": self.attention},
            )
        return self


class Bert(Layers):
    """An encoder alone, for every task that reads whole rows of tokens: START, the tokens, END."""

    kind: Literal["bert"] = Field("bert", description="which network")


class Training(Section):
    budget: int = Field(4096, ge=1, description="source and target tokens of a batch, padding included")
    accumulate: int = Field(1, ge=1, description="batches per step")
    optimiser: Literal["adamw", "muon"] = Field("adamw", description="adamw; muon learns from fewer, dearer steps")
    rate: float = Field(1e-3, gt=0, le=10, description="highest learning rate")
    schedule: Literal["cosine", "inverse_sqrt", "constant"] = Field("cosine", description="after the warm-up")
    warmup: int = Field(400, ge=0, description="steps in which the learning rate rises")
    decay: float = Field(0.0, ge=0, description="weight decay")
    smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing")
    clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    steps: int | None = Field(None, ge=1, description="steps in all; empty: as many as fit into the minutes")
    minutes: float | None = Field(20.0, gt=0, description="time for training; empty: no limit")
    every: int | None = Field(None, ge=1, description="steps between validations; empty: 25 over the run")
    patience: int = Field(10, ge=1, description="validations without a better score before it stops")
    average: int = Field(5, ge=1, description="checkpoints averaged at the end, unless the best is clearly better")
    parallel: Literal["ddp", "fsdp"] = Field("ddp", description="under torchrun: whole copies, or sharded weights")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of matrix products; weights are float32")
    compile: bool = Field(False, description="translate the loss to machine code first; minutes that pay on a GPU")
    seed: int = Field(1, ge=0, lt=2**63, description="governs weights, order and dropout")
    start: str | None = Field(None, description="run whose weights and vocabulary this one began with; empty: none")


class Config(Section):
    """What the settings of every task have; each task's own class says more about tokens and model."""

    task: str = Field(description="what comes out")
    data: Data
    tokens: Section
    model: Section
    training: Training = Training()

    def parameters(self) -> int:
        """About how many weights the model has; a vocabulary whose size depends on the data counts as 200 tokens."""
        raise NotImplementedError


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


def is_settings(path: str | Path) -> bool:
    """Whether a file's name says that it holds settings, not data."""
    return Path(path).suffix.lower() in (".yaml", ".yml")


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


def settings_of(task: object, where: str) -> type[Config]:
    """The class of a task's settings."""
    from regard.tasks import TASKS

    if not isinstance(task, str) or task not in TASKS:
        raise UserError(f"{where}: there is no task {task!r}, expected one of {', '.join(TASKS)}.")
    return TASKS[task].settings


def kinds_of(settings: type[Config]) -> dict[str, type[Section]]:
    """The kinds of model that a task knows, with the class of settings of each."""
    models = get_args(settings.model_fields["model"].annotation) or (settings.model_fields["model"].annotation,)
    return {model.model_fields["kind"].default: model for model in models}


def make(found: dict[str, Any], where: str) -> Config:
    """Settings from a nested dictionary; the first fault is named with its key, what was expected and found."""
    kind = settings_of(found.get("task", "convert"), where)
    model = found.get("model")
    if isinstance(model, dict) and "size" in model:
        found = found | {"model": _sized(model, kind, where) | {key: model[key] for key in model if key != "size"}}
    try:
        config = kind.model_validate(found)
    except ValidationError as error:
        raise UserError(_sentence(error, where, kind)) from error
    _refuse_giant(config, where, 4)
    return config


def _sized(model: dict[str, Any], settings: type[Config], where: str) -> dict[str, int]:
    """What the name of a size stands for in a model of this kind."""
    kind = kinds_of(settings).get(str(model.get("kind", settings.model_fields["model"].default.kind)))
    sizes = kind.sizes if kind is not None and issubclass(kind, Layers) else {}
    if not sizes:
        raise UserError(
            f"{where}: model.size: this kind of model has no named sizes: set model.width and model.layers."
        )
    if str(model["size"]) not in sizes:
        raise UserError(f"{where}: model.size: expected one of {', '.join(sizes)}, found {model['size']!r}.")
    return sizes[model["size"]]


def override(config: Config, settings: list[str]) -> Config:
    """`key.of.setting=value` on top of a config. The kind of model comes first, for it brings its own other settings,
    then its size, which stands for several."""
    found = config.model_dump()
    first = ("model.kind=", "model.size=")
    for setting in sorted(settings, key=lambda setting: [not setting.startswith(start) for start in first]):
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: expected key=value, such as --set training.rate=0.001.")
        try:
            parsed = yaml.safe_load(value) if value else None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"--set {setting}: the value {value!r} cannot be read.") from error
        kinds = kinds_of(type(config))
        if key == "model.kind" and parsed != found["model"]["kind"] and str(parsed) in kinds:
            found["model"] = kinds[str(parsed)]().model_dump()  # the other kind has other settings
            continue
        if key == "model.size":
            found["model"] |= _sized(found["model"] | {"size": parsed}, type(config), "--set")
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


def memory() -> int:
    """Bytes of memory there are for this process: the machine's, or less if a container allows less."""
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else ""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, int(allowed)) if allowed.isdigit() else machine


def _refuse_giant(config: Config, where: str, each: int) -> None:
    """A model that cannot fit is refused while it is still a number: afterwards the system ends the process."""
    needed = each * config.parameters()
    if needed > memory():
        raise UserError(
            f"{where}: {_size(config.model)} need about "
            f"{needed / 1e9:,.0f} GB of memory for {config.parameters():,} weights, there are "
            f"{memory() / 1e9:,.0f} GB: make the model smaller."
        )


def _size(model: Section) -> str:
    return " and ".join(f"model.{key}={value}" for key, value in model if key in ("width", "layers"))


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


def _sentence(error: ValidationError, where: str, settings: type[Config]) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part not in kinds_of(settings)]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        known = _keys(settings.model_validate({"data": {"train": ["…"]}}).model_dump())
        known += [f"model.{name}" for kind in kinds_of(settings).values() for name in kind.model_fields]
        if len(path) == 1:
            known = list(settings.model_fields) + known
        return f"{where}: there is no setting {key!r}{nearest(key, known)}"
    if first["type"] == "missing":
        return f"{where}: the setting {key!r} is missing."
    if first["type"] == "union_tag_not_found":
        return f"{where}: the setting '{key}.kind' is missing, expected one of {', '.join(kinds_of(settings))}."
    found = "" if isinstance(first["input"], dict) else f", found {first['input']!r}"
    return f"{where}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}{found}."
