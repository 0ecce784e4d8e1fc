"""`regard compare`: variants under equal budgets and several seeds; a table, pictures, and a conclusion."""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

import regard
from regard.comparison import drawings, fairness, matching, measuring, report, sizes, table
from regard.comparison.baselines import simple_variants
from regard.comparison.cells import Cell, cells_of
from regard.comparison.table import Series
from regard.comparison.variants import Variant
from regard.comparison.wishes import length_key, wishes_of
from regard.comparison.workers import Work, work_on
from regard.config import Config
from regard.errors import UserError
from regard.inputs.input import Use
from regard.outputs import OUTPUTS
from regard.runs import checksums, settings
from regard.runs.folder import refuse_unwritable
from regard.training.train import GIVEN, settle

VALIDATED = 200  # items of a validation, where steps are counted: what a clock decides would differ from run to run
Say = Callable[[str], None]
Configs = list[tuple[Variant, Config]]


@dataclass(frozen=True)
class DataFiles:
    """The data, and how it is read."""

    data: Sequence[str]
    valid: Sequence[str] = ()
    test: Sequence[str] = ()
    task: str | None = None
    set: Sequence[str] = ()
    format: str = ""
    columns: str = ""


@dataclass(frozen=True)
class Budget:
    """The budget of each training: minutes, steps or FLOPs; none of them: what its settings say."""

    minutes: float | None = None
    steps: int | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given = [f"--{name}" for name in ("minutes", "steps", "flops") if getattr(self, name) is not None]
        if len(given) > 1:
            raise UserError(f"{' and '.join(given)}: expected one budget; the others follow from it.")
        for name in ("minutes", "steps", "flops"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"--{name} {value:g}: expected a finite budget above 0.")

    @property
    def unit(self) -> str | None:
        names = {"minutes": self.minutes, "steps": self.steps, "FLOPs": self.flops}
        return next((name for name, value in names.items() if value is not None), None)

    def changes(self, config: Config) -> list[str]:
        """Return the changes that give these settings the budget."""
        if self.minutes is not None:
            return [f"training.minutes={self.minutes}", "training.steps="]
        steps = self.steps
        if self.flops is not None:
            steps = max(1, round(self.flops / sizes.flops_of(config)))
        if steps is None:
            return []
        validated = [] if config.training.validated else [f"training.validated={VALIDATED}"]
        return [f"training.steps={steps}", "training.minutes=", *validated]


@dataclass(frozen=True)
class Comparison:
    """All that a comparison is told."""

    files: DataFiles
    variants: Sequence[Variant]
    folder: Path
    budget: Budget = field(default_factory=Budget)
    seeds: int = 3
    jobs: int = 1
    match: str | None = None
    lengths: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    command: str = ""

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)}: expected 1 or more.")
        if self.match not in (None, "parameters", "flops"):
            raise UserError(f"--match {self.match}: expected parameters or flops.")
        for name, values in (("lengths", self.lengths), ("data-sizes", self.sizes)):
            if any(value < 1 for value in values) or list(values) != sorted({*values}):
                raise UserError(f"--{name}: expected growing numbers above 0, found {','.join(map(str, values))}.")


def compare(asked: Comparison, say: Say) -> dict[str, Any]:
    """Train, measure and report; return what comparison.json holds. Call it again to continue."""
    refuse_unwritable(*asked.files.data, asked.folder)
    _refuse_other_folder(asked.folder)
    configs = _configs(asked, say)
    _refuse_missing(asked, configs[0][1])
    cells = list(cells_of(asked.folder, configs, asked.seeds, asked.sizes or [None]))
    done = sum(cell.measures() is not None for cell in cells)  # other settings are refused before anything is trained
    say(
        f"{len(configs)} variants, {asked.seeds} seed{'s' * (asked.seeds > 1)}: {len(cells)} trainings, "
        f"{done} of them done already"
    )
    _train(asked, cells, say)
    return _report(asked, configs, cells)


def _refuse_other_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: name a folder with -o.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "runs").is_dir():
        raise UserError(f"{folder} is not empty and holds no comparison: name another folder with -o.")


def _refuse_missing(asked: Comparison, base: Config) -> None:
    """Refuse lengths and amounts of data that are not there before anything is trained."""
    if asked.lengths:
        measuring.refuse_missing_lengths(base, asked.lengths)
    if asked.sizes:
        sizes.parts_of(settings.override(base, [f"data.most={asked.sizes[-1]}"]))


# ---- settings --------------------------------------------------------------------------------------------------------


def _configs(asked: Comparison, say: Say) -> Configs:
    """Return the settings of each variant and of the simple baselines: of equal size if asked, with their budget."""
    own = [(variant, _settled(asked, variant)) for variant in asked.variants]
    base = own[0][1]
    for variant, config in own:
        if (config.task, config.input) != (base.task, base.input):
            raise UserError(f"{variant.name} is another task than {own[0][0].name}: expected variants of one task.")
    found: Configs = [*own, *simple_variants(base, own, asked.files.set)]
    if asked.match:
        count = sizes.parameters_of if asked.match == "parameters" else sizes.flops_of
        wanted = count(base)
        found = [found[0], *((v, matching.matched(c, wanted, count)) for v, c in found[1:])]
        for variant, config in found:
            miss = 100 * (count(config) / wanted - 1)
            say(f"{variant.name}: width {config.model.width}, {miss:+.1f} % {asked.match}")
    return [(variant, settings.override(config, asked.budget.changes(config))) for variant, config in found]


def _settled(asked: Comparison, variant: Variant) -> Config:
    """Return all settings of a variant; what is wrong with it is said with --vary, or with the file it is from."""
    files, changes = asked.files, variant.changes
    for change in changes:
        if change.startswith(("task=", "input=")):
            raise UserError(f"{variant.where} {change}: expected variants of one task and input; see --task.")
    first = [change for change in changes if GIVEN.match(change)]  # known before the others are chosen
    config, _, _ = settle(
        list(files.data),
        list(files.valid),
        list(files.test),
        files.task,
        [*files.set, *first],
        format=files.format,
        columns=files.columns,
    )
    if asked.lengths:
        longest = asked.lengths[0] + (OUTPUTS[config.task].use is Use.SOURCE)  # the end of a target counts too
        config = settings.override(config, [f"{length_key(config)}={longest}"])
    try:
        return settings.override(config, [*files.set, *changes])  # another kind of model begins with its own settings
    except UserError as error:
        said = str(error.args[0])
        if any(f"--set {change}:" in said for change in files.set):  # of all variants, and this one lacks it
            raise UserError(f"{variant.name}: {said}") from None
        own = said.replace("--set:", f"{variant.where.rstrip(':')}:").replace("--set", variant.where)
        raise UserError(own) from None


# ---- trainings -------------------------------------------------------------------------------------------------------


def _train(asked: Comparison, cells: Sequence[Cell], say: Say) -> None:
    """Train what is not done yet. A variant that fails a check is not trained with further seeds."""
    threads = 1 if asked.jobs > 1 else torch.get_num_threads()
    began, failed = time.monotonic(), set[str]()
    for cell in cells:
        if (found := cell.measures()) and table.failed([found]):
            failed.add(cell.variant.name)

    def wanted(cell: Cell) -> bool:
        return cell.measures() is None and cell.variant.name not in failed

    def work(cell: Cell) -> Work:
        return Work(threads, asked.lengths, asked.folder / "logs" / f"{cell.record.stem}.log")

    def done(cell: Cell) -> None:
        found = cell.measures() or {}
        why = table.failed([found])
        quality = "" if found["quality"] is None else f": {found['label']} {found['quality']:.4g}"
        say(f"{cell.said}{quality} ({(time.monotonic() - began) / 60:.1f} min)")
        if why:
            failed.add(cell.variant.name)
            say(f"{cell.variant.name} is excluded: {why}")

    work_on(cells, asked.jobs, work, wanted, done)


# ---- report ----------------------------------------------------------------------------------------------------------


def _report(asked: Comparison, configs: Configs, cells: Sequence[Cell]) -> dict[str, Any]:
    series = [_series(variant, config, cells, asked) for variant, config in configs]
    rows = table.rows_of(series)
    for row, found in zip(
        rows, wishes_of([config for _, config in configs]), strict=False
    ):  # the last looks at nothing
        row.wishes = found
    first = series[0].measures[0]
    metric = first["scores"][0] | {"label": first["label"]} if first["scores"] else None
    label = first["label"] or "quality"
    settled = [config for _, config in configs]
    facts: dict[str, Any] = {
        "regard": regard.__version__,
        "title": f"{', '.join(variant.name for variant in asked.variants)}: {settled[0].task} on {settled[0].input}",
        "conclusion": table.conclusion(rows, label),
        "command": asked.command,
        "date": date.today().isoformat(),
        "seeds": sorted({config.training.seed + n for config in settled for n in range(asked.seeds)}),
        "minutes": sum(
            found["minutes"] + found.get("measuring_minutes", 0.0) for cell in cells if (found := cell.measures())
        ),
        "machine": _machine(first["threads"]),
        "budget": {asked.budget.unit: getattr(asked.budget, asked.budget.unit.lower())} if asked.budget.unit else {},
        "match": asked.match,
        "lengths": list(asked.lengths),
        "sizes": list(asked.sizes),
        "metric": metric and {key: metric[key] for key in ("name", "label", "unit", "higher_is_better", "signature")},
        "on": first["on"],
        "rows": [row.as_json() for row in rows],
        "fairness": fairness.held_equal(rows, asked.budget.unit, asked.match, settled),
        "warnings": [*fairness.warnings_of(series, rows, settled)],
        "checks": {each.name: each.measures[0]["checks"] for each in series},
    }
    facts["pictures"] = dict(drawings.draw(facts, series, asked.folder / "pictures"))
    for name, content in {
        "comparison.json": json.dumps(facts, indent=1, ensure_ascii=False) + "\n",
        "table.csv": report.as_csv(facts),
        "README.md": report.markdown(facts),
    }.items():
        checksums.write_whole(asked.folder / name, content.encode())
    return facts


def _machine(threads: int) -> dict[str, Any]:
    return {"processor": _processor(), "threads": threads, "torch": torch.__version__}


def _processor() -> str:
    """Return the name of the processor where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _series(variant: Variant, config: Config, cells: Sequence[Cell], asked: Comparison) -> Series:
    """Return the measures of a variant with their FLOPs; the main ones are those on the most data."""
    by_size: dict[int, Sequence[dict[str, Any]]] = {}
    step = sizes.flops_of(config)
    for cell in cells:
        found = cell.measures() if cell.variant is variant else None
        if found is not None:
            costs = {"step_flops": step, "flops": step and step * found["steps"]}
            by_size[cell.size or 0] = [*by_size.get(cell.size or 0, ()), found | costs]
    return Series(variant.name, variant.simple, by_size[max(by_size)], by_size if asked.sizes else {})
