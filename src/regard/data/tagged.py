"""Tagged sentences: a word and its tag on each line, a blank line after each sentence.

CoNLL columns have the word in the first and the tag in the last column, separated by tabs or blanks. CoNLL-U has ten
columns separated by tabs: the number of the word, the word, its lemma, its part of speech (UPOS), and others. To read
another column of either, replace `target` of the format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from regard.data.example import Example, TextExample, counted
from regard.data.format import Format, Sample, few
from regard.data.lines import UTF_8, Fault, OnFault, decode_line, read_lines
from regard.text.spans import is_span_tag

COLUMNS_OF_CONLLU = 10
WORD, UPOS = 1, 3
NUMBER = re.compile(r"\d+")
PASSED_OVER = re.compile(r"\d+[-.]\d+")  # 3-4 is one token written for words 3 and 4, 5.1 a word that is not written
COMMENT = re.compile(r"#(\s|$|begin |end )")
# Borders of documents, wherever they stand; the tags of corpora in XML that are tagged line by line.
BORDER = re.compile(r"-DOCSTART-|#(begin|end) document|</?(doc|text|s|p)( [^\t]*)?/?>\s*$")
NO_BREAK = "\u00a0"


def split_words(text: str) -> list[str]:
    """Return the words of a line, separated by blanks or tabs; the no-break space stays inside its word."""
    return [word for word in text.replace("\t", " ").split(" ") if word]


# ---------------------------------------------------------------------------------------------- recognition


def recognise_tagged(sample: Sample, task: str | None, sure: bool) -> Format | None:
    """Return the format of one file of tagged sentences, or None."""
    if task not in (None, "tag"):
        return None
    return _recognise_conllu(sample) or _recognise_columns(sample, sure)


def _recognise_conllu(sample: Sample) -> Format | None:
    rows = [line.split("\t") for line in sample.filled if not line.startswith("#")]
    good = [row for row in rows if len(row) == COLUMNS_OF_CONLLU and re.match(r"\d", row[0])]
    if not rows or len(good) < 0.95 * len(rows):
        return None
    description = "CoNLL-U: words and their parts of speech (UPOS, the fourth column)"
    why = "ten columns, of which the first numbers the words"
    return Format("conllu", COLUMNS_OF_CONLLU, description, (WORD,), UPOS, task="tag", why=why)


def _recognise_columns(sample: Sample, sure: bool) -> Format | None:
    lines = [line for line in sample.lines if not BORDER.match(line)]
    delimiter = "\t" if 2 * sum("\t" in line for line in lines) > sum(bool(line.strip()) for line in lines) else " "
    lines = [line for line in lines if not COMMENT.match(line)]
    rows = [_fields(line, delimiter) for line in lines if line.strip()]
    columns = Counter(map(len, rows)).most_common(1)[0][0] if rows else 1
    whole = [row for row in rows if len(row) == columns]
    if columns < 2 or len(whole) < 0.9 * len(rows):
        return None
    if not sure and not _are_blocks_of_tags(lines, whole):
        return None
    between = "tabs" if delimiter == "\t" else "blanks"
    description = f"CoNLL columns separated by {between}: the word in the first, its tag in the last of {columns}"
    why = (
        f"blank lines part {counted(len(rows), 'word')}, and the last column has {len({r[-1] for r in whole}):,} values"
    )
    return Format("columns", columns, description, (0,), columns - 1, delimiter=delimiter, task="tag", why=why)


def _are_blocks_of_tags(lines: list[str], rows: list[list[str]]) -> bool:
    """Return True if blank lines separate blocks of several words, and the last column has few values or span tags."""
    blocks = sum(filled for filled, _ in groupby(lines, lambda line: bool(line.strip())))
    if len(rows) < 1.5 * blocks or not any(not line.strip() for line in lines[:-1]):
        return False
    words, tags = [row[0] for row in rows], [row[-1] for row in rows]
    spans = sum(is_span_tag(tag) for tag in tags)
    return sum(" " not in word.strip() for word in words) >= 0.9 * len(words) and (
        few(tags, least=1) or spans >= 0.95 * len(tags)
    )


# ---------------------------------------------------------------------------------------------- reading


def read_tagged(path: Path | str, form: Format, report: OnFault, encoding: str = UTF_8) -> Iterator[TextExample]:
    """Yield the sentences of a file of the kind "columns" or "conllu"; one with a fault is left out as a whole."""
    file = str(path)
    block: list[tuple[int, str | None]] = []
    for number, raw in read_lines(path):
        text = decode_line(file, number, raw, report, encoding)
        if text is None or text.strip():
            block.append((number, text))
            continue
        example = _sentence(block, form, file, report)
        block = []
        if example is not None:
            yield example
    example = _sentence(block, form, file, report)
    if example is not None:
        yield example


def _sentence(block: list[tuple[int, str | None]], form: Format, file: str, report: OnFault) -> TextExample | None:
    """Return the words and tags of one block, with the line of its first word."""
    words: list[str] = []
    tags: list[str] = []
    sound, start = True, 0
    for number, text in block:
        if text is None:  # reported when it was decoded
            sound = False
            continue
        fields = _fields(text, form.delimiter)
        if _is_passed_over(text, fields, form, first=not words and sound):
            continue
        start = start or number
        fault = _fault(fields, form)
        if fault is not None:
            sound = False
            report(Fault(file, number, *fault))
            continue
        words.append(fields[form.source[0]].replace(" ", NO_BREAK))
        tags.append(fields[form.target].replace(" ", NO_BREAK))
    return Example(" ".join(words), " ".join(tags), file, start) if words and sound else None


def _fields(text: str, delimiter: str) -> list[str]:
    return [field.strip(" ") for field in text.split("\t")] if delimiter == "\t" else split_words(text)


def _is_passed_over(text: str, fields: list[str], form: Format, *, first: bool) -> bool:
    """Return True for comments, borders of documents, and the lines of CoNLL-U that are not words.

    In CoNLL columns a word may itself be #: between blanks a comment stands before the first word of its sentence, and
    anywhere it has another number of columns.
    """
    if form.kind == "conllu":
        return text.startswith("#") or PASSED_OVER.fullmatch(fields[0]) is not None
    if BORDER.match(text):
        return True
    return COMMENT.match(text) is not None and (len(fields) != form.columns or (first and form.delimiter == " "))


def _fault(fields: list[str], form: Format) -> tuple[str, str] | None:
    """Return the fault in the columns of a word and its kind, or None."""
    if len(fields) != form.columns:
        what = f"has {len(fields)} columns, expected {form.columns} ({form.description})"
        return what, "wrong number of columns"
    if form.kind == "conllu" and not NUMBER.fullmatch(fields[0]):
        return f"begins with {fields[0][:20]!r}, expected the number of a word", "words without a number"
    if not fields[form.source[0]]:
        return "the word is empty; fill it in or remove the line", "empty words"
    if not fields[form.target] or (form.kind == "conllu" and fields[form.target] == "_"):
        return f"the tag is empty (column {form.target + 1}); fill it in or remove the sentence", "empty tags"
    return None
