"""The command line. Results go to standard output, everything else to standard error; 0 ok, 1 failure, 2 usage.

Commands import what they need when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from regard.errors import UserError, shell

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # panels leave the help of an option a third of 80 columns, and show flags as if they took values
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, inspect and use attention models on your own data.",
    epilog="Begin with `regard demo`, then `regard train FILE`. Your shell completes commands after "
    "`regard --install-completion`.",
)

Run = Annotated[Path, typer.Argument(metavar="RUN", help="folder that `regard train` wrote")]
WrongUsage: Any = typer.BadParameter.__mro__[2]  # ClickException, of click or of the click inside newer typers
Others = Annotated[
    list[Path] | None,
    typer.Option("--with", metavar="RUN", help="another run that answers together with this one; may be repeated"),
]
Engine = Annotated[
    str,
    typer.Option(
        metavar="torch|ctranslate2|ctranslate2-int8|auto", help="which program searches; auto: the faster one that can"
    ),
]
Nodes = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME…", help="only these nodes of a graph, with commas between them"),
]
FileFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="of the files, if it is recognised wrongly: text, tsv, csv, jsonl, json, parquet, aligned, conll, conllu, labelled, fasttext, dictionary, folders",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="SOURCE,TARGET",
        help="names or numbers of columns: source=2,target=4, source=question+context,target=answer",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="one JSON object")]
Device = Annotated[
    str | None, typer.Option(metavar="cpu|cuda|cuda:N|mps", help="what computes; a GPU for training if there is one, else the CPU")
]  # fmt: skip
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="say nothing but errors; results are printed")]
COMPLETION = "_REGARD_COMPLETE"  # set by a shell that asks what may follow


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="show the version and leave")] = False,
) -> None:
    if version:
        from regard import __version__

        print(__version__)
        raise typer.Exit


@app.command(short_help="Learn from a file of yours; the same command again resumes.")
def train(
    data: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG | RUN", help="files or a folder of yours (pairs, labels, tags, text …), - for standard input, a config.yaml, or a run folder to resume")],
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="run folder; runs/NAME by default")] = None,
    valid: Annotated[list[str] | None, typer.Option("--valid", metavar="FILE", help="validation data; twice for line-aligned files")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="test data, used once at the end")] = None,
    task: Annotated[str | None, typer.Option("--task", help="what comes out; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    start: Annotated[Path | None, typer.Option("--from", metavar="RUN", help="begin with the vocabulary and the weights of another run")] = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="override settings, such as training.rate=0.002 model.size=tiny")] = None,
    minutes: Annotated[float | None, typer.Option("--minutes", help="time for training, in place of a number of steps")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="steps of training")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="governs weights, order and dropout")] = None,
    skip_faults: Annotated[bool, typer.Option("--skip-faults", help="skip faulty lines and count them, rather than stop")] = False,
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


@app.command(short_help="Answer texts, or lines of standard input.")
def predict(
    run: Run,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]…", help="texts; lines of standard input if there are none")] = None,
    beam: Annotated[int | None, typer.Option(help="hypotheses kept by the search; 1 is greedy")] = None,
    n_best: Annotated[int, typer.Option(help="answers to each text: --n-best lines for each line, empty ones where fewer are found; the order is that of score ÷ length to the power of --length-penalty, which --json calls normalised")] = 1,
    length_penalty: Annotated[float | None, typer.Option(help="score ÷ length to this power")] = None,
    minimum: Annotated[int, typer.Option(help="fewest tokens of an answer")] = 0,
    longest: Annotated[int | None, typer.Option(help="most tokens of an answer")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="draw answers at random")] = False,
    temperature: Annotated[float | None, typer.Option(help="of sampling: below 1 is more certain")] = None,
    top_k: Annotated[int | None, typer.Option(help="sample among the k most probable")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample among the most probable that make up p")] = None,
    seed: Annotated[int | None, typer.Option(help="of sampling; 1 by default")] = None,
    threshold: Annotated[float | None, typer.Option(help="boxes: the probability from which a thing counts as found; 0.5 unless the run says otherwise")] = None,
    choices: Annotated[str | None, typer.Option(metavar="A,B,C", help="language models: answer with the likeliest of these; blanks count; --json ranks all")] = None,
    before: Annotated[str | None, typer.Option(metavar="TEXT|FILE", help="language models: put this before each text, such as examples to follow")] = None,
    alignment: Annotated[str | None, typer.Option(metavar="hard|soft", help="where each output word looked: 0-0 1-2, or JSON weights")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="the vector of each text as a JSON array, with --json those of its words too")] = False,
    with_score: Annotated[bool, typer.Option("--with-score", help="log-probability before each answer")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="answer the sources of a data file, or every line of a text file")] = None,
    skip_faults: Annotated[bool, typer.Option("--skip-faults", help="answer a line that cannot be read with an empty one, and say so, rather than stop")] = False,
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


@app.command(short_help="Score a model on known answers.")
def evaluate(
    run: Run,
    data: Annotated[list[str], typer.Argument(metavar="DATA…", help="data with known answers")],
    beam: Annotated[int | None, typer.Option(help="hypotheses kept by the search")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="score ÷ length to this power")] = None,
    stride: Annotated[int | None, typer.Option(help="language models: predict so many tokens, then move the window on")] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="BLEU and chrF without case")] = False,
    by_length: Annotated[bool, typer.Option("--by-length", help="the first metric by length of the source too")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="write the answers to this file, a line for each example")] = None,
    pictures: Annotated[Path | None, typer.Option("--pictures", metavar="FOLDER", help="draw the confusion matrix and the pictures most surely labelled wrong")] = None,
    others: Others = None,
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
        report = evaluating.evaluate(
            model, files, changes, lowercase=lowercase, by_length=by_length, output=output, pictures=pictures
        )
    print(report.as_json() if as_json else report.render())


@app.command(short_help="Draw where the model looked.")
def show(
    run: Run,
    text: Annotated[list[str] | None, typer.Argument(metavar="[TEXT…]", help="texts to answer and look into")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help=".png or .svg picture, .html page, .npz numbers")] = Path("attention.png"),
    answer: Annotated[str | None, typer.Option("--answer", help="look at this answer rather than the model's own")] = None,
    grid: Annotated[bool, typer.Option("--grid", help="every layer and head in one picture")] = False,
    device: Device = None,
    node: Nodes = None,
    positions: Annotated[bool, typer.Option("--positions", help="the tables of positions in place of a text")] = False,
    colours: Annotated[str, typer.Option("--colours", help="of pictures: regard (dark is large) or lecture (white is large)")] = "regard",
) -> None:  # fmt: skip
    """Draw where the model looked.

    Example: regard show runs/fre bonjour -o bonjour.html
    """
    from regard import pictures
    from regard.commands import predict as predicting
    from regard.commands import show as showing

    if positions == bool(text):
        raise typer.BadParameter("a text, or --positions for the tables of positions: expected one of them")
    with pictures.coloured(colours):
        model = predicting.load(run, [], device)
        if positions:
            print(showing.show_positions(model, output))
        else:
            nodes = node.split(",") if node else ()
            print(showing.show(model, text or [], output, answer=answer, grid=grid, nodes=nodes))


@app.command(short_help="Show what a run is: its data, settings, size and scores.")
def info(run: Run, as_json: Json = False) -> None:
    """Show a run on one screen: what it learned from, its settings, its size, its scores and its state.

    Example: regard info runs/fre
    """
    from regard.commands import info as informing

    facts = informing.info(run)
    print(informing.as_json(facts) if as_json else informing.render(facts))


@app.command(short_help="Find faults in data, settings or a run.")
def check(
    target: Annotated[list[str], typer.Argument(metavar="DATA… | CONFIG | RUN", help="what to check")],
    valid: Annotated[list[str] | None, typer.Option("--valid", metavar="FILE", help="validation data, as for train")] = None,
    test: Annotated[list[str] | None, typer.Option("--test", metavar="FILE", help="test data, none of which may be in the data")] = None,
    task: Annotated[str | None, typer.Option("--task", help="what comes out; recognised from the data")] = None,
    format: FileFormat = None,
    columns: Columns = None,
    set: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE…", help="override settings, as for train")] = None,
    accept: Annotated[bool, typer.Option("--accept", help="take the files of RUN as they are, edited on purpose")] = False,
) -> None:  # fmt: skip
    """Find faults before time is spent: every one as file:line, and what to expect of a training.

    The exit code is 1 where `regard train` with the same options would stop before its first step. Of a run: whether every file is what was written, and whether the model does what every model must.

    Example: regard check words.tsv --test test.tsv
    """
    from regard.commands import check as checking

    report, sound = checking.check(
        target,
        test or [],
        valid=valid or [],
        task=task,
        format=format or "",
        columns=columns or "",
        set=set or [],
        accept=accept,
    )
    print(report)
    if not sound:
        raise typer.Exit(1)


@app.command(short_help="Put models behind an HTTP API.")
def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders that `regard train` wrote; each is a model by its folder's name")],
    host: Annotated[str, typer.Option(help="address to listen on; only this machine by default")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on; 0: any that is free")] = 8000,
    token_file: Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="tokens, one a line; requests need one of them")] = None,
    engine: Engine = "auto",
    workers: Annotated[int, typer.Option(help="processes that answer, each with all models")] = 1,
    queue: Annotated[int, typer.Option(help="most things that wait; more get status 429")] = 1000,
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


@app.command(short_help="Average the last checkpoints of a run.")
def average(
    run: Run,
    last: Annotated[int | None, typer.Option(help="how many of the kept checkpoints; all by default")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="a new run folder for the result")] = None,
) -> None:  # fmt: skip
    """Average the weights of the last checkpoints into a new run folder.

    Example: regard average runs/fre --last 5 -o runs/fre-mean
    """
    from regard.training import averaging

    print(averaging.average(run, last, output or run.with_name(run.name + "-average")))


@app.command("import", short_help="Make a run from a published model.")
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


@app.command(short_help="Write a model for another program.")
def export(
    run: Run,
    to: Annotated[str, typer.Option("--to", metavar="huggingface|ctranslate2", help="the layout that is written")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="a new folder")],
) -> None:
    """Write a model in the layout of another program, read it back and compare.

    Example: regard export runs/text --to huggingface -o text-gpt2
    """
    from regard.exchange import ctranslate2, huggingface
    from regard.runs.model import load

    layouts = {"huggingface": (huggingface.export, "logits"), "ctranslate2": (ctranslate2.export, "log-probabilities")}
    if to not in layouts:
        raise UserError(f"--to is {to!r}, expected {' or '.join(layouts)}.")
    write, what = layouts[to]
    say(f"read back and compared: {what} differ by at most {write(load(run), output):.1e}")
    print(output)


@app.command(short_help="Learn from made-up data: dates, scenes, Morse code or communities.")
def demo(
    job: Annotated[str, typer.Argument(metavar="[dates|scenes|morse|communities]", help="read dates in many languages, describe pictures, read Morse code, or name everybody's community in a network of friends")] = "dates",
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="RUN", help="run folder; runs/demo for dates, else runs/ and the name of the job")] = None,
    minutes: Annotated[float | None, typer.Option(help="time for training; 2 for dates, 4 for scenes and morse, 5 for scenes --task detect, 1 for communities")] = None,
    task: Annotated[str | None, typer.Option(metavar="convert|detect", help="of scenes: describe them, or find the shapes in them")] = None,
    seed: Annotated[int, typer.Option(help="of the data and the training of scenes and morse")] = 1,
) -> None:  # fmt: skip
    """Learn to read dates in many languages, to describe pictures, to read Morse code or to find communities, and draw
    where it looked.

    No data needed. Example: regard demo scenes
    """
    from regard.commands import communities, morse, scenes, shapes
    from regard.commands import demo as dates

    if job not in ("dates", "scenes", "morse", "communities"):
        raise UserError(f"There is no demo {job!r}, expected dates, scenes, morse or communities.")
    if task not in ((None, "convert", "detect") if job == "scenes" else (None,)):
        raise UserError(f"--task {task}: expected convert or detect, of the demo scenes; leave it out.")
    usual = {"dates": 2.0, "scenes": 4.0, "morse": 4.0, "communities": 1.0}[job] if minutes is None else minutes
    if job == "morse":
        morse.demonstrate(output or Path("runs/morse"), usual, seed)
    elif task == "detect":
        shapes.demonstrate(output or Path("runs/shapes"), 5.0 if minutes is None else minutes, seed)
    elif job == "scenes":
        scenes.demonstrate(output or Path("runs/scenes"), usual, seed)
    elif job == "communities":
        communities.demonstrate(output or Path("runs/communities"), usual)
    else:
        dates.demonstrate(output or Path("runs/demo"), usual)


def say(text: str) -> None:
    print(text, file=sys.stderr)


def told(message: Warning | str, *_: object, **__: object) -> None:
    """A warning of Python's as a sentence, without the place in the code that gave it."""
    say(f"regard: {message}")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; a fault of the user's is one sentence, never a traceback (REGARD_DEBUG=1 shows it)."""
    _open_outputs()
    sys.exit(_guarded(sys.argv[1:] if arguments is None else arguments))


def spread(arguments: list[str]) -> list[str]:
    """`--set a.b=1 c.d=2` is `--set a.b=1 --set c.d=2`."""
    found: list[str] = []
    for argument in arguments:
        follows = found[-2:-1] == ["--set"] and re.match(r"[a-z]+\.\w+=", argument)
        found += ["--set", argument] if follows else [argument]
    return found


def _open_outputs() -> None:
    """Write UTF-8, whatever the locale or PYTHONIOENCODING says; where nobody listens, nothing is said."""
    if sys.stderr is None:  # closed: print would write to standard output instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (open as long as the process)
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):  # not a stand-in; escaped: names of files that are not UTF-8
            stream.reconfigure(encoding="utf-8", errors=errors)


def _run(arguments: list[str]) -> int:
    if sys.stdout is None:
        raise UserError("Standard output is closed, where results go: leave it open, or send it to /dev/null.")
    command = typer.main.get_command(app)
    if COMPLETION in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
        command._main_shell_completion({}, "regard", COMPLETION)
    try:  # `app()` would answer a closed pipe itself, with exit code 1
        with warnings.catch_warnings(), command.make_context("regard", spread(arguments)) as context:
            warnings.showwarning = told
            command.invoke(context)
    except typer.Exit as leave:
        return int(leave.exit_code)
    finally:
        sys.stdout.flush()  # here, where a closed pipe or a full disk can still be told
    return 0


@shell()
def _guarded(arguments: list[str]) -> int:
    if os.environ.get("REGARD_DEBUG"):
        return _run(arguments)
    try:
        return _run(arguments)
    except UserError as error:
        say(f"regard: {error}")
        return 1
    except WrongUsage as error:
        error.show(file=sys.stderr)
        return int(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        say("regard: stopped")
        return 130
    except BrokenPipeError:
        _end_output()
        return 0
    except MemoryError:
        say("regard: out of memory: use a smaller model or batch (--set training.budget=…), or a larger machine")
        return 1
    except OSError as error:
        say(f"regard: {error.filename or 'the system'}: {error.strerror or error}")
        if error.filename is None:  # perhaps standard output itself, on a full disk
            _end_output()
        return 1


def _end_output() -> None:
    """Nothing more can be written, not even what Python would still try at exit."""
    with suppress(OSError, ValueError):  # a stand-in for standard output has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
