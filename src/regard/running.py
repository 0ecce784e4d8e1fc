"""Trained models: `regard.train` makes one, `regard.load` opens one from its folder."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from regard import checkpoint, choosing, memory, metrics, starting, sums, verifying
from regard import config as settings
from regard.allocator import keep_memory
from regard.config import Config
from regard.data.reading import recognise
from regard.errors import UserError
from regard.inputs.tokens import Tokenizer
from regard.outputs.task import UNITS, Item, Task, Vocabularies
from regard.parallel import World, together
from regard.preparing import ORIGIN, Prepared, Say, build, checksum, prepare, read, shapes
from regard.progress import Progress
from regard.tasks import TASKS
from regard.training import Trainer

READING = re.compile("data.(faults|encoding)=")
LEVEL = re.compile(r"tokens\.(\w*level)=(\w+)")
# Settings that may differ when a run goes on: those that say where files lie, and those that change what comes out.
MOVABLE = {"data": ("train", "valid", "test"), "decoding": ("beam", "length_penalty", "factor")}
CHANGEABLE = {"training": ("minutes", "steps", "patience", "every"), "decoding": ("longest",)}


class Model:
    """A trained model: its folder, its settings, and the task it does."""

    def __init__(self, folder: Path, config: Config, task: Task) -> None:
        self.folder, self.config, self.task = folder, config, task

    @property
    def network(self) -> nn.Module:
        return self.task.network

    def predict(self, texts: Sequence[str], **changes: Any) -> list[str]:
        """The best answer to each text; `beam=1`, `seed=…` and so on change how it is looked for."""
        if isinstance(texts, str):
            raise UserError("predict takes a list of texts, found one text: put it in brackets.")
        unknown = [name for name in changes if name not in self.task.options]
        if unknown:
            raise UserError(f"{unknown[0]!r} changes nothing about a model that {self.task.does}.")
        return self.task.answer(texts, **changes)

    def answers(self, texts: Sequence[str], **changes: Any) -> Any:
        """All that is known of the answers to each text (scores, n best …), in the task's own form."""
        if not hasattr(self.task, "answers"):
            raise UserError(f"A model that {self.task.does} answers by `predict` alone.")
        return self.task.answers(texts, **changes)

    def items(self, paths: Sequence[str | Path]) -> list[Item]:
        """What a file holds for this task to be evaluated on."""
        return self.sources_and_items(paths)[1]

    def sources_and_items(self, paths: Sequence[str | Path]) -> tuple[list[str], list[Item]]:
        """The sources of a file in its order, and its items: a task may join those of equal sources."""
        pairs = list(read(paths, self.config.task, self.config.data))
        items = self.task.items(pairs)
        if not items:
            raise _nothing_in(paths, self.task.reads)
        return [pair.source for pair in pairs], items

    def evaluate(self, paths: Sequence[str | Path], **changes: Any) -> tuple[list[metrics.Score], list[str]]:
        """The metrics on a file with known answers, and the answers they were computed from."""
        return self.task.evaluate(self.items(paths), **changes)


def _nothing_in(paths: Sequence[str | Path], reads: str) -> UserError:
    return UserError(f"{paths[0]}: there is no {UNITS[reads]} in it to evaluate on.")


def loaded(config: Config) -> tuple[str, ...]:
    """The files that a model of these settings is loaded from."""
    return ("config.yaml", *TASKS[config.task].files, "model.safetensors")


def load(folder: str | Path) -> Model:
    """A trained model from its folder alone."""
    folder = Path(folder)
    config = _settings_in(folder)
    names = loaded(config)
    for name in names[:-1]:
        refuse_missing(folder, name)
    weights = folder / "model.safetensors"
    sums.inside(folder, weights.name)
    found = checkpoint.shapes_in(weights)
    rows = max((size for shape in found.values() for size in shape), default=0)
    for name in names[1:-1]:
        _refuse_giant(folder / name, (1 << 16) + 1000 * rows)  # a token has a row in some table
    vocabularies = tuple(Tokenizer.load(folder / name) for name in names[1:-1])
    _refuse_unfit(config, vocabularies, weights, found)
    sums.check(folder, names)  # last, because a fault that can be named is better than one that is only noticed
    task = build(config, vocabularies)
    checkpoint.put_weights(task.network, checkpoint.load_weights(weights), weights)
    task.network.eval()
    return Model(folder, config, task)


def _settings_in(folder: Path) -> Config:
    """The settings of a run folder."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a run folder: {'it is a file' if folder.exists() else 'it does not exist'}.")
    refuse_missing(folder, "config.yaml")
    _refuse_giant(folder / "config.yaml", 1 << 20)
    return settings.load(folder / "config.yaml")


def refuse_missing(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise UserError(f"{folder} is not a run folder: it has no {name}; expected what `regard train` wrote.")
    sums.inside(folder, name)


def _refuse_giant(path: Path, most: int) -> None:
    if path.stat().st_size > most:
        raise UserError(
            f"{path} has {path.stat().st_size:,} bytes, expected at most {most:,}: restore it, or train again."
        )


def _refuse_unfit(config: Config, vocabularies: Vocabularies, weights: Path, found: checkpoint.Shapes) -> None:
    """Compare the model that a config describes with a file's header, before anything is allocated."""
    layers = getattr(config.model, "layers", 1)
    if len(found) < 2 * layers:  # each layer has two at the very least
        raise UserError(
            f"{weights} does not fit the model its config.yaml describes: {len(found)} tensors are too few for "
            f"model.layers={layers}."
        )
    checkpoint.refuse_unfit(shapes(config, vocabularies), found, weights)


def train(
    data: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    valid: Sequence[str | Path] | str | Path = (),
    test: Sequence[str | Path] | str | Path = (),
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    task: str | None = None,
    start: str | Path | None = None,
    set: Sequence[str] = (),
    quiet: bool = False,
) -> Model:
    """Train on files, or on the settings in a YAML file; the same call again goes on where it stopped.

    `start` is a run whose vocabulary and weights this one begins with, and whose tokens and model it has; a YAML file
    keeps its own settings. `set` overrides settings: `set=["training.rate=0.002"]`. Returns the trained model.
    """
    refuse_unwritable(
        *_names(data), *_names(valid), *_names(test), *(name for name in (out, start) if name is not None)
    )
    progress = Progress(quiet=quiet)
    run = run_folder(data, out)
    chosen, reasons = _settings(_names(data), _names(valid), _names(test), task, set)
    config = chosen if start is None else _started(chosen, Path(start), run, adapt=bool(reasons))
    changes = {"minutes": minutes, "steps": steps, "seed": seed}
    given = [f"training.{key}={value}" for key, value in changes.items() if value is not None]
    if (steps is None) != (minutes is None):  # the one that is given decides alone
        given.append("training.steps=" if steps is None else "training.minutes=")
    config = settings.override(config, [*given, *set])
    reasons = {key: why for key, why in reasons.items() if _setting(chosen, key) == _setting(config, key)}
    if start is not None:
        reasons["training.start"] = starting.REASON
    return run_training(config, reasons, run, progress)


def run_folder(data: str | Path | Sequence[str | Path], out: str | Path | None) -> Path:
    """The run folder of a training."""
    return Path(out) if out is not None else Path("runs") / _stem(_names(data)[0])


def refuse_unwritable(*names: str | Path) -> None:
    """Names that settings and cards, which are UTF-8, could not hold: better now than after a training."""
    for name in map(str, names):
        shown = name.encode("utf-8", "backslashreplace").decode()
        if shown == name:
            continue
        if sys.getfilesystemencoding() != "utf-8":
            raise UserError(f"{shown}: this name cannot be read in your locale: set LC_ALL=C.UTF-8.")
        raise UserError(f"{shown}: this name is not UTF-8, and would be written to files that are: rename it.")


def _started(config: Config, start: Path, run: Path, *, adapt: bool) -> Config:
    """Settings that begin with another run's. Once this run has a state, it knows them itself: the other one is not
    needed any more."""
    if not adapt:
        return settings.override(config, [f"training.start={json.dumps(str(start))}"])
    known = bool(checkpoint.states(run)) and (run / "config.yaml").is_file()
    return starting.adapted(config, _settings_in(run if known else start), start, rate=1 if known else starting.SLOWER)


def _setting(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name, None)


@together()
def run_training(config: Config, reasons: dict[str, str], run: Path, progress: Progress) -> Model:
    """Prepare, train or go on, evaluate, and write the card; under `torchrun`, process 0 does all but the training."""
    keep_memory()
    world = World()
    progress = progress if world.first else Progress(quiet=True)
    for paths in (config.data.valid, config.data.test):
        if paths:
            recognise([Path(path) for path in paths], TASKS[config.task].reads, config.data.encoding)  # better now
    if world.first and config.data.test and not sum(1 for _ in read(config.data.test, config.task, config.data)):
        raise _nothing_in(config.data.test, TASKS[config.task].reads)
    if not world.first:
        world.wait()  # for what process 0 prepares
    _make_folder(run)
    with _locked(run) if world.first else nullcontext():
        for key, why in reasons.items():
            progress.say(f"{key}: {why}")
        files = checksum([*config.data.train, *config.data.valid])
        _refuse_other_run(run, config, files, progress.say)
        prepared = _prepared(config, run, progress.say, files)
        described: dict[str, bytes | Path] = {name: (run / name).read_bytes() for name in prepared.task.files}
        described["config.yaml"] = settings.render(config, reasons).encode()
        if world.first:
            sums.publish(run, described)
            world.wait()
        trainer = Trainer(config, run, prepared, progress, world)
        count = sum(parameter.numel() for parameter in trainer.network.parameters())
        waste = trainer.batches.waste(0)
        progress.say(
            f"{len(prepared.store):,} training rows, {len(prepared.valid):,} for validation; {count:,} parameters; "
            f"{trainer.batches.count(0):,} batches an epoch, {100 * waste:.1f} % of their tokens are padding"
        )
        if trainer.resume(progress.say):
            progress.say(f"going on at step {trainer.at.step:,} of {run}")
        try:
            trainer.train()
            trainer.finish()
        finally:
            progress.close()
        model = Model(run, config, prepared.task)
        prepared.task.network.eval()
        if world.first:
            _write_card(model, trainer, progress)
        world.wait()
    return model


def _prepared(config: Config, run: Path, say: Say, files: str) -> Prepared:
    """What training needs. A new run may begin with another's vocabularies and weights; once there is a state, it goes
    on with what is in its own folder."""
    start = config.training.start
    if start is None or checkpoint.states(run):
        return prepare(config, run, say, files, starting.given(config, run) if start else None)
    origin = load(start)
    starting.refuse_other(config, origin.config, origin.folder)
    given = starting.given(config, origin.folder)
    prepared = prepare(config, run, say, files, given)
    say(starting.take(prepared.task, origin.task, given, origin.folder))
    return prepared


def average(run: Path, last: int | None, output: Path) -> Path:
    """A new run folder whose weights are the mean of the last checkpoints of another."""
    refuse_unwritable(run, output)
    model = load(run)
    paths = sorted((run / "checkpoints").glob("*.safetensors"))[-model.config.training.average :]
    if not paths:
        raise UserError(f"{run / 'checkpoints'} holds no checkpoints to average.")
    if last is not None and not 1 <= last <= len(paths):
        raise UserError(
            f"--last is {last}, expected 1 to {len(paths)}: so many checkpoints are kept (training.average)."
        )
    if output.exists():
        raise UserError(f"{output} exists already: name another folder with -o.")
    verifying.check_checkpoints(run)
    chosen = paths[-(last or len(paths)) :]
    note = (
        f"# {output.name}\n\nThe mean of {len(chosen)} checkpoints of {model.folder.name}.\n\n"
        f"- is it better? `regard evaluate {quoted(output)} DATA` beside `regard evaluate {quoted(run)} DATA`\n"
    )
    files: dict[str, bytes | Path] = {name: run / name for name in loaded(model.config)}
    files |= {"model.safetensors": checkpoint.as_bytes(checkpoint.average(chosen)), "README.md": note.encode()}
    with sums.writing(output):
        output.mkdir(parents=True)
        sums.publish(output, files)
    return output


def _settings(
    data: list[str], valid: list[str], test: list[str], task: str | None, changes: Sequence[str]
) -> tuple[Config, dict[str, str]]:
    if task is not None and task not in TASKS:
        raise UserError(f"--task {task}: there is no such task, expected one of {', '.join(TASKS)}.")
    if len(data) == 1 and settings.is_settings(data[0]):
        config = settings.load(Path(data[0]))
        if task not in (None, config.task):
            raise UserError(f"{data[0]} is for the task {config.task!r}, found --task {task}.")
        changed = {"valid": valid or config.data.valid, "test": test or config.data.test}
        return config.model_copy(update={"data": config.data.model_copy(update=changed)}), {}
    # The data is read before the other settings are chosen, so how it is to be read must be known first.
    reading = dict(change.removeprefix("data.").split("=", 1) for change in changes if READING.match(change))
    levels = {found[1]: found[2] for change in changes if (found := LEVEL.match(change))}
    return choosing.choose(data, valid, test, task=task, levels=levels, **reading)


def _names(paths: Sequence[str | Path] | str | Path) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]


def quoted(path: str | Path) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))


def _stem(path: str) -> str:
    return Path(path).name.split(".")[0] or "run"


def _make_folder(run: Path) -> None:
    if run.exists() and not run.is_dir():
        raise UserError(f"{run} is a file: name a folder with -o.")
    if run.is_dir() and any(run.iterdir()) and not (run / "config.yaml").exists() and not (run / ".lock").exists():
        raise UserError(f"{run} is not empty and not a run folder: name another with -o.")
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{run}: the run folder cannot be made: {error.strerror}.") from error


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    try:
        handle = os.open(run / ".lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise UserError(f"{run}: cannot be written to: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise UserError(f"{run} is in use by another training: wait for it, or name another folder with -o.") from error
    try:
        yield
    finally:
        os.close(handle)


def _refuse_other_run(run: Path, config: Config, files: str, say: Say) -> None:
    """The same command goes on; another one must not continue somebody else's run."""
    facts = checkpoint.newest_facts(run)
    if facts is None or not isinstance(facts.get("settings"), dict):
        return
    origin = run / "cache" / ORIGIN
    try:
        before = json.loads(origin.read_text(encoding="utf-8"))["origin"]["files"] if origin.exists() else files
    except (OSError, ValueError, KeyError, TypeError):
        before = files  # damaged: made anew, and compared then
    if before != files:
        raise UserError(
            f"{run}: the data has changed since this run began: restore it, or name another folder with -o."
        )
    now, then = config.model_dump(mode="json"), facts["settings"]
    for section, values in now.items():
        for key, value in values.items() if isinstance(values, dict) else ():
            old = then.get(section, {}).get(key, _default(config, section, key))  # a setting may be newer than a run
            if old == value or key in MOVABLE.get(section, ()):
                continue
            if key not in CHANGEABLE.get(section, ()):
                raise UserError(
                    f"{run} was begun with {section}.{key}={old}, now it is {value}: "
                    "use the same settings to go on, or name another folder with -o."
                )
            say(f"{section}.{key} was {old}, is {value}: not bit for bit what it would have been")


def _default(config: Config, section: str, key: str) -> Any:
    return type(getattr(config, section)).model_fields[key].default


def _write_card(model: Model, trainer: Trainer, progress: Progress) -> None:
    """README.md of the run: data, scores, how to use it."""
    config, at, run = model.config, trainer.at, quoted(model.folder)
    parameters = sum(p.numel() for p in model.network.parameters())
    names = " and ".join(config.data.train)
    lines = [
        f"# {model.folder.name}",
        "",
        f"A model of the kind {getattr(config.model, 'kind', config.task)} that {model.task.does}, trained on {names}.",
        "",
        f"- training rows: {len(trainer.store):,}; parameters: {parameters:,}",
        f"- {at.step:,} steps, {at.seconds / 60:.1f} minutes, best validation at step {at.best_step:,}",
        f"- peak memory: {memory.gigabytes(memory.peak(trainer.world.device))}",
        *([f"- started from {config.training.start}"] if config.training.start else []),
        f"- train it again: `regard train {quoted(model.folder / 'config.yaml')} -o {quoted(f'{model.folder}-again')}`",
        f"- use it: `regard predict {run} \"…\"`, `regard show {run} \"…\" -o picture.png`",
    ]  # fmt: skip
    found = [("validation", model.task.evaluate(trainer.valid)[0])]
    if config.data.test:
        found.append(("test", model.evaluate(config.data.test)[0]))
    for name, scores in found:
        lines += ["", f"## {name.capitalize()}", "", "```", metrics.render(scores), "```"]
        progress.say(f"{name}: " + ", ".join(f"{s.name} {s.value:.2f}{s.unit and ' ' + s.unit}" for s in scores))
    results = {name: metrics.as_json(scores) for name, scores in found}
    card = {"README.md": "\n".join(lines) + "\n", "results.json": json.dumps(results, indent=1)}
    sums.publish(model.folder, {name: text.encode() for name, text in card.items()})
