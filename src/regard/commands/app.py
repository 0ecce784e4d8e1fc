"""The command line. Results go to standard output, everything else to standard error; 0 ok, 1 failure, 2 usage.

A command is a function in `signatures` and a line of COMMANDS. It imports what it needs when it runs, so that `--help`
answers at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer

from regard.commands.signatures import (
    average,
    check,
    compare,
    demo,
    evaluate,
    export,
    info,
    plan,
    predict,
    serve,
    show,
    take_up,
    train,
)
from regard.commands.signatures.options import say
from regard.errors import UserError, shell

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # panels leave the help of an option a third of 80 columns and show flags with values
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, inspect and use attention models on your own data.",
    epilog="Begin with `regard demo`, then `regard train FILE`. Your shell completes commands after "
    "`regard --install-completion`.",
)

WrongUsage: Any = typer.BadParameter.__mro__[2]  # ClickException, of click or of the click inside newer typers
COMPLETION = "_REGARD_COMPLETE"  # set by a shell that asks what may follow


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="show the version and exit")] = False,
) -> None:
    if version:
        from regard import __version__

        print(__version__)
        raise typer.Exit


COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "train": (train.train, "Train a model on your data, or resume a training."),
    "predict": (predict.predict, "Answer texts, or lines of standard input."),
    "evaluate": (evaluate.evaluate, "Score a model on known answers."),
    "show": (show.show, "Draw where the model looked."),
    "info": (info.info, "Show what a run is: its data, settings, size and scores."),
    "check": (check.check, "Find faults in data, settings or a run."),
    "plan": (plan.plan, "Show what a training will cost."),
    "compare": (compare.compare, "Compare variants under equal budgets, with several seeds."),
    "serve": (serve.serve, "Serve models over HTTP."),
    "average": (average.average, "Average the last checkpoints of a run."),
    "import": (take_up.take_up, "Import a published model."),
    "export": (export.export, "Export a model for another program."),
    "demo": (demo.demo, "Train on generated data: dates, scenes, Morse code or communities."),
}  # in the order of the help
for name, (command, short_help) in COMMANDS.items():
    app.command(name, short_help=short_help)(command)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Show a warning of Python's as a sentence, without the place in the code that gave it."""
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
            warnings.showwarning = show_warning
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
        say(f"regard: {error.filename or 'standard output or another stream'}: {error.strerror or error}")
        if error.filename is None:  # perhaps standard output itself, on a full disk
            _end_output()
        return 1


def _end_output() -> None:
    """Nothing more can be written, not even what Python would still try at exit."""
    with suppress(OSError, ValueError):  # a stand-in for standard output has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
