"""The measures of one finished run: quality with its resamples, checks, speed, memory, and its learning curve."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard import metrics
from regard.comparison import sizes
from regard.config import Config
from regard.costs import memory
from regard.errors import UserError
from regard.metrics.scores import label_of
from regard.outputs.abilities import Guesses, Stretches
from regard.outputs.output import Held
from regard.runs import checkpoint
from regard.runs.build import weightless
from regard.runs.model import Model
from regard.training.split import Split, held_out, survey

ASKED = 8  # answers that are timed one by one
WRITTEN = 64  # tokens that a language model is timed on


def measured(model: Model, lengths: Sequence[int], *, guess: bool) -> dict[str, Any]:
    """Return all that a table says about one run.

    `lengths` are those of items that quality is split by; `guess`: the baseline that looks at no source is scored too.
    """
    peak = memory.peak()  # of the training: before anything else is measured
    task, held = model.task, _held(model)
    near = held if not lengths or isinstance(task.output, Stretches) else _between(model, held, 0, lengths[0])
    began = time.perf_counter()
    _, answers = task.evaluate(near, samples=0)
    seconds = time.perf_counter() - began
    scores = task.score(near.items, answers, metrics.SAMPLES) or task.evaluate(near)[0]
    first = scores[0] if scores else None
    found: dict[str, Any] = {
        "on": "test" if model.config.data.test else "validation",
        "scores": metrics.as_json(scores),
        "label": first and label_of(first),
        **_quality(first),
        "lengths": {str(length): score for length, score in _by_length(model, held, lengths)},
        "simple": _guessed(model, near) if guess else None,
        "checks": _checks(model),
        "parameters": sum(parameter.numel() for parameter in model.network.parameters()),
        "peak_memory": peak,
        "answers_per_second": len(near.items) / seconds,
        "seconds_per_answer": _each(model, near),
    }
    return found | _training(model)


def refuse_missing_lengths(config: Config, lengths: Sequence[int]) -> None:
    """Refuse lengths that nothing to evaluate on has: better now than after the first training."""
    model = Model(Path(), config, weightless(config, sizes.parts_of(config)))
    if not isinstance(model.task.output, Stretches):
        held = _held(model)
        for before, length in pairwise((0, *lengths)):
            _between(model, held, before, length)


def _held(model: Model) -> Held:
    """Return what quality is measured on: the test data where there is some, else what was held out."""
    if model.config.data.test:
        return model.held(model.config.data.test)
    return model.task.held_items(held_out(model.config, model.task.output))


def _quality(score: metrics.Score | None) -> dict[str, Any]:
    """Return the first score with its resamples, if it has any."""
    draws = () if score is None or score.draws is None else score.draws
    return {"quality": score and score.value, "draws": [float(f"{draw:.6g}") for draw in draws]}


def _training(model: Model) -> dict[str, Any]:
    """Return what a run's own log says of its training."""
    facts = checkpoint.newest_facts(model.folder) or {}
    lines = (model.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    history = [json.loads(line) for line in lines]
    timed = [entry["step_seconds"] for entry in history if "step_seconds" in entry]
    return {
        "history": history,
        "steps": int(facts.get("step", history[-1]["step"])),
        "planned_steps": facts.get("steps"),
        "minutes": float(facts.get("seconds", 0.0)) / 60,
        "epoch": int(facts.get("epoch", 0)),
        "step_seconds": median(timed) if timed else None,
        "tokens_per_second": median(entry["tokens_per_second"] for entry in history),
    }


def _checks(model: Model) -> list[list[Any]]:
    return [[name, difference] for name, difference in model.invariances()]


def _each(model: Model, held: Held) -> float | None:
    """Return the seconds of one answer, asked alone, on one core: the median of a few."""
    task, threads = model.task, torch.get_num_threads()
    changes: dict[str, Any] = {"longest": WRITTEN} if task.output.draws and "longest" in task.output.options else {}
    sources = [task.trial(item.example.source) for item in held.items[: ASKED + 1]]
    torch.set_num_threads(1)
    try:
        times = [_timed(partial(task.answers, [source], **changes)) for source in sources]
    except UserError:  # what cannot be answered alone, such as a text that is too long
        return None
    finally:
        torch.set_num_threads(threads)
    return median(times[1:] or times)  # the first one pays for what is made once


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# ---- by length -------------------------------------------------------------------------------------------------------


def _by_length(model: Model, held: Held, lengths: Sequence[int]) -> Iterator[tuple[int, float | None]]:
    """Yield the quality on items up to each length (but longer than the one before); None where the network cannot
    read them, as with a table of positions that ends."""
    task, output = model.task, model.task.output
    reads = task.most
    before = 0
    for length in lengths:
        some = held if isinstance(output, Stretches) else _between(model, held, before, length)
        changes: dict[str, Any] = {}
        if isinstance(output, Stretches):
            task.output = output.stretched(length)
        else:
            task.most = max(reads, 2 * length) if task.network.longest is None else reads
            changes = {"longest": 4 * length} if "longest" in output.options else {}
        try:
            yield length, task.evaluate(some, samples=0, **changes)[0][0].value
        except ValueError:  # a learned table of positions ends
            yield length, None
        finally:
            task.output, task.most, before = output, reads, length


def _between(model: Model, held: Held, shortest: int, longest: int) -> Held:
    """Return the items whose source has more than `shortest` elements and at most `longest`."""
    sizes = [model.task.passes.length(row) for row in held.rows]
    chosen = [i for i, size in enumerate(sizes) if shortest < size <= longest]
    if not chosen:
        raise UserError(
            f"--lengths: no item of {shortest + 1} to {longest} elements to evaluate on, the longest has {max(sizes)}: "
            "give longer ones with --test."
        )
    return Held([held.items[i] for i in chosen], [held.rows[i] for i in chosen])


# ---- what knows no source --------------------------------------------------------------------------------------------


def _guessed(model: Model, held: Held) -> dict[str, Any] | None:
    """Return the baseline that looks at no source, where the output has one."""
    output = model.task.output
    if not isinstance(output, Guesses):
        return None
    config = model.config
    seen = survey(config, (lambda _: None) if config.data.faults == "skip" else None)
    examples = Split(config, seen).learning().examples
    name, scores = output.guessed(model.task.passes, examples, held, metrics.SAMPLES)
    return {"name": name, **_quality(scores[0])}
