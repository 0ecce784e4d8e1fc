"""Texts that stand after their label: `label text` on each line, one blank between them, or fastText's `__label__`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from regard.data.example import TextExample, counted, make_example
from regard.data.format import Format, Sample, are_labels
from regard.data.lines import UTF_8, OnFault, read_text

ORDINARY = 0.02  # of the words of the texts; what is more frequent there is a word, not a label
MARK = "__label__"
# Bullets, quotes, numbers of a list, speakers ("Anna:"), times and JSON begin lines too.
NO_LABEL = re.compile(r"\W+|\W*\d+[.):]|.*:|[\[{(<].*|\d{1,2}:\d\d.*", re.DOTALL)


def recognise_labelled(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file whose lines begin with a label, or None.

    The first words of sentences are few as well (A, The, What …), but they are frequent inside sentences too.
    """
    if task not in (None, "classify") or not sample.filled:
        return None
    if sum(line.startswith(MARK) for line in sample.filled) >= 0.95 * len(sample.filled):
        why = f"lines begin with {MARK}"
        return Format("fasttext", 2, "fastText: labels and a text on each line", (1,), 0, task="classify", why=why)
    if any("\t" in line for line in sample.filled):
        return None
    rows = [_divide(line) for line in sample.filled]
    if len({label for label, _ in rows}) == 1:
        rows += [_divide(line) for line in sample.far]
    labels, texts = [label for label, _ in rows], [text for _, text in rows]
    if sum(bool(text and label) for label, text in rows) < 0.95 * len(rows):
        return None
    distinct = len(set(labels))
    certain = not any(map(NO_LABEL.fullmatch, set(labels))) and are_labels(labels, texts) and _are_rare(labels, texts)
    if not certain and not (sure and 2 * distinct <= max(len(set(texts)), 2)):
        return None
    why = f"the first words of {len(rows):,} lines are {counted(distinct, 'value')}, which are rare elsewhere"
    description = "a label and a text on each line, a blank between them"
    return Format("labelled", 2, description, (1,), 0, task="classify", why=why if certain else "as the task says")


def labelled_as_given(sample: Sample, task: str | None) -> Format | None:
    """Return the format of lines that are said to begin with a label."""
    if task not in (None, "classify") or not any(all(_divide(line)) for line in sample.filled):
        return None
    description = "a label and a text on each line, a blank between them"
    return Format("labelled", 2, description, (1,), 0, task="classify", why="as --format says")


def _are_rare(labels: list[str], texts: list[str]) -> bool:
    known = {label.lower() for label in labels}
    words = [word.lower() for text in texts for word in text.split()]
    return sum(word in known for word in words) <= ORDINARY * len(words)


def _divide(line: str) -> tuple[str, str]:
    """Return the label and the text of a line; a line that begins with a blank has no label."""
    label, _, text = line.partition(" ")
    return label, text.strip()


def _divide_fasttext(line: str) -> tuple[str, str]:
    """Return the labels of a line, joined by commas, and its text."""
    words = line.split(" ")
    count = next((i for i, word in enumerate(words) if not word.startswith(MARK)), len(words))
    return ",".join(word.removeprefix(MARK) for word in words[:count]), " ".join(words[count:])


def read_labelled(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the labelled texts of a file of the kind "labelled" or "fasttext"."""
    divide = _divide_fasttext if form.kind == "fasttext" else _divide
    for number, line in read_text(path, report, encoding):
        if line.strip():
            label, text = divide(line.replace("\t", " ") if form.kind == "fasttext" else line)
            example = make_example(text, label, str(path), number, report, form.task)
            if example is not None:
                yield example
