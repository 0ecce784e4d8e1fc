"""Arguments and options of `regard serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Engine, say


def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="run folders, each served as a model by its folder's name; of a folder of runs, the page shows them all")],
    host: Annotated[str, typer.Option(help="address to listen on; only this machine by default")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0: any that is free")] = 8000,
    token_file: Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="file of access tokens, one a line; requests need one of them")] = None,
    engine: Engine = "auto",
    workers: Annotated[int | None, typer.Option(help="worker processes, each with all models; by default one for each core, up to 4")] = None,
    queue: Annotated[int, typer.Option(help="most requests that may wait; more get status 429")] = 1000,
    deadline: Annotated[float, typer.Option(help="seconds after which a request gets status 504")] = 30.0,
    languages: Annotated[str | None, typer.Option(metavar="FROM:TO", help="languages of a translator, such as en:de; those of the training files' suffixes by default")] = None,
) -> None:  # fmt: skip
    """Answer over HTTP: the answers of `regard predict --json`, and protocols that existing clients speak.

    Example: regard serve runs/fre --port 8000
    """
    from regard.commands.serve import serve as serving

    serving(
        runs,
        say,
        host=host,
        port=port,
        token_file=token_file,
        engine=engine,
        workers=workers,
        queue=queue,
        deadline=deadline,
        languages=languages,
    )
