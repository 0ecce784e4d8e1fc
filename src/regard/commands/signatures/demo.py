"""Arguments and options of `regard demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.errors import UserError


def demo(
    job: Annotated[str, typer.Argument(metavar="[dates|scenes|morse|communities]", help="read dates in many languages, describe pictures, read Morse code, or name everybody's community in a network of friends")] = "dates",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="run folder; runs/demo for dates, else runs/ and the name of the job")] = None,
    minutes: Annotated[float | None, typer.Option(help="minutes of training; 2 for dates, 4 for scenes and morse, 5 for scenes --task detect, 1 for communities")] = None,
    task: Annotated[str | None, typer.Option(metavar="convert|detect", help="task of scenes: describe them, or find the shapes in them")] = None,
    moving: Annotated[bool, typer.Option("--moving", help="scenes: describe clips in which one thing moves; 8 minutes")] = False,
    seed: Annotated[int, typer.Option(help="random seed of data and training, for scenes and morse")] = 1,
) -> None:  # fmt: skip
    """Learn to read dates in many languages, to describe pictures or find shapes in them, to read Morse code or to find
    communities, and draw where it looked.

    No data needed. Example: regard demo scenes
    """
    from regard.commands import communities, morse, scenes, shapes
    from regard.commands import demo as dates
    from regard.commands import moving as clips

    if job not in ("dates", "scenes", "morse", "communities"):
        raise UserError(f"There is no demo {job!r}, expected dates, scenes, morse or communities.")
    if moving and (job != "scenes" or task is not None):
        raise UserError("--moving is an option of the demo scenes without --task: leave it out.")
    if task not in ((None, "convert", "detect") if job == "scenes" else (None,)):
        raise UserError(f"--task {task}: expected convert or detect, of the demo scenes; leave it out.")
    usual = {"dates": 2.0, "scenes": 4.0, "morse": 4.0, "communities": 1.0}[job] if minutes is None else minutes
    if job == "morse":
        morse.demonstrate(output or Path("runs/morse"), usual, seed)
    elif task == "detect":
        shapes.demonstrate(output or Path("runs/shapes"), 5.0 if minutes is None else minutes, seed)
    elif moving:
        clips.demonstrate(output or Path("runs/moving"), 8.0 if minutes is None else minutes, seed)
    elif job == "scenes":
        scenes.demonstrate(output or Path("runs/scenes"), usual, seed)
    elif job == "communities":
        communities.demonstrate(output or Path("runs/communities"), usual)
    else:
        dates.demonstrate(output or Path("runs/demo"), usual)
