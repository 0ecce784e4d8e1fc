"""Texts that stand after their label: `label text` on each line, one blank between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.data.example import TextExample, make_example
from regard.data.format import Format, Sample, are_labels
from regard.data.lines import UTF_8, OnFault, read_text

ORDINARY = 0.02  # of the words of the texts; what is more frequent there is a word, not a label


def recognise_labelled(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file whose lines begin with a label, or None.

    The first words of sentences are few as well (A, The, What …), but they are frequent inside sentences too.
    """
    if task not in (None, "classify") or any("\t" in line for line in sample.filled):
        return None
    rows = [_divide(line) for line in sample.filled]
    labels, texts = [label for label, _ in rows], [text for _, text in rows]
    if sum(bool(text and label) for label, text in rows) < 0.95 * len(rows):
        return None
    if not (are_labels(labels, texts) and _are_rare(labels, texts)) and not (
        sure and 2 * len(set(labels)) <= max(len(set(texts)), 2)
    ):
        return None
    return Format("labelled", 2, "a label and a text on each line, a blank between them", (1,), 0, task="classify")


def _are_rare(labels: list[str], texts: list[str]) -> bool:
    known = {label.lower() for label in labels}
    words = [word.lower() for text in texts for word in text.split()]
    return sum(word in known for word in words) <= ORDINARY * len(words)


def _divide(line: str) -> tuple[str, str]:
    """Return the label and the text of a line; a line that begins with a blank has no label."""
    label, _, text = line.partition(" ")
    return label, text.strip()


def read_labelled(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the labelled texts of a file of the kind "labelled"."""
    for number, line in read_text(path, report, encoding):
        if line.strip():
            label, text = _divide(line)
            example = make_example(text, label, str(path), number, report, form.task)
            if example is not None:
                yield example
