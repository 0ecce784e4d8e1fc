"""From a config to what training needs: vocabularies, a model, stored tokens, validation pairs."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch.overrides import TorchFunctionMode

import regard
from regard import checkpoint, sums
from regard import config as settings
from regard.config import Config
from regard.data.reading import Fault, Pair, read_pairs
from regard.data.store import INDEX, Store, write_store
from regard.errors import UserError
from regard.inputs.tokens import Tokenizer
from regard.models.bahdanau import recurrent
from regard.models.transformer import transformer
from regard.outputs.convert import Convert, Converter

Say = Callable[[str], None]
CHUNK = 10_000  # pairs encoded at once
VOCABULARIES = ("source.json", "target.json")
ORIGIN = "origin.json"  # in the cache: what it was made from
CHECKED = (ORIGIN, INDEX)  # by the cache's sums; the tokens are by those in its index
LEARN_FROM = 1_000_000  # pairs that vocabularies are learned from


@dataclass(frozen=True)
class Prepared:
    task: Convert
    store: Store
    valid: list[tuple[str, list[str]]]
    checksum: str


@dataclass(frozen=True)
class Stored:
    """Vocabularies, the training pairs as tokens, and what was noticed while they were made."""

    vocabularies: tuple[Tokenizer, Tokenizer]
    store: Store
    notes: dict[str, Any]


def prepare(config: Config, run: Path, say: Say, files: str | None = None) -> Prepared:
    """Learn vocabularies, store the training pairs as tokens in the run folder, build the model.

    What an earlier run of the same settings left in the folder is used again if it is sound; `files` is the checksum of
    the data, if it is known.
    """
    skipped: list[Fault] = []
    on_fault = skipped.append if config.data.faults == "skip" else None
    split = Split(config, on_fault)
    if not config.data.valid:
        say(f"holding out about {config.data.held_out} pairs for validation")
    origin = _origin(config, files or checksum([*config.data.train, *config.data.valid]))
    stored = _reuse(run, origin, say)
    task = build(config, *(stored.vocabularies if stored else vocabularies(config, split)))
    stored = stored or _make(config, split, task, run, origin)
    if skipped:
        say(f"skipped {len({*skipped}):,} faulty lines, the first: {skipped[0]}")
    if stored.notes["left_out"]:
        say(
            f"left out {stored.notes['left_out']:,} pairs with more than {config.data.longest} tokens on a side "
            "(data.longest)"
        )
    if not len(stored.store):
        raise UserError(f"{config.data.train[0]}: no pair is left to train on; see data.longest and data.faults.")
    config.decoding.factor = stored.notes["factor"]
    return Prepared(task, stored.store, split.valid(), stored.store.checksum)


def _origin(config: Config, files: str) -> dict[str, Any]:
    """All that vocabularies and tokens depend on: if none of it has changed, they need not be made again."""
    data = config.data
    return {
        "files": files,
        "data": [len(data.train), len(data.valid), data.faults, data.held_out, data.longest],
        "tokens": config.tokens.model_dump(),
        "seed": config.training.seed,
        "versions": [regard.__version__, tokenizers.__version__],
    }


def _reuse(run: Path, origin: dict[str, Any], say: Say) -> Stored | None:
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
        source, target = (Tokenizer.load(run / name) for name in VOCABULARIES)
        return Stored((source, target), Store.open(cache), found["notes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(f"vocabularies and tokens are made anew: {error}")
        return None


def _make(config: Config, split: Split, task: Convert, run: Path, origin: dict[str, Any]) -> Stored:
    with sums.writing(run):
        (run / "cache").mkdir(exist_ok=True)
        (run / "cache" / ORIGIN).unlink(missing_ok=True)
        for tokenizer, name in zip((task.source, task.target), VOCABULARIES, strict=True):
            tokenizer.save(run / name)
    store, left_out, factor = store_pairs(config, split, task, run / "cache")
    notes = {"left_out": left_out, "factor": factor}
    made = {name: sums.sha256(run / name) for name in VOCABULARIES}
    record = {"origin": origin, "vocabularies": made, "notes": notes}
    cache = run / "cache"
    sums.write_whole(cache / ORIGIN, json.dumps(record, indent=1).encode())
    sums.write_sums(cache, {name: [sums.sha256(cache / name)] for name in CHECKED})
    return Stored((task.source, task.target), store, notes)


class Split:
    """The pairs to train and to validate on. Held-out pairs are chosen by a hash of their source, so that a source is
    never on both sides and the choice does not depend on the order of the file."""

    def __init__(self, config: Config, on_fault: Callable[[Fault], None] | None) -> None:
        self.config, self.on_fault = config, on_fault
        self._share = 0.0
        if not config.data.valid:
            total = sum(1 for _ in self._read(config.data.train))
            if total < 2:
                raise UserError(f"{config.data.train[0]}: {total} pairs are too few to train on and to hold some out.")
            self._share = min(0.5, config.data.held_out / total)

    def train(self) -> Iterator[Pair]:
        return (pair for pair in self._read(self.config.data.train) if not self._held_out(pair))

    def valid(self) -> list[tuple[str, list[str]]]:
        """(source, references): targets of the same source are alternatives."""
        given = self.config.data.valid
        pairs = self._read(given) if given else (p for p in self._read(self.config.data.train) if self._held_out(p))
        found = by_source(pairs)
        if not found:
            raise UserError(
                f"{(given or self.config.data.train)[0]}: no pair is left to validate on: give --valid FILE."
            )
        return found

    def _read(self, paths: Sequence[str]) -> Iterator[Pair]:
        return read_pairs([Path(path) for path in paths], self.on_fault)

    def _held_out(self, pair: Pair) -> bool:
        return zlib.crc32(f"{self.config.training.seed} {pair.source}".encode()) < self._share * 2**32


def by_source(pairs: Iterator[Pair]) -> list[tuple[str, list[str]]]:
    """Pairs of the same source joined into one item with several references."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        references = found.setdefault(pair.source, [])
        if pair.target not in references:
            references.append(pair.target)
    return list(found.items())


def vocabularies(config: Config, split: Split) -> tuple[Tokenizer, Tokenizer]:
    tokens = config.tokens
    if tokens.joint:
        if tokens.source_level != tokens.target_level:
            raise UserError(
                f"tokens.joint needs one level for both sides, found {tokens.source_level} and {tokens.target_level}."
            )
        texts = (text for pair in islice(split.train(), LEARN_FROM) for text in (pair.source, pair.target))
        both = Tokenizer.train(texts, tokens.source_level, tokens.size, lowercase=tokens.lowercase)
        source, target = both, both
    else:
        learn = partial(Tokenizer.train, size=tokens.size, lowercase=tokens.lowercase)
        source = learn((p.source for p in islice(split.train(), LEARN_FROM)), tokens.source_level)
        target = learn((p.target for p in islice(split.train(), LEARN_FROM)), tokens.target_level)
    return source, target


def build(config: Config, source: Tokenizer, target: Tokenizer) -> Convert:
    """The model that a config describes, with fresh weights from its seed."""
    count = sum(math.prod(shape) for shape in shapes(config, source, target).values())
    if 4 * count > settings.memory():
        raise UserError(
            f"The model is too large for this machine: {count:,} weights need {4 * count / 1e9:,.0f} GB, there are "
            f"{settings.memory() / 1e9:,.0f} GB of memory: make model.width, model.layers or tokens.size less."
        )
    torch.manual_seed(config.training.seed)
    return Convert(_network(config, source, target), source, target)


def shapes(config: Config, source: Tokenizer, target: Tokenizer) -> checkpoint.Shapes:
    """Names and shapes of the weights of the model that a config describes; none of them is allocated."""
    with torch.device("meta"), _Unfilled():
        return checkpoint.shapes_of(_network(config, source, target))


class _Unfilled(TorchFunctionMode):
    """Weights without memory need no random numbers; torch would load its compiler to draw none."""

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if function is torch.Tensor.normal_ else function(*args, **(kwargs or {}))


def _network(config: Config, source: Tokenizer, target: Tokenizer) -> Converter:
    parts: dict[str, Any] = config.model.model_dump(exclude={"kind"}) | {"joint": config.tokens.joint}
    longest = 2 + max(config.data.longest, config.decoding.longest)
    try:
        if isinstance(config.model, settings.Transformer):
            return transformer(source.size, target.size, length=longest, **parts)
        return recurrent(source.size, target.size, **parts)
    except ValueError as error:
        raise UserError(f"The model cannot be built: {error}.") from error
    except (RuntimeError, MemoryError) as error:
        raise UserError(
            f"The model is too large for this machine ({error}): make model.width or layers less."
        ) from error


def store_pairs(config: Config, split: Split, task: Convert, folder: Path) -> tuple[Store, int, float]:
    """Tokens on disk, memory-mapped; how many pairs were too long; how much longer than its source a target gets."""
    left_out, factor = 0, 0.5

    def rows() -> Iterator[tuple[list[int], list[int]]]:
        nonlocal left_out, factor
        pairs = split.train()
        while chunk := [(pair.source, pair.target) for pair in islice(pairs, CHUNK)]:
            for source, target in task.rows(chunk):
                if max(len(source), len(target)) > config.data.longest or not source:
                    left_out += 1
                    continue
                factor = max(factor, 1.2 * len(target) / (len(source) + 3))
                yield source, target

    size = max(task.source.size, task.target.size)
    store = write_store(folder, rows(), vocabulary=size)
    return store, left_out, round(factor, 2)


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
