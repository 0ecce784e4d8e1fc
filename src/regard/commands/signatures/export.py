"""Arguments and options of `regard export`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Run, say
from regard.errors import UserError


def export(
    run: Run,
    to: Annotated[str, typer.Option("--to", metavar="huggingface|ctranslate2|onnx", help="format to write")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="a new folder")],
) -> None:
    """Write a model in the layout of another program, read it back and compare.

    Example: regard export runs/text --to huggingface -o text-gpt2
    """
    from regard.exchange import ctranslate2, huggingface, onnx
    from regard.runs.model import Model, load

    layouts: dict[str, tuple[Callable[[Model, Path], float], str]] = {
        "huggingface": (huggingface.export, "logits"),
        "ctranslate2": (ctranslate2.export, "log-probabilities"),
        "onnx": (partial(onnx.export, say=say), "scores"),
    }
    if to not in layouts:
        raise UserError(f"--to is {to!r}, expected one of {', '.join(layouts)}.")
    write, what = layouts[to]
    say(f"read back and compared: {what} differ by at most {write(load(run), output):.1e}")
    print(output)
