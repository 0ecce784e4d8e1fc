"""`regard predict`: lines in, lines out."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any, TextIO

from regard import inputs
from regard.data.lines import decode_line, read_lines
from regard.errors import UserError
from regard.inputs.input import readable
from regard.outputs.convert.output import PLACES
from regard.runs import model as runs
from regard.runs.build import form_of
from regard.runs.folder import quoted
from regard.runs.model import Model
from regard.training import device as devices
from regard.training.allocator import keep_memory
from regard.training.distributed import World, together

INPUT = "standard input"  # as complaints name it
NAME = 256  # characters of a text that may be the name of a file
FILE_NAME = re.compile(r"\S+\.(txt|tsv|csv|jsonl|md)")  # no text that somebody would put before others
AHEAD = PLACES  # lines taken together at most
UNCHANGED = {"n_best": 1, "minimum": 0, "embeddings": False}  # what these options are unless somebody gives them
RANGES = {
    "beam": (1, 1000),
    "n_best": (1, 1000),
    "minimum": (0, 10_000),
    "longest": (1, 10_000),
    "seed": (0, 10**12),
    "threshold": (0, 1),
}
RANKED = ("beam", "length_penalty")  # what a draw does without
LINES = ("text", "labelled", "dictionary", "aligned")  # forms of files whose lines may as well be sources alone
Chunks = Iterator[list[str]]


def load(run: Path, others: Sequence[Path], device: str | None = None) -> Model:
    """Load the model that answers, alone or together with other runs, on the device of this name."""
    keep_memory()
    place = devices.named(device)
    model, *more = [runs.load(each) for each in (run, *others)]
    for each in (model, *more) if place is not None else ():
        each.network.to(place)
    if more:
        model.task.join([other.task for other in more], [str(other) for other in others])
    return model


def changes(looks: dict[str, Any], draws: dict[str, Any], *, sample: bool) -> dict[str, Any]:
    """Return the options of the command line as changes to a run's own search; None is an option not given.

    `looks` is how the most probable answers are looked for, `draws` how answers are drawn instead, if `sample`.
    """
    for name, (low, high) in RANGES.items():
        value = (looks | draws).get(name)
        if value is not None and not low <= value <= high:
            raise UserError(f"{_option(name)} is {value}, expected {low} to {high:,}.")
    given = {name: value for name, value in (looks | draws).items() if value not in (None, UNCHANGED.get(name))}
    beam, n_best, minimum, longest = (given.get(name) for name in ("beam", "n_best", "minimum", "longest"))
    if n_best and beam and n_best > beam:
        raise UserError(f"--n-best is {n_best} and --beam {beam}: a beam finds at most as many answers as its size.")
    if minimum and longest and minimum > longest:
        raise UserError(f"--minimum is {minimum} and --longest {longest}: the longest must not be below the minimum.")
    unused = [_option(name) for name in draws if name in given]
    if unused and not sample:
        raise UserError(f"{unused[0]} changes how answers are drawn: give --sample too, or leave it out.")
    if sample and n_best and n_best > 1:
        raise UserError(f"--n-best is {n_best}, but --sample draws one answer: draw again with another --seed.")
    return {"seed": 1, **given} if sample else given


def text_of(given: str | None) -> str | None:
    """Return a text that is given as such, or as the name of a file; a word that ends as one has to be there."""
    try:
        path = None if given is None or len(given) > 255 else Path(given)
        if path is not None and (path.is_file() or FILE_NAME.fullmatch(str(given))):
            return path.read_text(encoding="utf-8")
        return given
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{given}: cannot be read as UTF-8 text ({why}): give a text file that is there.") from error


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def texts(
    model: Model, given: Sequence[str], file: Path | None, say: Callable[[str], None], *, skip_faults: bool = False
) -> tuple[Chunks, str]:
    """Return the texts to answer, in chunks, and the name by which lines are counted: those given, those of a file, or
    the lines of standard input."""
    if given:
        for name in given:
            if len(name) < NAME and Path(name).is_file() and isinstance(model.task.input.read(name), str):
                say(f"{name} is answered as a text; --file {quoted(name)} answers what the file holds")
        return iter([list(given)]), ""
    if file is None:
        return standard_input(skip_faults=skip_faults), INPUT
    try:
        form = form_of(model.config, [file])
    except UserError:
        if not file.is_file():
            raise
        form = None  # it may hold sources alone
    if form is None or form.kind in LINES:
        say(f"{file}: every line is answered")
        return _in_chunks(_lines(file, model.config.data.encoding, skip_faults=skip_faults)), str(file)
    say(f"{file}: the sources are answered ({form.description})")
    examples = inputs.read([file], form, (lambda _: None) if skip_faults else None, model.config.data.encoding)
    return _in_chunks(model.task.input.text(example.source) for example in examples), str(file)


def _lines(file: Path, encoding: str, *, skip_faults: bool) -> Iterator[str]:
    for number, raw in read_lines(file):
        if skip_faults:
            yield raw.decode(encoding, "surrogateescape")
        else:
            yield decode_line(str(file), number, raw, encoding=encoding) or ""


def _in_chunks(lines: Iterator[str]) -> Chunks:
    while chunk := list(islice(lines, AHEAD)):
        yield chunk


def standard_input(*, skip_faults: bool = False) -> Chunks:
    """Yield lines as they come: whatever is there is taken together, but nobody waits for more than one line.

    A line that is not UTF-8 is a fault; if faults are skipped, it is passed on with its bytes escaped.
    """
    if sys.stdin is None:
        raise UserError("Standard input is closed and no text was given: name a text, or pipe lines in.")
    if sys.stdin.isatty():
        print("type a line and press Enter; end with Ctrl-D", file=sys.stderr)
    handle, number, waiting, ended = sys.stdin.fileno(), 0, b"", False
    while not ended:
        complete: list[bytes] = []
        while len(complete) < AHEAD and not ended and (not complete or select.select([handle], [], [], 0)[0]):
            block = os.read(handle, 1 << 16)
            ended = not block
            *more, waiting = (waiting + block).split(b"\n")
            complete += more
        if ended and waiting:
            complete.append(waiting)
        if complete and not number:
            complete[0] = complete[0].removeprefix(BOM_UTF8)  # as those of files
        texts, fault = _decoded(complete, "surrogateescape" if skip_faults else "strict")
        if texts:
            yield texts
        number += len(texts)
        if fault:
            raise UserError(f"{INPUT}:{number + 1}: {fault}")


def _decoded(lines: list[bytes], errors: str) -> tuple[list[str], str]:
    """Return the lines before the first that is not UTF-8, and what is wrong with that one."""
    texts: list[str] = []
    for raw in lines:
        try:
            texts.append(raw.decode("utf-8", errors).rstrip("\r"))
        except UnicodeDecodeError as error:
            return texts, f"byte {error.start + 1} is not UTF-8: convert the input first."
    return texts, ""


@together()
def predict(
    model: Model,
    chunks: Chunks,
    changes: dict[str, Any],
    out: TextIO,
    origin: str = "",
    *,
    with_score: bool = False,
    as_json: bool = False,
    say: Callable[[str], None] | None = None,
    nodes: Sequence[str] = (),
) -> None:
    """Write the answers to each chunk of lines before the next chunk is read; `origin` is where lines are counted.

    A line that cannot be answered ends it, after the answers of those before it. If there is somebody to `say` so to,
    its answer is empty instead.
    """
    refuse_unknown(model, changes)
    number, world = 0, World()
    for named in _known_to_all(chunks, world):
        chunk = [text for line in named for text in listed(model, line, nodes)]
        given, fault = (chunk, "") if say else _before_fault(model, chunk, changes)
        while given:
            room = AHEAD - number % AHEAD
            some, given = given[:room], given[room:]
            start, end = world.part(len(some))
            own, first = some[start:end], number + start
            faults = [_fault(model, text, changes) for text in own] if say else [""] * len(own)
            lines = list(_answered(model, own, faults, first, changes, with_score=with_score, as_json=as_json))
            for line in (line for lines in world.gather(lines) for line in lines):
                out.write(line + "\n")
            out.flush()
            for place, why in enumerate(faults, first + 1):
                if why and say:
                    say(f"regard: {origin or 'text'}:{place}: {why} Its answer is empty (--skip-faults).")
            number += len(some)
        if fault:
            raise UserError(f"{origin}:{number + 1}: {fault}" if origin else fault)


def _answered(
    model: Model,
    texts: list[str],
    faults: list[str],
    first: int,
    changes: dict[str, Any],
    *,
    with_score: bool,
    as_json: bool,
) -> Iterator[str]:
    """Yield the lines that answer some texts; those of texts with a fault are empty."""
    for faulty, group in groupby(range(len(texts)), key=lambda place: bool(faults[place])):
        places = list(group)
        if not faulty:
            sources = [model.task.input.read(texts[place]) for place in places]
            yield from model.task.lines(sources, first + places[0], changes, with_score=with_score, as_json=as_json)
            continue
        for place in places:
            item = {"source": readable(texts[place]), "fault": faults[place]}
            yield from [json.dumps(item, ensure_ascii=False)] if as_json else [""] * changes.get("n_best", 1)


def _before_fault(model: Model, texts: list[str], changes: dict[str, Any]) -> tuple[list[str], str]:
    """Return the texts before the first that cannot be answered, and what is wrong with that one."""
    for place, text in enumerate(texts):
        if fault := _fault(model, text, changes, strict=False):
            return texts[:place], fault
    return texts, ""


def _fault(model: Model, text: str, changes: dict[str, Any], *, strict: bool = True) -> str:
    """Return what is wrong with a text that cannot be answered; if `strict`, bytes that are not UTF-8 are a fault."""
    if strict and readable(text) != text:
        return "it is not UTF-8."
    try:
        model.task.refuse(model.task.input.read(text), changes)
    except UserError as error:
        return str(error)
    return ""


def listed(model: Model, line: str, units: Sequence[str] = ()) -> list[str]:
    """Return a text for each thing that a line names: a file may hold several; `units` are those asked for."""
    input = model.task.input
    if input.naming is None:
        if units:
            raise UserError(f"--node chooses nodes of a graph, and this model reads {input.noun}: leave it out.")
        return [line]
    found = input.naming.things(line)
    return [input.naming.units(text, units) for text in found] if units else found


def stream(model: Model, text: str, changes: dict[str, Any], out: TextIO) -> bool:
    """Write the answer to one text while it is made; False, and nothing is written, if it can only come whole."""
    if World().size > 1:
        return False
    refuse_unknown(model, changes)

    def write(piece: str) -> None:
        out.write(piece)
        out.flush()

    streamed = model.task.stream(model.task.input.read(text), changes, write)
    if streamed:
        write("\n")
    return streamed


def refuse_unknown(model: Model, changes: dict[str, Any]) -> None:
    """Refuse options that mean nothing to a task rather than pass them over."""
    output = model.task.output
    for name in changes:
        if name not in output.options | output.measures:
            raise UserError(f"{_option(name)}: a model that {model.task.does} has no such option; leave it out.")
    ranks = [_option(name) for name in RANKED if name in changes]
    if ranks and "seed" in changes:
        raise UserError(f"{ranks[0]} changes how the best answers are looked for, but these are drawn: leave it out.")


def _known_to_all(chunks: Chunks, world: World) -> Chunks:
    """Yield, under `torchrun`, what process 0 reads; every process then answers its part of each chunk."""
    if world.size == 1:
        yield from chunks
        return
    while (chunk := world.broadcast(next(chunks, None) if world.first else None)) is not None:
        yield chunk
