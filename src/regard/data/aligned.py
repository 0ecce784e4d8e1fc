"""Two files whose lines belong together: sources and targets, words and tags, or texts and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from regard.data.example import Example, TextExample, make_example
from regard.data.format import Format, Sample, are_labels, few
from regard.data.lines import UTF_8, Fault, OnFault, decode_line, read_lines
from regard.data.tagged import split_words

# ---------------------------------------------------------------------------------------------- recognition

SIDES = ("source", "src", "input", "words", "texts", "text", "in"), ("target", "tgt", "output", "tags", "labels", "out")
LANGUAGE = re.compile(r"[a-z]{2,3}([-_][a-z]{2,4})?", re.IGNORECASE)
NEARLY = 0.02  # of the lines that may lack a partner


def recognise_aligned(samples: Sequence[Sample], task: str | None, sure: bool) -> Format | None:
    """Return the format of two files that have none each for itself, or None if they do not suit the task."""
    first, second = (sample.lines for sample in samples)
    why = "" if sure and task is not None else alignment(samples)
    if not why and task is None:
        return None
    why = why or "as the task says"
    if task in (None, "tag") and _are_words_and_tags(first, second, sure):
        description = "two line-aligned files: the first holds words, the second their tags"
        return Format("aligned", 2, description, task="tag", why=why)
    if task in (None, "classify"):
        label = _label_file(samples, sure)
        if label is not None:
            order = "labels, the second texts" if label == 0 else "texts, the second their labels"
            description = f"two line-aligned files: the first holds {order}"
            return Format("aligned", 2, description, (1 - label,), label, task="classify", why=why)
    if task in (None, "convert"):
        return Format("aligned", 2, "two line-aligned files: the first holds sources, the second targets", why=why)
    return None


def alignment(samples: Sequence[Sample]) -> str:
    """Return the evidence that the lines of two files belong together; nothing if they are two texts.

    Names say so (train.en and train.de, source and target), or equal numbers of lines. Sentences that have nothing to
    do with each other may be equally many; but those of a translation are long and short together.
    """
    one, other = samples
    if _are_named_alike(one.path, other.path):
        return "by their names"
    counts = sorted((one.total, other.total))
    if counts[1] - counts[0] > max(1, NEARLY * counts[0]):
        return ""
    equal = counts[0] == counts[1]
    related, running = _relation(one.lines, other.lines), all(map(_is_running, samples))
    if (running and not related) or (not equal and not related and counts[0] > 5):
        return ""
    same = f"both have {counts[0]:,} lines" if equal else f"they have {counts[0]:,} and {counts[1]:,} lines"
    return same + (", long and short together" if related else "")


def _are_named_alike(one: str, other: str) -> bool:
    """Return True for names that differ by two languages or two sides: a.en and a.de, source.txt and target.txt."""
    first, second = (re.split(r"[.\-_]", Path(path).name.lower().removesuffix(".gz")) for path in (one, other))
    if len(first) != len(second):
        return False
    differing = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
    if len(differing) != 1:
        return False
    (a, b), texts = differing[0], ("txt", "tsv", "csv", "gz", "tok", "one", "two")
    if any(a in these and b in those for these, those in (SIDES, SIDES[::-1])):
        return True
    return all(LANGUAGE.fullmatch(side) and side not in texts for side in (a, b)) and len(first) > 1


def _relation(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return True if the lengths of lines rise and fall together, more than by chance."""
    pairs = [(len(a), len(b)) for a, b in zip(first, second, strict=False)]
    if len(pairs) < 8:
        return True  # too few to tell
    lengths = np.log1p(np.array(pairs, dtype=float))
    if not lengths.std(axis=0).all():
        return False
    return bool(np.corrcoef(lengths.T)[0, 1] > max(0.1, 3 / np.sqrt(len(pairs))))


def _is_running(sample: Sample) -> bool:
    """Return True for running text: half of the lines have four words and more."""
    words = sorted(len(line.split()) for line in sample.filled)
    return bool(words) and words[len(words) // 2] >= 4


def _are_words_and_tags(first: list[str], second: list[str], sure: bool) -> bool:
    """Return True if the second file tags the words of the first.

    Each line then has as many tags as its partner has words, few tags are distinct, and they differ from the words.
    Sequences that are copied or reversed have as many words too, but the same ones.
    """
    rows = [(split_words(words), split_words(tags)) for words, tags in zip(first, second, strict=False)]
    alike = sum(len(words) == len(tags) for words, tags in rows)
    if sure or not rows:
        return 2 * alike >= max(len(rows), 1)
    words = [word for row in rows for word in row[0]]
    tags = [tag for row in rows for tag in row[1]]
    several = len(tags) >= 1.5 * len(rows)
    kinds, vocabulary = set(tags), set(words)
    varied = len(vocabulary) >= 2 * len(kinds) and 2 * len(kinds & vocabulary) <= len(kinds)
    return alike >= 0.9 * len(rows) and several and few(tags) and varied


def _label_file(samples: Sequence[Sample], sure: bool) -> int | None:
    """Return the file that labels the other; if it is `sure` that one does, the less varied one."""
    first, second = (sample.lines for sample in samples)
    if 1 in (len(set(first)), len(set(second))):  # it may be sorted by its labels
        first, second = ([*sample.lines, *sample.far] for sample in samples)
    if are_labels(second, first):
        return 1
    if are_labels(first, second):
        return 0
    if not sure:
        return None
    return 0 if len(set(first)) < len(set(second)) else 1


# ---------------------------------------------------------------------------------------------- reading


def read_aligned(
    paths: Sequence[Path | str], form: Format, report: OnFault, encoding: str = UTF_8
) -> Iterator[TextExample]:
    """Yield an example for each line n of the source file and line n of the target file."""
    source_file, target_file = str(paths[form.source[0]]), str(paths[form.target])
    counts = [0, 0]
    for source, target in zip_longest(read_lines(source_file), read_lines(target_file)):
        counts[0] += source is not None
        counts[1] += target is not None
        if source is None or target is None:
            continue
        number = source[0]
        source_text = decode_line(source_file, number, source[1], report, encoding)
        target_text = decode_line(target_file, number, target[1], report, encoding)
        if source_text is None or target_text is None:
            continue
        file = source_file if not source_text.strip() or target_text.strip() else target_file
        example = make_example(source_text, target_text, file, number, report, form.task)
        if example is not None and form.task == "tag":
            example = _sentence(example, target_file, report)
        if example is not None:
            yield example
    if counts[0] != counts[1]:
        _report_counts((source_file, target_file), counts, report)


def _sentence(example: TextExample, target_file: str, report: OnFault) -> TextExample | None:
    words, tags = split_words(example.source), split_words(example.target)
    if len(words) == len(tags):
        return Example(" ".join(words), " ".join(tags), example.file, example.line)
    what = f"has {len(tags)} tags for {len(words)} words of {example.file}; give each word one tag"
    report(Fault(target_file, example.line, what, "unequal numbers of words and tags"))
    return None


def _report_counts(files: tuple[str, str], counts: list[int], report: OnFault) -> None:
    longer, shorter = files if counts[0] > counts[1] else files[::-1]
    what = f"has no partner: {longer} has {max(counts):,} lines and {shorter} {min(counts):,}; align them line by line"
    report(Fault(longer, min(counts) + 1, what, "unequal line counts"))
