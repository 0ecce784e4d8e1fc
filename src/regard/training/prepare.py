"""From settings to what training needs: what input and output learn, stored rows, a task, and validation items."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

import regard
from regard.config import Config
from regard.data.example import counted
from regard.data.folders import leaf_files
from regard.data.lines import Fault
from regard.data.store import Store, write_store
from regard.data.survey import Survey
from regard.errors import UserError
from regard.inputs import INPUTS
from regard.inputs.input import Row, Use
from regard.outputs import OUTPUTS
from regard.outputs.abilities import Examines, Learns, Settles, contents_of
from regard.outputs.output import Held
from regard.runs import checksums, locations, settings
from regard.runs.build import Parts, build, files_of, load_parts, read, shapes
from regard.runs.folder import CACHE, CHECKED, ORIGIN, STORES
from regard.task import Task
from regard.training.split import AnyExample, Split, examples_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """All that a training needs. `config` has the settings that follow from the stored rows, too."""

    config: Config
    task: Task
    store: Store
    valid: Held

    @property
    def checksum(self) -> str:
        return self.store.checksum


def prepare(
    config: Config, run: Path, seen: Survey, say: Say, files: str | None = None, origin: Parts | None = None
) -> Prepared:
    """Learn, store the rows of training and validation data in the run folder, and build the task.

    What an earlier run of the same settings left in the folder is used again if it is sound. `seen` is the survey of
    the training data, `files` its checksum, if that is known, and `origin` input and output of the run that this one
    starts from.
    """
    examine(config, seen)
    skipped = [*seen.skipped]
    on_fault = skipped.append if config.data.faults == "skip" else None
    unit, data = settings.unit_of(config.input, config.task), config.data
    valid = list(read(config, data.valid, on_fault)) if data.valid else []
    split = Split(config, seen, (example.key for example in valid) if data.apart else ())
    if data.valid and data.apart:
        say("examples that are also in the validation data are left out of training (data.apart)")
    made_from = _origin(
        locations.portable(config, run), split, files or checksum([*data.train, *data.valid], seen.refers)
    )
    if not _reusable(run, made_from, say):
        _make(config, run, split, valid, made_from, origin, on_fault)
    elif not data.valid:
        numbered = enumerate(examples_of(config, seen, on_fault))
        valid = [example for number, example in numbered if split.held_out(number, example)]
    stores = [Store.open(run / CACHE / name, verify=False) for name in STORES]
    if skipped:
        say(f"skipped {counted(len({*skipped}), 'faulty line')}, the first: {skipped[0]}")
    record = json.loads((run / CACHE / ORIGIN).read_text(encoding="utf-8"))
    _say_long(config, record, len(stores[0]), say)
    config, task = _settled(config, run, stores[0])
    items = task.output.items(valid)
    if not data.valid:
        joined = f": {len(items):,} sources" if len(items) != len(valid) else ""
        say(f"{split.sentence(len(valid))} for validation{joined}")
    if not items:
        raise UserError(f"{(data.valid or data.train)[0]}: no {unit} is left to validate on: give --valid FILE.")
    return Prepared(config, task, stores[0], Held(items, StoredRows(stores[1])))


def _say_long(config: Config, record: dict[str, Any], left: int, say: Say) -> None:
    """Say what was too long, and how it is read after all; refuse if nothing is left."""
    data, unit = config.data, settings.unit_of(config.input, config.task)
    left_out, cut, longest = (int(record.get(name, 0)) for name in ("left_out", "cut", "longest"))
    if cut:
        say(f"{counted(cut, unit)} with more than {data.longest} tokens: read in parts of that length (data.longest)")
    remedy = f"--set data.longest={longest} takes them all"
    if left_out and left:
        say(f"left out {counted(left_out, unit)} with more than {data.longest} tokens: {remedy}")
    if not left and left_out and longest:
        raise UserError(
            f"{data.train[0]}: expected {unit}s of at most {data.longest} tokens, found {left_out:,} that are longer. "
            f"Try --set data.longest={longest}."
        )
    if not left:
        raise UserError(f"{data.train[0]}: no {unit} is left to train on; see data.faults.")


class StoredRows(Sequence[Row]):
    """The rows of a store as a sequence: each is read from the disk when it is used."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(*number.indices(len(self)))]
        return tuple(np.array(field) for field in self._store[number])  # a mapped array cannot be written to


def examine(config: Config, seen: Survey) -> None:
    """Refuse targets that do not go with the settings."""
    output = OUTPUTS[config.task]
    if issubclass(output, Examines):
        output.examine(config, seen)


def learn(config: Config, seen: Survey, origin: Parts | None) -> Parts:
    """Learn input and output from examples, or take over what `origin` has learned."""
    before = origin or (None, None)
    output = OUTPUTS[config.task]
    sources = seen.sources
    if config.joint:
        sources = [text for example in seen.examples for text in (example.source, example.target)]
    input = INPUTS[config.input].learn(config.reading, output.use, sources, before[0])
    learned = output.learn(config, input, seen, before[1]) if issubclass(output, Learns) else None
    return input, output.made(config, input, learned)


def _settled(config: Config, run: Path, store: Store) -> tuple[Config, Task]:
    """Return the settings with those that follow from the stored rows, and the task that they describe."""
    output = load_parts(config, run)[1]
    found = output.settled(store.lengths) if isinstance(output, Settles) else {}
    config = settings.override(config, [f"{key}={value}" for key, value in found.items()]) if found else config
    task = build(config, load_parts(config, run))
    task.input.prepare(task.network.stem, lambda: (store[i] for i in range(len(store))))
    return config, task


def _origin(config: Config, split: Split, files: str) -> dict[str, Any]:
    """Return all that vocabularies and rows depend on: if none of it has changed, they need not be made again."""
    data = config.data
    found = {
        "files": files,
        "task": config.task,
        "input": config.input,
        "data": [
            len(data.train),
            len(data.valid),
            data.faults,
            data.encoding,
            data.format,
            data.columns,
            data.apart,
            data.held_out,
            data.longest,
        ],
        "reading": config.reading.model_dump(),
        "output": config.output.model_dump() if hasattr(config, "output") else {},
        "seed": config.training.seed,
        "start": config.training.start,
        "versions": [regard.__version__, tokenizers.__version__],
    }
    if data.most is not None:
        found["most"] = data.most
    return found if split.chosen is None else found | {"chosen": len(split.chosen)}


def _reusable(run: Path, origin: dict[str, Any], say: Say) -> bool:
    """Return True if an earlier run made what is in the folder from the same data and settings, and it is sound."""
    cache = run / CACHE
    if not (cache / ORIGIN).exists():
        return False
    try:
        checksums.check(cache, CHECKED)
        found = json.loads((cache / ORIGIN).read_text(encoding="utf-8"))
        if found["origin"] != origin:
            return False
        for name, expected in found["learned"].items():
            if checksums.sha256(checksums.inside(run, name)) != expected:
                raise UserError(f"{run / name} has changed since it was written.")
        int(found["left_out"])
        for name in STORES:
            Store.open(cache / name)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(f"the cache is rebuilt: {error}")
        return False
    return True


def _make(
    config: Config,
    run: Path,
    split: Split,
    valid: list[AnyExample],
    made_from: dict[str, Any],
    origin: Parts | None,
    on_fault: Callable[[Fault], None] | None,
) -> None:
    """Learn, and write what was learned and the rows of both sides; held-out examples are added to `valid`."""
    parts = learn(config, split.learning(), origin)
    shapes(config, parts)  # a model that cannot be built is refused before all rows are written
    input, output = parts
    contents = input.contents() | contents_of(output)
    cache = run / CACHE
    with checksums.writing(run):
        cache.mkdir(exist_ok=True)
        (cache / ORIGIN).unlink(missing_ok=True)
        for name, content in contents.items():
            checksums.write_whole(run / name, content)
    left_out = cut = longest = 0

    def training() -> Iterator[AnyExample]:
        for number, example in enumerate(examples_of(config, split.seen, on_fault)):
            if split.trained(number, example):
                yield example
            elif not split.given and split.held_out(number, example):
                valid.append(example)

    def rows() -> Iterator[Row]:
        nonlocal left_out, cut, longest
        for row in output.rows(input, training()):
            found = fitting(row, config.data.longest, parts)
            cut += len(found) > 1
            if not found:
                left_out += 1
                longest = max(longest, len(row[0]), len(row[-1]))
            yield from found

    fields = (*input.fields, *output.fields)
    write_store(cache / "train", rows(), fields)
    write_store(cache / "valid", output.rows(input, (item.example for item in output.items(valid))), fields)
    learned = {name: checksums.sha256(run / name) for name in files_of(config)}
    record = {"origin": made_from, "learned": learned, "left_out": left_out, "cut": cut, "longest": longest}
    checksums.write_whole(cache / ORIGIN, json.dumps(record, indent=1).encode())
    checksums.write_sums(cache, {name: [checksums.sha256(cache / name)] for name in CHECKED})


def fitting(row: Row, longest: int, parts: Parts) -> list[Row]:
    """Return the rows that are trained on for one row: itself, or its parts where one label belongs to all of it."""
    input, output = parts
    if fits(row, longest):
        return [row]
    if output.use is not Use.LABEL:
        return []
    cut = len(input.fields)
    return [whole for part in input.parts(row[:cut], longest) if fits(whole := (*part, *row[cut:]), longest)]


def fits(row: Row, longest: int) -> bool:
    """Return True if a row is trained on: it is not empty, and no longer than `longest` in any field."""
    return len(row[0]) > 0 and max(len(row[0]), len(row[-1])) <= longest


def checksum(paths: Sequence[str], refers: Sequence[str] = ()) -> str:
    """Return SHA-256 over the content of the data files and of those that they refer to: an edit is noticed."""
    total = hashlib.sha256()
    for path in dict.fromkeys(leaf for given in (*paths, *refers) for leaf in leaf_files(given)):
        try:
            with Path(path).open("rb") as file:
                while block := file.read(1 << 20):
                    total.update(block)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror}.") from error
    return total.hexdigest()


def counts_of(rows: Sequence[Row]) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the number of elements of each row in each field."""
    return np.array([[len(field) for field in row] for row in rows], dtype=np.int32)
