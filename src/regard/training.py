"""The one loop: step, validate, save, resume. It knows no task, only rows, batches, a loss and a score."""

from __future__ import annotations

import copy
import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import checkpoint
from regard.config import Config, Training
from regard.data.batches import Batches, share
from regard.errors import UserError
from regard.outputs.convert import Search
from regard.parallel import World, whole, without_sync, wrap
from regard.preparing import Prepared, Say
from regard.progress import Progress

WARM = 12  # steps timed before the number of steps is settled
Window = list[tuple[float, int, float]]  # loss, tokens and seconds of the steps since the last validation
BAD_STEPS = 5  # non-finite steps in a row that end a run


@dataclass
class Position:
    """Everything about a run that is not a tensor."""

    step: int = 0
    epoch: int = 0
    batch: int = 0  # within the epoch
    steps: int | None = None  # in all, once settled
    seconds: float = 0.0  # trained so far
    best: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best
    history: list[dict[str, Any]] = field(default_factory=list)


class Interrupted(Exception):
    """Ctrl-C or SIGTERM: the state has been saved."""


def rate_at(step: int, steps: int | None, how: Training) -> float:
    """The learning rate of a step: linear warm-up, then cosine to zero, 1/√step, or constant."""
    warm = max(1, min(how.warmup, (steps or 10**9) // 3))
    if step <= warm:
        return how.rate * step / warm
    if how.schedule == "inverse_sqrt":
        return how.rate * math.sqrt(warm / step)
    if how.schedule == "constant" or steps is None:
        return how.rate
    return how.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))


class Trainer:
    def __init__(
        self, config: Config, run: Path, prepared: Prepared, progress: Progress, world: World | None = None
    ) -> None:
        self.how, self.run, self.progress = config.training, run, progress
        self.world = world = world or World()
        self.config, self.task, self.store, self.valid = config, prepared.task, prepared.store, prepared.valid
        sharded = world.size > 1 and self.how.parallel == "fsdp"
        self.network = copy.deepcopy(self.task.network) if sharded else self.task.network
        self.loss = wrap(self.network, world, self.how.parallel)
        if world.rank:
            torch.manual_seed(self.how.seed + 1_000_003 * world.rank)  # other dropout than process 0's
        self.batches = Batches(self.store.lengths, self.how.budget, self.how.seed)
        named = list(self.network.named_parameters())
        decayed = [p for name, p in named if p.dim() > 1 and "table" not in name]
        others = [p for name, p in named if not (p.dim() > 1 and "table" not in name)]
        groups = [{"params": decayed, "weight_decay": self.how.decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=self.how.rate, betas=(0.9, 0.98), eps=1e-9, fused=not sharded)
        self.at = Position(steps=self.how.steps)
        self.facts = {"data": prepared.checksum, "threads": torch.get_num_threads(), "torch": torch.__version__}
        self.stop = False
        self.bad = 0

    # ---- the loop -------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Until the steps, the minutes or the patience are used up, or somebody stops it."""
        with self._signals():
            if self.at.step == 0:
                self._try_largest()
            started = time.monotonic() - self.at.seconds
            window: Window = []
            while not self._finished():
                began = time.monotonic()
                loss, tokens = self._step()
                window.append((loss, tokens, time.monotonic() - began))
                self.at.seconds = time.monotonic() - started
                self._agree()
                self._settle(window)
                self.progress.step(self.at, window[-1])
                if self.at.step % self._every() == 0 or self._finished():
                    self._validate(window)
                    window = []
                if self.stop:
                    self.save()
                    raise Interrupted

    def _agree(self) -> None:
        """All processes stop together, by the clock of the first."""
        if self.world.size > 1:
            self.at.seconds = self.world.sum(self.at.seconds if self.world.first else 0.0)
            self.stop = self.world.sum(float(self.stop)) > 0

    def _step(self) -> tuple[float, int]:
        """One update from `accumulate` batches; the loss is a mean over all their target tokens."""
        self.network.train()
        rows = [self._next() for _ in range(self.how.accumulate)]
        tokens = int(sum(self.store.lengths[chosen, -1].sum() for chosen in rows))
        total = 0.0
        self.optimiser.zero_grad(set_to_none=True)
        for number, chosen in enumerate(rows):
            own = share(chosen, self.world.rank, self.world.size)
            # A process without rows still takes part, with a weight of zero: the others wait for it.
            batch = self.task.batch([self.store[int(i)] for i in (own if len(own) else chosen[:1])])
            with without_sync(self.loss, last=number == len(rows) - 1):
                loss = self.loss(batch, self.how.smoothing) * (1.0 if len(own) else 0.0)
                (loss * self.world.size / tokens).backward()  # times the size: gradients are averaged over processes
            total += float(loss.detach())
        total = self.world.sum(total)
        norm = whole(torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.how.clip))
        self.at.step += 1
        if not math.isfinite(total) or not bool(torch.isfinite(norm)):
            self._skip(rows)
        else:
            self.bad = 0
            for group in self.optimiser.param_groups:
                group["lr"] = rate_at(self.at.step, self.at.steps, self.how)
            self.optimiser.step()
        return total / tokens, int(sum(self.store.lengths[chosen].sum() for chosen in rows))

    def _next(self) -> Any:
        if self.at.batch >= self.batches.count(self.at.epoch):
            self.at.epoch, self.at.batch = self.at.epoch + 1, 0
        chosen = self.batches.batch_at(self.at.epoch, self.at.batch)
        self.at.batch += 1
        return chosen

    def _skip(self, rows: list[Any]) -> None:
        """A loss or gradient that is no number: nothing is applied, the batch is named, a few in a row end the run."""
        self.bad += 1
        where = (
            f"epoch {self.at.epoch}, batch {self.at.batch - 1}, rows {', '.join(str(int(i)) for i in rows[0][:5])} …"
        )
        self.progress.say(f"step {self.at.step}: the loss or its gradient is not finite ({where}); step not applied")
        if self.bad >= BAD_STEPS:
            self.save()
            raise UserError(
                f"The loss was not finite for {self.bad} steps in a row, last at {where}: the state is kept in "
                f"{self.run / 'state'}; lower training.rate or look at these rows."
            )

    def _try_largest(self) -> None:
        """The batch that needs the most memory comes first: better to fail now than after an hour."""
        chosen = self.batches.largest()
        random = torch.get_rng_state()
        try:
            self.network.train()
            loss, _ = self.network.loss(self.task.batch([self.store[int(i)] for i in chosen]), self.how.smoothing)
            loss.backward()
        except (RuntimeError, MemoryError) as error:
            if "memory" not in str(error).lower():
                raise
            raise UserError(
                f"The largest batch ({self.how.budget} tokens) does not fit into memory: "
                f"--set training.budget={self.how.budget // 2} training.accumulate={2 * self.how.accumulate}."
            ) from error
        finally:
            self.optimiser.zero_grad(set_to_none=True)
            torch.set_rng_state(random)

    def _settle(self, window: Window) -> None:
        """How many steps fit into the minutes: from the first ones, and again if the machine's speed has changed.

        The schedule of the learning rate ends where the time ends, so a wrong guess would cost quality.
        """
        if self.how.steps is not None or self.how.minutes is None or self.at.step < WARM:
            return
        if self.at.steps is not None and (len(window) < 30 or len(window) % 30):
            return
        times = sorted(seconds for _, _, seconds in window[-30:])
        mean = sum(times[: max(1, len(times) - 2)]) / max(1, len(times) - 2)
        left = 60 * self.how.minutes - self.at.seconds
        steps = self.at.step + max(1, int(0.9 * left / mean))  # a tenth of the time is for validation
        if self.at.steps is None or not 0.8 < (steps - self.at.step) / max(1, self.at.steps - self.at.step) < 1.5:
            self.at.steps = steps
            self.progress.say(f"{steps:,} steps fit into {self.how.minutes:g} minutes ({1000 * mean:.0f} ms each)")

    def _every(self) -> int:
        return self.how.every or max(10, (self.at.steps or 2500) // 25)

    def _finished(self) -> bool:
        spent = self.how.minutes is not None and self.at.seconds > 60 * self.how.minutes
        done = self.at.steps is not None and self.at.step >= self.at.steps
        return done or spent or self.at.stale >= self.how.patience

    # ---- validation and saving ------------------------------------------------------------------------------------

    def _validate(self, window: Window) -> None:
        how = Search(beam=1, factor=self.config.decoding.factor, longest=self.config.decoding.longest)
        scores, answers = self.task.evaluate(self.valid[:1000], how, samples=0)
        value = scores[0].value if scores[0].higher_is_better else -scores[0].value
        if self.at.best is None or value > self.at.best:
            self.at.best, self.at.best_step, self.at.stale = value, self.at.step, 0
            checkpoint.save_weights(checkpoint.weights_of(self.network), self.run / "model.safetensors")
        else:
            self.at.stale += 1
        kept = self.run / "checkpoints"
        kept.mkdir(exist_ok=True)
        checkpoint.save_weights(checkpoint.weights_of(self.network), kept / f"{self.at.step:08d}.safetensors")
        for old in sorted(kept.glob("*.safetensors"))[: -self.how.average]:
            old.unlink()
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
        with (self.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        self.save()
        self.progress.validated(self.at, entry, scores[0], (self.valid[0], answers[0]))

    def finish(self) -> None:
        """The average of the last checkpoints if it is better than the best; then the best is the model."""
        paths = sorted((self.run / "checkpoints").glob("*.safetensors"))
        best = self.run / "model.safetensors"
        if len(paths) > 1:
            how = Search(beam=1, factor=self.config.decoding.factor, longest=self.config.decoding.longest)
            mean = checkpoint.average(paths)
            checkpoint.put_weights(self.network, mean, self.run)
            score = self.task.evaluate(self.valid[:1000], how, samples=0)[0][0]
            value = score.value if score.higher_is_better else -score.value
            better = self.at.best is None or value >= self.at.best
            self.progress.say(
                f"average of the last {len(paths)} checkpoints: {score.name} {score.value:.2f}, "
                f"{'kept' if better else f'not better than the best ({abs(self.at.best or 0):.2f}), which is kept'}"
            )
            if better:
                checkpoint.save_weights(mean, best)
        checkpoint.put_weights(self.network, checkpoint.load_weights(best), best)

    def save(self) -> None:
        inner = self.optimiser.state_dict()["state"]
        moments = {f"{i}.{key}": value for i, entry in inner.items() for key, value in entry.items()}
        tensors = {
            "weights": checkpoint.weights_of(self.network),
            "optimiser": moments,
            "random": {"torch": torch.get_rng_state()},
        }
        checkpoint.save_state(self.run, self.at.step, tensors, {**asdict(self.at), "facts": self.facts})

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
        changed = [name for name, value in self.facts.items() if facts["facts"].get(name) != value]
        if "data" in changed:
            raise UserError(
                f"{self.run}: the training data has changed since this run began; use another -o, or restore it."
            )
        for name in changed:
            say(
                f"{name} was {facts['facts'].get(name)}, is {self.facts[name]}: not bit for bit what it would have been"
            )
        self.at = Position(**{key: value for key, value in facts.items() if key != "facts"})
        checkpoint.put_weights(self.network, tensors["weights"], self.run / "state")
        self._load_optimiser(tensors["optimiser"])
        torch.set_rng_state(tensors["random"]["torch"])
        return True

    def _load_optimiser(self, moments: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in moments.items():
            number, key = name.split(".")
            state.setdefault(int(number), {})[key] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM finish the step, save and leave."""

        def ask(*_: object) -> None:
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
