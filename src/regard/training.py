"""The one loop: step, validate, save, resume. It knows no task, only rows, batches, a loss and a score."""

from __future__ import annotations

import copy
import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from regard import checkpoint, device, memory, metrics, sums
from regard.attention.equation import NotFinite
from regard.board import Board
from regard.config import Config
from regard.data.batches import Batches, Content, Reader, Rows, share
from regard.errors import UserError
from regard.metrics import Score
from regard.optimiser import optimiser, rate_at
from regard.outputs.task import Item
from regard.pace import Pace
from regard.parallel import Loss, World, like, whole, without_sync, wrap
from regard.preparing import Prepared, Say
from regard.progress import Progress

SAVE_SECONDS = 600.0  # of training that a crash may cost, if validations are rare
Window = list[tuple[float, int, float]]  # loss, tokens and seconds of the steps since the last validation
MOST = 1000  # items that a validation looks at
BAD_STEPS = 5  # non-finite steps in a row that end a run


@dataclass
class Position:
    """Everything about a run that is not a tensor."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # within the epoch
    steps: int | None = None  # in all, once settled
    seconds: float = 0.0  # trained so far
    best: list[float] | None = None  # all metrics of the best validation, higher is better
    best_step: int = 0
    stale: int = 0  # validations since the best
    bad: int = 0  # steps in a row whose loss was not finite
    kept: dict[str, str] = field(default_factory=dict)  # checkpoints by file name, with their SHA-256
    history: list[dict[str, Any]] = field(default_factory=list)


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: the state has been saved."""


class Trainer:
    def __init__(
        self, config: Config, run: Path, prepared: Prepared, progress: Progress, world: World | None = None
    ) -> None:
        self.how, self.run, self.progress = config.training, run, progress
        self.world = world = world or World()
        self.config, self.task, self.store, self.valid = config, prepared.task, prepared.store, prepared.valid
        self.some = self.valid[:MOST] if self.task.contiguous else _from_all_over(self.valid)
        sharded = world.size > 1 and self.how.parallel == "fsdp"
        # Elsewhere than in main memory a copy is trained, and the task's own network validates with its weights.
        apart = sharded or world.device != torch.device("cpu")
        self.network = copy.deepcopy(self.task.network).to(world.device) if apart else self.task.network
        self.loss = wrap(self.network, world, self.how.parallel)
        self.weights = list(self.network.parameters())  # asking every module at each step would take a while
        if self.how.compile:
            self.loss.compile(dynamic=True)  # lengths differ from batch to batch
        if world.rank:
            torch.manual_seed(self.how.seed + 1_000_003 * world.rank)  # other dropout than process 0's
        self.batches = Batches(self.store.lengths, self.how.budget, self.how.seed)
        # A CPU is busy with the step itself; a GPU leaves it time to read the next rows meanwhile.
        self.reader = Reader(self.store, self.batches, world.rank, world.size, ahead=world.device.type == "cuda")
        self.optimiser = optimiser(self.network, self.how, fused=not sharded)
        self.at = Position(steps=self.how.steps)
        self.facts = {"data": prepared.checksum, "threads": torch.get_num_threads(), "torch": torch.__version__}
        self.facts["processes"] = world.size
        self.board = Board(run)
        self.stop = False
        self.window: Window = []
        self.saved = 0.0  # seconds of training when the state was last saved, or that was tried
        self.safe = 0  # the newest step whose state is on disk
        self.needed: list[set[str]] = []  # checkpoints that the newest states name

    # ---- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Until the steps, the minutes or the patience are used up, or somebody stops it."""
        with self._signals():
            if self.at.step == 0:
                self._foretell()
                self._try_largest()
            started = time.monotonic() - self.at.seconds
            pace = None if self.how.steps or self.how.minutes is None else Pace(self.how.minutes, self.at.seconds)
            window = self.window
            while not self._finished():
                began = time.monotonic()
                with self._memory():
                    loss, tokens = self._step()
                took = time.monotonic() - began
                window.append((loss, tokens, took))
                self.at.seconds = time.monotonic() - started
                self._agree()
                if pace:
                    pace.took(took)
                    self._settle(pace)
                self.progress.step(self.at, window[-1])
                if self.at.step % self._every() == 0 or self._finished():
                    self._validate(window)
                    window = self.window
                elif self.at.seconds - self.saved > SAVE_SECONDS:
                    self.save()
                if self.stop:
                    self.save(must=True)
                    raise Interrupted

    def _agree(self) -> None:
        """All processes stop together, by the clock of the first."""
        if self.world.size > 1:
            self.at.seconds = self.world.sum(self.at.seconds if self.world.first else 0.0)
            self.stop = self.world.sum(float(self.stop)) > 0

    def _step(self) -> tuple[float, int]:
        """One update from `accumulate` batches; the loss is a mean over all their predictions."""
        if not self.network.training:  # after a validation; asking every module each time would take a while
            self.network.train()
        read = [self._next() for _ in range(self.how.accumulate)]
        rows = [chosen for chosen, _ in read]
        tokens = sum(self.task.predictions(self.store.lengths[chosen]) for chosen in rows)
        total = 0.0
        self.optimiser.zero_grad(set_to_none=True)
        for number, (chosen, own) in enumerate(read):
            # A process without rows still takes part, with a weight of zero: the others wait for it.
            weight = 1.0 if len(chosen) > self.world.rank else 0.0
            with without_sync(self.loss, last=number == len(rows) - 1):
                try:
                    loss = self._loss(own, self.loss) * weight
                except NotFinite:
                    if self.world.size > 1:
                        raise
                    total = math.nan
                    break
                (loss * self.world.size / tokens).backward()  # times the size: gradients are averaged over processes
            total += float(loss.detach())
        total = self.world.sum(total)
        norm = whole(torch.nn.utils.clip_grad_norm_(self.weights, self.how.clip))
        self.at.step += 1
        if not math.isfinite(total) or not bool(torch.isfinite(norm)):
            self._skip(rows)
        else:
            self.at.bad = 0
            for group in self.optimiser.param_groups:
                group["lr"] = rate_at(self.at.step, self.at.steps, self.how)
            self.optimiser.step()
        return total / tokens, int(sum(self.store.lengths[chosen].sum() for chosen in rows))

    def _loss(self, rows: Content, module: nn.Module) -> Tensor:
        """The summed loss of some rows."""
        batch = device.moved(self.task.batch(rows), self.world.device)
        with device.rounded(self.how, self.world.device):
            loss: Tensor = module(batch, self.how.smoothing)
        return loss

    def _next(self) -> tuple[Rows, Content]:
        """The rows of the next global batch, and the content of those that are this process's."""
        if self.at.batch >= self.batches.count(self.at.epoch):
            self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        self.at.batch += 1
        return self.reader.at(self.at.epoch, self.at.batch - 1)

    def _skip(self, rows: list[Any]) -> None:
        """A loss or gradient that is no number: nothing is applied, the batch is named, a few in a row end the run."""
        self.at.bad += 1
        where = (
            f"epoch {self.at.epoch}, batch {self.at.batch - 1}, rows {', '.join(str(int(i)) for i in rows[0][:5])} …"
        )
        self.progress.say(f"step {self.at.step}: the loss or its gradient is not finite ({where}); step not applied")
        if self.at.bad >= BAD_STEPS:
            self.save()
            raise UserError(
                f"The loss was not finite for {self.at.bad} steps in a row, last at {where}: the state is kept in "
                f"{self.run / 'state'}; look at these rows, or begin another run (-o) with a lower training.rate."
            )

    def _foretell(self) -> None:
        """Say what will be needed, and refuse what cannot be had.

        How several processes share it, a trial in one of them does not show.
        """
        if self.world.size > 1:
            return
        plain = Loss(self.network)
        with self._memory(first=True):
            need = memory.predict(
                self.network, lambda rows: self._loss(self.reader.content(rows), plain), self.batches, self.world.device
            )
        if need.hopeless:  # a system that has promised memory ends the process when it has none
            raise UserError(f"The {need.sentence(self.how)}.")
        self.progress.say(need.sentence(self.how))

    def _try_largest(self) -> None:
        """The batch that needs the most memory comes first: better to fail now than after an hour."""
        largest = self.batches.largest()
        chosen = share(largest, self.world.rank, self.world.size) if len(largest) >= self.world.size else largest
        random = device.random_state(self.world.device)
        try:
            with self._memory(first=True):
                self.network.train()
                self._loss(self.reader.content(chosen), self.loss).backward()
        finally:
            self.optimiser.zero_grad(set_to_none=True)
            device.set_random_state(random, self.world.device)

    def _memory(self, *, first: bool = False) -> AbstractContextManager[None]:
        """Out of memory is said with a remedy. Nothing is saved then: the step is half done, the last state whole."""
        if first:
            return memory.shortage(
                lambda: f"The largest batch ({self.how.budget} tokens) does not fit into memory:", self.how
            )
        return memory.shortage(
            lambda: (
                f"Out of memory at step {self.at.step}: what was saved before is in {self.run / 'state'}; make room "
                "and give the same command, or begin another run (-o) with"
            ),
            self.how,
        )

    def _settle(self, pace: Pace) -> None:
        """The number of steps, if the minutes decide about it."""
        at = self.at
        if not pace.due(at.step, at.steps is not None):
            return
        steps = self.world.said(pace.steps(at.step, at.seconds, bool(at.history)))  # all processes do the same
        if at.steps is None or pace.changed(steps - at.step, at.steps - at.step):
            at.steps = steps
            self.progress.say(pace.sentence(steps))

    def _every(self) -> int:
        return self.how.every or max(10, (self.at.steps or 2500) // 25)

    def _finished(self) -> bool:
        spent = self.how.minutes is not None and self.at.seconds > 60 * self.how.minutes
        done = self.at.steps is not None and self.at.step >= self.at.steps
        return done or spent or self.at.stale >= self.how.patience

    # ---- validation and saving ------------------------------------------------------------------------------------

    def _validate(self, window: Window) -> None:
        weights = self._whole_weights()
        scores, answer = self._scores(weights)
        # Ties of the first metric are broken by the next: at the beginning nothing may be right, yet ever less wrong.
        found = metrics.ranked(scores)
        improved = self.at.best is None or found > self.at.best
        if self.world.said(self.world.first and self._keep_weights(weights)) and improved:
            self.at.best, self.at.best_step = found, self.at.step
        self.at.stale = 0 if improved else self.at.stale + 1
        seconds = sum(s for _, _, s in window)
        entry = {
            "step": self.at.step,
            "epoch": self.at.epoch,
            "minutes": round(self.at.seconds / 60, 3),
            "loss": round(sum(loss for loss, _, _ in window) / max(1, len(window)), 4),
            "rate": rate_at(self.at.step, self.at.steps, self.how),
            "tokens_per_second": round(sum(n for _, n, _ in window) / max(seconds, 1e-9)),
            **{score.name: round(score.value, 3) for score in scores},
        }
        self.at.history.append(entry)
        self.window = []
        if self.save() and self.world.first:
            self._publish()
            self.board.add(entry)
        self.progress.validated(self.at, entry, scores[0], (self.some[0], answer))

    def _whole_weights(self) -> dict[str, Tensor]:
        """The weights, put together from all processes if they are cut into shards."""
        return {name: whole(tensor.detach()) for name, tensor in checkpoint.weights_of(self.network).items()}

    def _scores(self, weights: dict[str, Tensor]) -> tuple[list[Score], str]:
        """The metrics of these weights on the validation data by process 0, known to all; and its first answer."""
        found: list[Any] = []
        if self.world.first:
            if self.network is not self.task.network:
                checkpoint.put_weights(self.task.network, weights, self.run)
            scores, answers = self.task.evaluate(self.some, quick=True, samples=0)
            found = [[asdict(score) for score in scores], answers[0]]
        scores_found, answer = self.world.said(found)
        return [Score(**score) for score in scores_found], answer

    def _keep_weights(self, weights: dict[str, Tensor]) -> bool:
        """The weights of this step beside those of the last validations; whether that went well.

        They come before the state that names them, and go after it: a state's best weights exist at any moment.
        """
        path = self._weights_at(self.at.step)
        try:
            path.parent.mkdir(exist_ok=True)
            checkpoint.save_weights(weights, path)
        except (OSError, sums.Unwritable) as error:
            self.progress.say(f"step {self.at.step}: {_plain(error)}; training goes on")
            return False
        self.at.kept[path.name] = sums.sha256(path)
        return True

    def _weights_at(self, step: int) -> Path:
        return self.run / "checkpoints" / f"{step:08d}.safetensors"

    def _publish(self) -> None:
        """What others read follows the state: the metrics, and the best weights as the model."""
        files: dict[str, bytes | Path] = {
            "metrics.jsonl": "".join(json.dumps(entry) + "\n" for entry in self.at.history).encode()
        }
        best = self._weights_at(self.at.best_step)
        model = self.run / "model.safetensors"
        if best.name in self.at.kept and not (model.is_file() and sums.sha256(model) == self.at.kept[best.name]):
            files[model.name] = best
        try:
            sums.publish(self.run, files)
            for old in (self.run / "checkpoints").glob("*.safetensors"):
                if not any(old.name in names for names in self.needed):
                    old.unlink()
        except (OSError, sums.Unwritable) as error:
            self.progress.say(f"step {self.at.step}: {_plain(error)}; training goes on and tries again")

    def finish(self) -> None:
        """The average of the last checkpoints is the model, unless the best of them all is clearly better."""
        if self.at.best is None:
            self._validate([])
        self.board.close()
        if not self.world.first:
            return
        paths = [self.run / "checkpoints" / name for name in sorted(self.at.kept)[-self.how.average :]]
        best, model = self._weights_at(self.at.best_step), self.run / "model.safetensors"
        if best.name not in self.at.kept:
            raise UserError(f"{self.run}: no weights could be saved: make room or mend the folder, then train again.")
        chosen: bytes | Path = best
        if len(paths) > 1:
            mean = checkpoint.average(paths)
            checkpoint.put_weights(self.task.network, mean, self.run)
            scores, _ = self.task.evaluate(self.some, quick=True)
            better, why = metrics.as_good(scores[0], self.at.best)
            self.progress.say(
                f"average of the last {len(paths)} checkpoints: {scores[0].name} {scores[0].value:.2f}, {why}"
            )
            if better:
                chosen = checkpoint.as_bytes(mean)
        try:
            sums.publish(self.run, {model.name: chosen})
        except sums.Unwritable as error:
            some = f"{self.safe or 'none'} of {self.at.step} steps"
            raise UserError(
                f"{'All steps' if self.safe == self.at.step else some} are saved, but {_plain(error)}: mend that and "
                "give the same command."
            ) from error
        checkpoint.put_weights(self.task.network, checkpoint.load_weights(model), model)
        self.progress.say(f"peak memory: {memory.gigabytes(memory.peak(self.world.device))}")

    def save(self, *, must: bool = False) -> bool:
        """The state, whole or not at all; whether that went well. If it `must`, a failure ends the run."""
        inner = self.optimiser.state_dict()["state"]
        moments = {f"{i}.{key}": whole(value) for i, entry in inner.items() for key, value in entry.items()}
        state = device.random_state(self.world.device).to(self.world.device)
        random = {f"torch.{rank}": each.cpu() for rank, each in enumerate(self.world.tensors(state))}
        tensors = {"weights": self._whole_weights(), "optimiser": moments, "random": random}
        self.saved = self.at.seconds
        if not self.world.first:
            return True
        self.at.kept = self._still_wanted()
        facts = {**asdict(self.at), "window": self.window, "facts": self.facts}
        facts["settings"] = self.config.model_dump(mode="json")
        try:
            checkpoint.save_state(self.run, self.at.step, tensors, facts)
        except sums.Unwritable as error:
            older = f"what was saved before is in {self.run / 'state'}"
            if must:
                raise UserError(f"Step {self.at.step} is not saved: {_plain(error)}; {older}.") from error
            self.progress.say(
                f"step {self.at.step} is not saved: {_plain(error)}; training goes on and tries again, {older}"
            )
            return False
        self.needed, self.safe = [*self.needed, {*self.at.kept}][-checkpoint.KEEP :], self.at.step
        return True

    def _still_wanted(self) -> dict[str, str]:
        """The checkpoints to average, and the best."""
        wanted = {*sorted(self.at.kept)[-self.how.average :], self._weights_at(self.at.best_step).name}
        return {name: found for name, found in self.at.kept.items() if name in wanted}

    def resume(self, say: Say) -> bool:
        """Go on from the newest good state, if there is one."""
        found = checkpoint.load_state(self.run)
        if found is None:
            return False
        tensors, facts, warnings = found
        for warning in warnings:
            say(warning)
        if not tensors:
            raise UserError(f"{self.run / 'state'}: every saved state is damaged; remove the folder to start anew.")
        try:
            self._take(tensors, facts, say)
        except (ValidationError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise UserError(
                f"{self.run / 'state'}: the state is of another version of regard ({type(error).__name__}: {error}): "
                "go on with that one, or name another folder with -o."
            ) from error
        if self.how.steps is not None and self.how.steps != self.at.steps:
            say(f"training.steps was {self.at.steps}, is {self.how.steps}: the learning rate follows the new number")
            self.at.steps = self.how.steps
        self.saved, self.safe = self.at.seconds, self.at.step
        if self.world.first:
            self._check_kept(say)
            with suppress(OSError):
                checkpoint.tidy(self.run)
            self.needed = [{*kept} for kept in checkpoint.named(self.run)]
            self._publish()
        return True

    def _take(self, tensors: dict[str, dict[str, Tensor]], facts: dict[str, Any], say: Say) -> None:
        changed = [name for name, value in self.facts.items() if facts["facts"].get(name) != value]
        if "data" in changed:
            raise UserError(
                f"{self.run}: the training data has changed since this run began; use another -o, or restore it."
            )
        for name in changed:
            say(
                f"{name} was {facts['facts'].get(name)}, is {self.facts[name]}: not bit for bit what it would have been"
            )
        self.at = TypeAdapter(Position).validate_python(facts)
        self.window = TypeAdapter(Window).validate_python(facts["window"])
        own = checkpoint.weights_of(self.network)
        weights = {name: like(value, own[name]) for name, value in tensors["weights"].items() if name in own}
        checkpoint.put_weights(self.network, weights, self.run / "state")
        self._load_optimiser(tensors["optimiser"])
        if (random := tensors["random"].get(f"torch.{self.world.rank}")) is not None:
            device.set_random_state(random, self.world.device)

    def _check_kept(self, say: Say) -> None:
        """Checkpoints that are gone or damaged are said and done without; a lost best is taken back from the model."""
        best, model = self._weights_at(self.at.best_step), self.run / "model.safetensors"
        for name, expected in [*self.at.kept.items()]:
            path = sums.inside(self.run / "checkpoints", name)
            if path.is_file() and sums.sha256(path) == expected:
                continue
            if path == best and model.is_file() and sums.sha256(model) == expected:
                sums.write_whole(path, model)
                say(f"{path} was damaged or gone: taken back from {model}")
                continue
            say(f"{path} is damaged or gone: done without, so the result is not what it would have been")
            del self.at.kept[name]
            if path == best:
                self.at.best, self.at.best_step = None, 0

    def _load_optimiser(self, moments: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        for name, value in moments.items():
            number, key = name.split(".")
            cut = like(value, parameters[int(number)]) if value.dim() else value
            state.setdefault(int(number), {})[key] = cut
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM finish the step, save and leave; a second one leaves at once, with the state before."""

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


def _from_all_over(items: list[Item]) -> list[Item]:
    """Files are often sorted: their first items are not like the others."""
    return [items[i * len(items) // MOST] for i in range(MOST)] if len(items) > MOST else items


def _plain(error: Exception) -> str:
    """A sentence to go on from."""
    return str(error).rstrip(".")
