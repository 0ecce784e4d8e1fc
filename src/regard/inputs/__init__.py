"""Inputs: from raw things to a batch of vectors. A new one is one file here, and its line below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.example import UNITS, Example
from regard.data.format import Format
from regard.data.lines import UTF_8, Fault, OnFault, refuse
from regard.data.reading import read_examples
from regard.data.recognition import Files
from regard.errors import UserError
from regard.inputs.clips import Clips
from regard.inputs.frames import Frames
from regard.inputs.input import Input
from regard.inputs.nodes import Nodes
from regard.inputs.patches import Patches
from regard.inputs.tokens import Tokens

# In the order in which they are tried on a file: text last, for everything can be read as text.
INPUTS: dict[str, type[Input[Any]]] = {
    "nodes": Nodes,
    "clips": Clips,
    "patches": Patches,
    "frames": Frames,
    "tokens": Tokens,
}


def unit_of(input: str, reads: str) -> str:
    """Return the name of one example: pair, sentence, text or line of texts, image, recording, graph."""
    return UNITS[reads] if input == "tokens" else INPUTS[input].noun.removesuffix("s")


def recognise(
    paths: Sequence[Path | str],
    task: str | None = None,
    encoding: str = UTF_8,
    source: str | None = None,
    *,
    format: str = "",
    columns: str = "",
    strict: bool = True,
) -> Format:
    """Return the form of files; `task` and `source` leave only their forms. `format` and `columns` say what it is;
    unless that is `strict`, files that do not fit are recognised anew."""
    if not paths:
        raise UserError("No data file was given; name a file, or two line-aligned files.")
    files = Files(paths, encoding, format, columns, strict=strict)
    for name, input in INPUTS.items():
        form = input.recognise(files, task) if source in (None, name) else None
        if form is not None:
            return form
    raise UserError(f"{paths[0]} holds no {INPUTS[source].noun if source else 'data'} that can be read.")


def read(
    paths: Sequence[Path | str], form: Format, on_fault: OnFault | None = None, encoding: str = UTF_8
) -> Iterator[Example[Any, Any]]:
    """Yield the examples of files; a source that its input cannot read is a fault of its line."""
    report, input = on_fault or refuse, INPUTS[form.input]
    for example in read_examples(paths, on_fault, form, encoding):
        what = input.unreadable(example.source)
        if what:
            said = what.removeprefix(f"{example.file} ")  # once is enough
            report(Fault(example.file, example.line, said, f"unreadable {input.noun}"))
        else:
            yield example
