"""`regard info`: a run on one screen. Nothing is computed, and no network is built."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.config import Config, Section
from regard.runs import checkpoint
from regard.runs.folder import CACHE, WEIGHTS, quoted
from regard.runs.model import settings_in
from regard.runs.settings import does

WIDE = 78  # characters of a line
SHOWN = ("tokens", "output", "encoder", "model", "training")  # sections of settings, as far as a task has them
HIDDEN = {"training": ("steps", "minutes", "start", "parallel", "compile", "precision", "every", "clip", "decay")}


@dataclass(frozen=True)
class RunFacts:
    """The facts about a run."""

    run: str
    does: str
    data: dict[str, list[str]]
    start: str | None
    rows: dict[str, int]
    parameters: int
    megabytes: float
    steps: int | None
    best_step: int | None
    minutes: float | None
    resumable: bool
    scores: dict[str, dict[str, str]]
    settings: dict[str, dict[str, Any]]


def info(run: Path) -> RunFacts:
    """Return the facts of a run folder."""
    config, _ = settings_in(run)
    shapes = checkpoint.shapes_in(run / WEIGHTS)
    state, last = checkpoint.newest_facts(run) or {}, _last(run / "metrics.jsonl")
    return RunFacts(
        run=str(run),
        does=does(config),
        data={key: names for key in ("train", "valid", "test") if (names := getattr(config.data, key))},
        start=config.training.start,
        rows=_rows(run),
        parameters=sum(math.prod(shape) for shape in shapes.values()),
        megabytes=(run / WEIGHTS).stat().st_size / 1e6,
        steps=state.get("step", last.get("step")),
        best_step=state.get("best_step"),
        minutes=state["seconds"] / 60 if "seconds" in state else last.get("minutes"),
        resumable=bool(state),
        scores=_scores(run, last),
        settings=_settings(config),
    )


def as_json(facts: RunFacts) -> str:
    return json.dumps(asdict(facts), ensure_ascii=False, indent=1)


def render(facts: RunFacts) -> str:
    """Return the facts for a terminal."""
    kind = facts.settings.get("model", {}).get("kind", "")
    rows = {name: f"{count:,} {'rows' if name == 'train' else 'held out'}" for name, count in facts.rows.items()}
    lines = [f"{facts.run}: a model that {facts.does}" + (f" ({kind})" if kind else "")]
    for key, names in facts.data.items():
        count = rows.pop(key, "")
        lines += _wrapped(
            "learned from" if key == "train" else key, " ".join(names) + (f"  ({count})" if count else "")
        )
    lines += [f"{'valid':<14}{rows['valid']}"] if "valid" in rows else []
    lines += [f"{'started from':<14}{facts.start}"] if facts.start else []
    lines.append(f"{'size':<14}{facts.parameters:,} parameters, {facts.megabytes:.1f} MB")
    if facts.steps is not None:
        best = f", best at step {facts.best_step:,}" if facts.best_step else ""
        taken = f" in {facts.minutes:.1f} minutes" if facts.minutes is not None else ""
        lines.append(f"{'trained':<14}{facts.steps:,} steps{taken}{best}")
    for name, scores in facts.scores.items():
        lines += _wrapped(name, ", ".join(f"{metric} {value}" for metric, value in scores.items()))
    for section, values in facts.settings.items():
        lines += _wrapped(section, ", ".join(f"{key} {_short(value)}" for key, value in values.items()))
    again = f"regard train {quoted(facts.run)}" if facts.resumable else "no state: start another run with --from"
    lines.append(f"{'resume':<14}{again}")
    return "\n".join(lines)


def _wrapped(name: str, text: str) -> list[str]:
    """Return a named line, broken between words where it is too long."""
    lines, line = [], f"{name:<14}"
    for word in text.split(" "):
        if len(line) + len(word) > WIDE and len(line) > 14:
            lines.append(line.rstrip())
            line = " " * 14
        line += word + " "
    return [*lines, line.rstrip()]


def _short(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, "") if isinstance(value, bool) else f"{value}"


def _settings(config: Config) -> dict[str, dict[str, Any]]:
    """Return the settings that say most, section by section."""
    found = {}
    for name, section in config.sections():
        if name in (*SHOWN, config.input) and isinstance(section, Section):
            values = section.model_dump(exclude_none=True)
            found[name] = {key: value for key, value in values.items() if key not in HIDDEN.get(name, ())}
    return found


def _scores(run: Path, last: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the scores of the card, or of the last validation while there is no card."""
    try:
        found = json.loads((run / "results.json").read_text(encoding="utf-8"))
        return {name: {s["name"]: _value(s) for s in scores} for name, scores in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        known = ("step", "epoch", "minutes", "rate", "step_seconds", "tokens_per_second", "items", "perfect")
        scores = {name: f"{value:.2f}" for name, value in last.items() if name not in known and value is not None}
        return {"validation": scores} if scores else {}


def _value(score: dict[str, Any]) -> str:
    unit = score.get("unit") or ""
    return f"{score['value']:.2f}{' ' if unit else ''}{unit}"


def _last(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _rows(run: Path) -> dict[str, int]:
    """Return the number of stored rows of training and validation."""
    found = {}
    for name in ("train", "valid"):
        try:
            index = json.loads((run / CACHE / name / "index.json").read_text(encoding="utf-8"))
            found[name] = int(index["rows"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found
