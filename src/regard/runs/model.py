"""Trained models: `regard.load` opens one from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from regard import config as config_files
from regard import metrics
from regard.config import Config
from regard.errors import UserError
from regard.inspection.figure import figure_of
from regard.network import Network
from regard.outputs.output import Held
from regard.runs import checkpoint, checksums, locations, settings, upgrade
from regard.runs.build import files_of, form_of, load_parts, read, unfilled
from regard.runs.folder import WEIGHTS
from regard.task import Task

if TYPE_CHECKING:
    from regard.pictures.style import Picture

Paths = Sequence[str | Path] | str | Path
SAME = 1e-4  # differences below it are those of rounding
TRIED = 16  # rows that invariances are tried on


class Model:
    """A trained model: its folder, its settings, and the task it does."""

    def __init__(self, folder: Path, config: Config, task: Task) -> None:
        self.folder, self.config, self.task = folder, config, task

    def __repr__(self) -> str:
        kind = getattr(self.config.model, "kind", "")
        count = sum(parameter.numel() for parameter in self.network.parameters())
        return f"<Model {str(self.folder)!r}: {self.task.does}, {kind + ', ' if kind else ''}{count:,} parameters>"

    @property
    def network(self) -> Network:
        return self.task.network

    @overload
    def predict(self, texts: Sequence[Any], *, details: Literal[False] = False, **changes: Any) -> list[str]: ...

    @overload
    def predict(self, texts: Sequence[Any], *, details: bool, **changes: Any) -> list[Any]: ...

    def predict(self, texts: Sequence[Any], *, details: bool = False, **changes: Any) -> list[Any]:
        """Return the best answer to each text. With `details`, return a dictionary for each instead, as
        `regard predict --json` prints it: probabilities of labels and tags, scores of answers, alignments.

        `changes` are the options of `regard predict` that this model has: `beam=1`, `n_best=3`, `alignment="soft"`,
        `temperature=0.8`, `seed=1` and so on.
        """
        sources = self._sources(texts, "predict")
        if details:
            return [self.task.output.as_json(answer) for answer in self.task.answers(sources, **changes)]
        return self.task.predict(sources, **changes)

    def answers(self, texts: Sequence[Any], **changes: Any) -> list[Any]:
        """Return all that is known of the answers to each text (scores, n best …), in the output's own form."""
        return self.task.answers(self._sources(texts, "answers"), **changes)

    def show(self, text: Any, *, answer: str | None = None, grid: bool = False) -> Picture:
        """Draw where the model looked, for one text and its answer (the model's own, or a given one). Notebooks display
        the figure; `grid` draws every layer and head. `figure.savefig("x.png")` writes it."""
        (source,) = self._sources([text], "show")
        return figure_of(self.task.exhibit(source, answer), grid=grid)

    def _sources(self, texts: Sequence[Any], name: str) -> list[Any]:
        if isinstance(texts, str):
            raise UserError(f"{name} takes a list of texts, found one text: put it in brackets.")
        read = self.task.input.read
        sources = [read(text) if isinstance(text, str) else text for text in texts]
        for place, source in enumerate(sources):
            fault = self.task.input.unreadable(source)
            if fault:
                raise UserError(f"Text {place + 1} of {len(sources)}: {fault.rstrip('.')}.")
        return sources

    def held(self, paths: Paths) -> Held:
        """Return what a file holds for this task to be evaluated on."""
        return self.sources_and_held(paths)[1]

    def sources_and_held(self, paths: Paths) -> tuple[list[str], Held]:
        """Return the keys of a file's examples in their order, and what to evaluate on: an output may join examples."""
        names = [paths] if isinstance(paths, str | Path) else list(paths)
        tests = [path for part, path in form_of(self.config, names).splits if part == "test"]
        examples = list(read(self.config, [*tests, *names[1:]] if tests else names))
        held = self.task.held(examples)
        if not held.items:
            raise nothing_in(names, settings.unit_of(self.config.input, self.config.task))
        return [example.key for example in examples], held

    def invariances(self) -> list[tuple[str, float]]:
        """Return what must hold for every model (causality, padding, batch …), and the largest difference found on the
        first rows of its own data; sound ones are below SAME."""
        data = self.config.data
        examples = islice(read(self.config, data.valid or data.train), TRIED)
        self.network.eval()
        return list(self.task.invariances(list(self.task.rows(examples))[:TRIED]))

    def evaluate(self, paths: Paths, **changes: Any) -> tuple[list[metrics.Score], list[str]]:
        """Return the metrics on a file with known answers, or on line-aligned files, and the model's answers."""
        return self.task.evaluate(self.held(paths), **changes)


def nothing_in(paths: Sequence[str | Path], unit: str) -> UserError:
    return UserError(f"{paths[0]}: there is no {unit} in it to evaluate on.")


def loaded(config: Config, *, old: bool = False) -> tuple[str, ...]:
    """Return the files that a model of these settings is loaded from."""
    return ("config.yaml", *files_of(config, old=old), WEIGHTS)


def load(folder: str | Path) -> Model:
    """Load a trained model from its folder alone; its network is built once."""
    folder = Path(folder)
    config, old = settings_in(folder)
    names = loaded(config, old=old)
    for name in names[:-1]:
        refuse_missing(folder, name)
    weights = folder / WEIGHTS
    checksums.inside(folder, weights.name)
    found = checkpoint.shapes_in(weights)
    _refuse_few(config, found, weights)
    rows = max((size for shape in found.values() for size in shape), default=0)
    for name in names[1:-1]:
        _refuse_giant(folder / name, (1 << 16) + 1000 * rows)  # a token has a row in some table
    task = unfilled(config, load_parts(config, folder, old=old))
    renamed = upgrade.weights(found, config.task) if old else found
    checkpoint.refuse_unfit(checkpoint.shapes_of(task.network), renamed, weights)
    checksums.check(folder, names)  # last, because a fault that can be named is better than one that is only noticed
    tensors = checkpoint.load_weights(weights)
    checkpoint.put_weights(task.network, upgrade.weights(tensors, config.task) if old else tensors, weights)
    task.network.eval()
    return Model(folder, config, task)


def settings_in(folder: Path) -> tuple[Config, bool]:
    """Return the settings of a run folder, and whether version 0.1 wrote it."""
    if not folder.is_dir():
        raise UserError(f"{folder} is not a run folder: {'it is a file' if folder.exists() else 'it does not exist'}.")
    refuse_missing(folder, "config.yaml")
    _refuse_giant(folder / "config.yaml", 1 << 20)
    found = config_files.parse(folder / "config.yaml")
    config = settings.make(found, str(folder / "config.yaml"))
    settings.refuse_too_large(config, str(folder / "config.yaml"), 4)
    return locations.resolved(config, folder), upgrade.is_old(found)


def refuse_missing(folder: Path, name: str) -> None:
    if not (folder / name).is_file():
        raise UserError(f"{folder} is not a run folder: it has no {name}; expected what `regard train` wrote.")
    checksums.inside(folder, name)


def _refuse_giant(path: Path, most: int) -> None:
    if path.stat().st_size > most:
        raise UserError(
            f"{path} has {path.stat().st_size:,} bytes, expected at most {most:,}: restore it, or train again."
        )


def _refuse_few(config: Config, found: checkpoint.Shapes, weights: Path) -> None:
    """Refuse a file with too few tensors, before a network of so many layers is built."""
    layers = getattr(config.model, "layers", 1)
    if len(found) < 2 * layers:  # each layer has two at the very least
        raise UserError(
            f"{weights} does not fit the model its config.yaml describes: {len(found)} tensors are too few for "
            f"model.layers={layers}."
        )
