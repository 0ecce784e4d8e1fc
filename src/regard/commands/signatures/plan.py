"""Arguments and options of `regard plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.signatures.options import Columns, FileFormat


def plan(
    target: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG | RUN", help="what would be trained; the files of a CONFIG need not be there")],
    on: Annotated[str, typer.Option("--on", metavar="MACHINE", help="this, laptop, P100x8, V100x8, A100x8, H100x64 (any number), or a YAML file that describes one")] = "this",
    task: Annotated[str | None, typer.Option("--task", help="what comes out; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="override settings, as for train")] = None,
    length: Annotated[int, typer.Option("--length", min=1, max=100_000, help="tokens of a side, if the data is not there")] = 30,
    price: Annotated[float | None, typer.Option("--price", min=0, help="price of a device for an hour")] = None,
) -> None:  # fmt: skip
    """Tell what a training will cost before it is paid: parameters and operations by part, memory, time, energy, money.

    On this machine a few steps are tried with the run's own batches; on any other, its data sheet and the share of it that trainings reach give a range.

    Example: regard plan words.tsv --on A100x8 --price 1.50
    """
    from regard.commands import plan as planning

    how = {"format": format or "", "columns": columns or ""}
    found = planning.plan(target, on, task=task, changes=set or (), length=length, price=price, **how)
    print(planning.render(found))
