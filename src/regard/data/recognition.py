"""Recognition of the format and the task of files by their first lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from regard.data.aligned import recognise_aligned
from regard.data.example import TASKS
from regard.data.folders import Tree, tree_of
from regard.data.format import Format, Sample
from regard.data.labelled import recognise_labelled
from regard.data.lines import NAME_IT, UTF_8, check_encoding, decode_line, read_lines
from regard.data.tables import guess_csv, recognise_table
from regard.data.tagged import recognise_tagged
from regard.errors import UserError

SAMPLE_LINES = 1_000  # that `recognise` reads
TEXT = Format("text", 1, "plain text", task="continue")
FORMS = (recognise_tagged, recognise_table, recognise_labelled)  # of one file, in the order they are tried
EXPECTED = {
    "convert": (
        "pairs",
        "source<TAB>target on each line, a CSV file with a header, a dictionary, or two line-aligned files",
    ),
    "tag": (
        "tagged sentences",
        "a word and its tag on each line with a blank line after each sentence (CoNLL columns or CoNLL-U), "
        "or two line-aligned files of words and tags",
    ),
    "classify": (
        "labelled texts",
        "text<TAB>label or label<TAB>text on each line, a CSV file with a header such as text,label, "
        "a label and a blank before each text, or two line-aligned files of texts and labels",
    ),
}


def recognise(paths: Sequence[Path | str], task: str | None = None, encoding: str = UTF_8) -> Format:
    """Return the form of text files from their first lines; `task` leaves only its forms."""
    if not paths:
        raise UserError("No data file was given; name a file, or two line-aligned files.")
    _known_task(task)
    return recognise_samples(Files(paths, encoding).samples, task)


def recognise_samples(samples: Sequence[Sample], task: str | None) -> Format:
    """Return the form of text files from samples of them.

    Two files that hold no form each for itself are line-aligned: plain text in two files needs `task="continue"`.
    """
    task = _known_task(task)
    if task == "continue":
        return TEXT
    found = _decide(list(samples), task)
    if found is not None:
        return found
    if task is None and not any(re.search(r"\.tsv(\.gz)?$", sample.path, re.IGNORECASE) for sample in samples):
        return TEXT
    raise _unsuitable(samples[0].path, task)


def recognise_like(paths: Sequence[Path | str], form: Format, encoding: str = UTF_8) -> Format:
    """Return the format of more files for the task of `form`: the same one wherever possible.

    A few lines may not tell a label from a text; the format of the training data does.
    """
    samples = Files(paths, encoding).samples
    if form.task == "continue":
        return form
    recognised = _decide(samples, form.task)
    if recognised is None and (form.kind == "aligned") != (len(paths) == 2):
        raise _unsuitable(samples[0].path, form.task)
    same = recognised is None or all(
        getattr(recognised, part) == getattr(form, part) for part in ("kind", "columns", "header", "delimiter")
    )
    return form if same or recognised is None else recognised


def _known_task(task: str | None) -> str | None:
    if task is not None and task not in TASKS:
        raise UserError(f"Unknown task {task!r}; choose one of {', '.join(TASKS)}.")
    return task


def _unsuitable(path: str, task: str | None) -> UserError:
    what, expected = EXPECTED[task or "convert"]
    return UserError(f"{path} does not hold {what}: expected {expected}.")


def _decide(samples: list[Sample], task: str | None) -> Format | None:
    """Return the format by the strict rules; if they fail and the task is given, by rules for few or unusual lines."""
    form = _recognise(samples, task, sure=False)
    return _recognise(samples, task, sure=True) if form is None and task is not None else form


def _recognise(samples: list[Sample], task: str | None, *, sure: bool) -> Format | None:
    alone = [_recognise_one(sample, task, sure) for sample in samples]
    known = [form for form in alone if form is not None]
    if len(known) == len(samples):
        return _agreed(samples, known)
    if len(samples) == 2:
        return recognise_aligned(samples, task, sure)
    if len(samples) == 1:
        return guess_csv(samples[0], task, sure) if task != "tag" else None
    if known:
        other = next(sample for sample, form in zip(samples, alone, strict=True) if form is None)
        raise _unsuitable(other.path, known[0].task)
    return None


def _recognise_one(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file that holds both sides, or None for plain text or one of two aligned files."""
    return next((form for each in FORMS if (form := each(sample, task, sure)) is not None), None)


def _agreed(samples: list[Sample], formats: list[Format]) -> Format:
    for sample, form in zip(samples, formats, strict=True):
        if form != formats[0]:
            raise UserError(
                f"{samples[0].path} and {sample.path} have different forms ({formats[0].description}; "
                f"{form.description}); bring them into one form."
            )
    return formats[0]


class Files:
    """Files to be recognised: by their names, their bytes, or their first lines, which are read when asked for."""

    def __init__(self, paths: Sequence[Path | str], encoding: str = UTF_8) -> None:
        check_encoding(encoding)
        self.paths, self.encoding = [Path(path) for path in paths], encoding

    @cached_property
    def trees(self) -> list[Tree | None]:
        """The tree of each path that is a folder or a zip archive; None for other files."""
        return [tree_of(path) for path in self.paths]

    @cached_property
    def samples(self) -> list[Sample]:
        """The first lines of each, as text; what is not text is refused."""
        return [_sample(path, self.encoding) for path in self.paths]


def _sample(path: Path | str, encoding: str) -> Sample:
    """Return the first readable lines."""
    raw = [line for _, line in islice(read_lines(path), SAMPLE_LINES)]
    if not any(line.strip() for line in raw):
        raise UserError(f"{path} is empty, expected text.")
    joined = b"\n".join(raw)[: 2**16]
    controls = sum(joined.count(bytes([byte])) for byte in range(32) if byte not in b"\t\n\r\f\x1b")
    if controls > 0.02 * len(joined) + 4:
        raise UserError(f"{path} is a binary file, expected text (or gzipped text); convert it to UTF-8 text first.")
    lines = [text for line in raw if (text := decode_line(str(path), 0, line, lambda _: None, encoding)) is not None]
    if not any(line.strip() for line in lines):
        name = "UTF-8" if encoding == UTF_8 else encoding
        raise UserError(
            f"{path} is not {name} text; save it as UTF-8 (for example iconv -f LATIN1 -t UTF-8), or {NAME_IT}."
        )
    return Sample(str(path), lines)
