"""A run's settings: those of its input and output put together, checked, and changed by `--set key=value`."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import Field, ValidationError, create_model

from regard import config
from regard.config import Config, expected_by, keys_of, nearest
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.inputs import unit_of as unit_of_input
from regard.machine import memory
from regard.models.settings import Kind
from regard.outputs import OUTPUTS
from regard.runs import locations, upgrade

MOST = 10**14  # weights: a thousand times what the largest machines train


def load(path: Path) -> Config:
    """Read the settings of a YAML file; its paths lead to the data from any working directory."""
    return locations.resolved(make(config.parse(path), str(path)), path.parent)


def make(found: dict[str, Any], where: str) -> Config:
    """Build settings from a nested dictionary; the first fault is named with its key, what was expected and found."""
    found = upgrade.settings(found)
    kind = settings_of(found.get("task", "convert"), found.get("input", "tokens"), where)
    model = found.get("model")
    if isinstance(model, dict) and "size" in model:
        found = found | {"model": _sized(model, kind, where) | {key: model[key] for key in model if key != "size"}}
    try:
        made = kind.model_validate(found)
    except ValidationError as error:
        raise UserError(_sentence(error, where, kind)) from error
    _refuse_giant(made, where)
    return made


def settings_of(task: object, source: object, where: str) -> type[Config]:
    """Return the class of the settings of a task on an input."""
    if not isinstance(task, str) or task not in OUTPUTS:
        raise UserError(f"{where}: there is no task {task!r}, expected one of {', '.join(OUTPUTS)}.")
    if not isinstance(source, str) or source not in INPUTS:
        raise UserError(f"{where}: there is no input {source!r}, expected one of {', '.join(INPUTS)}.")
    refuse_unfit(task, source)
    return _composed(task, source)


def unit_of(source: str, task: str) -> str:
    """Return the name of one example of a task on an input."""
    return unit_of_input(source, OUTPUTS[task].reads)


def refuse_unknown_task(task: str | None) -> None:
    """Refuse the name of a task that nobody knows; None is one that follows from the data."""
    if task is not None and task not in OUTPUTS:
        raise UserError(f"--task {task}: there is no such task, expected one of {', '.join(OUTPUTS)}.")


def refuse_unfit(task: str, source: str) -> None:
    """Refuse an output that needs what the input does not offer."""
    missing = OUTPUTS[task].needs - INPUTS[source].offers
    if missing:
        raise UserError(
            f"The task {task} needs {' and '.join(sorted(missing))}, and {INPUTS[source].noun} "
            f"({source}) has none: choose another --task."
        )


def does(made: Config) -> str:
    """Return what a model of these settings does, "labels images": a verb of its output, a noun of its input."""
    return f"{OUTPUTS[made.task].does} {INPUTS[made.input].noun}"


@cache
def _composed(task: str, source: str) -> type[Config]:
    output, input = OUTPUTS[task], INPUTS[source]
    section = input.settings(output.use)
    fields: dict[str, Any] = {
        "input": (Literal[source], Field(source, description=f"what goes in: {input.noun}")),
        source: (section, section()),
    }
    return create_model(f"{task.capitalize()}{source.capitalize()}", __base__=output.settings, **fields)


def kinds_of(settings: type[Config], section: str = "model") -> dict[str, type[Kind]]:
    """Return the kinds of model (or encoder) that a task knows, with the class of settings of each."""
    field = settings.model_fields.get(section)
    models = () if field is None else get_args(field.annotation) or (field.annotation,)
    fields = ((model, getattr(model, "model_fields", {})) for model in models)
    return {known["kind"].default: model for model, known in fields if "kind" in known}


def _sized(model: dict[str, Any], settings: type[Config], where: str) -> dict[str, int]:
    """Return what the name of a size stands for in a model of this kind."""
    kind = kinds_of(settings).get(str(model.get("kind", settings.model_fields["model"].default.kind)))
    sizes = kind.sizes if kind is not None else {}
    if not sizes:
        raise UserError(
            f"{where}: model.size: this kind of model has no named sizes: set model.width and model.layers."
        )
    if str(model["size"]) not in sizes:
        raise UserError(f"{where}: model.size: expected one of {', '.join(sizes)}, found {model['size']!r}.")
    return sizes[model["size"]]


OPTIONS = {f"training.{name}": f"--{name}" for name in ("steps", "minutes", "seed")}  # settings with an option
Changes = Mapping[str, Any] | Sequence[str] | str


def changes(given: Changes) -> list[str]:
    """Return changes of settings as `key=value`: they may be a dictionary, a list of such, or one."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, Mapping):
        return [f"{key}={_written(value)}" for key, value in given.items()]
    return list(given)


def _written(value: Any) -> str:
    """Return a value as YAML has it on one line."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def override(given: Config, settings: list[str]) -> Config:
    """Apply `key.of.setting=value` on top of settings. The kind of model comes first, for it brings its own other
    settings, then its size, which stands for several."""
    found = given.model_dump()
    first = (re.compile(r"\w+\.kind="), re.compile("model.size="))
    for setting in sorted(settings, key=lambda setting: [start.match(setting) is None for start in first]):
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UserError(f"--set {setting}: expected key=value, such as --set training.rate=0.001.")
        try:
            parsed = yaml.safe_load(value) if value else None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"--set {setting}: the value {value!r} cannot be read.") from error
        part = key.removesuffix(".kind")
        kinds = kinds_of(type(given), part) if part != key else {}
        if str(parsed) in kinds and parsed != found[part]["kind"]:
            found[part] = kinds[str(parsed)]().model_dump()  # type: ignore[call-arg]  # the other kind has others
            continue
        if key == "model.size":
            found["model"] |= _sized(found["model"] | {"size": parsed}, type(given), "--set")
            continue
        *path, last = upgrade.key(key, given.task).split(".")
        section: Any = found
        for name in path:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict) or last not in section:
            raise UserError(f"--set {setting}: {_unknown(key, keys_of(found), type(given))}")
        section[last] = value if parsed is not None and _is_text(given, path, last) else parsed
    changed = make(found, "--set")
    _refuse_giant(changed, "--set")
    return changed


def _is_text(given: Config, path: list[str], name: str) -> bool:
    """Return True for a setting that holds a text: `yes` and `1` may be names of labels."""
    section: Any = given
    for part in path:
        section = getattr(section, part)
    field = type(section).model_fields.get(name)
    return field is not None and field.annotation in (str, str | None)


def refuse_too_large(made: Config, where: str, each: int) -> None:
    """Refuse a model that cannot fit here, with so many bytes for each weight, while it is still a number.

    Afterwards the system would end the process. `regard plan` asks for other machines and does not call this.
    """
    needed = each * made.parameters()
    if needed > memory():
        raise UserError(
            f"{where}: {_size(made)} need about {needed / 1e9:,.0f} GB of memory for {made.parameters():,} weights, "
            f"there are {memory() / 1e9:,.0f} GB: make the model smaller."
        )


def _refuse_giant(made: Config, where: str) -> None:
    if made.parameters() > MOST:
        raise UserError(
            f"{where}: {_size(made)} are about {made.parameters():.1e} weights, expected at most {MOST:.0e}: "
            "make the model smaller."
        )


def _size(made: Config) -> str:
    return " and ".join(f"model.{key}={value}" for key, value in made.model if key in ("width", "layers"))


def _sentence(error: ValidationError, where: str, settings: type[Config]) -> str:
    first = error.errors()[0]
    sections = [name for name in settings.model_fields if kinds_of(settings, name)]
    path = [str(part) for part in first["loc"] if not any(part in kinds_of(settings, name) for name in sections)]
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        known = keys_of(settings.model_validate({"data": {"train": ["…"]}}).model_dump())
        if len(path) == 1:
            known = list(settings.model_fields) + known
        return f"{where}: {_unknown(key, known, settings)}"
    if first["type"] == "missing":
        return f"{where}: the setting {key!r} is missing."
    if first["type"] == "union_tag_not_found":
        return f"{where}: the setting '{key}.kind' is missing, expected one of {', '.join(kinds_of(settings))}."
    if first["type"] == "union_tag_invalid":
        kinds = kinds_of(settings, key)
        nearest = _near(str(first["ctx"]["tag"]), kinds)
        return f"{where}: {key}.kind: expected one of {', '.join(kinds)}, found {nearest}"
    got, expected = first["input"], expected_by(first)
    if expected is None:  # a sentence of our own, or of a kind that no setting has yet
        found = "" if isinstance(got, dict) else f", found {got!r}"
        return f"{where}: {key}: {first['msg'][0].lower()}{first['msg'][1:]}{found}."
    if where == "--set" and key in OPTIONS:
        return f"{OPTIONS[key]} is {got!r}, expected {expected}."
    several = isinstance(got, str) and "=" in got
    return f"{where}: {key}: expected {expected}, found {got!r}." + " Separate settings by blanks." * several


def _near(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about a name that is not known."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"{name!r}: did you mean {close[0]!r}?" if close else f"{name!r}."


def _unknown(key: str, known: list[str], settings: type[Config]) -> str:
    """Return the sentence about a setting that these settings do not have, though another kind or task may."""
    section, _, name = key.partition(".")
    kinds = kinds_of(settings, section)
    if some := [kind for kind, model in kinds.items() if name in model.model_fields]:
        return f"this kind of model has no setting {key!r}: it goes with {section}.kind={' or '.join(some)}."
    task = str(settings.model_fields["task"].default)
    for other, output in OUTPUTS.items():
        field = output.settings.model_fields.get(section)
        if other != task and task in OUTPUTS and name in getattr(field and field.annotation, "model_fields", {}):
            return f"the task {task} has no setting {key!r}; the task {other} has it."
    every = [f"{section}.{name}" for model in kinds.values() for name in model.model_fields]
    return f"there is no setting {key!r}{nearest(key, [*known, *every])}"
