"""Options that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(metavar="RUN", help="run folder written by `regard train`")]
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="another run to ensemble with this one; may be repeated"),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="torch|ctranslate2|ctranslate2-int8|onnx|onnx-int8|auto",
        help="ctranslate2 searches, onnx labels, tags and fills; auto: the faster one that supports the model",
    ),
]
Nodes = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME…", help="only these nodes of a graph, with commas between them"),
]
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="file format, if it is recognised wrongly: text, tsv, csv, jsonl, json, parquet, aligned, conll, conllu, labelled, fasttext, dictionary, folders",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="SOURCE,TARGET",
        help="names or numbers of columns: source=2,target=4, source=question+context,target=answer",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Device = Annotated[
    str | None, typer.Option(metavar="cpu|cuda|cuda:N|mps", help="device; by default a GPU for training if there is one, else the CPU")
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print only errors and results")]


def say(text: str) -> None:
    """Write to standard error; standard output is for results."""
    print(text, file=sys.stderr)
