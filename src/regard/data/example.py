"""Examples: a source that a model is given, and the target that it shall answer.

| task | source | target |
|---|---|---|
| convert | a sequence | another sequence |
| tag | words, one blank between two | as many tags, one blank between two |
| classify | a text | its label |
| continue | a line of text, exactly | nothing |
| detect | a picture | its boxes, as JSON |
| imagine | a thing to make again | its label, or nothing |

A source or target is a string, or a handle of something larger (a file, a member of an archive) that is opened later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from regard.data.lines import Fault, OnFault

SIDES = {
    "convert": ("source", "target"),
    "tag": ("row of words", "row of tags"),
    "classify": ("text", "label"),
    "continue": ("line", "target"),
    "detect": ("picture", "list of boxes"),
    "imagine": ("example", "label"),
}
TASKS = tuple(SIDES)
UNITS = {
    "convert": "pair",
    "tag": "sentence",
    "classify": "text",
    "continue": "line",
    "detect": "picture",
    "imagine": "example",
}  # the name of one example

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Example(Generic[S, T]):
    """A source, its target, and the place where they stand (for aligned files: the place in the source file)."""

    source: S
    target: T
    file: str
    line: int
    key: str = ""  # examples with equal keys have the same source; unless given, it is the text of the source
    refers: tuple[str, ...] = ()  # paths of the other files that this example points to
    group: str = ""  # examples of one group, such as those of one speaker, are held out together

    def __post_init__(self) -> None:
        if not self.key:
            object.__setattr__(self, "key", str(self.source))


TextExample = Example[str, str]


def counted(number: int, noun: str) -> str:
    """Return "1 pair" or "1,200 pairs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def make_example(source: str, target: str, file: str, line: int, report: OnFault, task: str) -> TextExample | None:
    """Return an example without blanks at its ends, or report an empty side and return None."""
    source, target = source.strip(), target.strip()
    if source and target:
        return Example(source, target, file, line)
    names = SIDES[task]
    empty = "both sides are" if not source and not target else f"the {names[1 if source else 0]} is"
    kind = "empty sides" if task == "convert" else f"empty {names[1 if source else 0]}s"
    report(Fault(file, line, f"{empty} empty; fill in or remove the line", kind))
    return None
