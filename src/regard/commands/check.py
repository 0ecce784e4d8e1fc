"""Checking before hours are spent: data for faults, a config for mistakes, a run for damage and for invariances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from regard import config as config_files
from regard import inputs
from regard.config import Config
from regard.costs import memory
from regard.data.check import DataReport, Part, check_parts
from regard.data.check_graphs import check_graphs
from regard.data.check_images import ImageReport, check_images
from regard.data.check_sound import SoundReport, check_recordings
from regard.data.clips import strip_of
from regard.data.example import Example
from regard.data.format import Format
from regard.data.lines import OnFault
from regard.data.standard_input import spooled
from regard.errors import UserError
from regard.outputs import OUTPUTS
from regard.runs import settings, verify
from regard.runs.build import Parts, form_of, read
from regard.runs.locations import SETS
from regard.runs.model import SAME, TRIED, Model, load, nothing_in, refuse_missing
from regard.training import choose, rehearsal
from regard.training.advice import warnings_of
from regard.training.prepare import examine, prepare
from regard.training.split import Split, survey
from regard.training.train import TRAINED, reading_of, settle

REHEARSED = 20_000  # examples that are prepared as for a training; more are tried by the first SAMPLE of them


class Given(NamedTuple):
    """The user's options about reading files."""

    format: str
    columns: str


def check(
    targets: Sequence[str],
    test: Sequence[str] = (),
    *,
    valid: Sequence[str] = (),
    task: str | None = None,
    format: str = "",
    columns: str = "",
    set: Sequence[str] = (),
    accept: bool = False,
) -> tuple[str, bool]:
    """A report on data, a config or a run, and whether all is well: whether `regard train` would begin to train.

    `accept` takes the run's files as they are.
    """
    first = Path(targets[0])
    if (first / "config.yaml").is_file():
        return check_run(first, accept=accept)
    if accept:
        raise UserError(f"--accept takes the files of a run as they are, but {first} is not a run folder.")
    with spooled(targets, valid, test) as (data, validation, tests):
        return check_data(data, validation, tests, task, set, Given(format, columns))


LOOKS: dict[str, Callable[..., DataReport | ImageReport | SoundReport]] = {
    "patches": check_images,
    "clips": partial(check_images, look=strip_of),
    "frames": check_recordings,
    "nodes": check_graphs,
}


def check_data(
    data: list[str], valid: list[str], test: list[str], task: str | None, changes: Sequence[str], how: Given
) -> tuple[str, bool]:
    """A report on files or on settings and their files, and whether a training would begin."""
    written = len(data) == 1 and config_files.is_settings(data[0])
    heading = f"{data[0]}: all settings are valid\n" if written else ""
    if written:
        config = settle(data, valid, test, task, changes, **how._asdict())[0]
        settings.refuse_too_large(config, data[0], TRAINED)
        reading: dict[str, str] = config.data.model_dump(include={"faults", "encoding", "format", "columns"})
        parts = {name: list(getattr(config.data, name)) for name in SETS}
        form, reads = form_of(config, parts["train"]), OUTPUTS[config.task].reads
    else:
        settings.refuse_unknown_task(task)
        reading = reading_of(changes, **how._asdict())
        parts = dict(zip(SETS, map(list, choose.split_paths(data, valid, test)), strict=True))
        format, columns = reading.get("format", ""), reading.get("columns", "")
        wanted, encoding = task and OUTPUTS[task].reads, reading.get("encoding", "utf-8")
        form = inputs.recognise(parts["train"], wanted, encoding, format=format, columns=columns)
        reads, reading = wanted or form.task, reading | {"format": form.kind, "columns": form.chosen}
    encoding = reading.get("encoding", "utf-8")

    def part(name: str, called: str) -> list[Part]:
        paths = parts[name]
        if not paths:
            return []
        like = {name: reading.get(name, "") for name in ("format", "columns")}
        return [Part(called, paths, inputs.recognise(paths, reads, encoding, form.input, **like, strict=False))]

    others = [*part("valid", "validation"), *part("test", "test")]
    report = LOOKS.get(form.input, check_parts)(Part("training", parts["train"], form), others, encoding, _read)
    stops = report.stops if reading.get("faults", "stop") == "stop" else {"test": report.stops.get("test", 0)}
    if any(stops.values()):
        return f"{heading}{report.render()}", False
    try:
        return f"{heading}{report.render()}{_rehearsed(data, valid, test, task, changes, how)}", True
    except UserError as error:
        return f"{heading}{report.render()}\n\n`regard train` would stop: {error}", False


def _read(paths: Sequence[Path | str], form: Format, report: OnFault, encoding: str) -> Iterable[Example[Any, Any]]:
    return inputs.read(paths, form, report, encoding)


def _rehearsed(
    data: list[str], valid: list[str], test: list[str], task: str | None, changes: Sequence[str], how: Given
) -> str:
    """Do all that a training does before its first step, in a folder that is then removed; return what it would say."""
    config, reasons, seen = settle(data, valid, test, task, changes, **how._asdict())
    settings.refuse_too_large(config, "The model", TRAINED)
    seen = seen or survey(config, (lambda _: None) if config.data.faults == "skip" else None)
    tests = list(read(config, config.data.test)) if config.data.test else []
    if config.data.test and not tests:
        raise nothing_in(config.data.test, settings.unit_of(config.input, config.task))
    said = [f"{key}: {why}" for key, why in reasons.items()]
    origin = load(config.training.start).task if config.training.start else None
    parts = origin and (origin.input, origin.output)
    examples: list[Example[Any, Any]] = []
    if seen.count <= REHEARSED:
        with TemporaryDirectory(prefix="regard-") as folder:
            items = prepare(config, Path(folder), seen, said.append, origin=parts).valid.items
            examples = [item.example for item in items] if config.data.valid else []
    else:
        examine(config, seen)
        Split(config, seen)
    said += [f"warning: {warning}" for warning in warnings_of(config, seen, examples, tests)]
    text = "\n\n`regard train` would say\n" + "\n".join(f"  {line}" for line in said)
    return f"{text}\n{expectation(config, seen.count, parts)}"


def expectation(config: Config, pairs: int, origin: Parts | None = None) -> str:
    """Return the memory that a training of these settings needs, the remedy if that is too much, and its padding.

    It is traced with vocabularies and batches of a sample of so many pairs.
    """
    sample = rehearsal.of_files(config, pairs, origin)
    how, network = sample.config.training, sample.task.network
    about = f"about {sum(parameter.numel() for parameter in network.parameters()) / 1e6:.1f} million parameters"
    if not len(sample.rows):
        return f"{about}; no {settings.unit_of(config.input, config.task)} is left to train on: see data.longest"
    need = sample.need(memory.here(torch.device("cpu"), network, sample.count))
    if need.hopeless:
        raise UserError(f"The {need.sentence(how)}.")
    waste = 100 * sample.batches.waste(0)
    padding = f"\nabout {waste:.1f} % of a batch's tokens would be padding (training.budget)"
    return f"{about}; {need.sentence(how)}{padding}"


def check_run(run: Path, *, accept: bool) -> tuple[str, bool]:
    """Verify the checksums of a run, then test what must hold for every model."""
    refuse_missing(run, "config.yaml")
    if accept:
        verify.accept(run)
    faults = verify.verify(run)
    if faults:
        return "\n".join(faults), False
    report, sound = check_model(load(run))
    return f"{run}: every file matches its checksum\n{report}", sound


def check_model(model: Model) -> tuple[str, bool]:
    """Test what must hold for every trained model, on its own data."""
    try:
        found = model.invariances()
    except UserError as error:
        return f"  its answers were not checked, which needs its data: {error}", True
    lines = [f"invariants of every model, on at most {TRIED} rows of its data:"]
    for name, difference in found:
        lines.append(f"  {'ok  ' if difference < SAME else 'FAIL'} {name} (largest difference {difference:.1e})")
    return "\n".join(lines), all(difference < SAME for _, difference in found)
