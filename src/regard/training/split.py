"""The split of examples into those to train on and those to validate on."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from regard import inputs
from regard.config import Config
from regard.data.example import Example, counted
from regard.data.lines import Fault, OnFault
from regard.data.survey import Survey, take_survey
from regard.errors import UserError
from regard.outputs import OUTPUTS
from regard.outputs.abilities import names_in
from regard.outputs.output import Item, Output
from regard.runs.build import form_of, read
from regard.runs.settings import unit_of

AnyExample = Example[Any, Any]


class Split:
    """Decides which training examples are held out.

    Validation data that is given may have sources of the training data with other targets; `data.apart` leaves those
    out of training, for they measure what is known by heart. Without any, examples are held out by a hash of their
    key, so that a source is never on both sides and the order of the file does not matter; or the last ones are, where
    order is content. A share of the hashes may be far from the share of the examples, where few sources repeat: then
    keys are `chosen` one by one. Examples of one group, such as those of one speaker, are held out together.
    """

    def __init__(self, config: Config, seen: Survey, known: Iterable[str] = ()) -> None:
        self.config, self.seen, self.contiguous = config, seen, OUTPUTS[config.task].contiguous
        self.given = bool(config.data.valid)
        self._known = {*known}  # keys of the validation data that are left out of training
        self.chosen: set[str] | None = None
        self._hashed: dict[str, bool] = {}  # every key is asked for three times: to choose, to learn, to store
        self._last: int | None = None  # hash of the last example that data.most lets in
        self._hold_out()
        if config.data.most is not None:
            self._last = self._within(config.data.most)

    def _hold_out(self) -> None:
        """Decide what is held out, where no validation data is given."""
        config, seen = self.config, self.seen
        if self.given:
            return
        unit, file = unit_of(config.input, config.task), config.data.train[0]
        if seen.count < 2:
            raise UserError(
                f"{file}: expected at least 2 {unit}s, one of them for validation, found {seen.count}. "
                "Try --valid FILE."
            )
        if not self.contiguous:
            if any(example.group for example in seen.examples):
                self.chosen = self._groups() or None
            share = self._share * 2**32
            self._hashed = {example.key: self._hash(example.key) < share for example in seen.examples}
            if self.chosen is None and not self._is_near():
                self.chosen = self._smallest()

    def held_out(self, number: int, example: AnyExample) -> bool:
        """Return True if the example with this number is not trained on."""
        if self.given:
            return example.key in self._known
        if self.contiguous:
            return number >= self.seen.count * (1 - self._share)
        if self.chosen is not None:
            return (example.group or example.key) in self.chosen
        found = self._hashed.get(example.key)
        return self._hash(example.key) < self._share * 2**32 if found is None else found

    @property
    def _share(self) -> float:
        return min(0.5, self.config.data.held_out / self.seen.count)

    def trained(self, number: int, example: AnyExample) -> bool:
        """Return True if the example is trained on: it is not held out, and among the first by a hash that data.most
        lets in; where order is content, among the first."""
        if self.held_out(number, example):
            return False
        return self._last is None or self._order(number, example) <= self._last

    def _order(self, number: int, example: AnyExample) -> int:
        return number if self.contiguous else zlib.crc32(f"{self.config.training.seed} {number} {example.key}".encode())

    def _within(self, most: int) -> int:
        """Return the hash of the last of so many examples that are trained on; refuse if there are fewer."""
        pairs = [*zip(self.seen.numbers, self.seen.examples, strict=True)]
        found = sorted(self._order(number, example) for number, example in pairs if not self.held_out(number, example))
        share = len(self.seen.examples) / self.seen.count  # of all examples that the survey kept
        if most * share > len(found):
            raise UserError(
                f"{self.config.data.train[0]}: data.most={most:,}: expected at most the {round(len(found) / share):,} "
                f"{unit_of(self.config.input, self.config.task)}s that are there to train on."
            )
        return found[max(0, round(most * share) - 1)]

    def learning(self) -> Survey:
        """Return the survey of what is trained on: vocabularies are learned from it."""
        pairs = zip(self.seen.numbers, self.seen.examples, strict=True)
        kept = [(number, example) for number, example in pairs if self.trained(number, example)]
        return replace(self.seen, examples=[example for _, example in kept], numbers=[number for number, _ in kept])

    def sentence(self, count: int) -> str:
        """Return what was held out, in words."""
        unit = unit_of(self.config.input, self.config.task)
        last = "the last " if self.contiguous else ""
        held = f"holding out {last}{count:,} of {counted(self.seen.count, unit)}"
        apart = 2 * abs(count - self.config.data.held_out) > self.config.data.held_out
        return held + (", as equal sources stay together," if apart and not self.contiguous else "")

    def _hash(self, key: str) -> int:
        return zlib.crc32(f"{self.config.training.seed} {key}".encode())

    def _is_near(self) -> bool:
        """Return True if the share of hashes holds out about as many examples as it should: some repeat often."""
        count = sum(self.held_out(0, example) for example in self.seen.examples)
        wanted = self.config.data.held_out * len(self.seen.examples) / self.seen.count
        return 0 < count < len(self.seen.examples) and (not self.seen.complete or 0.5 * wanted <= count <= 1.5 * wanted)

    def _groups(self) -> set[str]:
        """Return the groups of the smallest hashes that hold `held_out` examples together; none where one alone is more
        than half of all."""
        sizes = Counter(example.group or example.key for example in self.seen.examples)
        wanted = self.config.data.held_out * len(self.seen.examples) / self.seen.count
        chosen: set[str] = set()
        for group in sorted(sizes, key=self._hash):
            if sum(sizes[each] for each in chosen) >= wanted:
                break
            if 2 * (sizes[group] + sum(sizes[each] for each in chosen)) <= sizes.total():
                chosen.add(group)
        return chosen

    def _smallest(self) -> set[str]:
        """Return keys of the smallest hashes that have up to `held_out` examples, but at most half of the keys."""
        counts = Counter(example.key for example in self.seen.examples)
        found = sorted((self._hash(key), key) for key in counts)
        if len(found) < 2:
            unit = unit_of(self.config.input, self.config.task)
            raise UserError(
                f"{self.config.data.train[0]}: all {self.seen.count:,} {unit}s have the "
                "same source, which cannot be trained on and held out too: give --valid FILE."
            )
        chosen: set[str] = set()
        room = max(1, min(self.config.data.held_out, self.seen.count // 2))
        for _, key in found:
            if counts[key] <= room and len(chosen) < len(found) // 2:
                chosen.add(key)
                room -= counts[key]
        return chosen or {min(found, key=lambda pair: (counts[pair[1]], pair))[1]}


def survey(config: Config, on_fault: OnFault | None = None) -> Survey:
    """Read the training data of these settings once."""
    paths = config.data.train
    form = form_of(config, paths)
    skipped: list[Fault] = []

    def skip(fault: Fault) -> None:
        skipped.append(fault)
        if on_fault is not None:
            on_fault(fault)

    examples = inputs.read(paths, form, skip if on_fault is not None else None, config.data.encoding)
    return replace(take_survey(examples, names_in(OUTPUTS[config.task]), form.sentence), skipped=tuple(skipped))


def examples_of(config: Config, seen: Survey, on_fault: OnFault | None = None) -> Iterator[AnyExample]:
    """Yield all training examples in order: those of the survey if it kept all of them, else from the files."""
    return iter(seen.examples) if seen.complete else read(config, config.data.train, on_fault)


def held_out(config: Config, output: Output[Any]) -> list[Item]:
    """Return what a run was validated on."""

    def skip(_: object) -> None:
        """Pass faulty lines over, as the training did."""

    if config.data.valid:
        found = list(read(config, config.data.valid, skip))
    else:
        seen = survey(config, skip)
        split = Split(config, seen)
        numbered = enumerate(examples_of(config, seen, skip))
        found = [example for number, example in numbered if split.held_out(number, example)]
    return output.items(found)
