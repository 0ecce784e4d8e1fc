"""`regard.train`: choose settings, prepare, train or resume, evaluate, and write the card."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from regard import config as config_files
from regard.attention.multihead import unfused
from regard.config import Config
from regard.costs import memory
from regard.data.lines import Fault
from regard.data.standard_input import kept, spooled
from regard.data.survey import Survey
from regard.errors import UserError
from regard.runs import checkpoint, checksums, folder, locations, settings, upgrade
from regard.runs.build import Parts, form_of, load_parts, read
from regard.runs.card import write_card
from regard.runs.examples import write_examples
from regard.runs.folder import refuse_unwritable
from regard.runs.model import Model, load, nothing_in, settings_in
from regard.training import averaging, choose, warm_start
from regard.training import device as devices
from regard.training.advice import warnings_of, warnings_of_answers
from regard.training.allocator import keep_memory
from regard.training.distributed import World, together
from regard.training.loop import Trainer
from regard.training.prepare import Prepared, Say, checksum, prepare
from regard.training.progress import Progress
from regard.training.split import survey

READING = re.compile("data.(faults|encoding|format|columns)=")
TRAINED = 16  # bytes of a weight in training: itself, its gradient and two moments
GIVEN = re.compile(r"((?:tokens|output)\.(?:\w*level|context))=(\w+)")


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
    set: settings.Changes = (),
    device: str | None = None,
    quiet: bool = False,
    format: str = "",
    columns: str = "",
) -> Model:
    """Train on files, or on the settings in a YAML file; call it again to resume. Return the trained model.

    A run folder as `data` resumes that run. `start` is a run whose vocabulary and weights this one begins with, and
    whose tokens and model it has; a YAML file keeps its own settings. `set` overrides settings:
    `set={"training.rate": 0.002}`, or `set=["training.rate=0.002"]`. `device` is cpu, cuda, cuda:1 …; a GPU by default,
    if there is one. `format` and `columns` say how the files are read: `format="csv"`,
    `columns="source=question+context,target=answer"`.
    """
    names, run, changed = _names(data), run_folder(data, out), settings.changes(set)
    if is_run(names):
        names = [str(Path(names[0]) / "config.yaml")]
    refuse_unwritable(*names, *_names(valid), *_names(test), *(name for name in (out, start) if name is not None))
    place = devices.named(device)
    progress = Progress(quiet=quiet)
    limits = {"minutes": minutes, "steps": steps, "seed": seed}
    given = [f"training.{key}={value}" for key, value in limits.items() if value is not None]
    if (steps is None) != (minutes is None):  # the one that is given decides alone
        given.append("training.steps=" if steps is None else "training.minutes=")
    with spooled(names, _names(valid), _names(test)) as (files, validation, tests):
        how = {"format": format, "columns": columns}
        begin = None if start is None else (Path(start), run)
        config, reasons, seen = settle(files, validation, tests, task, [*given, *changed], begin, **how)
        config = _kept(config, run, {*files, *validation, *tests} - {*names, *_names(valid), *_names(test)})
        return run_training(config, reasons, run, progress, seen, place)


def is_run(data: Sequence[str]) -> bool:
    """Return True if the data is one run folder, to be resumed."""
    return len(data) == 1 and (Path(data[0]) / "config.yaml").is_file()


def settle(
    data: list[str],
    valid: list[str],
    test: list[str],
    task: str | None,
    changes: Sequence[str],
    start: tuple[Path, Path] | None = None,
    *,
    format: str = "",
    columns: str = "",
) -> tuple[Config, dict[str, str], Survey | None]:
    """Return the settings of a training, the reason for each that was chosen, and the survey of its data, if any.

    `start` is the run that it begins with, and its own.
    """
    chosen, reasons, seen = _settings(data, valid, test, task, changes, format=format, columns=columns)
    config = chosen if start is None else _started(chosen, *start, adapt=bool(reasons))
    config = settings.override(config, list(changes))
    reasons = {key: why for key, why in reasons.items() if _setting(chosen, key) == _setting(config, key)}
    if start is not None:
        reasons["training.start"] = warm_start.REASON
    return config, reasons, seen


def _kept(config: Config, run: Path, spools: set[str]) -> Config:
    """Return settings that name standard input's file in the run folder, where it is kept to go on from."""
    for path in spools:
        folder.make(run)
        with folder.locked(run):
            stays = str(kept(path, run))
        names = {key: [stays if name == path else name for name in getattr(config.data, key)] for key in locations.SETS}
        config = config.model_copy(update={"data": config.data.model_copy(update=names)})
    return config


def run_folder(data: str | Path | Sequence[str | Path], out: str | Path | None) -> Path:
    """Return the run folder of a training."""
    if out is not None:
        return Path(out)
    if is_run(_names(data)):
        return Path(_names(data)[0])
    name = Path(_names(data)[0]).resolve().name.split(".")[0] or "run"
    return Path("runs") / ("stdin" if _names(data)[0] == "-" else name)


def _names(paths: Sequence[str | Path] | str | Path) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]


def _settings(
    data: list[str], valid: list[str], test: list[str], task: str | None, changes: Sequence[str], **how: str
) -> tuple[Config, dict[str, str], Survey | None]:
    settings.refuse_unknown_task(task)
    if len(data) == 1 and config_files.is_settings(data[0]):
        config = settings.load(Path(data[0]))
        if task not in (None, config.task):
            raise UserError(f"{data[0]} is for the task {config.task!r}, found --task {task}.")
        changed: dict[str, Any] = {"valid": valid or config.data.valid, "test": test or config.data.test}
        changed |= {name: value for name, value in how.items() if value}
        return config.model_copy(update={"data": config.data.model_copy(update=changed)}), {}, None
    reading = reading_of(changes, **how)
    given = {upgrade.key(found[1], "convert"): found[2] for change in changes if (found := GIVEN.match(change))}
    return choose.choose(data, valid, test, task=task, given=given, **reading)


def reading_of(changes: Sequence[str], **how: str) -> dict[str, str]:
    """Return how files are to be read: they are read before the other settings are chosen."""
    given = {name: value for name, value in how.items() if value}
    return given | dict(change.removeprefix("data.").split("=", 1) for change in changes if READING.match(change))


def _started(config: Config, start: Path, run: Path, *, adapt: bool) -> Config:
    """Return settings that begin with another run's. Once this run has a state, it knows them itself: the other one is
    not needed any more."""
    if not adapt:
        return settings.override(config, [f"training.start={json.dumps(str(start))}"])
    known = bool(checkpoint.states(run)) and (run / "config.yaml").is_file()
    if known and not start.is_dir() and str(start) != settings_in(run)[0].training.start:
        settings_in(start)  # which refuses it
    rate = 1 if known else warm_start.SLOWER
    return warm_start.adapted(config, settings_in(run if known else start)[0], start, rate=rate)


def _setting(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name, None)


@together()
def run_training(
    config: Config,
    reasons: dict[str, str],
    run: Path,
    progress: Progress,
    seen: Survey | None = None,
    place: torch.device | None = None,
) -> Model:
    """Prepare, train or resume, evaluate, and write the card; under `torchrun`, process 0 does all but the training."""
    keep_memory()
    settings.refuse_too_large(config, "The model", TRAINED)
    world = World(place)
    progress = progress if world.first else Progress(quiet=True)
    for paths in (config.data.valid, config.data.test):
        if paths:
            form_of(config, paths)  # better now than after the training
    examples = list(read(config, config.data.test)) if world.first and config.data.test else []
    if world.first and config.data.test and not examples:
        raise nothing_in(config.data.test, settings.unit_of(config.input, config.task))
    if not world.first:
        world.barrier()  # for what process 0 prepares
    folder.make(run)
    with folder.locked(run) if world.first else nullcontext():
        for key, why in reasons.items():
            progress.say(f"{key}: {why}")
        prepared = _prepared(config, run, progress.say, seen, examples)
        config, task = prepared.config, prepared.task
        test = task.held(examples) if examples else None
        if world.first:
            described: dict[str, bytes | Path] = {**task.files}
            described["config.yaml"] = config_files.render(locations.portable(config, run), reasons).encode()
            checksums.publish(run, described)
            world.barrier()
        trainer = Trainer(run, prepared, progress, world)
        count, waste = sum(p.numel() for p in trainer.network.parameters()), trainer.batches.waste(0)
        progress.say(
            f"{len(prepared.store):,} training rows, {len(prepared.valid.items):,} for validation; "
            f"{count:,} parameters; {trainer.batches.count(0):,} batches an epoch, {100 * waste:.1f} % of their tokens "
            "are padding"
        )
        for why in unfused(trainer.network):
            progress.say(why)
        if world.size > 1 and averaging.normalised(trainer.network):
            progress.say("BatchNorm sees the rows of each process alone: the result depends on how many there are")
        if trainer.resume(progress.say):
            progress.say(f"resuming at step {trainer.at.step:,} of {run}")
        try:
            trainer.train()
            trainer.finish()
        finally:
            progress.close()
        model = Model(run, config, task)
        task.network.eval()
        if world.first:
            _report(model, trainer, progress, {"validation": prepared.valid} | ({"test": test} if test else {}))
        world.barrier()
    return model


def _prepared(config: Config, run: Path, say: Say, seen: Survey | None, test: Sequence[Any]) -> Prepared:
    """Return what training needs, and say what is odd about the data."""
    skipped: list[Fault] = []
    seen = seen or survey(config, skipped.append if config.data.faults == "skip" else None)
    files = checksum([*config.data.train, *config.data.valid], seen.refers)
    folder.refuse_other_run(run, config, files, say)
    prepared = _parts_and_rows(config, run, say, seen, files)
    valid = [item.example for item in prepared.valid.items] if config.data.valid else []
    for warning in warnings_of(config, seen, valid, test):
        say(f"warning: {warning}")
    return prepared


def _parts_and_rows(config: Config, run: Path, say: Say, seen: Survey, files: str) -> Prepared:
    """Return what training needs. A new run may begin with another's vocabularies and weights; once there is a state,
    it goes on with what is in its own folder."""
    start = config.training.start
    if start is None:
        return prepare(config, run, seen, say, files)
    if checkpoint.states(run):
        return prepare(config, run, seen, say, files, _own_parts(config, run))
    origin = load(start)
    warm_start.refuse_other(config, origin.config, origin.folder)
    prepared = prepare(config, run, seen, say, files, (origin.task.input, origin.task.output))
    say(warm_start.take_weights(prepared.task, origin.task, origin.folder))
    return prepared


def _own_parts(config: Config, run: Path) -> Parts | None:
    """Return what a run has learned, if that is whole: its cache may be damaged."""
    try:
        return load_parts(config, run)
    except (OSError, UserError):
        return None


def _report(model: Model, trainer: Trainer, progress: Progress, data: dict[str, Any]) -> None:
    """Evaluate the finished model, and write the card."""
    at = trainer.at
    parameters = sum(p.numel() for p in model.network.parameters())
    facts = [
        f"training rows: {len(trainer.store):,}; parameters: {parameters:,}",
        f"{at.step:,} steps, {at.seconds / 60:.1f} minutes, best validation at step {at.best_step:,}",
        f"peak memory: {memory.gigabytes(memory.peak(trainer.world.device))}",
    ]
    found = {}
    for name, held in data.items():
        scores, answers = model.task.evaluate(held)
        found[name] = scores
        progress.say(f"{name}: " + ", ".join(f"{s.name} {s.value:.2f}{s.unit and ' ' + s.unit}" for s in scores))
        if name == "validation":
            write_examples(model, held, answers)
        found_wrong = [*warnings_of_answers(model.task.output, held.items, answers), *model.task.warnings(held, scores)]
        for warning in found_wrong:
            progress.say(f"warning: {name}: {warning}")
    write_card(model, facts, found)
