"""Warnings that save a day: what is odd about the data, and about the answers of a finished model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from regard.config import Config
from regard.data.columns import NUMBER
from regard.data.example import Example, counted
from regard.data.survey import Survey
from regard.inputs import unit_of
from regard.outputs import OUTPUTS
from regard.outputs.abilities import Chooses, names_in
from regard.outputs.output import Item

AnyExample = Example[Any, Any]
MANY = 20  # distinct numbers that are hardly classes
SHOWN = 5  # labels in a sentence
NEEDED = 20  # examples before their targets may be called all the same


def warnings_of(config: Config, seen: Survey, valid: Sequence[AnyExample], test: Sequence[AnyExample]) -> list[str]:
    """Return warnings about training data and about validation and test data that were given."""
    reads = OUTPUTS[config.task].reads
    number = getattr(getattr(config, "output", None), "kind", "") == "number"  # its targets are no classes
    found = [] if number else [*_about_targets(seen, reads, unit_of(config.input, reads))]
    if config.training.frozen and config.training.start is None:
        found.append(
            "training.frozen=true trains the head alone, over first weights that have learned nothing. Try --from RUN"
        )
    known: set[tuple[str, str]] = set()
    if reads != "continue" and (valid or test):
        known = {_identity(example, reads) for example in seen.examples}
    for name, examples, paths in (("validation", valid, config.data.valid), ("test", test, config.data.test)):
        if paths:
            apart = name == "validation" and config.data.apart
            found += [] if apart else _leaks(config, seen, known, name, examples, paths)
            found += [] if number else _unseen(seen, name, examples, names_in(OUTPUTS[config.task]), reads)
    return found


def _identity(example: AnyExample, reads: str) -> tuple[str, str]:
    """Return what makes two examples the same: a text with another label is known too, a word has many spellings."""
    return example.key, example.target if reads == "convert" and isinstance(example.target, str) else ""


def _about_targets(seen: Survey, reads: str, unit: str) -> Iterator[str]:
    if reads == "classify" and len(seen.names) == 1:
        yield (
            f"only one label: {counted(seen.count, unit)} labelled {next(iter(seen.names))!r}, so there is nothing to "
            "learn. Try other data, or --columns if the label stands elsewhere"
        )
    targets = [target for target in seen.targets if isinstance(target, str)]
    if reads == "convert" and len(targets) >= NEEDED and len(set(targets)) == 1:
        yield f"all {counted(seen.count, unit)} have the same target, {targets[0][:40]!r}: there is nothing to learn"
    if reads in ("classify", "convert"):
        yield from _numbers(targets, reads)
    if reads == "classify":
        yield from _contradictions(seen, unit)


def _numbers(targets: Sequence[str], reads: str) -> Iterator[str]:
    """Warn of real numbers, which are neither classes nor text."""
    distinct = set(targets)
    some = [target for target in distinct if NUMBER.fullmatch(target)]
    real = [target for target in some if "." in target or "," in target or "e" in target.lower()]
    if len(distinct) <= MANY or len(some) < 0.95 * len(distinct) or 2 * len(real) < len(distinct):
        return
    if reads == "classify":
        yield (
            f"the labels are real numbers, such as {min(real)}: {len(distinct):,} classes that know nothing of each "
            "other. Try --set output.kind=number, which estimates them, or round them to a few"
        )
    else:
        yield (
            f"the targets are real numbers, such as {min(real)}: they are written digit by digit, not estimated. Try "
            "--task classify --set output.kind=number"
        )


def _contradictions(seen: Survey, unit: str) -> Iterator[str]:
    labels: dict[str, dict[str, None]] = {}
    for example in seen.examples:
        labels.setdefault(example.key, {})[str(example.target)] = None
    odd = {key: found for key, found in labels.items() if len(found) > 1}
    if odd:
        key, found = next(iter(odd.items()))
        text = key if len(key) <= 40 else key[:39] + "…"
        yield (
            f"{counted(len(odd), unit)} with contradicting labels, such as {text!r} ({', '.join(found)}): a model "
            "can learn only one of them"
        )


def _leaks(
    config: Config,
    seen: Survey,
    known: set[tuple[str, str]],
    name: str,
    examples: Sequence[AnyExample],
    paths: Sequence[str],
) -> Iterator[str]:
    reads = OUTPUTS[config.task].reads
    remedy = " Try --set data.apart=true, which leaves them out of training" if name == "validation" else ""
    if reads == "continue":
        same = sorted({*map(os.path.realpath, paths)} & {*map(os.path.realpath, config.data.train)})
        if same:
            yield f"{same[0]} is training data and {name} data: its score measures memorisation"
        return
    count = sum(_identity(example, reads) in known for example in examples)
    if count:
        least, unit = "" if seen.complete else "at least ", f"{name} {unit_of(config.input, reads)}"
        yield (
            f"{least}{count:,} of {counted(len(examples), unit)} are also in the training data: "
            f"their score measures memorisation.{remedy}"
        )


def _unseen(seen: Survey, name: str, examples: Iterable[AnyExample], names: Any, reads: str) -> Iterator[str]:
    if not seen.names:
        return
    found = Counter(label for example in examples for label in names(example.target))
    unseen = sorted(found.keys() - seen.names.keys())
    if unseen:
        noun = "tag" if reads == "tag" else "label"
        yield f"the {name} data has {_listed(unseen, noun)}, never seen in training: no answer can be right there"


def _listed(labels: Sequence[str], noun: str) -> str:
    more = f" and {len(labels) - SHOWN:,} more" if len(labels) > SHOWN else ""
    return f"{counted(len(labels), noun)} ({', '.join(labels[:SHOWN])}{more})"


# ---------------------------------------------------------------------------------------------- of answers


def warnings_of_answers(output: Any, items: Sequence[Item], answers: Sequence[str]) -> list[str]:
    """Return warnings about an evaluation: labels that the model does not know, and the same answer to everything."""
    noun = "tag" if output.reads == "tag" else "label"
    if not isinstance(output, Chooses) or len(answers) != len(items):
        return []
    names, labels = type(output).names, output.classes.names
    expected = Counter(label for item in items for label in names(item.example.target))
    unknown = sorted(expected.keys() - set(labels))
    if unknown and len(unknown) == len(expected):
        known = _listed(labels, noun)
        return [
            f"none of the data's {_listed(unknown, noun)} is known to this model, which knows {known}: is it the right "
            "file?"
        ]
    found = (
        [f"the data has {_listed(unknown, noun)} that this model does not know: no answer is right there"]
        if unknown
        else []
    )
    given = {label for answer in answers for label in names(answer)}
    if len(given) == 1 and len(expected) > 1:
        label = next(iter(given))
        share = expected[label] / max(1, sum(expected.values()))
        found.append(
            f"every answer is {label!r}, which {100 * share:.1f} % of the {noun}s are: nothing else was learned. "
            f"Train longer, or give more examples of the others"
        )
    return found
