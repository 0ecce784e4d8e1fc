"""`regard evaluate`: files in, a report out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import inputs, metrics
from regard.commands import sheets
from regard.commands.predict import refuse_unknown
from regard.errors import UserError
from regard.outputs.abilities import Features, FeatureSpace
from regard.outputs.output import Item
from regard.runs import checksums
from regard.runs.build import read
from regard.runs.folder import WEIGHTS
from regard.runs.model import Model, load
from regard.training.advice import warnings_of_answers


@dataclass(frozen=True)
class Report:
    """Scores, by length too if asked, and more about them."""

    scores: list[metrics.Score]
    buckets: list[metrics.Bucket]
    details: str = ""

    def render(self) -> str:
        text = metrics.render(self.scores)
        if self.details:
            text += f"\n\n{self.details}"
        if self.buckets:
            text += f"\n\n{metrics.render_buckets(self.buckets)}"
        return text

    def as_json(self) -> str:
        buckets = [{"low": b.low, "high": b.high, "items": b.items, "value": b.score.value} for b in self.buckets]
        return json.dumps({"scores": metrics.as_json(self.scores), "by_length": buckets}, ensure_ascii=False, indent=1)


def evaluate(
    model: Model,
    paths: Sequence[str],
    changes: dict[str, Any],
    *,
    lowercase: bool = False,
    compounds: bool = False,
    by_length: bool = False,
    output: Path | None = None,
    pictures: Path | None = None,
) -> Report:
    """Return scores on files with known answers, by length too if asked; `output` takes the answers, one to a line, and
    `pictures` is a folder for drawings."""
    refuse_unknown(model, changes)
    keys, held = model.sources_and_held(paths)
    items = held.items
    joined = len(items) < len(keys) and [item.example.key for item in items] == [*dict.fromkeys(keys)]
    if joined:
        print(
            f"{len(keys):,} pairs have {len(items):,} sources: {len(keys) - len(items):,} pairs were joined with "
            "an earlier one of the same source, as alternatives",
            file=sys.stderr,
        )
    if output is not None and not output.parent.is_dir():
        raise UserError(f"{output}: cannot be written: there is no folder {output.parent}.")
    scores, answers = model.task.evaluate(held, **changes)
    if output is not None and len(answers) != len(items):
        raise UserError(f"--output: a model that {model.task.does} has no such option; there are no answers to write.")
    if lowercase:
        scores = metrics.without_case(scores, answers, [item.expected for item in items])
    if compounds:
        scores = [*scores, _of_compounds(model, items, answers)]
    if output is not None:
        known = {item.example.key: answer for item, answer in zip(items, answers, strict=True)}
        lines = [known[key] for key in keys] if joined else answers
        output.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    if pictures is not None:
        for path in sheets.draw(model, items, answers, pictures):
            print(f"drawn: {path}", file=sys.stderr)
    found_wrong = [*warnings_of_answers(model.task.output, items, answers), *model.task.warnings(held, scores)]
    for warning in found_wrong:
        print(f"warning: {warning}", file=sys.stderr)
    details = model.task.details(items, answers)
    return Report(scores, _by_length(model, items, answers) if by_length else [], details)


def _of_compounds(model: Model, items: Sequence[Item], answers: list[str]) -> metrics.Score:
    """Return BLEU as it is published for English to German of WMT14."""
    own = model.task.score(items[:1], answers[:1], 0) if len(answers) == len(items) else []
    if "bleu" not in {score.name for score in own}:
        raise UserError(f"--compounds: expected a model that is scored by BLEU, and this one {model.task.does}.")
    return metrics.compound_bleu(answers, [item.expected for item in items])


def compared_with(model: Model, features: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """Return what new things are compared with: the sources of the training data, and the features of a classifier."""
    if "features" not in model.task.output.measures:
        if features is not None:
            raise UserError(f"--features: a model that {model.task.does} has no such option; leave it out.")
        return {}
    found: dict[str, Any] = {}
    try:
        found["training"] = [example.source for example in read(model.config, model.config.data.train, lambda _: None)]
    except UserError as error:
        say(f"without floor and ceiling, as these need the training data: {error}")
    if features is not None:
        other = load(features)
        if not isinstance(other.task.output, Features) or other.config.input != model.config.input:
            raise UserError(
                f"--features {features}: expected a classifier of {model.task.input.noun}, found a model that "
                f"{other.task.does}."
            )
        output, passes = other.task.output, other.task.passes
        name = f"{other.folder.name}, sha256 {checksums.sha256(other.folder / WEIGHTS)[:16]}"
        found["features"] = FeatureSpace(name, lambda sources: output.features(passes, sources))
    return found


def read_as(model: Model, paths: Sequence[str], format: str | None, columns: str | None) -> None:
    """Read files as they are said to be, rather than as the training data was; refuse what does not fit."""
    if format is None and columns is None:
        return
    given, data = {"format": format or "", "columns": columns or ""}, model.config.data
    inputs.recognise(paths, model.task.output.reads, data.encoding, model.config.input, **given)  # type: ignore[arg-type]
    model.config = model.config.model_copy(update={"data": data.model_copy(update=given)})


def _by_length(model: Model, items: Sequence[Item], answers: list[str]) -> list[metrics.Bucket]:
    """Return the first metric for short and for long sources apart."""
    task = model.task
    if len(answers) != len(items) or not task.score(items[:1], answers[:1], 0):
        raise UserError(f"--by-length: a model that {task.does} has no such option; leave it out.")

    def first(found: Sequence[str], references: Sequence[Sequence[str]]) -> metrics.Score:
        some = [items[0]._replace(expected=list(allowed)) for allowed in references]
        return task.score(some, found, 0)[0]

    sources, references = [item.example.source for item in items], [item.expected for item in items]
    return metrics.by_length(sources, answers, references, first, length=task.input.length)
