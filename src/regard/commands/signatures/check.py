"""Arguments and options of `regard check`."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.signatures.options import Columns, FileFormat


def check(
    target: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG | RUN", help="what to check")],
    valid: Annotated[list[str] | None, typer.Option("--valid", metavar="FILE", help="validation data, as for train")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="test data, which must not overlap with the training data")] = None,
    task: Annotated[str | None, typer.Option("--task", help="what comes out: convert, tag, classify, continue, fill …; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="override settings, as for train")] = None,
    accept: Annotated[bool, typer.Option("--accept", help="accept the files of RUN as they are, edited on purpose")] = False,
) -> None:  # fmt: skip
    """Find faults before time is spent: every one as file:line, and what to expect of a training.

    The exit code is 1 where `regard train` with the same options would stop before its first step. Of a run: whether every file matches its checksum, and whether the model does what every model must.

    Example: regard check words.tsv --test test.tsv
    """
    from regard.commands import check as checking

    report, sound = checking.check(
        target,
        test or [],
        valid=valid or [],
        task=task,
        format=format or "",
        columns=columns or "",
        set=set or [],
        accept=accept,
    )
    print(report)
    if not sound:
        raise typer.Exit(1)
