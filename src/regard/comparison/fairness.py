"""Fairness: what was held equal, how far each variant misses it, and what may make the comparison misleading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regard.comparison.table import Row, Series
from regard.config import Config

FAR = 0.02  # a share by which a variant may miss what is held equal without a word
GAIN = 0.05  # of all that a variant gained: if its last quarter gave more, it is still improving
SAID = {
    "parameters": "Parameters",
    "step_flops": "FLOPs of a step",
    "flops": "FLOPs",
    "steps": "Steps",
    "minutes": "Minutes",
}


def held_equal(rows: Sequence[Row], budget: str | None, match: str | None, configs: Sequence[Config]) -> list[str]:
    """Return a sentence for what was held equal, and one for each quantity with how far each variant misses it."""
    equal = [f"the same {budget}" if budget else "each variant's own budget"]
    sized = {"parameters": "the same number of parameters", "flops": "the same FLOPs of a step"}
    equal += [sized[match]] if match else []
    same = [f"training.{name}" for name in ("budget", "rate", "optimiser", "schedule") if _one(configs, name)]
    lines = [f"Held equal: {', '.join(equal)}, the same data, seeds and order of batches, {', '.join(same)}."]
    wanted = {"minutes": "minutes", "steps": "steps", "FLOPs": "flops"}.get(budget or "")
    asked = [name for name in (wanted, {"parameters": "parameters", "flops": "step_flops"}.get(match or "")) if name]
    for name in (*asked, *(name for name in SAID if name not in asked)):
        off = [(row.name, row.misses[name]) for row in rows[1:] if abs(row.misses.get(name, 0.0)) > FAR]
        known = any(name in row.misses for row in rows[1:])
        told = ", ".join(f"{variant} {100 * share:+.0f} %" for variant, share in off)
        meant = " (meant to be equal)" if name in asked else ""
        if known:
            lines.append(f"{SAID[name]}{meant}: {told or f'within {100 * FAR:.0f} %'} of {rows[0].name}.")
    return lines


def _one(configs: Sequence[Config], name: str) -> bool:
    return len({str(getattr(config.training, name)) for config in configs}) == 1


def warnings_of(series: Sequence[Series], rows: Sequence[Row], configs: Sequence[Config]) -> Iterator[str]:
    """Yield what may mislead: one seed, variants that still improve, one learning rate for all, early stops."""
    if len(series[0].measures) == 1:
        yield "one seed: no verdict is given, as luck and merit cannot be told apart; use --seeds 3 or more"
    if len(series[0].measures) == 2:
        yield "two seeds: intervals are almost four times as wide as with three (Student's t); use --seeds 3 or more"
    rising = [each.name for each in series if _still_improving(each)]
    if rising:
        yield f"still improving when the budget ended: {', '.join(rising)}; more steps may change the order"
    trained = [config for config, each in zip(configs, series, strict=True) if not each.simple]
    if _one(trained, "rate") and len({str(config.model) for config in trained}) > 1:
        rate = trained[0].training.rate
        yield (
            f"one learning rate for all variants ({rate:g}), though the best may differ: try --vary "
            f"training.rate={rate / 3:.1g},{rate:g},{rate * 3:.1g}"
        )
    early = [each.name for each in series if any(_early(one) for one in each.measures)]
    if early:
        yield f"stopped before the budget ended (training.patience or training.ceiling): {', '.join(early)}"
    if series[0].measures[0]["on"] == "validation":
        yield "quality is that of the validation data, on which the best weights of each run were chosen; see --test"
    count = sum(row.verdict is not None for row in rows)
    if count > 5:
        yield f"{count} comparisons at 95 %: about {count / 20:.1g} of the verdicts would be chance alone"


def _early(measures: dict[str, object]) -> bool:
    steps, planned = measures["steps"], measures["planned_steps"]
    return isinstance(steps, int) and isinstance(planned, int) and steps < 0.95 * planned


def _still_improving(series: Series) -> bool:
    """Return True if the last quarter of the training gave more than a twentieth of all that was gained."""
    scores = series.measures[0]["scores"]
    if not scores:
        return False
    name, sign = scores[0]["name"], 1 if scores[0]["higher_is_better"] else -1
    late, whole = 0.0, 0.0
    for each in series.measures:
        values = [sign * entry[name] for entry in each["history"] if name in entry]
        last = each["history"][-1]["step"] if each["history"] else 0
        early = [sign * entry[name] for entry in each["history"] if name in entry and entry["step"] <= 0.75 * last]
        if len(values) < 4 or not early:
            continue
        late += max(values) - max(early)
        whole += max(values) - values[0]
    return whole > 0 and late > GAIN * whole
