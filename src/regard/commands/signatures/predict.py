"""Arguments and options of `regard predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.commands.signatures.options import Device, Engine, Nodes, Others, Run, say
from regard.errors import UserError


def predict(
    run: Run,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]…", help="texts to answer; without any, lines of standard input")] = None,
    beam: Annotated[int | None, typer.Option(help="hypotheses kept by the search; 1 is greedy")] = None,
    n_best: Annotated[int, typer.Option(help="number of answers to each text, best first; always so many lines, empty where fewer are found")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="length penalty: scores are divided by length to this power")] = None,
    minimum: Annotated[int, typer.Option(help="minimum number of tokens in an answer")] = 0,
    longest: Annotated[int | None, typer.Option(help="maximum number of tokens in an answer")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="sample answers at random")] = False,
    temperature: Annotated[float | None, typer.Option(help="sampling temperature; below 1 is more certain")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample among the k most probable tokens")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample among the most probable tokens that sum to p")] = None,
    seed: Annotated[int | None, typer.Option(help="random seed of sampling; 1 by default")] = None,
    threshold: Annotated[float | None, typer.Option(help="boxes: the least probability of what is found; 0.5 unless the run says otherwise")] = None,
    choices: Annotated[str | None, typer.Option(metavar="A,B,C", help="language models: answer with the likeliest of these; blanks count; --json ranks all")] = None,
    before: Annotated[str | None, typer.Option(metavar="TEXT|FILE", help="language models: put this before each text, such as examples to follow")] = None,
    alignment: Annotated[str | None, typer.Option(metavar="hard|soft", help="print where each output word looked: 0-0 1-2, or JSON weights")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="print the vector of each text as a JSON array; with --json also those of its words")] = False,
    with_score: Annotated[bool, typer.Option("--with-score", help="print the log-probability before each answer")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="answer the sources of a data file, or every line of a text file")] = None,
    n: Annotated[int | None, typer.Option("--n", metavar="N", help="models that make new things: so many of them")] = None,
    near: Annotated[str | None, typer.Option("--near", metavar="THING", help="new things near this one, by --noise")] = None,
    noise: Annotated[float, typer.Option("--noise", help="deviation of the noise that is added to the code of --near")] = 0.5,
    between: Annotated[tuple[str, str] | None, typer.Option("--between", metavar="A B", help="new things on the way from A to B")] = None,
    label: Annotated[str | None, typer.Option("--label", help="new things of this class")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="write new things to this file: .png, .npz, or .txt")] = None,
    skip_faults: Annotated[bool, typer.Option("--skip-faults", help="give an unreadable line an empty answer and a note instead of stopping")] = False,
    node: Nodes = None,
    others: Others = None,
    engine: Engine = "torch",
    device: Device = None,
) -> None:  # fmt: skip
    """Answer texts: one line out for each line in, as soon as it is ready.

    Example: echo bonjour | regard predict runs/fre --with-score
    """
    from regard.commands import predict as predicting
    from regard.exchange import engine as engines

    if n is not None or near is not None or between is not None:
        from regard.commands import inventing

        inventing.refuse_texts(text, file)
        wish = inventing.Wish(n, near, noise, between, label, 1 if seed is None else seed)
        inventing.invent(predicting.load(run, others or [], device), wish, output, sys.stdout, as_json=as_json)
        return
    if output is not None or label is not None:
        raise UserError("-o and --label go with --n, --near or --between, which make new things: give one of them.")
    draws = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    looks: dict[str, Any] = {
        "beam": beam,
        "n_best": n_best,
        "length_penalty": length_penalty,
        "minimum": minimum,
        "longest": longest,
    }
    looks |= {
        "alignment": alignment,
        "embeddings": embeddings,
        "choices": choices,
        "threshold": threshold,
        "before": predicting.text_of(before),
    }
    if text and file is not None:
        raise UserError(f"--file {file}: leave it out, or the texts.")
    model = predicting.load(run, others or [], device)
    changes = predicting.changes(looks, draws, sample=sample or model.task.output.draws)
    engines.use(model, engine, changes, say)
    plain = not (with_score or as_json) and model.task.input.naming is None
    if plain and choices is None and text and len(text) == 1 and predicting.stream(model, text[0], changes, sys.stdout):
        return
    lines, origin = predicting.texts(model, text or [], file, say, skip_faults=skip_faults)
    told_of = say if skip_faults else None
    nodes, how = node.split(",") if node else (), {"with_score": with_score, "as_json": as_json}
    predicting.predict(model, lines, changes, sys.stdout, origin, **how, say=told_of, nodes=nodes)
