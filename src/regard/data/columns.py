"""The columns of a table: which are sources, which is the target; by `--columns`, by their names, or by content."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from regard.data.example import counted
from regard.data.format import NO_TARGET, are_labels
from regard.errors import UserError

PAIR_NAMES = (("source", "target"), ("src", "tgt"), ("input", "output"))
ASKED_NAMES = (  # whose targets may be labels too
    *(("prompt", "completion"), ("prompt", "response"), ("instruction", "output"), ("instruction", "response")),
    *(("question", "answer"), ("word", "pronunciation"), ("text", "summary"), ("document", "summary")),
)
TEXT_NAMES = (
    *("text", "sentence", "review", "question", "utterance", "tweet", "comment", "message", "content", "document"),
    *("body", "title", "query", "phrase"),
)
LABEL_NAMES = (
    *("label", "class", "category", "intent", "sentiment", "topic", "polarity", "rating", "stars", "target", "score"),
)
LABELLED_NAMES = tuple((text, label) for text in TEXT_NAMES for label in LABEL_NAMES)
COMPARED_NAMES = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("question1", "question2"))
TAGGED_NAMES = tuple(
    (words, tags) for words in ("tokens", "words") for tags in ("tags", "ner_tags", "pos_tags", "labels")
)
IDLE_NAMES = frozenset(
    ("", "id", "idx", "index", "nr", "no", "date", "time", "timestamp", "created_at", "url", "link", "user", "username")
) | {"unnamed: 0", "guid", "uuid", "uid", "file", "filename", "path", "split", "source_id", "author"}
OTHER_NAMES = frozenset(
    ("sound", "ipa", "phonemes", "pronunciation", "transcription", "spelling", "lemma", "form", "features", "name")
) | frozenset(("en", "de", "fr", "es", "it", "pt", "nl", "ru", "zh", "ja", "pl", "cs", "sv", "da", "fi", "tr", "ar"))
KNOWN = (
    frozenset(name for pair in (*PAIR_NAMES, *ASKED_NAMES, *LABELLED_NAMES, *COMPARED_NAMES) for name in pair)
    | frozenset(("english", "german", "french", "spanish", "italian", "russian", "chinese", "japanese", "translation"))
    | OTHER_NAMES
    | (IDLE_NAMES - {""})
)
NAME = re.compile(r"[^\W\d][\w .:/-]{0,38}")
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?%?")
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\b.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b.*|\d{1,2}:\d\d(:\d\d.*)?")
FEATURES = re.compile(r"[\w{(][^\s;|=]*[;|=]\S+")  # V;PST, N;ACC(PL), v;pst, pos=V,tense=PST, Case=Nom|Number=Sing
FEATURE = re.compile(r"[A-Z0-9][\w.,()+/{}-]*")  # one alone, such as PL, or any capitalised word
ROLES = {
    **dict.fromkeys(("source", "src", "text", "input", "words", "tokens"), ("source", None)),
    **dict.fromkeys(("target", "tgt", "output"), ("target", None)),
    **dict.fromkeys(("label", "class"), ("target", "classify")),
    **dict.fromkeys(("tag", "tags"), ("target", "tag")),
}
EXAMPLE = "source=2,target=4 or source=question+context,target=answer"
JOINED = " ||| "  # between the columns of a source, so that a model sees where one ends


class ChosenColumns(NamedTuple):
    """Columns that were chosen, what to do with them, and why."""

    task: str
    source: tuple[int, ...]
    target: int
    why: str
    between: str = "\t"


@dataclass(frozen=True)
class Table:
    """The rows at the beginning of a table; `names` are those of its columns, if they have any."""

    path: str
    rows: Sequence[Sequence[str]]
    names: tuple[str, ...] = ()
    more: Callable[[], Sequence[Sequence[str]]] = field(default=lambda: ())  # rows from farther on
    what: str = "columns"

    @property
    def width(self) -> int:
        return len(self.names) if self.names else len(self.rows[0]) if self.rows else 0

    def column(self, number: int) -> list[str]:
        return [row[number].strip() for row in self.rows]

    def called(self, number: int) -> str:
        return self.names[number] if self.names and self.names[number] else str(number + 1)

    def shown(self) -> str:
        """The columns with their first values, for a sentence."""
        first = self.rows[0] if self.rows else [""] * self.width
        return ", ".join(
            (f"{self.names[i]}: " if self.names else "") + f'"{_short(value)}"' for i, value in enumerate(first)
        )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 20 else text[:19] + "…"


# ---------------------------------------------------------------------------------------------- as given


def parse_columns(given: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """Return the names or numbers of the source's columns and of the target's, and the task that the roles imply."""
    source: tuple[str, ...] = ()
    target: str | None = None
    task: str | None = None
    for part in given.split(","):
        role, equals, value = part.partition("=")
        known = ROLES.get(role.strip().lower())
        if known is None or not equals or not value.strip():
            raise UserError(f"--columns {given}: expected {EXAMPLE}, found {part.strip()!r}. Name source and target.")
        if known[0] == "source":
            source += tuple(name.strip() for name in value.split("+"))
        else:
            target = value.strip()
        task = task or known[1]
    if not source:
        raise UserError(f"--columns {given}: expected a source, such as {EXAMPLE}.")
    return source, target, task


def given_columns(table: Table, given: str, task: str | None) -> ChosenColumns:
    """Return the columns that `--columns` names."""
    names, target_name, implied = parse_columns(given)
    source = tuple(_find(table, name, given) for name in names)
    if target_name is None:
        if task not in (None, "continue"):
            raise UserError(f"--columns {given}: the task {task} expects a target too, such as {EXAMPLE}.")
        return ChosenColumns("continue", source, NO_TARGET, "as --columns says", "\n")
    target = _find(table, target_name, given)
    between = _between(table, source)
    texts = [between.join(row[column] for column in source) for row in table.rows]
    found = "classify" if are_labels(table.column(target), texts) else "convert"
    return ChosenColumns(task or implied or found, source, target, "as --columns says", between)


def _find(table: Table, name: str, given: str) -> int:
    lowered = [known.strip().lower() for known in table.names]
    if name.lower() in lowered:
        return lowered.index(name.lower())
    if name.isdecimal() and 1 <= int(name) <= table.width:
        return int(name) - 1
    known = f"{table.what} {', '.join(table.names)}" if table.names else f"numbers from 1 to {table.width}"
    raise UserError(f"{table.path}: --columns {given}: expected {known}, found {name!r}.")


def _between(table: Table, source: tuple[int, ...]) -> str:
    """Return what joins the columns of a source: features follow their lemma after a tab."""
    return "\t" if len(source) > 1 and likeness(table.column(source[-1])) >= 1 else JOINED


# ---------------------------------------------------------------------------------------------- by names


def named_columns(table: Table, task: str | None) -> ChosenColumns | None:
    """Return the columns whose names are known, and the task that they imply unless it is given."""
    names = [name.strip().lower() for name in table.names]
    if task in (None, "classify"):
        for first, second in COMPARED_NAMES:
            label = next((name for name in (*LABEL_NAMES, "gold_label", "is_duplicate") if name in names), None)
            if first in names and second in names and label is not None:
                both = names.index(first), names.index(second)
                return ChosenColumns("classify", both, names.index(label), "by their names", JOINED)
    known = [("convert", PAIR_NAMES), ("classify", LABELLED_NAMES)]
    for implied, sides in known if task != "classify" else reversed(known):
        for one, other in sides:
            if one in names and other in names:
                return _with_input(
                    names, ChosenColumns(task or implied, (names.index(one),), names.index(other), "by their names")
                )
    for one, other in ASKED_NAMES:
        if one in names and other in names:
            source, target = (names.index(one),), names.index(other)
            labels = task is None and are_labels(table.column(target), table.column(source[0]))
            choice = ChosenColumns(task or ("classify" if labels else "convert"), source, target, "by their names")
            return _with_input(names, choice)
    return None


def _with_input(names: list[str], choice: ChosenColumns) -> ChosenColumns:
    """Return the choice with the column `input` or `context` of instructions and questions."""
    asks = names[choice.source[0]] in ("instruction", "question") and names[choice.target] in ("output", "answer")
    more = next((name for name in ("context", "input", "passage") if name in names), None) if asks else None
    if more is None:
        return choice
    return choice._replace(source=(*choice.source, names.index(more)), between=JOINED)


# ---------------------------------------------------------------------------------------------- by content


def label_column(table: Table, columns: tuple[int, int], sure: bool) -> int | None:
    """Return the column that labels the other; if it is `sure` that one does, the only one of numbers, else the less
    varied or the shorter one."""
    if not table.rows:
        return None
    found = _labels_of_two(table.rows, columns)
    if found is None and any(len(set(table.column(c))) == 1 for c in columns):
        found = _labels_of_two([*table.rows, *table.more()], columns)  # it may be sorted by its labels
    if found is not None or not sure:
        return found
    measured = [c for c in columns if _is_numeric(table.column(c))]
    if len(measured) == 1:  # an answer may be a number, and each of them another
        return measured[0]
    weight = [(len(set(table.column(c))), sum(map(len, table.column(c)))) for c in columns]
    return columns[0] if weight[0] < weight[1] else columns[1]


def _is_numeric(column: Sequence[str]) -> bool:
    return sum(NUMBER.fullmatch(value) is not None for value in column) >= 0.95 * len(column)


def _labels_of_two(rows: Sequence[Sequence[str]], columns: tuple[int, int]) -> int | None:
    first, second = ([row[column].strip() for row in rows] for column in columns)
    if are_labels(second, first):
        return columns[1]
    return columns[0] if are_labels(first, second) else None


def columns_by_content(table: Table, task: str | None, sure: bool) -> ChosenColumns | None:
    """Return the columns by what is in them; a table of which that is not clear is refused."""
    left = [c for c in range(table.width) if not _is_idle(table, c)] if table.width > 2 else [0, 1]
    if table.width > 2:
        found = _attributed(table, task) or _inflected(table, left, task)
        if found is not None:
            return found
    if len(left) == 2:
        return _of_two(table, (left[0], left[1]), task, sure)
    if len(left) == 3 and task != "convert":
        found = _compared(table, left)
        if found is not None:
            return found
    raise _unclear(table, left, task)


def _of_two(table: Table, columns: tuple[int, int], task: str | None, sure: bool) -> ChosenColumns | None:
    label = None if task == "convert" else label_column(table, columns, sure)
    rows = counted(len(table.rows), "row")
    if label is not None:
        text = columns[1] if label == columns[0] else columns[0]
        held = counted(len(set(table.column(label))), "value")
        if _is_numeric(table.column(label)) and not are_labels(table.column(label), table.column(text)):
            held = "numbers"
        return ChosenColumns("classify", (text,), label, f"column {label + 1} has {held} in {rows}")
    if task == "classify":
        return None
    return ChosenColumns("convert", (columns[0],), columns[1], f"both columns vary in {rows}")


def _compared(table: Table, left: list[int]) -> ChosenColumns | None:
    """Return two texts and their label."""
    texts = {c: max((d for d in left if d != c), key=lambda d: len(set(table.column(d)))) for c in left}
    labels = [c for c in left if are_labels(table.column(c), table.column(texts[c]))]
    if len(labels) != 1:
        return None
    source = tuple(c for c in left if c != labels[0])
    distinct = len(set(table.column(labels[0])))
    why = f"column {labels[0] + 1} has {counted(distinct, 'value')} in {counted(len(table.rows), 'row')}"
    return ChosenColumns("classify", source, labels[0], why, JOINED)


def _attributed(table: Table, task: str | None) -> ChosenColumns | None:
    if table.width != 3 or task == "classify" or not all(value.startswith("CC-BY") for value in table.column(2)):
        return None
    return ChosenColumns("convert", (0,), 1, "the third is an attribution, which is left out")


def _inflected(table: Table, left: list[int], task: str | None) -> ChosenColumns | None:
    """Return lemma and features as the source, the form as the target."""
    if table.width != 3 or task == "classify" or not table.rows:
        return None
    numbered = left != [0, 1, 2]
    second, third = (likeness(table.column(column)) for column in (1, 2))
    if max(second, third) <= (1 if numbered else 0):
        return None
    features, form = (2, 1) if third > second else (1, 2)
    return ChosenColumns("convert", (0, features), form, f"column {features + 1} has features such as V;PST")


def likeness(column: list[str]) -> float:
    """Return the likeness of a column to features: 0 for none, up to 1 for single ones, above 1 for several in each.

    Any capitalised word could be a single feature; features recur, or consist of capitals alone (PL).
    """
    several = sum(FEATURES.fullmatch(value) is not None for value in column)
    single = sum(FEATURE.fullmatch(value) is not None for value in column)
    if not column or several + single < 0.9 * len(column):
        return 0.0
    if 2 * several >= len(column):
        return 1 + several / len(column)
    varied = len(set(column)) / len(column)
    return 1 - varied / 2 if varied <= 0.5 or all(value.isupper() for value in column) else 0.0


def _is_idle(table: Table, number: int) -> bool:
    """Return True for a column that is neither side: empty, the same everywhere, a number for each row, or a date."""
    values = table.column(number)
    if table.names and table.names[number].strip().lower() in IDLE_NAMES:
        return True
    filled = [value for value in values if value]
    if len(filled) <= 0.01 * len(values) or (len(set(filled)) == 1 and len(filled) >= 20):
        return True
    if sum(DATE.fullmatch(value) is not None for value in filled) >= 0.95 * len(filled):
        return True
    numbers = [int(value) for value in filled if value.isdecimal()]
    return len(numbers) == len(filled) and all(a < b for a, b in pairwise(numbers))


def _likely(table: Table, left: list[int]) -> list[int]:
    """Return the columns to propose: a text and the last label, else the first two that are not alike."""
    length = {c: sum(map(len, table.column(c))) for c in left}
    text = max(left, key=lambda c: length[c])
    filled = [c for c in left if c != text and all(table.column(c))]
    labels = [c for c in filled if are_labels(table.column(c), table.column(text))]
    return [text, labels[-1]] if labels else left[:2]


def _unclear(table: Table, left: list[int], task: str | None) -> UserError:
    guess = _likely(table, left if len(left) > 1 else [*range(table.width)])
    sides = ("text", "label") if task == "classify" else ("source", "target")
    remedy = ",".join(f"{side}={table.called(c)}" for side, c in zip(("source", "target"), guess, strict=False))
    named = f", or name two of them {sides[0]} and {sides[1]} in the first line" if not table.names else ""
    return UserError(
        f"{table.path}: expected {sides[0]} and {sides[1]}, found {table.width} {table.what} ({table.shown()}), and it "
        f"is not clear which they are. Try --columns {remedy}{named}."
    )


# ---------------------------------------------------------------------------------------------- the first line


def header_evidence(first: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return why the first row names the columns; nothing if it is a row like the others.

    Without evidence it is data: a name that is taken for data is one odd row, data taken for a name is lost.
    """
    names = [name.strip() for name in first]
    filled = [name for name in names if name]
    if len(set(filled)) < len(filled) or not all(map(NAME.fullmatch, filled)) or len(filled) < len(names) - 1:
        return ""
    columns = [[row[c].strip() for row in rows if len(row) == len(names)] for c in range(len(names))]
    if any(name and name in column for name, column in zip(names, columns, strict=True)):
        return ""
    known = [name for name in filled if name.lower() in KNOWN]
    if known and 2 * len(known) >= len(filled):
        return f"the first line names {known[0]}"
    for name, column in zip(names, columns, strict=True):
        reason = _differs(name, column) if name else ""
        if reason:
            return reason
    return ""


def _differs(name: str, column: list[str]) -> str:
    """Return why a value is not one of a column's."""
    if len(column) < 5:
        return ""
    if _is_numeric(column):
        return f"{name!r} stands above numbers"
    distinct = len(set(column))
    if len(column) >= 20 and distinct >= 2 and 10 * distinct <= len(column):
        return f"{name!r} stands above {distinct} values that recur"
    if len(name.split()) == 1 and sum(len(value.split()) > 1 for value in column) >= 0.95 * len(column) >= 19:
        return f"{name!r} stands above longer values"
    return ""
