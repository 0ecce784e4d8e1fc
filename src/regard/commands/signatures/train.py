"""Arguments and options of `regard train`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Columns, Device, FileFormat, Quiet, say


def train(
    data: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG | RUN", help="files or a folder of yours (pairs, labels, tags, text …), - for standard input, a config.yaml, or a run folder to resume")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="run folder; runs/NAME by default")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", metavar="FILE", help="validation data; twice for line-aligned files")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="test data, used once at the end")] = None,
    task: Annotated[str | None, typer.Option("--task", help="what comes out: convert, tag, classify, continue, fill …; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    start: Annotated[Path | None, typer.Option("--from", metavar="RUN", help="start from the vocabulary and weights of another run")] = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="override settings, such as training.rate=0.002 model.size=tiny")] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", help="minutes of training, instead of a number of steps")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="number of training steps")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="random seed of weights, order and dropout")] = None,
    skip_faults: Annotated[bool, typer.Option("--skip-faults", help="skip and count faulty lines instead of stopping")] = False,
    device: Device = None,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Train a model on your data. Run the same command again, or `regard train RUN`, to resume.

    Example: regard train words.tsv --minutes 5
    """
    from regard.commands import trials
    from regard.runs import checkpoint
    from regard.runs.folder import quoted
    from regard.training import train as training
    from regard.training.loop import Interrupted

    try:
        model = training.train(
            data,
            output,
            valid=valid or (),
            test=test or (),
            set=[*(set or ()), *(["data.faults=skip"] if skip_faults else [])],
            minutes=minutes,
            steps=steps,
            seed=seed,
            task=task,
            start=start,
            device=device,
            quiet=quiet,
            format=format or "",
            columns=columns or "",
        )
    except (Interrupted, KeyboardInterrupt) as stop:  # in a step, or outside of them: preparing, averaging, evaluating
        whole = isinstance(stop, Interrupted)
        if not whole and not checkpoint.states(training.run_folder(data, output)):
            raise
        say(f"stopped; {'everything' if whole else 'the last state'} is saved. Resume with the same command:")
        say(f"  regard {shlex.join(sys.argv[1:])}")
        raise typer.Exit(130) from None
    if int(os.environ.get("RANK", "0")):
        return  # one of several processes: the first one talks
    if not quiet:
        tried = f"{quoted(model.folder)} {shlex.quote(trials.example(model))}"
        say(f"try: regard predict {tried}")
        say(f"     regard show {tried} -o alignment.png")
    print(model.folder)
