"""Arguments and options of `regard import`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import say


def take_up(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a BERT, GPT-2, Marian or ViT model: config.json, model.safetensors, tokenizer.json")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="run folder; runs/NAME by default")] = None,
) -> None:  # fmt: skip
    """Make a run from a published model in the Hugging Face layout: to use it, or to train it further.

    Example: regard import bert-base-uncased -o runs/bert, then regard train reviews.tsv --from runs/bert
    """
    from regard.exchange import huggingface
    from regard.runs.folder import quoted

    model = huggingface.take_up(folder, output or Path("runs") / folder.resolve().name)
    say(f"a model that {model.task.does}; train it further: regard train DATA --from {quoted(model.folder)}")
    print(model.folder)
