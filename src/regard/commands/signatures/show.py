"""Arguments and options of `regard show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Device, Nodes, Run


def show(
    run: Run,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT…]", help="texts to answer and inspect")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help=".png or .svg picture, .html page, .npz numbers")] = Path("attention.png"),
    answer: Annotated[str | None, typer.Option("--answer", help="inspect this answer instead of the model's own")] = None,
    cover: Annotated[bool, typer.Option("--cover", help="also what the answer becomes without each part of the input (.html, .npz)")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="every layer and head in one picture")] = False,
    device: Device = None,
    node: Nodes = None,
    positions: Annotated[bool, typer.Option("--positions", help="draw the position tables instead of a text")] = False,
    draw: Annotated[str | None, typer.Option("--draw", metavar="NAME", help="models that make new things: a picture of many, latent, reconstructions, noise, neighbours, spread, attribute or attention; the texts are data files")] = None,
    others: Annotated[list[Path] | None, typer.Option("--with", metavar="RUN", help="another run beside this one in --draw; may be repeated")] = None,
    colours: Annotated[str, typer.Option("--colours", help="colour scale: regard (dark is large) or lecture (white is large)")] = "regard",
) -> None:  # fmt: skip
    """Draw where the model looked.

    Example: regard show runs/fre bonjour -o bonjour.html
    """
    from regard import pictures
    from regard.commands import predict as predicting
    from regard.commands import show as showing

    if draw is None and others:
        raise typer.BadParameter("--with goes with --draw: expected --draw too")
    if draw is None and positions == bool(text):
        raise typer.BadParameter("expected either a text, or --positions for the position tables")
    with pictures.coloured(colours):
        model = predicting.load(run, [], device)
        if draw is not None:
            print(showing.show_many(model, others or [], draw, text or [], output, answer=answer))
        elif positions:
            print(showing.show_positions(model, output))
        else:
            nodes = node.split(",") if node else ()
            print(showing.show(model, text or [], output, answer=answer, grid=grid, nodes=nodes, cover=cover))
