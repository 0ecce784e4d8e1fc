"""Predicting and evaluating from the command line: lines in, lines out; files in, a report out."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from regard import metrics
from regard.data.reading import read_pairs
from regard.errors import UserError
from regard.outputs.convert import Answer, Search
from regard.parallel import World, together
from regard.preparing import by_source
from regard.running import Model

AHEAD = 512  # lines taken together at most
RANGES = {"beam": (1, 1000), "n_best": (1, 1000), "minimum": (0, 10_000), "longest": (1, 10_000)}


@dataclass(frozen=True)
class Shown:
    """What is printed of an answer besides its text."""

    alignment: str | None = None
    with_score: bool = False
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.alignment not in (None, "hard", "soft"):
            raise UserError(f"--alignment is {self.alignment!r}, expected hard or soft.")


def changes(looks: dict[str, Any], draws: dict[str, Any], *, sample: bool) -> dict[str, Any]:
    """The options of the command line as changes to a run's own search; None is an option not given.

    `looks` is how the most probable answers are looked for, `draws` how answers are drawn instead, if `sample`.
    """
    for name, (low, high) in RANGES.items():
        value = looks.get(name)
        if value is not None and not low <= value <= high:
            raise UserError(f"{_option(name)} is {value}, expected {low} to {high:,}.")
    given = {name: value for name, value in (looks | draws).items() if value is not None}
    beam, n_best, minimum, longest = (given.get(name) for name in RANGES)
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


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def standard_input() -> Iterator[list[str]]:
    """Lines as they come: whatever is there is taken together, but nobody waits for more than one line."""
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
        if complete:
            yield [_text(raw, number + i) for i, raw in enumerate(complete, 1)]
            number += len(complete)


def _text(raw: bytes, number: int) -> str:
    try:
        return raw.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input:{number}: byte {error.start + 1} is not UTF-8: convert the input first."
        ) from error


@together()
def predict(model: Model, chunks: Iterator[list[str]], changes: dict[str, Any], shown: Shown, out: TextIO) -> None:
    """The answers to each chunk of lines, written before the next chunk is read."""
    if changes.get("n_best", 1) > 1 and "beam" not in changes:
        changes = changes | {"beam": max(changes["n_best"], model.config.decoding.beam)}
    number, world = 0, World()
    for chunk in _known_to_all(chunks, world):
        texts = [text.strip() for text in chunk]  # as the training data was read
        while texts:
            room = AHEAD - number % AHEAD
            some, texts = texts[:room], texts[room:]
            start, end = world.part(len(some))
            own = some[start:end]
            lines = list(lines_for(model, own, _answers(model, own, number + start, changes), shown))
            for line in (line for lines in world.gathered(lines) for line in lines):
                out.write(line + "\n")
            out.flush()
            number += len(some)


def _known_to_all(chunks: Iterator[list[str]], world: World) -> Iterator[list[str]]:
    """Under `torchrun`, what process 0 reads; every process then answers its part of each chunk."""
    if world.size == 1:
        yield from chunks
        return
    while (chunk := world.said(next(chunks, None) if world.first else None)) is not None:
        yield chunk


def _answers(model: Model, texts: list[str], number: int, changes: dict[str, Any]) -> list[list[Answer]]:
    """The answers to texts of which the first is line `number` of the input.

    A draw depends on the seed and on the text's place among those asked together. Lines come in chunks that depend on
    time, so each is put at its place in a block of AHEAD lines: empty texts before it cost nothing.
    """
    if "seed" not in changes:
        return model.answers(texts, **changes)
    block, place = divmod(number, AHEAD)
    seed = changes["seed"] + 1_000_003 * block
    return model.answers([""] * place + texts, **changes | {"seed": seed})[place:]


def lines_for(model: Model, texts: Sequence[str], answers: list[list[Answer]], shown: Shown) -> Iterator[str]:
    for text, found in zip(texts, answers, strict=True):
        if shown.as_json:
            yield json.dumps(_object(model, text, found, shown), ensure_ascii=False)
            continue
        for answer in found:
            parts = [f"{answer.score:.4f}"] if shown.with_score else []
            parts.append(" ".join(answer.text.split("\n")))
            if shown.alignment == "hard":
                parts.append(pharaoh(aligned(model, text, answer.ids)[0]))
            elif shown.alignment == "soft":
                parts.append(json.dumps(_rounded(aligned(model, text, answer.ids)[0])))
            yield "\t".join(parts)


def _object(model: Model, text: str, found: list[Answer], shown: Shown) -> dict[str, Any]:
    items = []
    for answer in found:
        item: dict[str, Any] = {"text": answer.text, "score": answer.score, "finished": answer.finished}
        if shown.alignment:
            weights, rows, columns = aligned(model, text, answer.ids)
            item |= {"tokens": rows, "source_tokens": columns}
            item["alignment"] = pharaoh(weights) if shown.alignment == "hard" else _rounded(weights)
        items.append(item)
    return {"source": text, "answers": items}


def _rounded(weights: NDArray[np.float32]) -> list[list[float]]:
    return [[round(float(x), 4) for x in row] for row in weights]


def aligned(model: Model, text: str, answer: list[int]) -> tuple[NDArray[np.float32], list[str], list[str]]:
    """Weights (answer units, source units) and the units' names; sub-words are merged into words."""
    task = model.task
    ids = task.source.encode(text)
    if not ids or not answer:
        return np.zeros((0, 0), dtype=np.float32), [], []
    weights = task.alignments([(ids, answer)])[0][:-1]  # the end looks somewhere too, but is no word
    rows, columns = task.target.pieces_of(answer), task.source.pieces(text)
    if task.target.level in ("bpe", "unigram"):
        groups = task.target.groups_of(answer)
        weights, rows = _merged(weights, groups, np.mean), _joined(rows, groups)
    if task.source.level in ("bpe", "unigram"):
        groups = task.source.groups(text)
        weights, columns = _merged(weights.T, groups, np.sum).T, _joined(columns, groups)
    return weights, rows, columns


def _merged(weights: NDArray[np.float32], groups: list[int], how: Any) -> NDArray[np.float32]:
    """Rows of one word made one: the mean over answer tokens, the sum over source tokens: rows still add to 1."""
    return np.stack(
        [how(weights[[i for i, g in enumerate(groups) if g == word]], axis=0) for word in sorted({*groups})]
    )


def _joined(pieces: list[str], groups: list[int]) -> list[str]:
    words: dict[int, str] = {}
    for piece, group in zip(pieces, groups, strict=True):
        words[group] = words.get(group, "") + piece.removeprefix("▁")
    return [words[group] for group in sorted(words)]


def pharaoh(weights: NDArray[np.float32]) -> str:
    """`0-0 1-2`: for each answer unit the source unit it looked at most, source first."""
    return " ".join(f"{int(np.argmax(row))}-{j}" for j, row in enumerate(weights))


@dataclass(frozen=True)
class Report:
    scores: list[metrics.Score]
    buckets: list[metrics.Bucket]

    def render(self) -> str:
        text = metrics.render(self.scores)
        if self.buckets:
            rows = [f"{b.low:>5}–{b.high:<5} {b.items:>7}  {b.score.value:8.2f}" for b in self.buckets]
            text += f"\n\n source      items  {self.buckets[0].score.name}\n" + "\n".join(rows)
        return text

    def as_json(self) -> str:
        buckets = [{"low": b.low, "high": b.high, "items": b.items, "value": b.score.value} for b in self.buckets]
        return json.dumps({"scores": metrics.as_json(self.scores), "by_length": buckets}, ensure_ascii=False, indent=1)


def evaluate(
    model: Model,
    paths: Sequence[str],
    changes: dict[str, Any],
    *,
    lowercase: bool = False,
    by_length: bool = False,
    output: Path | None = None,
) -> Report:
    pairs = by_source(read_pairs([Path(path) for path in paths]))
    if not pairs:
        raise UserError(f"{paths[0]}: there is no pair in it to evaluate on.")
    if output is not None and not output.parent.is_dir():
        raise UserError(f"{output}: cannot be written: there is no folder {output.parent}.")
    how: Search = model.search(**changes)
    scores, answers = model.task.evaluate(pairs, how)
    references = [texts for _, texts in pairs]
    if lowercase and model.task.kind() == "text":
        scores[:2] = [
            metrics.bleu(answers, references, lowercase=True),
            metrics.chrf(answers, references, lowercase=True),
        ]
    if output is not None:
        output.write_text("".join(answer + "\n" for answer in answers), encoding="utf-8")
    buckets: list[metrics.Bucket] = []
    if by_length:
        first = {"text": metrics.bleu, "symbols": metrics.sequence_error_rate, "characters": metrics.exact_match}
        sources = [source for source, _ in pairs]
        length = metrics.count_words if model.task.kind() == "text" else len
        buckets = metrics.by_length(sources, answers, references, first[model.task.kind()], length=length)
    return Report(scores, buckets)
