"""`regard predict --engine`: another program in torch's place, for searching answers; for one pass see `onnx`.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) runs converted Transformers several times as fast. The conversion
is kept in the run folder under `ctranslate2/`, behind SHA-256 sums, and is made anew when the run's files have changed:
that program may crash on a damaged file, so it reads nothing but what was written here.

Its search differs from ours in four points. Tokens that may not come now are left out before the softmax, not after it:
the others share their probability while the search compares hypotheses (scores that are shown are computed without
that). A beam is filled up again when a hypothesis has ended. It ends when as many hypotheses as the beam holds have
ended, where ours ends when no other could win. And of hypotheses that were all cut at the maximum it gives the best one
without the price of an end. A greedy answer is the same, the best of a beam nearly always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.errors import UserError
from regard.exchange import conversion, ctranslate2, onnx
from regard.inference.passes import Passes
from regard.inputs.input import Row
from regard.outputs.convert.output import Conversion, Convert, Search
from regard.outputs.output import halves
from regard.runs.model import Model
from regard.task import Task
from regard.text.tokenizer import END, PAD, START

ENGINES = ("torch", "ctranslate2", "ctranslate2-int8", "onnx", "onnx-int8", "auto")
FOLDER = "ctranslate2"  # in a run folder
HYPOTHESES, ROWS = 160, 64  # that a worker searches together at most
Say = Callable[[str], None]


def use(model: Model, engine: str, changes: dict[str, Any], say: Say) -> None:
    """Let a model answer by this engine; `auto` is CTranslate2 where it can do what is asked, and torch elsewhere."""
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}, expected one of {', '.join(ENGINES)}.")
    if engine == "torch":
        return
    if engine.startswith("onnx"):
        onnx.use(model, say, int8=engine.endswith("int8"))
        return
    try:
        if isinstance(model.task.output, Convert) and model.task.others:
            raise UserError("CTranslate2 runs one model: leave --with out, or use --engine torch.")
        ctranslate2.refuse(model)
        ctranslate2.library()
        if "seed" in changes:
            raise UserError("--sample is not supported by CTranslate2: leave it out, or use --engine torch.")
        _output(model.task).engine = _prepared(model, say, int8=engine.endswith("int8"))
    except UserError as error:
        if engine != "auto":
            raise
        say(f"engine torch: {error}")


# ---- answers -------------------------------------------------------------------------------------------------------


def _output(task: Task) -> Convert:
    assert isinstance(task.output, Convert)
    return task.output


@dataclass(frozen=True)
class Translation:
    """A hypothesis of CTranslate2; `ended`: the model wrote END itself."""

    ids: list[int]
    ended: bool
    weights: NDArray[np.float32] | None


class CTranslate2:
    """A converted model as the engine of a task that converts. It has so many `positions`.

    Workers of one thread each search side by side: that is faster than one search by several threads, which wait for
    each other. Torch searches what the converted model cannot: draws, and rows beyond its positions.
    """

    def __init__(self, task: Task, folder: Path, positions: int, *, int8: bool = False, workers: int = 0) -> None:
        self.output, self.positions = _output(task), positions
        self.workers = workers or torch.get_num_threads()
        self.translator = ctranslate2.translator(folder, "int8" if int8 else "float32", self.workers)
        self.source, self.target = map(ctranslate2.names, ctranslate2.vocabularies(task))
        self.ids = {name: id for id, name in enumerate(self.target)}

    def __call__(self, passes: Passes, rows: list[Row], how: Search, places: list[int]) -> list[list[Conversion]]:
        """Return the best answers to each row."""
        ids = [[int(id) for id in row[0]] for row in rows]
        maxima = _maxima(ids, how)
        able = self._able(how) and not passes.others
        mine = [i for i, row in enumerate(ids) if able and max(len(row), maxima[i]) + 1 <= self.positions]
        others = sorted({*range(len(rows))} - {*mine})
        answers: list[list[Conversion]] = [[] for _ in rows]
        for i, best in zip(mine, self._answers([ids[i] for i in mine], how) if mine else [], strict=True):
            answers[i] = best
        left = [rows[i] for i in others], how, [places[i] for i in others]
        for i, best in zip(others, self.output.by_torch(passes, *left) if others else [], strict=True):
            answers[i] = best
        return answers

    def _able(self, how: Search) -> bool:
        """Return False for a draw, for a beam that the vocabulary cannot fill, and for a search that torch refuses."""
        room = len(self.target) - 3  # all tokens but padding, start and perhaps the end
        sound = how.n_best <= how.beam and 0 <= how.length_penalty <= 10
        return sound and how.seed is None and 2 * how.beam <= room

    def _answers(self, rows: list[list[int]], how: Search) -> list[list[Conversion]]:
        power = how.length_penalty if how.beam > 1 else 1.0
        answers: list[list[Conversion]] = [[] for _ in rows]
        unscored: dict[int, list[Translation]] = {}
        for i, best in self._searched(rows, _maxima(rows, how), how):  # texts are decoded while the workers go on
            if how.scored or _disordered(best, how):
                unscored[i] = best if _disordered(best, how) else best[: how.n_best]
            else:
                answers[i] = [self._answer(one, math.nan, power) for one in best[: how.n_best]]
        totals = iter(self.scores([(rows[i], one.ids) for i, best in unscored.items() for one in best]))
        for i, best in unscored.items():
            scored = [self._answer(one, next(totals), power) for one in best]
            if _disordered(best, how):
                scored.sort(key=lambda answer: (-answer.normalised, answer.ids))
            answers[i] = scored[: how.n_best]
        return answers

    def _answer(self, one: Translation, score: float, power: float) -> Conversion:
        text = self.output.vocabulary.decode(one.ids)
        return Conversion(text, score, score / (len(one.ids) + 1) ** power, one.ended, one.ids, one.weights)

    def scores(self, pairs: Sequence[tuple[list[int], list[int]]]) -> list[float]:
        """Return the log-probability of each target, with its end, after its source."""
        sources = [[self.source[id] for id in source] for source, _ in pairs]
        targets = [[self.target[id] for id in target] for _, target in pairs]
        scored = self.translator.score_batch(sources, targets, max_batch_size=ROWS, max_input_length=0)
        return [math.fsum(each.log_probs) for each in scored]

    def _searched(
        self, rows: list[list[int]], maxima: list[int], how: Search
    ) -> Iterator[tuple[int, list[Translation]]]:
        """Yield the hypotheses of each row, as the workers finish. Rows of like lengths are searched together, as far
        as the longest of them may go. A beam that went on beyond its own row's maximum is searched again: an answer
        does not depend on the rows beside it."""
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
        """Yield for each row how far its batch may go, and CTranslate2's result. It writes one token more than is
        allowed: that one tells whether the answer ends there. Not where all are cut there and nobody asks."""
        never = [[self.target[PAD]], [self.target[START]]]
        waiting = []
        for batch in batches:
            limit = max(maxima[i] for i in batch)
            results = self.translator.translate_batch(
                [[self.source[id] for id in rows[i]] for i in batch],
                asynchronous=True, beam_size=how.beam, num_hypotheses=how.beam, length_penalty=how.length_penalty,
                max_decoding_length=limit + (how.scored or how.minimum < limit), min_decoding_length=how.minimum,
                max_input_length=0, suppress_sequences=never, return_end_token=True,
                return_attention=how.alignment is not None,
            )  # fmt: skip
            waiting += [(i, limit, result) for i, result in zip(batch, results, strict=True)]
        for i, limit, result in waiting:
            yield i, limit, result.result()

    def _hypotheses(self, result: Any, maximum: int) -> list[Translation]:
        """Return different hypotheses of at most `maximum` tokens, best first."""
        different: dict[tuple[int, ...], Translation] = {}
        attentions = result.attention or [None] * len(result.hypotheses)
        for names, attention in zip(result.hypotheses, attentions, strict=True):
            ids = [self.ids[name] for name in names[: maximum + 1]]
            ended = ids[-1] == END
            ids = ids[:-1] if ended else ids[:maximum]
            if (before := different.get(tuple(ids))) is None or (ended and not before.ended):
                weights = None if attention is None else np.array(attention[: len(ids)], dtype=np.float32)
                different[tuple(ids)] = Translation(ids, ended, weights)
        return list(different.values())


def _maxima(rows: list[list[int]], how: Search) -> list[int]:
    """Return the most tokens of an answer to each row."""
    return how.limits([len(row) for row in rows]).maxima(len(rows))


def _disordered(best: list[Translation], how: Search) -> bool:
    """Return True if CTranslate2's order has to be made anew: an end that was forced has its price too, and only with
    it can hypotheses that ended be compared with such that were cut, or those that were cut be shown in order."""
    ended = sum(one.ended for one in best)
    return how.beam > 1 and ended < len(best) and (ended > 0 or how.n_best > 1)


def _cut(order: list[int], size: int) -> list[list[int]]:
    return [order[k : k + size] for k in range(0, len(order), size)]


# ---- the conversion in a run folder --------------------------------------------------------------------------------


def _prepared(model: Model, say: Say, *, int8: bool) -> CTranslate2:
    """Return the engine on a sound conversion, which is made if there is none; int8 is compared with float32 once."""
    task, folder, positions = model.task, model.folder / FOLDER, ctranslate2.positions(model)
    with conversion.alone(model.folder):
        origin = conversion.origin(model)
        if not conversion.sound(folder, origin, "model.bin"):
            difference = ctranslate2.write(model, folder, {conversion.ORIGIN: origin})
            say(f"{folder}: converted for CTranslate2; log-probabilities differ by at most {difference:.1e}")
        engine = CTranslate2(task, folder, positions, int8=int8)
        if int8 and not conversion.has_loss(folder):
            line = _loss(model, engine, CTranslate2(task, folder, positions))
            say(line)
            conversion.keep_loss(folder, line)
    return engine


# ---- the cost of int8 ----------------------------------------------------------------------------------------------


def _loss(model: Model, small: CTranslate2, plain: CTranslate2) -> str:
    """Return in one line the share of answers in int8 that are those in float32, and the run's metric of both."""
    task, output = model.task, _output(model.task)
    items, rows, what = conversion.compared(model)
    if not rows:
        return "int8: not compared with float32, because the data of the run is not there"
    sources, _ = halves(task.input, rows)
    how, answers = replace(output.how, scored=False), []
    for engine in (plain, small):
        output.engine = engine
        answers.append([output.as_target(each) for each in output.search(task.passes, sources, how)])
    same = sum(a == b for a, b in zip(*answers, strict=True))
    line = f"int8: {100 * same / len(rows):.1f} % of {len(rows)} {what} answers are the same as in float32"
    if not items:
        return line
    before, after = (output.score(items, each, 0)[0] for each in answers)
    unit = after.unit and f" {after.unit}"
    return f"{line}; {after.name} {after.value:.2f}{unit} instead of {before.value:.2f}{unit}"
