"""Starting from another run: its vocabularies, its settings of tokens and model, and the weights that both have."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from regard import checkpoint
from regard import config as settings
from regard.config import Config
from regard.errors import UserError
from regard.inputs.tokens import SPECIALS, Tokenizer
from regard.outputs.task import Task, Vocabularies
from regard.tasks import TASKS

CLASSES = ("labels.json", "tags.json")  # vocabularies of what a model decides between: those of the new data count
DECIDING = ("head.", "choice.")  # weights that decide between classes
SLOWER = 1 / 3  # the learning rate of weights that know something already
REASON = "tokens and model are that run's, and the learning rate is a third of what it was"


def adapted(config: Config, origin: Config, where: Path, *, rate: float) -> Config:
    """Settings for new data with the tokens and the model of another run, and its learning rate times `rate`."""
    _refuse_stranger(config, origin, where)
    found = config.model_dump()
    kind = settings.kinds_of(type(config))[_kind(origin)]
    found["model"] = {**kind().model_dump(), **(found["model"] if _kind(config) == _kind(origin) else {})}
    for section in ("tokens", "model"):
        theirs = getattr(origin, section).model_dump()
        found[section] |= {key: value for key, value in theirs.items() if key in found[section]}
    found["training"] |= {"start": str(where), "rate": rate * origin.training.rate}
    return settings.make(found, f"starting from {where}")


def refuse_other(config: Config, origin: Config, where: Path) -> None:
    """A vocabulary is what the settings of tokens say it is: they must be those of the run that it comes from."""
    _refuse_stranger(config, origin, where)
    ours, theirs = config.tokens.model_dump(), origin.tokens.model_dump()
    for key in ("level", "source_level", "target_level", "lowercase"):
        if key in ours and key in theirs and ours[key] != theirs[key]:
            raise UserError(
                f"{where}: its tokens.{key} is {theirs[key]}, found {ours[key]}: use that, or start from another run."
            )


def _refuse_stranger(config: Config, origin: Config, where: Path) -> None:
    kinds, task, other = settings.kinds_of(type(config)), TASKS[config.task], TASKS[origin.task]
    if not {*task.files} & {*other.files} - {*CLASSES}:
        raise UserError(f"{where} {other.does}: a model that {task.does} has no use for its vocabularies.")
    if _kind(origin) not in kinds:
        raise UserError(
            f"{where} is a model of the kind {_kind(origin)!r}: a model that {task.does} is one of {', '.join(kinds)}."
        )


def _kind(config: Config) -> str:
    return str(getattr(config.model, "kind", ""))


def given(config: Config, folder: Path) -> dict[str, Tokenizer]:
    """The vocabularies in a run folder that a model of these settings has too, by the names of their files."""
    names = TASKS[config.task].files
    return {name: Tokenizer.load(folder / name) for name in names if (folder / name).is_file()}


def chosen(names: tuple[str, ...], learned: Vocabularies, given: Mapping[str, Tokenizer]) -> Vocabularies:
    """The given vocabularies where there are any, but for classes only if they are the same ones, and the learned."""

    def choose(name: str, own: Tokenizer) -> Tokenizer:
        other = given.get(name, own)
        return own if name in CLASSES and _entries(own) != _entries(other) else other

    return tuple(choose(name, own) for name, own in zip(names, learned, strict=True))


def _entries(vocabulary: Tokenizer) -> set[str]:
    return {*vocabulary.pieces_of(range(len(SPECIALS), vocabulary.size))}


def take(task: Task, origin: Task, given: Mapping[str, Tokenizer], where: Path) -> str:
    """Take over the weights of the same name and shape, of tables the rows that both have; says how many they are.

    Weights that decide between classes are of use only where the classes are the same.
    """
    named = zip(task.files, task.vocabularies, strict=True)
    same = all(_entries(own) == _entries(given[name]) for name, own in named if name in CLASSES and name in given)
    own, theirs = checkpoint.weights_of(task.network), checkpoint.weights_of(origin.network)
    whole = parts = 0
    both = [name for name in own if name in theirs and (same or not name.startswith(DECIDING))]
    for name in both:
        new, old = own[name].data, theirs[name].data
        if new.shape == old.shape:
            new.copy_(old)
            whole += 1
        elif "table" in name and new.shape[1:] == old.shape[1:]:
            rows = min(len(new), len(old))
            new[:rows] = old[:rows]
            parts += 1
    if 2 * (whole + parts) <= len(both):  # some biases fit any model
        raise UserError(
            f"{where}: {whole} of its {len(theirs)} weights fit: leave the settings of the model as they are there."
        )
    tables = f" and {parts} table{'s' if parts > 1 else ''} in part" if parts else ""
    return f"starting from {where}: {whole} of {len(own)} weights{tables}; the others are fresh"
