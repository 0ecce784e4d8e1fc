"""From a config to what training needs: vocabularies, a model, stored tokens, validation items."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import regard
from regard import checkpoint, starting, sums
from regard import config as settings
from regard.config import Config, Data
from regard.data.reading import Fault, OnFault, Pair, read_pairs, recognise
from regard.data.store import INDEX, Store, write_store
from regard.errors import UserError
from regard.inputs.tokens import Tokenizer
from regard.outputs.task import UNITS, Item, Row, Task, Vocabularies
from regard.tasks import TASKS

Say = Callable[[str], None]
VOCABULARIES = tuple(dict.fromkeys(name for task in TASKS.values() for name in task.files))  # of any task
ORIGIN = "origin.json"  # in the cache: what it was made from
CHECKED = (ORIGIN, INDEX)  # by the cache's sums; the tokens are by those in its index


@dataclass(frozen=True)
class Prepared:
    task: Task
    store: Store
    valid: list[Item]
    checksum: str


@dataclass(frozen=True)
class Stored:
    """Vocabularies, the training data as tokens, and how much of it was too long."""

    vocabularies: Vocabularies
    store: Store
    left_out: int


def prepare(
    config: Config, run: Path, say: Say, files: str | None = None, given: Mapping[str, Tokenizer] | None = None
) -> Prepared:
    """Learn vocabularies, store the training pairs as tokens in the run folder, build the model.

    What an earlier run of the same settings left in the folder is used again if it is sound; `files` is the checksum of
    the data, if it is known, and `given` are vocabularies that are known already, by the names of their files.
    """
    skipped: list[Fault] = []
    on_fault = skipped.append if config.data.faults == "skip" else None
    kind = TASKS[config.task]
    split = Split(config, kind.contiguous, on_fault)
    if not config.data.valid:
        say(f"holding out {'the last' if kind.contiguous else 'about'} {config.data.held_out} for validation")
    elif config.data.apart:
        say("what is in the validation data too is left out of training (data.apart)")
    origin = _origin(config, files or checksum([*config.data.train, *config.data.valid]))
    if split.chosen is not None:
        origin["chosen"] = len(split.chosen)
    stored = _reuse(run, kind.files, origin, say)
    task = build(config, stored.vocabularies if stored else vocabularies_of(config, split.train, given or {}))
    stored = stored or _make(config, split, task, run, origin)
    if skipped:
        say(f"skipped {len({*skipped}):,} faulty lines, the first: {skipped[0]}")
    if stored.left_out:
        say(f"left out {stored.left_out:,} with more than {config.data.longest} tokens on a side (data.longest)")
    if not len(stored.store):
        raise UserError(
            f"{config.data.train[0]}: no {UNITS[kind.reads]} is left to train on; see data.longest and data.faults."
        )
    task.settle(config, stored.store)
    valid = task.items(split.valid())
    if not valid:
        paths = config.data.valid or config.data.train
        raise UserError(f"{paths[0]}: no {UNITS[kind.reads]} is left to validate on: give --valid FILE.")
    return Prepared(task, stored.store, valid, stored.store.checksum)


def vocabularies_of(
    config: Config, pairs: Callable[[], Iterator[Pair]], given: Mapping[str, Tokenizer]
) -> Vocabularies:
    """The given vocabularies, and others as learned from the training data, which `pairs()` reads once."""
    kind = TASKS[config.task]
    if {*kind.files} <= {*given} - {*starting.CLASSES}:
        return tuple(given[name] for name in kind.files)
    return starting.chosen(kind.files, kind.learn(config, pairs), given)


def _origin(config: Config, files: str) -> dict[str, Any]:
    """All that vocabularies and tokens depend on: if none of it has changed, they need not be made again."""
    data = config.data
    return {
        "files": files,
        "task": config.task,
        "data": [len(data.train), len(data.valid), data.faults, data.encoding, data.apart, data.held_out, data.longest],
        "tokens": config.tokens.model_dump(),
        "seed": config.training.seed,
        "start": config.training.start,
        "versions": [regard.__version__, tokenizers.__version__],
    }


def _reuse(run: Path, names: tuple[str, ...], origin: dict[str, Any], say: Say) -> Stored | None:
    """What an earlier run made from the same data and settings, unless it is damaged."""
    cache = run / "cache"
    if not (cache / ORIGIN).exists():
        return None
    try:
        sums.check(cache, CHECKED)
        found = json.loads((cache / ORIGIN).read_text(encoding="utf-8"))
        if found["origin"] != origin:
            return None
        for name, expected in found["vocabularies"].items():
            if sums.sha256(sums.inside(run, name)) != expected:
                raise UserError(f"{run / name} is not what was written.")
        vocabularies = tuple(Tokenizer.load(run / name) for name in names)
        return Stored(vocabularies, Store.open(cache), int(found["left_out"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(f"vocabularies and tokens are made anew: {error}")
        return None


def _make(config: Config, split: Split, task: Task, run: Path, origin: dict[str, Any]) -> Stored:
    with sums.writing(run):
        (run / "cache").mkdir(exist_ok=True)
        (run / "cache" / ORIGIN).unlink(missing_ok=True)
        for tokenizer, name in zip(task.vocabularies, task.files, strict=True):
            tokenizer.save(run / name)
    store, left_out = store_rows(config, split, task, run / "cache")
    made = {name: sums.sha256(run / name) for name in task.files}
    record = {"origin": origin, "vocabularies": made, "left_out": left_out}
    cache = run / "cache"
    sums.write_whole(cache / ORIGIN, json.dumps(record, indent=1).encode())
    sums.write_sums(cache, {name: [sums.sha256(cache / name)] for name in CHECKED})
    return Stored(task.vocabularies, store, left_out)


class Split:
    """What to train and to validate on.

    Validation data that is given may have sources of the training data with other targets; `data.apart` leaves those
    out of training, for they measure what is known by heart. Held-out pairs are chosen by a hash of their source, so
    that a source is never on both sides and the order of the file does not matter; or they are the last, where order is
    content. A share of few hashes may be none or all of them: then the sources of the smallest hashes are `chosen`.
    """

    def __init__(self, config: Config, contiguous: bool, on_fault: OnFault | None) -> None:
        self.config, self.contiguous, self.on_fault = config, contiguous, on_fault
        apart = config.data.apart and config.data.valid
        self._known = {pair.source for pair in self._read(config.data.valid)} if apart else set()
        self.chosen: set[str] | None = None
        self._total = 0
        if not config.data.valid:
            self._total = sum(1 for _ in self._read(config.data.train))
            if self._total < 2:
                unit = UNITS[TASKS[config.task].reads]
                raise UserError(
                    f"{config.data.train[0]}: {self._total} {unit}{'' if self._total == 1 else 's'} are too few to "
                    "train on and to hold some out."
                )
            if not contiguous and not self._parts():
                self.chosen = self._smallest()

    def train(self) -> Iterator[Pair]:
        pairs = enumerate(self._read(self.config.data.train))
        return (pair for number, pair in pairs if not self._held_out(number, pair))

    def valid(self) -> Iterator[Pair]:
        given = self.config.data.valid
        if given:
            return self._read(given)
        pairs = enumerate(self._read(self.config.data.train))
        return (pair for number, pair in pairs if self._held_out(number, pair))

    def _read(self, paths: Sequence[str]) -> Iterator[Pair]:
        return read(paths, self.config.task, self.config.data, self.on_fault)

    def _held_out(self, number: int, pair: Pair) -> bool:
        if not self._total:
            return pair.source in self._known
        share = min(0.5, self.config.data.held_out / self._total)
        if self.contiguous:
            return number >= self._total * (1 - share)
        if self.chosen is not None:
            return pair.source in self.chosen
        return self._hash(pair.source) < share * 2**32

    def _parts(self) -> bool:
        """Whether there is something on both sides; of a large file its beginning shows that."""
        sides: set[bool] = set()
        for number, pair in enumerate(self._read(self.config.data.train)):
            sides.add(self._held_out(number, pair))
            if len(sides) == 2:
                return True
        return False

    def _hash(self, source: str) -> int:
        return zlib.crc32(f"{self.config.training.seed} {source}".encode())

    def _smallest(self) -> set[str]:
        """The `held_out` sources of the smallest hashes, but at most half of the sources."""
        most = self.config.data.held_out
        found: set[tuple[int, str]] = set()
        for pair in self._read(self.config.data.train):
            found.add((self._hash(pair.source), pair.source))
            if len(found) > 4 * most:  # twice as many tell which half is the smaller one
                found = {*sorted(found)[: 2 * most]}
        if len(found) < 2:
            raise UserError(
                f"{self.config.data.train[0]}: all {self._total:,} {UNITS[TASKS[self.config.task].reads]}s have the "
                "same source, which cannot be trained on and held out too: give --valid FILE."
            )
        return {source for _, source in sorted(found)[: min(most, len(found) // 2)]}


def read(paths: Sequence[str | Path], task: str, data: Data, on_fault: OnFault | None = None) -> Iterator[Pair]:
    """The pairs of files, read as this task's settings say."""
    given = [Path(path) for path in paths]
    return read_pairs(given, on_fault, recognise(given, TASKS[task].reads, data.encoding), data.encoding)


def build(config: Config, vocabularies: Vocabularies) -> Task:
    """The task that a config describes, with fresh weights from its seed."""
    count = sum(math.prod(shape) for shape in shapes(config, vocabularies).values())
    if 4 * count > settings.memory():
        raise UserError(
            f"The model is too large for this machine: {count:,} weights need {4 * count / 1e9:,.0f} GB, there are "
            f"{settings.memory() / 1e9:,.0f} GB of memory: make model.width, model.layers or tokens.size less."
        )
    torch.manual_seed(config.training.seed)
    return TASKS[config.task].assemble(config, vocabularies, _network(config, vocabularies))


def shapes(config: Config, vocabularies: Vocabularies) -> checkpoint.Shapes:
    """Names and shapes of the weights of the model that a config describes; none of them is allocated."""
    with torch.device("meta"), _Unfilled():
        return checkpoint.shapes_of(_network(config, vocabularies))


class _Unfilled(TorchFunctionMode):
    """Weights without memory need no random numbers; torch would load its compiler to draw none."""

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        filling = getattr(function, "__module__", None) == torch.nn.init.__name__
        if filling or function in (torch.Tensor.normal_, torch.Tensor.uniform_):
            return args[0] if args else given["tensor"]
        return function(*args, **given)


def _network(config: Config, vocabularies: Vocabularies) -> nn.Module:
    try:
        return TASKS[config.task].design(config, vocabularies)
    except ValueError as error:
        raise UserError(f"The model cannot be built: {error}.") from error
    except (RuntimeError, MemoryError) as error:
        raise UserError(
            f"The model is too large for this machine ({error}): make model.width or layers less."
        ) from error


def store_rows(config: Config, split: Split, task: Task, folder: Path) -> tuple[Store, int]:
    """Tokens on disk, memory-mapped; and how many rows were too long."""
    left_out = 0

    def rows() -> Iterator[Row]:
        nonlocal left_out
        for row in task.stored(split.train()):
            if fits(row, config.data.longest):
                yield row
            else:
                left_out += 1

    size = max(vocabulary.size for vocabulary in task.vocabularies)
    return write_store(folder, rows(), task.fields, vocabulary=size), left_out


def fits(row: Row, longest: int) -> bool:
    """Whether a row is trained on."""
    return bool(row[0]) and max(len(row[0]), len(row[-1])) <= longest


def checksum(paths: Sequence[str]) -> str:
    """SHA-256 over the content of the data files: an edit between two runs is noticed."""
    total = hashlib.sha256()
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}.") from error
    return total.hexdigest()
