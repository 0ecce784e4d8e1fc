"""Files as a stream of examples, whatever their format and task.

The format is recognised by content, and each may be gzipped (also by content). Files are streamed: a corpus may be
larger than memory. Text is UTF-8 unless another encoding is given, and comes out in Unicode's NFC form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.aligned import read_aligned
from regard.data.box_forms import READERS as BOX_READERS
from regard.data.box_forms import read_boxes
from regard.data.class_folders import read_class_folders
from regard.data.clips import FRAME_LIST, FRAMES, read_frame_list, read_frames
from regard.data.example import Example, TextExample
from regard.data.format import SAMPLE_LINES, Format
from regard.data.graphs import read_graph_tables, read_graphs
from regard.data.images import read_alone, read_folders, read_list
from regard.data.labelled import read_labelled
from regard.data.lines import (
    UTF_8,
    Fault,
    OnFault,
    check_encoding,
    decode_line,
    open_bytes,
    read_lines,
    read_text,
    refuse,
)
from regard.data.picture_arrays import read_idx, read_npz
from regard.data.plain import read_plain
from regard.data.recognition import members, recognise, recognise_like
from regard.data.recordings import read_beside, read_kaldi, read_named, read_trans
from regard.data.sound_tables import read_sound_table
from regard.data.tables import read_table
from regard.data.tagged import read_tagged, split_words
from regard.errors import UserError

__all__ = [
    "SAMPLE_LINES",
    "Example",
    "Fault",
    "Format",
    "OnFault",
    "TextExample",
    "decode_line",
    "open_bytes",
    "read_examples",
    "read_lines",
    "read_text",
    "recognise",
    "recognise_like",
    "refuse",
    "split_words",
]


def read_examples(
    paths: Sequence[Path | str],
    on_fault: OnFault | None = None,
    form: Format | None = None,
    encoding: str = UTF_8,
) -> Iterator[Example[Any, Any]]:
    """Yield the examples of the files.

    A fault raises UserError with its file and line; with `on_fault` it is handed over and its example left out. Blank
    lines are passed over, except in aligned files, where they are an empty side, and in plain text, where they are
    lines like others.
    """
    report = on_fault or refuse
    check_encoding(encoding)
    form = form or recognise(paths, encoding=encoding)
    if form.kind in WHOLE:
        for path in paths:
            yield from WHOLE[form.kind](path, form, report, encoding)
        return
    if form.kind == "graph tables":
        yield from read_graph_tables(paths, form, report, encoding)
        return
    if form.input != "tokens":  # which opens archives itself
        for path in paths:
            yield from READERS[form.kind](path, form, report, encoding)
        return
    files = members(paths)
    if form.kind == "aligned":
        if len(files) != 2:
            raise UserError(f"{paths[0]}: expected {form.description}, found {len(files)}; name both.")
        yield from read_aligned(files, form, report, encoding)
        return
    read = READERS[form.kind]
    for path in files:
        yield from read(path, form, report, encoding)


# Folders and archives that are no lists of files.
WHOLE: dict[str, Callable[..., Iterator[Example[Any, Any]]]] = {"folders": read_class_folders, "graphs": read_graphs}
READERS: dict[str, Callable[[Path | str, Format, OnFault, str], Iterator[Example[Any, Any]]]] = {
    "tsv": read_table,
    "csv": read_table,
    "dictionary": read_table,
    "jsonl": read_table,
    "json": read_table,
    "parquet": read_table,
    "columns": read_tagged,
    "conllu": read_tagged,
    "labelled": read_labelled,
    "fasttext": read_labelled,
    "text": read_plain,
    "picture folders": read_folders,
    "picture list": read_list,
    FRAMES: read_frames,
    FRAME_LIST: read_frame_list,
    **dict.fromkeys(BOX_READERS, read_boxes),
    "pictures": read_alone,
    "idx": read_idx,
    "npz": read_npz,
    "sound-folders": read_named,
    "sound-names": read_named,
    "sound-beside": read_beside,
    "sound-frames": read_beside,
    "sound-trans": read_trans,
    "sound-kaldi": read_kaldi,
    "sound-table": read_sound_table,
}
