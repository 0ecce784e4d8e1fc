"""Arguments and options of `regard compare`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Columns, FileFormat, Json, Quiet, say
from regard.errors import UserError


def compare(
    data: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG", help="files or a folder of yours, as for train, or a config.yaml")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="folder of the comparison: runs, table, pictures; the same command again continues")],
    vary: Annotated[list[str] | None, typer.Option("--vary", metavar="KEY=A,B,C", help="values of a setting; of several, every combination; the first is the baseline")] = None,
    variants: Annotated[Path | None, typer.Option("--variants", metavar="FILE.yaml", help="named variants instead, each with its settings; the first is the baseline")] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", help="time of each training")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="steps of each training")] = None,
    flops: Annotated[float | None, typer.Option("--flops", help="floating-point operations of each training, such as 1e13")] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="trainings of each variant")] = 3,
    match: Annotated[str | None, typer.Option("--match", metavar="parameters|flops", help="change widths until all variants have as many as the baseline")] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="trainings at a time; with 2 or more, each has one thread")] = 1,
    lengths: Annotated[str | None, typer.Option("--lengths", metavar="N,M,…", help="train on sources of up to N elements, and evaluate on longer ones too")] = None,
    sizes: Annotated[str | None, typer.Option("--data-sizes", metavar="N,M,…", help="train on so many examples each, and draw quality against them")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", metavar="FILE", help="validation data, as for train")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="test data that quality is measured on; without it, the validation data")] = None,
    task: Annotated[str | None, typer.Option("--task", help="what comes out; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="settings of all variants, as for train")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Compare variants of a model fairly: equal budgets, several seeds, simple baselines, intervals and verdicts.

    Example: regard compare words.tsv --vary model.kind=transformer,recurrent --steps 500 -o compared
    """
    import json

    from regard.comparison import report
    from regard.comparison import variants as wanted
    from regard.comparison.compare import Budget, Comparison, DataFiles
    from regard.comparison.compare import compare as comparing

    if bool(vary) == bool(variants):
        raise typer.BadParameter("expected --vary KEY=A,B or --variants FILE.yaml, one of them")
    asked = Comparison(
        DataFiles(data, valid or (), test or (), task, set or (), format or "", columns or ""),
        wanted.every_combination(vary) if vary else wanted.named(Path(str(variants))),
        output,
        Budget(minutes, steps, flops),
        seeds,
        jobs,
        match,
        _numbers("--lengths", lengths),
        _numbers("--data-sizes", sizes),
        f"regard {shlex.join(sys.argv[1:])}",
    )
    try:
        facts = comparing(asked, (lambda _: None) if quiet else say)
    except KeyboardInterrupt:
        say("stopped; everything is saved. Continue with the same command:")
        say(f"  {asked.command}")
        raise typer.Exit(130) from None
    print(json.dumps(facts, ensure_ascii=False) if as_json else report.summary(facts, output))


def _numbers(option: str, given: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(value) for value in given.split(",")) if given is not None else ()
    except ValueError:
        raise UserError(f"{option} {given}: expected numbers with commas between them, such as 100,200,400.") from None
