"""A survey of the training data: one pass that counts examples, keeps a sample, and collects what must be complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from regard.data.example import Example
from regard.data.lines import Fault

SAMPLE = 200_000  # examples that are kept; of more, as many from all over


@dataclass(frozen=True)
class Survey:
    """The facts about the training data before settings are chosen: its size, examples from all over, and its form.

    `given` are settings that are known before, for what is chosen has to fit them: {"tokens.level": "words"}.
    """

    count: int
    examples: Sequence[Example[Any, Any]]
    numbers: Sequence[int]  # of these examples in the data
    description: str
    names: Counter[str] = field(default_factory=Counter)  # of the classes of all examples, where an output has some
    refers: tuple[str, ...] = ()  # all other files that examples point to
    skipped: tuple[Fault, ...] = ()  # faults whose lines were left out
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """True if every example is kept, in order: then the files need not be parsed again."""
        return self.count == len(self.examples)

    @cached_property
    def sources(self) -> list[Any]:
        return [example.source for example in self.examples]

    @cached_property
    def targets(self) -> list[Any]:
        return [example.target for example in self.examples]


def take_survey(
    examples: Iterator[Example[Any, Any]], names: Callable[[Any], Iterable[str]], description: str
) -> Survey:
    """Read all examples once; `names(target)` are the classes in a target."""
    generator = np.random.default_rng(0)
    kept: list[Example[Any, Any]] = []
    numbers: list[int] = []
    classes: Counter[str] = Counter()
    refers: dict[str, None] = {}
    count = 0
    for count, example in enumerate(examples, 1):
        classes.update(names(example.target))
        if example.refers:
            refers.update(dict.fromkeys(example.refers))
        if count <= SAMPLE:
            kept.append(example)
            numbers.append(count - 1)
            continue
        place = int(generator.integers(count))  # reservoir sampling: each is kept with the same probability
        if place < SAMPLE:
            kept[place], numbers[place] = example, count - 1
    return Survey(count, kept, numbers, description, classes, tuple(refers))
