"""Choosing settings from the data: level, model, sizes, batch and schedule, each with its reason in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from regard import inputs
from regard.config import Config
from regard.data.example import counted
from regard.data.folders import ignored_beside, some, split_files, splits_in
from regard.data.format import Format
from regard.data.lines import Fault
from regard.data.picture_arrays import splits_of_images
from regard.data.survey import Survey, take_survey
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.inputs.input import Input
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.outputs.output import Output
from regard.runs.settings import make, refuse_unfit, unit_of


def choose(
    train: Sequence[str],
    valid: Sequence[str] = (),
    test: Sequence[str] = (),
    *,
    faults: str = "stop",
    encoding: str = "utf-8",
    format: str = "",
    columns: str = "",
    task: str | None = None,
    given: Mapping[str, str] | None = None,
) -> tuple[Config, dict[str, str], Survey]:
    """Return all settings for these files, the reason for each that was chosen, and the survey of the data.

    `given` are settings that are known before, such as {"tokens.level": "words"}.
    """
    whole, (train, valid, test) = train[0], split_paths(train, valid, test)
    beside = ignored_beside(whole, [*train, *valid, *test]) if whole not in train else []
    form = inputs.recognise(train, task and OUTPUTS[task].reads, encoding, format=format, columns=columns)
    train, valid, test = parts_of(form, train, valid, test)
    name = task or form.task
    refuse_unfit(name, form.input)
    input, output = INPUTS[form.input], OUTPUTS[name]
    skipped: list[Fault] = []
    examples = inputs.read(train, form, skipped.append if faults == "skip" else None, encoding)
    seen = take_survey(examples, names_in(output), form.sentence)
    seen = replace(seen, given=given or {}, skipped=tuple(skipped))
    if not seen.count:
        raise UserError(f"{train[0]}: there is nothing in it to train on.")
    sections, why = _joined(seen, form.input, input, output)
    reasons = {"data.train": f"{counted(seen.count, unit_of(form.input, name))}: {seen.description}", **why}
    if beside:
        reasons["data.train"] += f"; ignored beside the parts: {some(beside)}"
    data: dict[str, Any] = {
        "train": list(train),
        "valid": list(valid),
        "test": list(test),
        "faults": faults,
        "encoding": encoding,
        "format": form.kind,
        "columns": form.chosen,
        "held_out": max(1, min(1000, seen.count // 10, max(50, seen.count // 20))),
    }
    if not valid:
        reasons["data.held_out"] = "no validation data given: some of the training data is held out"
    if "steps" not in sections["training"] and "training.minutes" not in reasons:
        reasons["training.minutes"] = "as many steps as fit into 20 minutes; --minutes changes it"
    sections["data"] = data | sections.get("data", {})
    return (
        make({"task": name, "input": form.input, **sections}, "the chosen settings"),
        reasons,
        seen,
    )


def _joined(
    seen: Survey, section_of_input: str, input: type[Input[Any]], output: type[Output[Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that input and output choose, and the reasons; an input knows best what reads it."""
    wanted, why_reading = input.choose(seen, output.use)
    own = {section: [*values] for section, values in wanted.items()}  # the output may add to what the input is read by
    sections, why = output.choose(seen, wanted.setdefault(section_of_input, {}))
    if "steps" in sections["training"]:
        wanted.get("training", {}).pop("minutes", None)  # steps that are chosen are better known
        why_reading.pop("training.minutes", None)
    for section, values in wanted.items():
        other = section == "model" and values.get("kind") != sections.get("model", {}).get("kind")
        sections[section] = values if other else sections.get(section, {}) | values
        replaced = f"{section}." if other else tuple(f"{section}.{key}" for key in own.get(section, ()))
        why = {key: reason for key, reason in why.items() if not key.startswith(replaced or "-")}
    return sections, why | why_reading


def parts_of(
    form: Format, train: Sequence[str], valid: Sequence[str], test: Sequence[str]
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the parts of one file that has examples for training, validation and test; those given count first."""
    if not form.splits or (form.cut and valid):
        return train, valid, test
    found = {name: [path, *train[1:]] for name, path in form.splits}
    return found["train"], valid or found.get("valid", []), test or found.get("test", [])


def split_paths(
    train: Sequence[str], valid: Sequence[str], test: Sequence[str]
) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the folders or files for training, validation and test in a folder that has such ones; those given count
    first."""
    found = {name: [path] for name, path in splits_of(train[0]).items()} if len(train) == 1 else {}
    found = found or (split_files(train[0]) if len(train) == 1 else {})
    if not found:
        return train, valid, test
    return found["train"], valid or found.get("valid", []), test or found.get("test", [])


def splits_of(path: str) -> dict[str, str]:
    """Return the parts for training, validation and test of a folder or file that has such ones."""
    return splits_in(path) or splits_of_images(path)
