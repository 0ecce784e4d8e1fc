"""Warm start: the vocabularies and the model's settings of another run, and the weights that both have."""

from __future__ import annotations

from pathlib import Path

from regard.attention.grid import resized
from regard.config import Config, Section
from regard.errors import UserError
from regard.inputs.input import Use
from regard.layers.roles import CHOICE, GRID, TABLE, roles_of
from regard.outputs import OUTPUTS
from regard.outputs.abilities import contents_of
from regard.runs import settings
from regard.task import Task

SLOWER = 1 / 3  # the learning rate of weights that know something already
REASON = "tokens and model are that run's, and the learning rate is a third of what it was"


def adapted(config: Config, origin: Config, where: Path, *, rate: float) -> Config:
    """Return settings for new data with the vocabularies and the model of another run, and `rate` times its rate."""
    _refuse_stranger(config, origin, where)
    found = config.model_dump()
    kind = settings.kinds_of(type(config))[_kind(origin)]
    found["model"] = {**kind().model_dump(), **(found["model"] if _kind(config) == _kind(origin) else {})}  # type: ignore[call-arg]
    for section in ("model", *_vocabularies(config, origin)):
        theirs = getattr(origin, section).model_dump()
        found[section] |= {key: value for key, value in theirs.items() if key in found[section]}
    found["training"] |= {"start": str(where), "rate": rate * origin.training.rate}
    return settings.make(found, f"starting from {where}")


def refuse_other(config: Config, origin: Config, where: Path) -> None:
    """Refuse settings of a vocabulary that are not those of the run that it comes from."""
    _refuse_stranger(config, origin, where)
    for section in _vocabularies(config, origin):
        ours, theirs = getattr(config, section).model_dump(), getattr(origin, section).model_dump()
        for key in ("level", "lowercase", "decomposed"):
            if key in ours and key in theirs and ours[key] != theirs[key]:
                raise UserError(
                    f"{where}: its {section}.{key} is {theirs[key]}, found {ours[key]}: use that, or start from "
                    "another run."
                )


def _vocabularies(config: Config, origin: Config) -> list[str]:
    """Return the sections of settings that describe a vocabulary of both runs."""
    there = {name for name, section in origin.sections() if isinstance(section, Section) and section.vocabulary}
    return [name for name, section in config.sections() if name in there and section.vocabulary]


def _refuse_stranger(config: Config, origin: Config, where: Path) -> None:
    kinds, output, other = settings.kinds_of(type(config)), OUTPUTS[config.task], OUTPUTS[origin.task]
    pairs = [each.use is Use.SOURCE for each in (output, other)]
    if config.input != origin.input or pairs[0] != pairs[1]:
        raise UserError(
            f"{where} {settings.does(origin)}: a model that {settings.does(config)} has no use for its vocabularies."
        )
    if _kind(origin) not in kinds:
        raise UserError(
            f"{where} is a model of the kind {_kind(origin)!r}: a model that {settings.does(config)} is one of "
            f"{', '.join(kinds)}."
        )


def _kind(config: Config) -> str:
    return str(getattr(config.model, "kind", ""))


def take_weights(task: Task, origin: Task, where: Path) -> str:
    """Copy the weights of the same name and shape, of tables the rows that both have; return how many they are.

    Weights that choose between classes are of use only where the classes are the same.
    """
    same = type(task.output) is type(origin.output) and contents_of(task.output) == contents_of(origin.output)
    theirs = dict(origin.network.named_parameters())
    total = whole = parts = both = 0
    for name, parameter, role in roles_of(task.network):
        total += 1
        if name not in theirs or (role == CHOICE and not same):
            continue
        both += 1
        new, old = parameter.data, theirs[name].data
        if new.shape == old.shape:
            new.copy_(old)
            whole += 1
        elif role == GRID and new.shape[2:] == old.shape[2:]:
            new.copy_(resized(old, *new.shape[:2]))
            parts += 1
        elif role == TABLE and new.shape[1:] == old.shape[1:]:
            rows = min(len(new), len(old))
            new[:rows] = old[:rows]
            parts += 1
    if 2 * (whole + parts) <= both:  # some biases fit any model
        raise UserError(
            f"{where}: {whole} of its {len(theirs)} weights fit: leave the settings of the model as they are there."
        )
    tables = f" and {parts} table{'s' if parts > 1 else ''} in part" if parts else ""
    return f"starting from {where}: {whole} of {total} weights{tables}; the others are fresh"
