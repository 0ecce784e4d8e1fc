"""Recognition of the format and the task of files by evidence.

In this order: the layout of folders and archives, the first bytes, the names of columns, and the statistics of the
first rows. `--format` and `--columns` decide before any of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from regard.data.aligned import recognise_aligned
from regard.data.class_folders import recognise_class_folders
from regard.data.columns import parse_columns
from regard.data.example import TASKS
from regard.data.folders import Tree, tree_of
from regard.data.format import COLUMNED, SAMPLE_LINES, Format, Sample
from regard.data.labelled import labelled_as_given, recognise_labelled
from regard.data.lines import NAME_IT, UTF_8, check_encoding, decode_line, open_file, read_lines
from regard.data.tables import guess_csv, recognise_dictionary, recognise_records, recognise_table, recognise_tsv
from regard.data.tagged import recognise_tagged
from regard.errors import UserError

TEXT = Format("text", 1, "plain text", task="continue")
STRONG = (recognise_tagged, recognise_table)  # forms of one file that hold both sides, in the order they are tried
MOST_SAMPLED = 20  # files of a folder
ENOUGH = 2**22  # bytes of one line, or of a few
PAGES = re.compile(r"(readme|licen[sc]e|changelog|citation|contributing)(\..*)?", re.IGNORECASE)
OFFICE = "[Content_Types].xml"  # in every document of Word, Excel and PowerPoint
MAGIC = {
    b"%PDF": "a PDF document", b"\x89PNG": "a PNG image", b"\xff\xd8\xff": "a JPEG image", b"GIF8": "a GIF image",
    b"SQLite format 3": "an SQLite database", b"\xd0\xcf\x11\xe0": "an old Office document", b"RIFF": "a recording",
    b"7z\xbc\xaf\x27": "a 7z archive", b"\xfd7zXZ": "packed by xz", b"BZh": "packed by bzip2",
    b"ARROW1": "an Arrow file", b"(\xb5/\xfd": "packed by zstd", b"\x93NUMPY": "a NumPy array",
    b"\x80\x04\x95": "a pickle", b"fLaC": "a recording",
}  # fmt: skip
FORMATS = (
    *("text", "tsv", "csv", "jsonl", "json", "parquet", "aligned", "columns", "conllu", "labelled", "fasttext"),
    *("dictionary", "folders"),
)
ALIASES = {"conll": "columns", "plain": "text", "txt": "text", "ndjson": "jsonl", "conll-u": "conllu"}
EXPECTED = {
    "convert": (
        "pairs",
        "source<TAB>target on each line, a CSV file with a header, JSON lines, a dictionary, or two line-aligned files",
    ),
    "tag": (
        "tagged sentences",
        "a word and its tag on each line with a blank line after each sentence (CoNLL columns or CoNLL-U), "
        "or two line-aligned files of words and tags",
    ),
    "classify": (
        "labelled texts",
        "text<TAB>label or label<TAB>text on each line, a CSV file with a header such as text,label, JSON lines, "
        "a folder of texts for each label, a label and a blank before each text, or two line-aligned files of texts "
        "and labels",
    ),
    "detect": (
        "pictures with boxes",
        "a COCO JSON file, Pascal VOC XML files, a table such as image,label,xmin,ymin,xmax,ymax, or YOLO text files, "
        "with the pictures beside them",
    ),
}


class Files:
    """Files to be recognised: by their names, their bytes, or their first lines, which are read when asked for.

    `format` and `columns` are those that the user or the run says; where `strict` is False, files that they do not fit
    are recognised anew.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        encoding: str = UTF_8,
        format: str = "",
        columns: str = "",
        *,
        strict: bool = True,
    ) -> None:
        check_encoding(encoding)
        self.paths, self.encoding, self.strict = [Path(path) for path in paths], encoding, strict
        self.format, self.columns = format, columns

    @cached_property
    def trees(self) -> list[Tree | None]:
        """The tree of each path that is a folder or a zip archive; None for other files."""
        return [tree_of(path) for path in self.paths]

    @cached_property
    def samples(self) -> list[Sample]:
        """The first lines of each, as text; what is not text is refused. Of a folder, those of its first files."""
        return [_sample(path, self.encoding) for path in members(self.paths)[:MOST_SAMPLED]]


def known_format(format: str) -> str:
    """Return the name of a format; an unknown one is refused."""
    name = ALIASES.get(format.strip().lower(), format.strip().lower())
    if name and name not in FORMATS:
        raise UserError(f"--format {format}: expected one of {', '.join(FORMATS)}.")
    return name


def members(paths: Sequence[Path | str]) -> list[str]:
    """Return the files that paths stand for: themselves, or all in a folder or archive but pages about it."""
    found: list[str] = []
    for path in paths:
        tree = tree_of(path)
        if tree is None:
            found.append(str(path))
            continue
        handles = [handle for handle in tree.files if not PAGES.fullmatch(handle.name)] or tree.files
        if tree.archive and any(handle.name == OFFICE for handle in tree.files):
            raise UserError(f"{path} is an Office document, expected text. Try to save it as CSV or as plain text.")
        if not handles:
            what = "an archive" if tree.archive else "a folder"
            raise UserError(f"{path}: expected data, found {what} without files.")
        found += map(str, handles)
    return found


def recognise(
    paths: Sequence[Path | str], task: str | None = None, encoding: str = UTF_8, format: str = "", columns: str = ""
) -> Format:
    """Return the form of text files; `task` leaves only its forms."""
    if not paths:
        raise UserError("No data file was given; name a file, or two line-aligned files.")
    return recognise_files(Files(paths, encoding, format, columns), task)


def recognise_like(paths: Sequence[Path | str], form: Format, encoding: str = UTF_8) -> Format:
    """Return the format of more files for the task of `form`: the same one wherever possible.

    A few lines may not tell a label from a text; the format of the training data does.
    """
    return recognise_files(Files(paths, encoding, form.kind, form.chosen, strict=False), form.task)


def recognise_files(files: Files, task: str | None) -> Format:
    """Return the form of text files: as they are said to be, or by evidence."""
    task = _known_task(task)
    if task == "detect":  # boxes are not in texts
        raise _unsuitable(str(files.paths[0]), task)
    if files.format or files.columns:
        try:
            return _as_given(files, known_format(files.format), task)
        except UserError:
            if files.strict:
                raise
    found = recognise_class_folders(files.trees, task)
    return found if found is not None else _by_lines(files.samples, task)


def _known_task(task: str | None) -> str | None:
    if task is not None and task not in TASKS:
        raise UserError(f"Unknown task {task!r}; choose one of {', '.join(TASKS)}.")
    return task


# ---------------------------------------------------------------------------------------------- as given


def _as_given(files: Files, format: str, task: str | None) -> Format:
    """Return the form that `--format` and `--columns` describe; what does not fit them is refused."""
    columns = files.columns
    if columns:
        parse_columns(columns)
    if format == "folders":
        found = recognise_class_folders(files.trees, task, sure=True)
        if found is None:
            raise UserError(f"{files.paths[0]}: expected a folder with a folder of texts for each label.")
        return found
    samples = files.samples
    if columns and format and format not in COLUMNED:
        raise UserError(f"--columns {columns}: expected a format with columns, found --format {format}. Leave one out.")
    if format == "aligned" or (columns and not format and len(samples) == 2 and not _kind(samples[0], columns)):
        return _aligned_as_given(samples, task, columns)
    format = format or _kind(samples[0], columns)
    forms = [_as_format(sample, format, columns, task) for sample in samples]
    return _agreed(samples, forms)


def _kind(sample: Sample, columns: str) -> str:
    """Return the kind of table that a file is, whatever its columns are."""
    for kind, read in GIVEN.items():
        try:
            if kind == "columns":
                return kind if recognise_tagged(sample, "tag", sure=False) is not None else ""
            if kind in COLUMNED and read(sample, None, columns) is not None:
                return kind
        except UserError:
            return kind  # a table, but these are not its columns: which is said when it is read
    return ""


def _tagged(kind: str) -> Callable[[Sample, str | None, str], Format | None]:
    def read(sample: Sample, task: str | None, columns: str) -> Format | None:
        del columns
        form = recognise_tagged(sample, "tag", task == "tag" or kind == "columns") if task in (None, "tag") else None
        return form if form is not None and form.kind == kind else None

    return read


def _record(kind: str) -> Callable[[Sample, str | None, str], Format | None]:
    return lambda sample, task, columns: recognise_records(sample, task, task is not None, columns, kind)


def _csv(sample: Sample, task: str | None, columns: str) -> Format | None:
    if columns or not (form := recognise_table(sample, task, task is not None)) or form.kind != "csv":
        return guess_csv(sample, task, task is not None, columns, forced=not columns)
    return form


GIVEN: dict[str, Callable[[Sample, str | None, str], Format | None]] = {
    **{kind: _record(kind) for kind in ("parquet", "jsonl", "json")},
    "conllu": _tagged("conllu"),
    "tsv": lambda sample, task, columns: recognise_tsv(sample, task, task is not None, columns, forced=True),
    "csv": _csv,
    "columns": _tagged("columns"),
    "labelled": lambda sample, task, _: labelled_as_given(sample, task),
    "fasttext": lambda sample, task, _: recognise_labelled(sample, task or "classify", sure=False),
    "dictionary": lambda sample, task, columns: recognise_dictionary(sample) if not columns and task != "tag" else None,
    "text": lambda sample, task, columns: TEXT if task in (None, "continue") and sample.lines and not columns else None,
}


def _as_format(sample: Sample, format: str, columns: str, task: str | None) -> Format:
    form = GIVEN[format](sample, task, columns) if format else None
    if form is None:
        raise _other(sample, format, columns, task)
    if columns and form.kind in ("columns", "conllu"):
        form = _tag_columns(form, columns)
    return form


def _other(sample: Sample, format: str, columns: str, task: str | None) -> UserError:
    """Return the complaint about a file that is not what `--format` or `--columns` says."""
    try:
        found = _by_lines([sample], None).description
    except UserError:
        found = "something else"
    what = f"--format {format}" if format else f"columns (--columns {columns})"
    suits = f" for the task {task}" if task else ""
    return UserError(f"{sample.path}: expected {what}{suits}, found {found}. Leave it out, or give another.")


def _tag_columns(form: Format, columns: str) -> Format:
    source, target, _ = parse_columns(columns)
    numbers = [int(name) - 1 for name in (*source, target or "") if name.isdecimal() and 1 <= int(name) <= form.columns]
    if len(numbers) != 2 or len(source) != 1:
        raise UserError(
            f"--columns {columns}: expected two numbers from 1 to {form.columns}, such as source=1,target=2."
        )
    description = f"{form.description.partition(':')[0]}: words in column {numbers[0] + 1}, tags in {numbers[1] + 1}"
    return Format(
        form.kind, form.columns, description, (numbers[0],), numbers[1], delimiter=form.delimiter, task="tag",
        why="as --columns says",
    )  # fmt: skip


def _aligned_as_given(samples: Sequence[Sample], task: str | None, columns: str) -> Format:
    if len(samples) != 2:
        raise UserError(f"{samples[0].path}: expected two line-aligned files, found {len(samples)}. Name both.")
    form = recognise_aligned(samples, task or "convert", sure=True)
    if form is None:
        raise _unsuitable(samples[0].path, task)
    if not columns:
        return recognise_aligned(samples, None, sure=False) or form if task is None else form
    source, target, _ = parse_columns(columns)
    if sorted((*source, target or "")) != ["1", "2"]:
        raise UserError(f"--columns {columns}: expected the files as 1 and 2, such as source=2,target=1.")
    order = f"two line-aligned files: file {source[0]} holds the sources, file {target} the targets"
    return Format(
        "aligned", 2, order, (int(source[0]) - 1,), int(target or 2) - 1, task=form.task, why="as --columns says"
    )


# ---------------------------------------------------------------------------------------------- by evidence


def _by_lines(samples: Sequence[Sample], task: str | None) -> Format:
    if task == "continue":
        records = [recognise_records(sample, task, sure=True) for sample in samples]
        known = [form for form in records if form is not None]
        return known[0] if len(known) == len(samples) else TEXT
    found = _decide(list(samples), task)
    if found is not None:
        return found
    if task is None and not any(re.search(r"\.tsv(\.gz)?$", sample.path, re.IGNORECASE) for sample in samples):
        return TEXT
    raise _unsuitable(samples[0].path, task)


def _unsuitable(path: str, task: str | None) -> UserError:
    what, expected = EXPECTED[task or "convert"]
    return UserError(f"{path} does not hold {what}: expected {expected}.")


def _decide(samples: list[Sample], task: str | None) -> Format | None:
    """Return the format by the strict rules; if they fail and the task is given, by rules for few or unusual lines."""
    form = _recognise(samples, task, sure=False)
    return _recognise(samples, task, sure=True) if form is None and task is not None else form


def _recognise(samples: list[Sample], task: str | None, *, sure: bool) -> Format | None:
    """Return the form of files: of tables each for itself, of two files whose lines belong together, or of labels."""
    alone = [
        next((form for each in STRONG if (form := each(sample, task, sure)) is not None), None) for sample in samples
    ]
    known = [form for form in alone if form is not None]
    if len(known) == len(samples):
        return _agreed(samples, known)
    if len(samples) == 2:
        found = recognise_aligned(samples, task, sure=False) or (
            recognise_aligned(samples, task, sure) if sure else None
        )
        if found is not None:
            return found
    elif known:
        other = next(sample for sample, form in zip(samples, alone, strict=True) if form is None)
        raise _unsuitable(other.path, known[0].task)
    for weak in (recognise_labelled, guess_csv):
        if weak is guess_csv and (task == "tag" or len(samples) > 1):
            continue
        forms = [weak(sample, task, sure) for sample in samples]
        labelled = [form for form in forms if form is not None]
        if len(labelled) == len(samples):
            return _agreed(samples, labelled)
    return None


def _agreed(samples: Sequence[Sample], formats: Sequence[Format]) -> Format:
    for sample, form in zip(samples, formats, strict=True):
        if form != formats[0]:
            raise UserError(
                f"{samples[0].path} and {sample.path} have different formats ({formats[0].description}; "
                f"{form.description}): convert them to one."
            )
    return formats[0]


# ---------------------------------------------------------------------------------------------- samples


def _sample(path: Path | str, encoding: str) -> Sample:
    """Return the first readable lines."""
    with open_file(path) as stream:
        start = stream.read(16)
    if start.startswith(b"PAR1"):
        return Sample(str(path), [], encoding, parquet=True)
    raw: list[bytes] = []
    for _, line in islice(read_lines(path, longest=ENOUGH, cut=True), SAMPLE_LINES):
        raw.append(line)
        if sum(map(len, raw[-10:])) > ENOUGH:
            break
    if not any(line.strip() for line in raw):
        raise UserError(f"{path} is empty, expected text.")
    joined = b"\n".join(raw)[: 2**16]
    controls = sum(joined.count(bytes([byte])) for byte in range(32) if byte not in b"\t\n\r\f\x1b")
    if controls > 0.02 * len(joined) + 4:
        known = next((name for magic, name in MAGIC.items() if start.startswith(magic)), "a binary file")
        raise UserError(f"{path} is {known}, expected text (or gzipped text); convert it to UTF-8 text first.")
    lines = [text for line in raw if (text := decode_line(str(path), 0, line, lambda _: None, encoding)) is not None]
    if not any(line.strip() for line in lines):
        name = "UTF-8" if encoding == UTF_8 else encoding
        raise UserError(
            f"{path} is not {name} text; save it as UTF-8 (for example iconv -f LATIN1 -t UTF-8), or {NAME_IT}."
        )
    return Sample(str(path), lines, encoding)
