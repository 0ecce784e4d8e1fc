"""`regard.train`: choose settings, prepare, train or resume, evaluate, and write the card."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from regard import config as config_files
from regard.attention.multihead import unfused
from regard.config import Config
from regard.data.lines import Fault
from regard.data.survey import Survey
from regard.errors import UserError
from regard.outputs import OUTPUTS
from regard.runs import checkpoint, checksums, folder, settings, upgrade
from regard.runs.build import Parts, form_of, load_parts, read
from regard.runs.card import write_card
from regard.runs.folder import refuse_unwritable
from regard.runs.model import Model, load, nothing_in, settings_in
from regard.training import choose, memory, warm_start
from regard.training.allocator import keep_memory
from regard.training.distributed import World, together
from regard.training.loop import Trainer
from regard.training.prepare import Prepared, Say, checksum, prepare
from regard.training.progress import Progress
from regard.training.split import survey

READING = re.compile("data.(faults|encoding)=")
CUT = re.compile(r"((?:tokens|output)\.\w*level)=(\w+)")


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
    """Train on files, or on the settings in a YAML file; call it again to resume. Return the trained model.

    `start` is a run whose vocabulary and weights this one begins with, and whose tokens and model it has; a YAML file
    keeps its own settings. `set` overrides settings: `set=["training.rate=0.002"]`.
    """
    refuse_unwritable(
        *_names(data), *_names(valid), *_names(test), *(name for name in (out, start) if name is not None)
    )
    progress = Progress(quiet=quiet)
    run = run_folder(data, out)
    chosen, reasons, seen = _settings(_names(data), _names(valid), _names(test), task, set)
    config = chosen if start is None else _started(chosen, Path(start), run, adapt=bool(reasons))
    changes = {"minutes": minutes, "steps": steps, "seed": seed}
    given = [f"training.{key}={value}" for key, value in changes.items() if value is not None]
    if (steps is None) != (minutes is None):  # the one that is given decides alone
        given.append("training.steps=" if steps is None else "training.minutes=")
    config = settings.override(config, [*given, *set])
    reasons = {key: why for key, why in reasons.items() if _setting(chosen, key) == _setting(config, key)}
    if start is not None:
        reasons["training.start"] = warm_start.REASON
    return run_training(config, reasons, run, progress, seen)


def run_folder(data: str | Path | Sequence[str | Path], out: str | Path | None) -> Path:
    """Return the run folder of a training."""
    return Path(out) if out is not None else Path("runs") / (Path(_names(data)[0]).name.split(".")[0] or "run")


def _names(paths: Sequence[str | Path] | str | Path) -> list[str]:
    return [str(paths)] if isinstance(paths, str | Path) else [str(path) for path in paths]


def _settings(
    data: list[str], valid: list[str], test: list[str], task: str | None, changes: Sequence[str]
) -> tuple[Config, dict[str, str], Survey | None]:
    if task is not None and task not in OUTPUTS:
        raise UserError(f"--task {task}: there is no such task, expected one of {', '.join(OUTPUTS)}.")
    if len(data) == 1 and config_files.is_settings(data[0]):
        config = settings.load(Path(data[0]))
        if task not in (None, config.task):
            raise UserError(f"{data[0]} is for the task {config.task!r}, found --task {task}.")
        changed = {"valid": valid or config.data.valid, "test": test or config.data.test}
        return config.model_copy(update={"data": config.data.model_copy(update=changed)}), {}, None
    # The data is read before the other settings are chosen, so how it is to be read must be known first.
    reading = dict(change.removeprefix("data.").split("=", 1) for change in changes if READING.match(change))
    given = {upgrade.key(found[1], "convert"): found[2] for change in changes if (found := CUT.match(change))}
    return choose.choose(data, valid, test, task=task, given=given, **reading)


def _started(config: Config, start: Path, run: Path, *, adapt: bool) -> Config:
    """Return settings that begin with another run's. Once this run has a state, it knows them itself: the other one is
    not needed any more."""
    if not adapt:
        return settings.override(config, [f"training.start={json.dumps(str(start))}"])
    known = bool(checkpoint.states(run)) and (run / "config.yaml").is_file()
    rate = 1 if known else warm_start.SLOWER
    return warm_start.adapted(config, settings_in(run if known else start)[0], start, rate=rate)


def _setting(config: Config, key: str) -> Any:
    section, _, name = key.partition(".")
    return getattr(getattr(config, section), name, None)


@together()
def run_training(
    config: Config, reasons: dict[str, str], run: Path, progress: Progress, seen: Survey | None = None
) -> Model:
    """Prepare, train or resume, evaluate, and write the card; under `torchrun`, process 0 does all but the training."""
    keep_memory()
    world = World()
    progress = progress if world.first else Progress(quiet=True)
    for paths in (config.data.valid, config.data.test):
        if paths:
            form_of(config, paths)  # better now than after the training
    examples = list(read(config, config.data.test)) if world.first and config.data.test else []
    if world.first and config.data.test and not examples:
        raise nothing_in(config.data.test, OUTPUTS[config.task].reads)
    if not world.first:
        world.wait()  # for what process 0 prepares
    folder.make(run)
    with folder.locked(run) if world.first else nullcontext():
        for key, why in reasons.items():
            progress.say(f"{key}: {why}")
        prepared = _prepared(config, run, progress.say, seen)
        config, task = prepared.config, prepared.task
        test = task.held(examples) if examples else None
        if world.first:
            described: dict[str, bytes | Path] = {**task.files}
            described["config.yaml"] = config_files.render(config, reasons).encode()
            checksums.publish(run, described)
            world.wait()
        trainer = Trainer(run, prepared, progress, world)
        count, waste = sum(p.numel() for p in trainer.network.parameters()), trainer.batches.waste(0)
        progress.say(
            f"{len(prepared.store):,} training rows, {len(prepared.valid.items):,} for validation; "
            f"{count:,} parameters; {trainer.batches.count(0):,} batches an epoch, {100 * waste:.1f} % of their tokens "
            "are padding"
        )
        for why in unfused(trainer.network):
            progress.say(why)
        if trainer.resume(progress.say):
            progress.say(f"going on at step {trainer.at.step:,} of {run}")
        try:
            trainer.train()
            trainer.finish()
        finally:
            progress.close()
        model = Model(run, config, task)
        task.network.eval()
        if world.first:
            _report(model, trainer, progress, {"validation": prepared.valid} | ({"test": test} if test else {}))
        world.wait()
    return model


def _prepared(config: Config, run: Path, say: Say, seen: Survey | None) -> Prepared:
    """Return what training needs. A new run may begin with another's vocabularies and weights; once there is a state,
    it goes on with what is in its own folder."""
    skipped: list[Fault] = []
    seen = seen or survey(config, skipped.append if config.data.faults == "skip" else None)
    files = checksum([*config.data.train, *config.data.valid], seen.refers)
    folder.refuse_other_run(run, config, files, say)
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
    found = {name: model.task.evaluate(held)[0] for name, held in data.items()}
    for name, scores in found.items():
        progress.say(f"{name}: " + ", ".join(f"{s.name} {s.value:.2f}{s.unit and ' ' + s.unit}" for s in scores))
    write_card(model, facts, found)
