"""Arguments and options of `regard evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.signatures.options import Columns, Device, Engine, FileFormat, Json, Others, Run, say


def evaluate(
    run: Run,
    data: Annotated[list[str], typer.Argument(metavar="DATA…", help="data with known answers")],
    beam: Annotated[int | None, typer.Option(help="hypotheses kept by the search")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="length penalty: scores are divided by length to this power")] = None,
    stride: Annotated[int | None, typer.Option(help="language models: move the window on by this many tokens")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="ignore case in BLEU and chrF")] = False,
    compounds: Annotated[bool, typer.Option("--compounds", help="also print BLEU with hyphenated compounds split, as published for WMT14 English to German")] = False,
    by_length: Annotated[bool, typer.Option("--by-length", help="also print the first metric by length of the source")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="write the answers to this file, one line per example")] = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", metavar="FOLDER", help="draw the confusion matrix and the pictures most surely labelled wrong")] = None,
    others: Others = None,
    features: Annotated[Path | None, typer.Option("--features", metavar="RUN", help="models that make new things: compare in the features of this classifier")] = None,
    engine: Engine = "torch",
    device: Device = None,
    format: FileFormat = None,
    columns: Columns = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Score a model on data with known answers, with confidence intervals.

    Example: regard evaluate runs/fre fre_test.tsv
    """
    from regard.commands import evaluate as evaluating
    from regard.commands import predict as predicting
    from regard.data.standard_input import spooled
    from regard.exchange import engine as engines

    changes = predicting.changes({"beam": beam, "length_penalty": length_penalty, "stride": stride}, {}, sample=False)
    model = predicting.load(run, others or [], device)
    engines.use(model, engine, changes, say)
    with spooled(data) as (files,):
        evaluating.read_as(model, files, format, columns)
        changes |= evaluating.compared_with(model, features, say)
        asked = {"lowercase": lowercase, "compounds": compounds, "by_length": by_length}
        report = evaluating.evaluate(model, files, changes, **asked, output=output, pictures=pictures)
    print(report.as_json() if as_json else report.render())
