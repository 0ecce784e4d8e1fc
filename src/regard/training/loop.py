"""The training loop: step, validate, save, resume. It knows no task, only rows, batches, turns, a loss and a score."""

from __future__ import annotations

import copy
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import metrics
from regard.attention.equation import NotFinite
from regard.costs import memory
from regard.data.batches import Batches, BatchReader, Content, Rows, share
from regard.data.draws import Draws
from regard.errors import UserError
from regard.inputs.input import Row, moved
from regard.layers.renewal import Renewed
from regard.metrics import Score
from regard.outputs.output import Held
from regard.runs import checkpoint
from regard.training import averaging, device, validation
from regard.training.arrangement import arrange
from regard.training.collation import Collated
from regard.training.distributed import World, whole, without_sync, wrap
from regard.training.forecast import Forecast
from regard.training.optimiser import optimiser, players_of, rate_at
from regard.training.pace import Pace
from regard.training.position import Position
from regard.training.prepare import Prepared, Say
from regard.training.progress import Progress
from regard.training.saver import Saver
from regard.training.tensorboard import Board

__all__ = ["Interrupted", "Position", "Trainer"]

SAVE_SECONDS = 600.0  # of training that a crash may cost, if validations are rare
BAD_STEPS = 5  # non-finite steps in a row that end a run


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: the state has been saved."""


class Trainer:
    """One training of one task.

    A step has a turn for each player: `task.turns`, one for most tasks. The loss of a turn is `loss(batch, turn)`, one
    sum per term; `task.predictions(counts)` is one total per term, and the step follows the gradient of Σ sum / total
    over the global batch. Players are parameters with an optimiser group of their own; see `players_of`.
    """

    def __init__(self, run: Path, prepared: Prepared, progress: Progress, world: World | None = None) -> None:
        config = prepared.config
        self.how, self.run, self.progress = config.training, run, progress
        self.world = world = world or World()
        self.config, self.task, self.store, self.valid = config, prepared.task, prepared.store, prepared.valid
        self.some = self.task.some(self.valid, self.how.validated or validation.MOST)
        self.turns = self.task.turns
        self.sharded = world.size > 1 and self.how.parallel == "fsdp"
        own = self.task.network.to(world.device)
        self.network = copy.deepcopy(own) if self.sharded else own  # shards cannot validate themselves
        arrange(self.network, self.how)
        self.loss = wrap(self.network, world, self.how.parallel, self.turns)
        if self.how.compile:
            self.loss.compile(dynamic=True)  # lengths differ from batch to batch
        if world.rank:
            torch.manual_seed(self.how.seed + 1_000_003 * world.rank)  # other dropout than process 0's
        self.costs = np.array([field.tokens for field in self.store.fields])
        self.batches = Batches(self.store.lengths, self.how.budget, self.how.seed, self.costs.tolist())
        # A CPU is busy with the step itself; a GPU leaves it time to read the next rows meanwhile.
        self.reader = BatchReader(self.store, self.batches, world.rank, world.size, ahead=world.device.type == "cuda")
        # Asking every module at each step would take a while.
        self.players = players_of(self.network, self.turns)
        self.renewed = [part for part in self.network.modules() if isinstance(part, Renewed)]
        self.buffers = list(checkpoint.buffers_of(self.network).values())
        self.optimiser = optimiser(self.network, self.how, fused=not self.sharded, players=self.players)
        facts = {"data": prepared.checksum, "threads": torch.get_num_threads(), "torch": torch.__version__}
        self.saver = Saver(
            config, run, self.network, self.optimiser, facts | {"processes": world.size}, world, progress.say
        )
        self.at, self.window = self.saver.at, self.saver.window
        self.board = Board(run)
        self.forecast = Forecast()
        self.stop = False
        self.alarm = validation.Alarm(progress.say)

    # ---- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Train until the steps, the minutes or the patience are used up, or somebody stops it."""
        with self._signals():
            if self.at.step == 0:
                self._foretell()
                self._try_largest()
            started = time.monotonic() - self.at.seconds
            pace = None if self.how.steps or self.how.minutes is None else Pace(self.how.minutes, self.at.seconds)
            while not self._finished():
                began = time.monotonic()
                with self._memory():
                    loss, tokens = self._step()
                took = time.monotonic() - began
                self.window.append((loss, tokens, took))
                self.at.seconds = time.monotonic() - started
                self._agree()
                if pace:
                    pace.took(took)
                    self._settle(pace)
                self.forecast.took(self.at, self.window, self.how)
                self.progress.step(self.at, self.window[-1])
                if validation.due(self.at.step, self._every(), fixed=self.how.every is not None) or self._finished():
                    self._validate()
                elif self.at.seconds - self.saver.tried > SAVE_SECONDS:
                    self.saver.save()
                if self.stop:
                    self.saver.save(must=True)
                    raise Interrupted
            if not self._spent():
                self.progress.say(f"stopped early: {self._early()}")

    def _agree(self) -> None:
        """Make all processes stop together, by the clock of the first."""
        if self.world.size > 1:
            self.at.seconds = self.world.sum(self.at.seconds if self.world.first else 0.0)
            self.stop = self.world.sum(float(self.stop)) > 0

    def _step(self) -> tuple[float, int]:
        """Update every player once from the same `accumulate` batches; return the loss of all turns and the tokens."""
        if not self.network.training:  # after a validation; asking every module each time would take a while
            self.network.train()
        read, drawn = [], []
        for _ in range(self.how.accumulate):
            read.append(self._next())
            drawn.append(self._draws(read[-1][0]))
        counts = [self.store.lengths[rows] for rows, _ in read]
        totals = [sum(each) for each in zip(*(self.task.predictions(some) for some in counts), strict=True)]
        batches = Collated(self._varied, [*zip(drawn, (own for _, own in read), strict=True)], keep=len(self.turns) > 1)
        # A process without rows still takes part, with a weight of zero: the others wait for it.
        weights = [1.0 if len(rows) > self.world.rank else 0.0 for rows, _ in read]
        loss, failed = 0.0, None
        for turn in self.turns:
            found, finite = self._turn(turn, batches, weights, totals)
            loss += found
            if not finite:
                failed = turn
                break
        self.at.step += 1
        if failed is None:
            self.at.bad = 0
            for part in self.renewed:
                part.renew()
        else:
            self._skip([rows for rows, _ in read], failed)
        return loss, round(float(sum((some * self.costs).sum() for some in counts)))

    def _turn(
        self, turn: str, batches: Collated, weights: Sequence[float], totals: Sequence[float]
    ) -> tuple[float, bool]:
        """Update one player; return the loss, and whether it and its gradient are finite. If not, nothing changes."""
        sums = torch.zeros(len(totals), dtype=torch.float64)
        # Nothing to predict gives a sum of zero, which counts as zero.
        divisors = torch.tensor([total or math.inf for total in totals], device=self.world.device)
        buffers = [buffer.clone() for buffer in self.buffers]
        self.optimiser.zero_grad(set_to_none=True)
        for number, weight in enumerate(weights):
            with without_sync(self.loss, last=number == len(weights) - 1):
                try:
                    terms = self._sums(batches[number], turn, self.loss) * weight
                except NotFinite:
                    if self.world.size > 1:
                        raise
                    sums += math.nan
                    break
                if terms.shape != divisors.shape:
                    raise ValueError(f"the loss has the shape {(*terms.shape,)}, expected {(*divisors.shape,)}")
                # Times the number of processes, as gradients are averaged over them.
                (terms * self.world.size / divisors).sum().backward()
            sums += terms.detach().cpu()
        found = sum(
            self.world.sum(each) / (total or math.inf) for each, total in zip(sums.tolist(), totals, strict=True)
        )
        for other in self.turns:
            for parameter in self.players[other].parameters if other != turn else ():
                parameter.grad = None
        norm = whole(torch.nn.utils.clip_grad_norm_(self.players[turn].parameters, self.how.clip))
        finite = math.isfinite(found) and bool(torch.isfinite(norm))
        if finite:
            rate = rate_at(self.at.step + 1, self.at.steps, self.how)
            for group in self.optimiser.param_groups:
                group["lr"] = rate * group["factor"]
            self.optimiser.step()
        else:
            for buffer, before in zip(self.buffers, buffers, strict=True):
                buffer.copy_(before)
        return found, finite

    def _collated(self, rows: Content | Sequence[Row]) -> Any:
        return moved(self.task.batch(rows), self.world.device)

    def _varied(self, drawn: tuple[Draws, Content]) -> Any:
        """Collate rows of training, varied at random as the input does it."""
        return moved(self.task.batch(drawn[1], drawn[0]), self.world.device)

    def _draws(self, rows: Rows) -> Draws:
        """Return the random numbers of this process's rows of a global batch, in the epoch that it is in."""
        return Draws(self.how.seed, self.at.epoch, self.reader.own(rows), len(self.store), self.reader.content)

    def _sums(self, batch: Any, turn: str, loss: Callable[[Any, str], Tensor]) -> Tensor:
        """Return the summed loss of a batch for each term."""
        with device.rounded(self.how, self.world.device):
            return loss(batch, turn)

    def _next(self) -> tuple[Rows, Content]:
        """Return the rows of the next global batch, and the content of this process's share."""
        if self.at.batch >= self.batches.count(self.at.epoch):
            self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        self.at.batch += 1
        return self.reader.at(self.at.epoch, self.at.batch - 1)

    def _skip(self, rows: list[Rows], turn: str) -> None:
        """Name the batch of a step that was not applied; several in a row end the run."""
        self.at.bad += 1
        where = (
            f"epoch {self.at.epoch}, batch {self.at.batch - 1}, rows {', '.join(str(int(i)) for i in rows[0][:5])} …"
        )
        whose = "" if len(self.turns) == 1 else f" of the {turn}"
        self.progress.say(
            f"step {self.at.step}: the loss or its gradient is not finite ({where}); step{whose} not applied"
        )
        if self.at.bad >= BAD_STEPS:
            self.saver.save()
            raise UserError(
                f"The loss was not finite for {self.at.bad} steps in a row, last at {where}: the state is kept in "
                f"{self.run / 'state'}; check these rows, or start another run (-o) with a lower training.rate."
            )

    def _foretell(self) -> None:
        """Log the memory that will be needed, and refuse what cannot be had.

        A trial in one of several processes does not show how they share it.
        """
        if self.world.size > 1:
            return

        def batch(rows: Rows) -> Any:
            return self.task.batch(self.reader.content(rows))

        place = memory.here(self.world.device, self.network, self.batches.rows)
        with self._memory(first=True):
            most = memory.predict(self.network, batch, self.turns, self.batches, place, self.how)
        self.forecast.size = most.total
        if most.hopeless:  # a system that has promised memory ends the process when it has none
            raise UserError(f"The {most.sentence(self.how)}.")
        self.progress.say(most.sentence(self.how))

    def _try_largest(self) -> None:
        """Try the batch that needs the most memory first: better to fail now than after an hour."""
        largest = self.batches.largest()
        chosen = share(largest, self.world.rank, self.world.size) if len(largest) >= self.world.size else largest
        with self._memory(first=True), device.trial(self.network, self.world.device):
            for turn in self.turns:
                self._sums(self._collated(self.reader.content(chosen)), turn, self.loss).sum().backward()
                self.optimiser.zero_grad(set_to_none=True)

    def _memory(self, *, first: bool = False) -> AbstractContextManager[None]:
        """Report "out of memory" with a remedy. Nothing is saved then: the step is half done, the last state whole."""
        if first:
            return memory.shortage(
                lambda: f"The largest batch ({self.how.budget} tokens) does not fit into memory:", self.how
            )
        return memory.shortage(
            lambda: (
                f"Out of memory at step {self.at.step}: the last state is in {self.run / 'state'}; free some memory "
                "and run the same command again, or start another run (-o) with"
            ),
            self.how,
        )

    def _settle(self, pace: Pace) -> None:
        """Set the number of steps, if the minutes decide about it."""
        at = self.at
        if not pace.due(at.step, at.steps is not None):
            return
        steps = self.world.broadcast(pace.steps(at.step, at.seconds, bool(at.history)))  # all processes do the same
        if at.steps is None:
            self.progress.say(pace.sentence(steps))  # once: later changes show in the bar
        if at.steps is None or pace.changed(steps - at.step, at.steps - at.step):
            at.steps = steps

    def _every(self) -> int:
        return self.how.every or max(10, (self.at.steps or validation.STEPS) // validation.TIMES)

    def _finished(self) -> bool:
        return self._spent() or bool(self._early())

    def _spent(self) -> bool:
        late = self.how.minutes is not None and self.at.seconds > 60 * self.how.minutes
        return late or (self.at.steps is not None and self.at.step >= self.at.steps)

    def _early(self) -> str:
        return validation.early(self.at, self.how, len(self.some.items))

    # ---- validation -----------------------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Score the weights, keep them beside those of the last validations, save, and publish the best."""
        weights = self.saver.tensors()
        scores, answer, count = self._scores(weights)
        if self.world.first:
            self.alarm.heard(self.at.step, self.task.warnings(self.some, scores))
        kept = bool(self.world.broadcast(self.world.first and self.saver.keep(weights)))
        # Only what is measured on all items can be the best, or as good as can be.
        perfect = count == len(self.some.items) and self._rank(scores, kept=kept)
        seconds = sum(s for _, _, s in self.window)
        entry = {
            "step": self.at.step,
            "epoch": self.at.epoch,
            "minutes": round(self.at.seconds / 60, 3),
            "loss": round(sum(loss for loss, _, _ in self.window) / max(1, len(self.window)), 4),
            "rate": rate_at(self.at.step, self.at.steps, self.how),
            "step_seconds": round(seconds / max(1, len(self.window)), 6),
            "tokens_per_second": round(sum(n for _, n, _ in self.window) / max(seconds, 1e-9)),
            "items": count,
            **{score.name: round(score.value, 3) for score in scores},
        }
        if perfect:
            entry["perfect"] = scores[0].count
        self.at.history.append(entry)
        self.window.clear()
        if self.saver.save() and self.world.first:
            self.saver.publish()
            self.board.add(entry)
        shown = None if answer is None else (*self.task.item_as_text(self.some.items[0]), answer)
        self.progress.validated(self.at, entry, scores, shown, len(self.some.items))

    def _rank(self, scores: list[Score], *, kept: bool) -> bool:
        """Compare metrics on all items with the best so far; return True if they could not be better.

        Ties of the first metric are broken by the next: at the beginning nothing may be right, yet ever less wrong.
        Without metrics the last is the best, and among several at the ceiling the one trained longest.
        """
        at, found = self.at, metrics.ranked(scores)
        perfect = bool(scores) and metrics.at_ceiling(scores[0])
        improved = not scores or at.best is None or found > at.best or (perfect and found == at.best)
        if improved and kept:
            at.best, at.best_step = found, at.step
        if improved:
            at.better_step, at.better_seconds = at.step, at.seconds
        return perfect

    def _scores(self, weights: dict[str, Tensor]) -> tuple[list[Score], str | None, int]:
        """Return the metrics of these weights on the validation data, computed by process 0 and known to all, and the
        number of items they are of; on process 0 also the first answer."""
        scores: list[Score] = []
        answer, count = None, len(self.some.items)
        if self.world.first:
            if self.sharded:
                checkpoint.put_weights(self.task.network, weights, self.run)
            self.task.network.eval()
            scores, answers, count = self._measured()
            answer = answers[0] if answers else None
        said = self.world.broadcast([[asdict(score) for score in scores], count, self.at.items, self.at.whole])
        self.at.items, self.at.whole = said[2:]
        return [Score(**score) for score in said[0]], answer, said[1]

    def _measured(self) -> tuple[list[Score], list[str], int]:
        """Score some of the items, or all if it is time for that or some are all right."""
        at, count = self.at, len(self.some.items)
        if at.items is None:
            self._plan()
        last = at.whole == 1 or (len(at.history) + 1) % at.whole == 0 or self._finished()
        if at.items == count or last:
            return *self._evaluated(self.some), count
        some = self.task.some(self.some, at.items or count)
        scores, answers = self._evaluated(some)
        lately = any(entry.get("items", count) == count for entry in at.history[-3:])
        if scores and metrics.at_ceiling(scores[0]) and not lately:
            return *self._evaluated(self.some), count
        return scores, answers, len(some.items)

    def _plan(self) -> None:
        """Decide how many items validations look at, from the time that a few of them take."""
        count = len(self.some.items)
        if self.how.validated is not None:
            self.at.items, self.at.whole = count, 1
            return
        few = self.task.some(self.some, validation.FEW)
        began = time.monotonic()
        if len(few.items) < count:
            self._evaluated(few)
        each = (time.monotonic() - began) / len(few.items)
        step = sum(seconds for _, _, seconds in self.window) / max(1, len(self.window))
        between = step * self._every()
        if self.at.steps is None and self.how.every is None and self.how.minutes is not None:
            between = 60 * self.how.minutes / validation.TIMES  # how many steps fit is not known so soon
        self.at.items, self.at.whole = validation.planned(count, each, between)
        if self.at.whole > 1:
            self.progress.say(
                f"validations use {self.at.items:,} of {count:,} items; each {self.at.whole}th and the last use all: "
                "validation takes at most a tenth of the time"
            )

    def _evaluated(self, held: Held, samples: int = 0) -> tuple[list[Score], list[str]]:
        """Score items by what decides about the best weights, then by the other metrics."""
        scores, answers = self.task.evaluate(held, quick=True, samples=samples)
        if self.how.best == "metric":
            return scores, answers

        def sums(rows: Sequence[Row]) -> Tensor:
            return self._sums(self._collated(rows), self.turns[0], self.task.network)

        return [validation.loss(held.rows, sums, self.task.predictions, self.how.budget), *scores], answers

    def finish(self) -> None:
        """Publish the average of the last checkpoints, unless the best of them all is clearly better."""
        if self.at.best is None:
            self.at.whole = 1
            self._validate()
        self.board.close()
        network, saver = self.task.network, self.saver
        if self.world.first:
            if saver.path(self.at.best_step).name not in self.at.kept:
                raise UserError(
                    f"{self.run}: no weights could be saved. Free some space or restore write access, then run the "
                    "same command again."
                )
            saver.publish_model(self._average() or saver.path(self.at.best_step))
            checkpoint.put_weights(network, checkpoint.load_weights(saver.model), saver.model)
            for line in self.forecast.account(self.at, self.world.device):
                self.progress.say(line)
        network.to("cpu")

    def _average(self) -> bytes | None:
        """Return the average of the last checkpoints as a file, if it is as good as the best of them."""
        network, paths = self.task.network, self.saver.averaged()
        if len(paths) < 2:
            return None
        mean = checkpoint.average(paths, checkpoint.weights_of(network))
        checkpoint.put_weights(network, mean, self.run)
        if averaging.normalised(network):
            averaging.reestimate(network, self._training_batches(), self.turns[0])
        network.eval()
        scores, _ = self._evaluated(self.some, metrics.SAMPLES)
        better, why = metrics.as_good(scores[0], self.at.best)
        if validation.perfect(self.at, len(self.some.items)) and not metrics.at_ceiling(scores[0]):
            better, why = False, "not kept: the best is at its ceiling"
        self.progress.say(
            f"average of the last {len(paths)} checkpoints: {scores[0].name} {scores[0].value:.2f}, {why}"
        )
        return checkpoint.as_bytes(checkpoint.tensors_of(network)) if better else None

    def _training_batches(self) -> Iterator[Any]:
        """Yield the first batches of the training data, whole on one process."""
        reader = BatchReader(self.store, self.batches)
        for number in islice(range(self.batches.count(0)), averaging.BATCHES):
            yield self._collated(reader.at(0, number)[1])

    def resume(self, say: Say) -> bool:
        """Resume from the newest sound state; return whether there is one."""
        return self.saver.resume(say)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Let Ctrl-C and SIGTERM finish the step, save and leave; a second one leaves at once, with the last state."""

        def ask(*_: object) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        try:
            old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: nobody can interrupt it there
            old = {}
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
