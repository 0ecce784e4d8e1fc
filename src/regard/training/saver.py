"""The files of a training: states to resume from, checkpoints of validations, and the published model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from regard.config import Config
from regard.errors import UserError
from regard.runs import checkpoint, checksums, folder, locations
from regard.training import device
from regard.training.distributed import World, like, whole
from regard.training.position import Position, Window
from regard.training.prepare import Say


class Saver:
    """Saves and resumes a run. Process 0 alone writes; `at` and `window` are the trainer's own and change in place.

    `facts` are what exactness depends on besides the state: the data, the versions, the number of processes.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        facts: dict[str, Any],
        world: World,
        say: Say,
    ) -> None:
        self.config, self.how, self.run, self.world, self.say = config, config.training, run, world, say
        self.network, self.optimiser, self.facts = network, optimiser, facts
        self.model = run / "model.safetensors"
        self.at = Position(steps=self.how.steps)
        self.window: Window = []
        self.tried = 0.0  # seconds of training when the state was last saved, or that was tried
        self.safe = 0  # the newest step whose state is on disk
        self.needed: list[set[str]] = []  # checkpoints that the newest states name

    # ---- states ---------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return weights and buffers, put together from all processes if they are cut into shards."""
        return {name: whole(tensor.detach()) for name, tensor in checkpoint.tensors_of(self.network).items()}

    def save(self, *, must: bool = False) -> bool:
        """Save the state, whole or not at all; return whether that went well. If it `must`, a failure ends the run."""
        inner = self.optimiser.state_dict()["state"]
        moments = {f"{i}.{key}": whole(value) for i, entry in inner.items() for key, value in entry.items()}
        state = device.random_state(self.world.device).to(self.world.device)
        random = {f"torch.{rank}": each.cpu() for rank, each in enumerate(self.world.gather_tensors(state))}
        tensors = {"weights": self.tensors(), "optimiser": moments, "random": random}
        self.tried = self.at.seconds
        if not self.world.first:
            return True
        self.at.kept = self._still_wanted()
        facts = {**asdict(self.at), "window": self.window, "facts": self.facts}
        facts["settings"] = locations.portable(self.config, self.run).model_dump(mode="json")
        try:
            checkpoint.save_state(self.run, self.at.step, tensors, facts)
        except checksums.Unwritable as error:
            older = f"what was saved before is in {self.run / 'state'}"
            if must:
                raise UserError(f"Step {self.at.step} is not saved: {plain(error)}; {older}.") from error
            self.say(
                f"step {self.at.step} is not saved: {plain(error)}; training continues and will try again, {older}"
            )
            return False
        self.needed, self.safe = [*self.needed, {*self.at.kept}][-checkpoint.KEEP :], self.at.step
        return True

    def resume(self, say: Say) -> bool:
        """Resume from the newest sound state; return whether there is one."""
        found = checkpoint.load_state(self.run)
        if found is None:
            return False
        tensors, facts, warnings = found
        for warning in warnings:
            say(warning)
        if not tensors:
            raise UserError(f"{self.run / 'state'}: every saved state is damaged. {self._instead()}")
        try:
            self._take(tensors, facts, say)
        except (ValidationError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise UserError(
                f"{self.run / 'state'}: the state is of another version of regard ({type(error).__name__}: {error}): "
                "resume with that version, or name another folder with -o."
            ) from error
        if self.how.steps is not None and self.how.steps != self.at.steps:
            say(f"training.steps was {self.at.steps}, is {self.how.steps}: the learning rate follows the new number")
            self.at.steps = self.how.steps
        self.tried, self.safe = self.at.seconds, self.at.step
        if self.world.first:
            self._check_kept(say)
            with suppress(OSError):
                checkpoint.tidy(self.run)
            self.needed = [{*kept} for kept in checkpoint.named(self.run)]
            self.publish()
        return True

    def _instead(self) -> str:
        if not self.model.is_file():
            return "Name another folder with -o."
        return f"The model in {self.model} is kept. {folder.instead(self.run)}"

    def _take(self, tensors: dict[str, dict[str, Tensor]], facts: dict[str, Any], say: Say) -> None:
        changed = [name for name, value in self.facts.items() if facts["facts"].get(name) != value]
        if "data" in changed:
            raise UserError(
                f"{self.run}: the training data has changed since this run began; use another -o, or restore it."
            )
        for name in changed:
            say(
                f"{name} was {facts['facts'].get(name)}, is {self.facts[name]}: the result will not be bit-for-bit the "
                "same"
            )
        vars(self.at).update(vars(TypeAdapter(Position).validate_python(facts)))
        self.window[:] = TypeAdapter(Window).validate_python(facts["window"])
        own = checkpoint.tensors_of(self.network)
        weights = {name: like(value, own[name]) for name, value in tensors["weights"].items() if name in own}
        checkpoint.put_weights(self.network, weights, self.run / "state")
        self._load_optimiser(tensors["optimiser"])
        if (random := tensors["random"].get(f"torch.{self.world.rank}")) is not None:
            device.set_random_state(random, self.world.device)

    def _load_optimiser(self, moments: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        parameters = [p for group in self.optimiser.param_groups for p in group["params"]]
        for name, value in moments.items():
            number, key = name.split(".")
            cut = like(value, parameters[int(number)]) if value.dim() else value
            state.setdefault(int(number), {})[key] = cut
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    # ---- checkpoints and the model --------------------------------------------------------------------------------

    def path(self, step: int) -> Path:
        """Return the file of a step's checkpoint."""
        return self.run / "checkpoints" / f"{step:08d}.safetensors"

    def keep(self, weights: Mapping[str, Tensor]) -> bool:
        """Write the checkpoint of this step beside those of the last validations; return whether that went well.

        Checkpoints come before the state that names them, and go after it: a state's best weights exist at any moment.
        """
        path = self.path(self.at.step)
        try:
            path.parent.mkdir(exist_ok=True)
            checkpoint.save_weights(weights, path)
        except (OSError, checksums.Unwritable) as error:
            self.say(f"step {self.at.step}: {plain(error)}; training continues")
            return False
        self.at.kept[path.name] = checksums.sha256(path)
        return True

    def averaged(self) -> list[Path]:
        """Return the checkpoints to average, oldest first; none without metrics, which would show that it helps."""
        names = sorted(self.at.kept)[-self.how.average :] if self.at.best != [] else []
        return [self.run / "checkpoints" / name for name in names]

    def _still_wanted(self) -> dict[str, str]:
        """Return the checkpoints to average, and the best."""
        wanted = {*(path.name for path in self.averaged()), self.path(self.at.best_step).name}
        return {name: found for name, found in self.at.kept.items() if name in wanted}

    def publish(self) -> None:
        """Write what others read, after the state: the metrics, and the best weights as the model."""
        files: dict[str, bytes | Path] = {
            "metrics.jsonl": "".join(json.dumps(entry) + "\n" for entry in self.at.history).encode()
        }
        best, model = self.path(self.at.best_step or self.at.step), self.model  # before there is a best: the newest
        if best.name in self.at.kept and not (model.is_file() and checksums.sha256(model) == self.at.kept[best.name]):
            files[model.name] = best
        try:
            checksums.publish(self.run, files)
            for old in (self.run / "checkpoints").glob("*.safetensors"):
                if not any(old.name in names for names in self.needed):
                    old.unlink()
        except (OSError, checksums.Unwritable) as error:
            self.say(f"step {self.at.step}: {plain(error)}; training continues and will try again")

    def publish_model(self, content: bytes | Path) -> None:
        """Write the final model."""
        try:
            checksums.publish(self.run, {self.model.name: content})
        except checksums.Unwritable as error:
            some = f"{self.safe or 'none'} of {self.at.step} steps"
            raise UserError(
                f"{'All steps' if self.safe == self.at.step else some} are saved, but {plain(error)}. Remove the "
                "cause and run the same command again."
            ) from error

    def _check_kept(self, say: Say) -> None:
        """Report checkpoints that are gone or damaged and do without them; take a lost best back from the model."""
        best, model = self.path(self.at.best_step), self.model
        for name, expected in [*self.at.kept.items()]:
            path = checksums.inside(self.run / "checkpoints", name)
            if path.is_file() and checksums.sha256(path) == expected:
                continue
            if path == best and model.is_file() and checksums.sha256(model) == expected:
                checksums.write_whole(path, model)
                say(f"{path} was damaged or gone: taken back from {model}")
                continue
            say(f"{path} is damaged or gone: training continues without it, so the result will differ")
            del self.at.kept[name]
            if path == best:
                self.at.best, self.at.best_step = None, 0


def plain(error: Exception) -> str:
    """Return an error's sentence without its full stop, to go on from."""
    return str(error).rstrip(".")
