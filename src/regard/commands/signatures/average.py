"""Arguments and options of `regard average`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Run


def average(
    run: Run,
    last: Annotated[int | None, typer.Option(help="number of checkpoints; all that are kept by default")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="a new run folder for the result")] = None,
) -> None:  # fmt: skip
    """Average the weights of the last checkpoints into a new run folder.

    Example: regard average runs/fre --last 5 -o runs/fre-mean
    """
    from regard.training import averaging

    print(averaging.average(run, last, output or run.with_name(run.name + "-average")))
