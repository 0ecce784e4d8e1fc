"""`regard predict --engine`: another program in torch's place, for searching answers.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) runs converted Transformers several times as fast. The conversion
is kept in the run folder under `ctranslate2/`, behind SHA-256 sums, and is made anew when the run's files have changed:
that program may crash on a damaged file, so it is given nothing but what was written here.

Its search is not ours in four points. Tokens that may not come now are left out before the softmax, not after it: the
others share their probability while the search compares hypotheses (scores that are shown are computed without that). A
beam is filled up again when a hypothesis has ended. It ends when as many hypotheses as the beam holds have ended, where
ours ends when no other could win. And of hypotheses that were all cut at the maximum it gives the best one without the
price of an end. A greedy answer is the same, the best of a beam nearly always.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard import sums
from regard.data.store import Store
from regard.errors import UserError
from regard.exchange import ctranslate2
from regard.inputs.tokens import END, PAD, START
from regard.outputs.convert import Answer, Convert, Search
from regard.outputs.task import Item
from regard.preparing import Split
from regard.running import Model, loaded

ENGINES = ("torch", "ctranslate2", "ctranslate2-int8", "auto")
FOLDER, ORIGIN, LOSS = "ctranslate2", "origin.json", "int8.json"  # in a run folder; in that folder
HYPOTHESES, ROWS = 160, 64  # that a worker searches together at most
COMPARED = 300  # answers in int8 that are compared with those in float32
Say = Callable[[str], None]


def use(model: Model, engine: str, changes: dict[str, Any], say: Say) -> None:
    """Let a model answer by this engine; `auto` is CTranslate2 where it can do what is asked, and torch elsewhere."""
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}, expected one of {', '.join(ENGINES)}.")
    if engine == "torch":
        return
    try:
        if isinstance(model.task, Convert) and model.task.others:
            raise UserError("CTranslate2 knows one model: leave --with out, or use --engine torch.")
        task = ctranslate2.refuse(model)
        ctranslate2.library()
        if "seed" in changes:
            raise UserError("--sample draws by torch's random numbers: leave it out, or use --engine torch.")
        task.engine = _prepared(model, task, say, int8=engine.endswith("int8"))
    except UserError as error:
        if engine != "auto":
            raise
        say(f"engine torch: {error}")


# ---- answers -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A hypothesis; `ended` by the model's own will."""

    ids: list[int]
    ended: bool
    weights: NDArray[np.float32] | None


class CTranslate2:
    """A converted model as the engine of its task: rows of ids to answers. `positions` is how many it has.

    Workers of one thread each search side by side: that is faster than one search by several threads, which wait for
    each other. What the converted model cannot do, a row beyond its positions, is searched by torch.
    """

    def __init__(self, task: Convert, folder: Path, positions: int, *, int8: bool = False, workers: int = 0) -> None:
        self.task, self.positions = task, positions
        self.workers = workers or torch.get_num_threads()
        self.translator = ctranslate2.translator(folder, "int8" if int8 else "float32", self.workers)
        self.source, self.target = ctranslate2.names(task.source), ctranslate2.names(task.target)
        self.ids = {name: id for id, name in enumerate(self.target)}

    def __call__(self, rows: list[list[int]], how: Search, numbers: list[int]) -> list[list[Answer]]:
        maxima = how.limits([len(row) for row in rows]).maxima(len(rows))
        able = self._able(how)
        mine = [i for i, row in enumerate(rows) if able and max(len(row), maxima[i]) + 1 <= self.positions]
        others = sorted({*range(len(rows))} - {*mine})
        answers: list[list[Answer]] = [[] for _ in rows]
        for chosen, find in ((mine, self._answers), (others, self.task.by_torch)):
            if chosen:
                found = find([rows[i] for i in chosen], how, [numbers[i] for i in chosen])
                for i, row in zip(chosen, found, strict=True):
                    answers[i] = row
        return answers

    def _able(self, how: Search) -> bool:
        """Whether this is a search for CTranslate2: not a draw, nor a beam that the vocabulary cannot fill, nor one
        that is to be refused."""
        room = self.task.target.size - 3  # all tokens but padding, start and perhaps the end
        sound = how.n_best <= how.beam and 0 <= how.length_penalty <= 10
        return sound and how.seed is None and 2 * how.beam <= room

    def _answers(self, rows: list[list[int]], how: Search, numbers: list[int]) -> list[list[Answer]]:  # noqa: ARG002
        maxima = how.limits([len(row) for row in rows]).maxima(len(rows))
        power = how.length_penalty if how.beam > 1 else 1.0
        answers: list[list[Answer]] = [[] for _ in rows]
        unscored: dict[int, list[_Found]] = {}
        for i, found in self._searched(rows, maxima, how):  # texts are put together while the workers go on
            if how.scored or _disordered(found, how):
                unscored[i] = found if _disordered(found, how) else found[: how.n_best]
            else:
                answers[i] = [self._answer(one, math.nan, power) for one in found[: how.n_best]]
        totals = iter(self.scores([(rows[i], one.ids) for i, found in unscored.items() for one in found]))
        for i, found in unscored.items():
            given = [self._answer(one, next(totals), power) for one in found]
            if _disordered(found, how):
                given.sort(key=lambda answer: (-answer.normalised, answer.ids))
            answers[i] = given[: how.n_best]
        return answers

    def _answer(self, one: _Found, score: float, power: float) -> Answer:
        text = self.task.target.decode(one.ids)
        return Answer(text, score, score / (len(one.ids) + 1) ** power, one.ended, one.ids, one.weights)

    def scores(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
        """The log-probability of each target, with its end, after its source."""
        sources = [[self.source[id] for id in source] for source, _ in pairs]
        targets = [[self.target[id] for id in target] for _, target in pairs]
        found = self.translator.score_batch(sources, targets, max_batch_size=ROWS, max_input_length=0)
        return [math.fsum(each.log_probs) for each in found]

    def _searched(self, rows: list[list[int]], maxima: list[int], how: Search) -> Iterator[tuple[int, list[_Found]]]:
        """The hypotheses of each row, as they are found. Rows of like lengths are searched together, as far as the
        longest of them may go. A beam that went on to where its own row may not is searched again: an answer does not
        depend on the rows beside it."""
        size = min(ROWS, max(1, HYPOTHESES // how.beam), math.ceil(len(rows) / self.workers))
        order = sorted(range(len(rows)), key=lambda i: (-maxima[i], -len(rows[i]), i))
        again = []
        for i, limit, result in self._run(rows, _cut(order, size), maxima, how):
            if how.beam > 1 and maxima[i] < limit and any(len(names) > maxima[i] for names in result.hypotheses):
                again.append(i)
            else:
                yield i, self._hypotheses(result, maxima[i])
        alike = [part for _, same in groupby(again, key=maxima.__getitem__) for part in _cut([*same], size)]
        for i, _, result in self._run(rows, alike, maxima, how):
            yield i, self._hypotheses(result, maxima[i])

    def _run(
        self, rows: list[list[int]], batches: list[list[int]], maxima: list[int], how: Search
    ) -> Iterator[tuple[int, int, Any]]:
        """For each row how far its batch may go, and CTranslate2's result. One token more than may be written is asked
        for: it tells whether the answer ends there. Not where all are to be cut there and nobody asks."""
        never = [[self.target[PAD]], [self.target[START]]]
        waiting = []
        for batch in batches:
            limit = max(maxima[i] for i in batch)
            results = self.translator.translate_batch(
                [[self.source[id] for id in rows[i]] for i in batch],
                asynchronous=True, beam_size=how.beam, num_hypotheses=how.beam, length_penalty=how.length_penalty,
                max_decoding_length=limit + (how.scored or how.minimum < limit), min_decoding_length=how.minimum,
                max_input_length=0, suppress_sequences=never, return_end_token=True, return_attention=how.looked,
            )  # fmt: skip
            waiting += [(i, limit, result) for i, result in zip(batch, results, strict=True)]
        for i, limit, result in waiting:
            yield i, limit, result.result()

    def _hypotheses(self, result: Any, maximum: int) -> list[_Found]:
        """Different hypotheses of at most `maximum` tokens, best first."""
        found: dict[tuple[int, ...], _Found] = {}
        looked = result.attention or [None] * len(result.hypotheses)
        for names, attention in zip(result.hypotheses, looked, strict=True):
            ids = [self.ids[name] for name in names[: maximum + 1]]
            ended = ids[-1] == END
            ids = ids[:-1] if ended else ids[:maximum]
            if (before := found.get(tuple(ids))) is None or (ended and not before.ended):
                weights = None if attention is None else np.array(attention[: len(ids)], dtype=np.float32)
                found[tuple(ids)] = _Found(ids, ended, weights)
        return list(found.values())


def _disordered(found: list[_Found], how: Search) -> bool:
    """Whether CTranslate2's order has to be made anew: an end that was forced has its price too, and only with it are
    hypotheses that ended and such that were cut comparable, or all that were cut in an order to be shown."""
    ended = sum(one.ended for one in found)
    return how.beam > 1 and ended < len(found) and (ended > 0 or how.n_best > 1)


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[k : k + size] for k in range(0, len(order), size)]


# ---- the conversion in a run folder --------------------------------------------------------------------------------


def _prepared(model: Model, task: Convert, say: Say, *, int8: bool) -> CTranslate2:
    """The engine on a sound conversion, which is made if there is none; int8 is compared with float32 once."""
    folder, positions = model.folder / FOLDER, ctranslate2.positions(model)
    with _alone(model.folder):
        origin = _origin(model)
        if not _sound(folder, origin):
            difference = ctranslate2.write(model, folder, {ORIGIN: origin})
            say(f"{folder}: converted for CTranslate2; log-probabilities differ by at most {difference:.1e}")
        engine = CTranslate2(task, folder, positions, int8=int8)
        if int8 and LOSS not in sums.read_sums(folder):
            found = _loss(model, task, engine, CTranslate2(task, folder, positions))
            say(found)
            sums.publish(folder, {LOSS: json.dumps({"says": found}, ensure_ascii=False).encode()})
    return engine


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """One process at a time makes a conversion; the others wait for it."""
    handle = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _origin(model: Model) -> bytes:
    """All that a conversion depends on, by the sums of the run's files, which were checked when it was loaded."""
    listed = sums.read_sums(model.folder)
    made = {"files": {name: listed.get(name) for name in loaded(model.config)}, "version": 1}
    return json.dumps(made, indent=1, sort_keys=True).encode()


def _sound(folder: Path, origin: bytes) -> bool:
    """Whether there is a conversion of these files and every byte of it is what was written."""
    try:
        listed = sums.parse_sums(folder)
        sums.check(folder, listed)
        return (folder / ORIGIN).read_bytes() == origin and "model.bin" in listed
    except (OSError, ValueError, RecursionError):
        return False


# ---- what int8 costs -----------------------------------------------------------------------------------------------


def _loss(model: Model, task: Convert, small: CTranslate2, plain: CTranslate2) -> str:
    """How many answers in int8 are those in float32, and what the run's metric says of both, in one line."""
    items, what = _items(model, task)
    if not items:
        return "int8: not compared with float32, because the data of the run is not there"
    found = []
    for engine in (plain, small):
        task.engine = engine
        found.append(task.answer([source for source, _ in items], scored=False))
    same = sum(a == b for a, b in zip(*found, strict=True))
    line = f"int8: {100 * same / len(items):.1f} % of {len(items)} {what} answers are the same as in float32"
    if not all(references for _, references in items):
        return line
    before, after = (task.score(items, answers, 0)[0] for answers in found)
    unit = after.unit and f" {after.unit}"
    return f"{line}; {after.name} {after.value:.2f}{unit} instead of {before.value:.2f}{unit}"


def _items(model: Model, task: Convert) -> tuple[list[Item], str]:
    """What was held out of the training, else some of what was trained on, without references."""
    try:
        held = task.items(Split(model.config, task.contiguous, lambda _: None).valid())
        return held[:COMPARED], "held-out"
    except (OSError, UserError):
        pass
    try:
        store = Store.open(model.folder / "cache")
        return [(task.source.decode(store[i][0]), []) for i in islice(range(len(store)), COMPARED)], "training"
    except (OSError, UserError):
        return [], ""
