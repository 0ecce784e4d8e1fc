"""The report of a comparison: JSON with everything, and from it the table in Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

Facts = dict[str, Any]  # the content of comparison.json
GIGA, MEGA = 1e9, 2**20


def markdown(facts: Facts) -> str:
    """Return the whole report, from its table to the pictures."""
    parts = [
        f"# {facts['title']}",
        facts["conclusion"],
        table(facts),
        *([by_key(facts, "lengths", "length")] if facts["lengths"] else []),
        *([by_key(facts, "sizes", "examples")] if facts["sizes"] else []),
        "## What was held equal",
        "\n".join(f"- {line}" for line in facts["fairness"]),
        *(["## Warnings", "\n".join(f"- {line}" for line in facts["warnings"])] if facts["warnings"] else []),
        "## How it was made",
        made(facts),
        "\n".join(f"![{alt}](pictures/{name})" for name, alt in facts["pictures"].items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def summary(facts: Facts, folder: object) -> str:
    """Return what is printed: the table, what was held equal, warnings, and the conclusion last."""
    lines = [
        table(facts),
        *([by_key(facts, "lengths", "length")] if facts["lengths"] else []),
        *([by_key(facts, "sizes", "examples")] if facts["sizes"] else []),
        "\n".join([*facts["fairness"], *(f"Warning: {line}." for line in facts["warnings"])]),
        f"{folder}/README.md has it with pictures, {folder}/table.csv and {folder}/comparison.json with all digits.",
        facts["conclusion"],
    ]
    return "\n\n".join(lines)


def made(facts: Facts) -> str:
    """Return the command, the seeds, the machine and the duration."""
    machine, command = facts["machine"], f"`{facts['command']}`\n\n" if facts["command"] else ""
    return (
        f"{command}Seeds {', '.join(map(str, facts['seeds']))}; {facts['date']}; "
        f"{facts['minutes']:.1f} minutes of training and measuring in all; {machine['processor']}, "
        f"{machine['threads']} thread{'s' * (machine['threads'] > 1)} each, torch {machine['torch']}. "
        "Intervals: 95 %, bootstrap over items in pairs and Student's t over seeds."
    )


def table(facts: Facts) -> str:
    """Return the table in Markdown. What failed a check is struck out, with the reason below."""
    heads = ("variant", _metric(facts), "difference", "verdict", *(head for head, _ in _columns(facts)))
    lines = [heads, ("---", *("---:" for _ in heads[1:]))]
    for row in facts["rows"]:
        name = f"*{row['name']}*" if row["simple"] else row["name"]
        quality = _quality(row, facts)
        if row["excluded"]:
            name, quality = f"~~{row['name']}~~", f"~~{quality}~~"
        lines.append((name, quality, *_judged(row, facts), *(show(row["costs"]) for _, show in _columns(facts))))
    notes = [f"Excluded: {row['name']}, {row['excluded']}." for row in facts["rows"] if row["excluded"]]
    simple = ["*In italics: simple baselines.*"] if any(row["simple"] for row in facts["rows"]) else []
    return "\n\n".join(["\n".join(f"| {' | '.join(line)} |" for line in lines), *notes, *simple])


def by_key(facts: Facts, key: str, what: str) -> str:
    """Return the quality of each variant by length of the items, or by the amount of data, as a table.

    Where positions are compared, lengths are multiples of that in training, beside the wishes that each kind fulfils.
    """
    rows = [row for row in facts["rows"] if row[key] and not row["excluded"]]
    columns = list(rows[0][key]) if rows else []
    wishes = [*(_wishes(rows) if key == "lengths" else ())]
    heads = [f"{name} ({int(name) / int(columns[0]):.3g}×)" for name in columns] if wishes else columns
    lines = [
        (f"{_metric(facts)} by {what}", *wishes, *heads),
        ("---", *("---" for _ in wishes), *("---:" for _ in heads)),
    ]
    for row in rows:
        told = [_told((row["wishes"] or {}).get(name)) for name in wishes]
        lines.append((row["name"], *told, *(_spread(value, facts) for value in row[key].values())))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _wishes(rows: Sequence[Facts]) -> Sequence[str]:
    return next((list(row["wishes"]) for row in rows if row["wishes"]), [])


def _told(value: bool | int | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if type(value) is int else "✓" if value else "✗"


def _metric(facts: Facts) -> str:
    metric = facts["metric"]
    if metric is None:
        return "quality"
    return f"{metric['label']}{' ↑' if metric['higher_is_better'] else ' ↓'}"


def _number(value: float | None, facts: Facts) -> str:
    if value is None:
        return "cannot"
    return f"{value:.{_digits(facts)}f}"


def _spread(found: Any, facts: Facts) -> str:
    """Return a quality, or a quality with its standard deviation over the seeds."""
    return _quality(found, facts) if isinstance(found, dict) else _number(found, facts)


def _digits(facts: Facts) -> int:
    return 2 if facts["metric"] and facts["metric"]["unit"] == "%" else 3


def _quality(row: Facts, facts: Facts) -> str:
    if row["quality"] is None:
        return "–"
    sd = "" if row["sd"] is None else f" ± {_number(row['sd'], facts)}"
    return f"{_number(row['quality'], facts)}{sd}"


def _judged(row: Facts, facts: Facts) -> tuple[str, str]:
    verdict = row["verdict"]
    if row["excluded"]:
        return "", "excluded"
    if verdict is None:
        return "", "baseline"
    low, high = verdict["low"], verdict["high"]
    digits = _digits(facts)
    interval = "" if low is None else f" [{low:+.{digits}f}, {high:+.{digits}f}]"
    return f"{verdict['difference']:+.{digits}f}{interval}", verdict["word"]


def _columns(facts: Facts) -> list[tuple[str, Any]]:
    """Return the columns of costs that are known for some row, each with how it is written."""
    known = [
        ("parameters", "parameters", lambda x: f"{x:,.0f}"),
        ("GFLOP a step", "step_flops", lambda x: f"{x / GIGA:.3g}"),
        ("ms a step", "step_seconds", lambda x: f"{1000 * x:.3g}"),
        ("tokens/s", "tokens_per_second", lambda x: f"{x:,.0f}"),
        ("peak MB", "peak_memory", lambda x: f"{x / MEGA:,.0f}"),
        ("answers/s", "answers_per_second", lambda x: f"{x:,.0f}" if x >= 10 else f"{x:.2g}"),
        ("ms an answer, one core", "seconds_per_answer", lambda x: f"{1000 * x:.3g}"),
        ("steps", "steps", lambda x: f"{x:,.0f}"),
        ("minutes", "minutes", lambda x: f"{x:.2f}"),
    ]

    def writer(key: str, write: Any) -> Any:
        return lambda costs: "" if costs.get(key) is None else write(costs[key])

    some = [key for _, key, _ in known if any(row["costs"].get(key) is not None for row in facts["rows"])]
    return [(head, writer(key, write)) for head, key, write in known if key in some]


def as_csv(facts: Facts) -> str:
    """Return the table as CSV: plain numbers, one row for each variant."""
    keys: Sequence[str] = list(facts["rows"][0]["costs"])
    verdicts = ("difference", "low", "high", "word")
    several = {"length": "lengths", "examples": "sizes"}  # quality by them, a column each
    by = [f"{what} {name}" for what, key in several.items() for name in facts["rows"][0][key]]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["variant", "simple", "excluded", "quality", "sd", "seeds", *verdicts, *keys, *by])
    for row in facts["rows"]:
        verdict = row["verdict"] or {}
        found = [row["name"], row["simple"], row["excluded"] or "", row["quality"], row["sd"], len(row["each"])]
        found += [verdict.get(name) for name in verdicts]
        found += [row["costs"].get(key) for key in keys]
        found += [row["lengths"].get(name) for name in facts["rows"][0]["lengths"]]
        found += [row["sizes"].get(name, {}).get("quality") for name in facts["rows"][0]["sizes"]]
        writer.writerow(["" if value is None else value for value in found])
    return buffer.getvalue()
