"""Planning: the cost of a training before it is paid, on this machine or on another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard import config as config_files
from regard.config import Config
from regard.costs import memory
from regard.costs.machines import Machine, machine_of
from regard.costs.memory import Need, Place
from regard.costs.steps import StepCost, step_cost
from regard.costs.trace import LOOKING, parameters, traced
from regard.errors import UserError
from regard.runs import settings
from regard.runs.build import weightless
from regard.runs.model import refuse_missing, settings_in
from regard.training import calibration, rehearsal
from regard.training.rehearsal import TYPICAL, Rehearsal
from regard.training.train import is_run, settle

LENGTHS = (256, 512)  # at which attention is traced: what grows faster than the rest is then known
SLOW = (0.9, 1.25)  # the time of a training on this machine: validations and other work come to that of its steps
BAR = 48  # signs


@dataclass(frozen=True)
class CostPlan:
    """The cost of a training: of a mean step, of a process's memory, and from … to … seconds in all."""

    name: str
    sample: Rehearsal
    machine: Machine
    step: StepCost
    needs: dict[tuple[str, int], Need]  # by the way of sharing, and the number of processes
    each: tuple[float, float]  # seconds of a step, at best and at worst
    dominates: float | None  # the length from which attention itself is more than half; None: unknown

    @property
    def steps(self) -> int:
        """The steps of the training: as set, or as many as fit into the minutes."""
        how = self.sample.config.training
        return how.steps or max(1, int(60 * (how.minutes or 20.0) / (sum(self.each) / 2)))

    @property
    def seconds(self) -> tuple[float, float]:
        low, high = (self.steps * each for each in self.each)
        return low, high

    @property
    def need(self) -> Need:
        """The memory of a process of the training as it is set."""
        return self.needs[self.sample.config.training.parallel, self.machine.devices]


def plan(
    data: Sequence[str],
    on: str = "this",
    *,
    task: str | None = None,
    changes: Sequence[str] = (),
    length: int = TYPICAL,
    price: float | None = None,
    format: str = "",
    columns: str = "",
) -> CostPlan:
    """Plan the training of files, of settings or of a run; `length` is assumed where the data is not there."""
    machine = None if on == "this" else machine_of(on)
    sample = _sample([*data], task, changes, length, format=format, columns=columns)
    if not len(sample.rows):
        raise UserError(f"{data[0]}: no example is as short as data.longest: set a larger one.")
    step, how = sample.step(), sample.config.training
    if machine is None:
        machine, pace = _this(sample), calibration.calibrated(sample)
        each = tuple(share * pace.step(step.flops) for share in SLOW)
    else:
        each = tuple(step.flops / machine.rate(how.precision) / share for share in reversed(machine.efficiency))
    if price is not None:
        machine = machine.model_copy(update={"price": price})
    needs = _needs(sample, machine, own=on == "this")
    return CostPlan(data[0], sample, machine, step, needs, (each[0], each[1]), _dominates(sample, step))


def _sample(
    data: list[str], task: str | None, changes: Sequence[str], length: int, *, format: str, columns: str
) -> Rehearsal:
    if is_run(data):
        run = Path(data[0])
        refuse_missing(run, "config.yaml")
        config = settings.override(settings_in(run)[0], [*changes])
        return rehearsal.of_run(config, run)
    if len(data) == 1 and config_files.is_settings(data[0]):
        config = settings.override(settings.load(Path(data[0])), [*changes])
        if not any(Path(name).exists() for name in config.data.train):
            return rehearsal.of_settings(config, length)
    config, _, seen = settle(data, [], [], task, [*changes], format=format, columns=columns)
    return rehearsal.of_files(config, seen.count if seen else None)


def _this(sample: Rehearsal) -> Machine:
    """Return this machine; what it reaches is measured, not looked up."""
    place = memory.here(torch.device("cpu"), sample.task.network, sample.count)
    return Machine(name="this machine", teraflops=1, gigabytes=place.there / 1e9)


def _needs(sample: Rehearsal, machine: Machine, *, own: bool) -> dict[tuple[str, int], Need]:
    """Return the need of a process by the way of sharing and the number of processes: one, and all."""
    found = {}
    for processes in sorted({1, 2 if own else 1, machine.devices}):
        place = Place(int(1e9 * machine.gigabytes), processes)
        if own:
            here = memory.here(torch.device("cpu"), sample.task.network, sample.count)
            place = Place(here.there // processes, processes, here.program, here.gaps)
        for parallel in ("ddp", "fsdp"):
            how = sample.config.training.model_copy(update={"parallel": parallel})
            found[parallel, processes] = sample.need(place, how)
    return found


def _dominates(sample: Rehearsal, step: StepCost) -> float | None:
    """Return the length from which attention itself is more than half of a step; ∞ if it never is.

    A row is repeated to two lengths; what is linear and what is square in them follows from both. Only texts can be
    made longer at will.
    """
    fields = sample.task.fields
    if not step.looking or not all(field.shape == () and np.issubdtype(field.dtype, np.integer) for field in fields):
        return None
    most = sample.task.network.longest or LENGTHS[1]
    lengths = [min(length, most - 2 if most > 4 else most) for length in LENGTHS]
    lengths[0] = min(lengths[0], lengths[1] // 2)
    if lengths[0] < 1 or sum(field.tokens for field in fields) < len(fields):
        return None
    looking, rest = [], []
    for length in lengths:
        row = tuple(np.resize(np.asarray(field), length) for field in sample.rows[0])
        found = traced(sample.task.network, sample.task.batch([row]), sample.task.turns[0])
        looking.append(found.looking / length)
        rest.append((found.flops - found.looking) / length)
    slope = (looking[1] - looking[0]) / (lengths[1] - lengths[0])
    base, other = looking[0] - slope * lengths[0], rest[1]
    if slope * 1e6 < other * 1e-3:
        return 0.0 if base > other else math.inf
    return max(0.0, (other - base) / slope)


# ---- in words --------------------------------------------------------------------------------------------------------


def render(found: CostPlan) -> str:
    """Return a plan as text."""
    return "\n".join(_lines(found))


def _lines(found: CostPlan) -> Iterator[str]:
    machine, how = found.machine, found.sample.config.training
    each = f" × {machine.devices}" if machine.devices > 1 else ""
    yield f"{found.name} on {machine.name}"
    if found.sample.assumed:
        yield f"  {found.sample.assumed}"
    yield ""
    yield from _parts(found)
    yield ""
    yield from _attention(found)
    yield ""
    yield f"memory of a process{each} (p program, w weights, m moments, g gradients, a activations)"
    yield f"  {bar(found.need)}"
    for processes in sorted({number for _, number in found.needs}):
        ddp, fsdp = (memory.gigabytes(found.needs[way, processes].total) for way in ("ddp", "fsdp"))
        yield (
            f"  {processes} processes: {ddp} each with DDP, {fsdp} with FSDP2"
            if processes > 1
            else f"  1 process: {ddp}"
        )
    if found.need.total > found.need.there:
        there = memory.gigabytes(found.need.there)
        yield f"  it does not fit into {there}: {_remedy(found)}"
    yield ""
    yield from _time(found)
    yield "half the cost"
    yield f"  half the steps: --set training.steps={max(1, found.steps // 2)} training.minutes="
    for change, share in cheaper(found):
        yield f"  {100 * share:.0f} % of the operations: --set {change}"
    if machine.half and how.precision == "float32":
        share = machine.teraflops / machine.half
        yield f"  {100 * share:.0f} % of the time at best: --set training.precision=bfloat16"


def _parts(found: CostPlan) -> Iterator[str]:
    weights, parts = parameters(found.sample.task.network), found.step.parts
    names = sorted({*weights, *parts}, key=lambda part: (ORDER.get(part.place, 9), -parts[part], part))
    yield f"{'part':36}{'parameters':>14}{'a step, GFLOP':>16}{'share':>8}"
    total = max(1, parts.total())
    for part in names:
        share = 100 * parts[part] / total
        yield f"{part!s:36}{weights[part]:>14,}{figure(parts[part] / 1e9):>16}{share:>7.1f}%"
    yield f"{'all':36}{weights.total():>14,}{figure(total / 1e9):>16}{100:>7.1f}%"


ORDER = {"input": 0, "backbone": 1, "decoder": 2, "output": 3}


def _attention(found: CostPlan) -> Iterator[str]:
    share = 100 * found.step.looking / max(1, found.step.flops)
    if not found.step.looking:
        yield "no attention: the cost grows in proportion to the length"
        return
    said = f"attention itself ({LOOKING}) is {share:.1f} % of a step"
    if found.dominates is None:
        yield said
    elif math.isinf(found.dominates):
        yield f"{said}, and less than half of one at any length"
    else:
        yield f"{said}, and more than half of one from {found.dominates:,.0f} tokens on"


def bar(need: Need) -> str:
    """Return the need of a process as a bar against what there is."""
    parts = {"p": need.program, "w": need.weights, "m": need.moments, "g": need.gradients, "a": need.activations}
    scale = BAR / max(need.total, need.there, 1)
    filled = "".join(sign * round(scale * size) for sign, size in parts.items())
    free = "." * max(0, round(scale * need.there) - len(filled))
    over = " too much" if need.total > need.there else ""
    if over:
        place = min(len(filled), round(scale * need.there))
        filled = f"{filled[:place]}|{filled[place:]}"
    sizes = ", ".join(f"{sign} {size / 1e9:.2f}" for sign, size in parts.items() if size)
    return f"[{filled}{free}] {memory.gigabytes(need.total)} of {memory.gigabytes(need.there)}{over}: {sizes}"


def _remedy(found: CostPlan) -> str:
    how, need = found.sample.config.training, found.need
    shared = found.needs["fsdp", found.machine.devices]
    if how.parallel == "ddp" and found.machine.devices > 1 and shared.total <= need.there < need.total:
        return "--set training.parallel=fsdp"
    if not how.checkpointing and need.activations > need.model:
        return f"{need.remedy(how)}, or training.checkpointing=true"
    return need.remedy(how)


def _time(found: CostPlan) -> Iterator[str]:
    machine, how, (low, high) = found.machine, found.sample.config.training, found.seconds
    total = found.steps * found.step.flops
    epochs = f", {found.steps / found.sample.per_epoch:,.1f} epochs" if found.sample.count else ""
    limit = "" if how.steps else f", as many as fit into {how.minutes or 20:g} minutes"
    yield f"{found.steps:,} steps{epochs}{limit}: {power(total)} operations in all"
    yield f"  time: {spoken(low)} to {spoken(high)}, {spoken(sum(found.each) / 2)} a step"
    if machine.name != "this machine":
        some, more = (share * machine.rate(how.precision) for share in (low, high))
        rate = machine.rate(how.precision) / machine.devices / 1e12
        yield f"  time × devices × {rate:g} TFLOP/s, as tables have it: {power(some)} to {power(more)}"
    hours = [seconds * machine.devices / 3600 for seconds in (low, high)]
    if machine.watts:
        some, more = (each * machine.watts / 1000 for each in hours)
        yield f"  energy: {some:,.3g} to {more:,.3g} kWh at {machine.watts:g} W a device"
    if machine.price is not None:
        some, more = (each * machine.price for each in hours)
        yield f"  price: {some:,.2f} to {more:,.2f} {machine.currency}".rstrip()


def spoken(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} seconds"


def figure(number: float) -> str:
    """Return a number with three digits that count, or all before its point."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def power(number: float) -> str:
    """Return a large number as 3.3·10¹⁸."""
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def cheaper(found: CostPlan) -> list[tuple[str, float]]:
    """Return changes of the model and the share of the operations that is left with each, the least first."""
    model = found.sample.config.model
    tried = []
    for key, value in (("layers", getattr(model, "layers", 1) // 2), ("hidden", getattr(model, "hidden", 0) // 2)):
        if value >= 1:
            tried.append(f"model.{key}={value}")
    step = 8 * (getattr(model, "heads", 0) or 1)
    narrow = round(0.7 * getattr(model, "width", 0) / step) * step
    if step <= narrow < getattr(model, "width", 0):
        tried.append(f"model.width={narrow}")
    if getattr(model, "attention", "") == "full" and found.step.looking > 0.25 * found.step.flops:
        tried.append("model.attention=local")
    before = step_cost(found.sample.task, found.sample.batches, found.sample.content, sample=1).flops
    shares = [(change, _share(found, change, before)) for change in tried]
    return sorted(((change, share) for change, share in shares if share < 0.8), key=lambda each: each[1])


def _share(found: CostPlan, change: str, before: float) -> float:
    """Return the share of the operations that is left with this change; 1 where it does not go with the rest."""
    try:
        config: Config = settings.override(found.sample.config, [change])
        task = weightless(config, found.sample.parts)
    except UserError:
        return 1.0
    return step_cost(task, found.sample.batches, found.sample.content, sample=1).flops / before
