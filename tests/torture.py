"""Ways to hurt a run, shared by tests/runs/test_checkpoint.py and the long versions in tests/soak."""

import hashlib
import io
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import regard
from regard.errors import UserError
from regard.runs import checkpoint, checksums, verify
from regard.training import loop, prepare
from regard.training.loop import Interrupted, Trainer

STEPS, EVERY = 30, 5
VOCABULARIES = ("tokenizer.json", "target.json")
TINY = [
    "model.kind=transformer", "model.layers=1", "model.width=8", "model.hidden=16", "model.heads=2",
    "model.dropout=0.2", "training.budget=400", f"training.every={EVERY}", "training.rate=0.01", "training.warmup=5",
    "training.average=2", "training.schedule=cosine", "training.patience=100", "data.held_out=20", "decoding.beam=1",
]  # fmt: skip


class Clock:
    """Time that passes by an eighth of a second in each step: what is measured is then the same in every run."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def train(pairs: Path, run: Path, *, at: dict[int, Callable[[Trainer], None]] | None = None, steps: int | None = STEPS,
          settings: Iterable[str] = ()) -> str | None:  # fmt: skip
    """Train with that clock; `at[n]` is done after step n. The sentence it ended with, if any."""
    clock, step, real = Clock(), Trainer._step, loop.time
    more = at or {}

    def stepped(self: Trainer) -> tuple[float, int]:
        found = step(self)
        clock.now += 0.125
        more.get(self.at.step, lambda _: None)(self)
        return found

    Trainer._step, loop.time = stepped, clock  # type: ignore[method-assign, assignment]
    try:
        regard.train(pairs, run, steps=steps, set=[*TINY, *settings], quiet=True)
    except Interrupted:
        return "interrupted"
    except UserError as error:
        return str(error)
    finally:
        Trainer._step, loop.time = step, real  # type: ignore[method-assign]
    return None


def stop(trainer: Trainer) -> None:
    trainer.stop = True


def newest(run: Path) -> Path:
    return checkpoint.states(run)[-1]


def outcome(run: Path) -> dict[str, Any]:
    """All that two equal runs must agree on, to the bit."""
    folder = newest(run)
    sha = {path.name: checksums.sha256(path) for path in sorted(folder.glob("*.safetensors"))}
    names = ("model.safetensors", "metrics.jsonl", *VOCABULARIES, "config.yaml")
    sha |= {name: checksums.sha256(run / name) for name in names if (run / name).exists()}
    return sha | json.loads((folder / "facts.json").read_text())


# ---- kills ---------------------------------------------------------------------------------------------------------


def forked(function: Callable[[], object]) -> int:
    """Do it in a child, silently; how the child ended (−9: killed)."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            if "TORTURE_SHOW" not in os.environ:
                os.dup2(silence, 2)
            function()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Killer:
    """Ends the process at the n-th moment it is told of; counts them if n is 0."""

    def __init__(self, moment: int) -> None:
        self.moment, self.seen = moment, list[str]()

    def __call__(self, name: str, before: Callable[[], object] = lambda: None) -> None:
        self.seen.append(name)
        if len(self.seen) == self.moment:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self, run: Path) -> None:
        """Tell of every step, and of every system call that changes the run: before it, and in the middle of a write.

        For a child only: an audit hook cannot be taken off.
        """
        watched = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "shutil.copyfile"}

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "open" and str(arguments[0]).startswith(str(run)):
                writes = arguments[2] & (os.O_WRONLY | os.O_RDWR)
                if writes:
                    self(f"open {Path(arguments[0]).name}")
            elif event in watched:
                self(f"{event} {Path(str(arguments[0])).name}")

        sys.addaudithook(hook)
        fsync, save_file, write_bytes, step = os.fsync, checkpoint.save_file, Path.write_bytes, Trainer._step

        def synced(handle: int) -> None:
            self("fsync")
            fsync(handle)

        def saved(tensors: Any, path: Path) -> None:
            def torn() -> None:
                save_file(tensors, path)
                os.truncate(path, path.stat().st_size // 2)

            self(f"save {path.name}")
            self(f"save {path.name}, torn", torn)
            save_file(tensors, path)

        def written(path: Path, data: bytes) -> int:
            self(f"write {path.name}, torn", lambda: write_bytes(path, data[: len(data) // 2]))
            return write_bytes(path, data)

        def stepped(trainer: Trainer) -> tuple[float, int]:
            self(f"step {trainer.at.step + 1}")
            return step(trainer)

        os.fsync, checkpoint.save_file = synced, saved
        Path.write_bytes, Trainer._step = written, stepped  # type: ignore[method-assign, assignment]


def moments(pairs: Path, run: Path, listed: Path) -> list[str]:
    """The names of all moments of an uninterrupted run in which it can be killed."""

    def count() -> None:
        killer = Killer(0)
        killer.install(run)
        assert train(pairs, run) is None
        seen = list(killer.seen)
        listed.write_text("\n".join(seen))

    assert forked(count) == 0
    return listed.read_text().splitlines()


def killed(pairs: Path, run: Path, moment: int) -> int:
    def begin() -> None:
        Killer(moment).install(run)
        train(pairs, run)

    return forked(begin)


def survives(pairs: Path, run: Path, kills: Iterable[int], expected: dict[str, Any]) -> None:
    """Killed at each of these moments of its life, one after another, the run still comes to the same end."""
    for moment in kills:
        assert killed(pairs, run, moment) == -signal.SIGKILL, f"moment {moment} was not reached"
        if (run / "model.safetensors").exists():
            regard.load(run)
    assert forked(lambda: _end(pairs, run)) == 0
    assert outcome(run) == expected
    assert verify.verify(run) == []
    assert not list(run.rglob("*.partial"))


def _end(pairs: Path, run: Path) -> None:
    assert train(pairs, run) is None


# ---- damage --------------------------------------------------------------------------------------------------------


def files_of(run: Path) -> list[Path]:
    """All that has content; pictures and curves are made, never read."""
    found = (path for path in run.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path for path in found if path.relative_to(run).parts[0] not in ("pictures", "tensorboard"))


def flip(raw: bytes, generator: random.Random) -> bytes:
    changed = bytearray(raw)
    changed[generator.randrange(len(raw))] ^= 1 << generator.randrange(8)
    return bytes(changed)


def truncate(raw: bytes, generator: random.Random) -> bytes:
    return raw[: generator.randrange(len(raw))]


def unreported(run: Path, path: Path, raw: bytes) -> str | None:
    """Put this content into a file of a run, look whether everybody who reads it says so, and put the old one back."""
    before = path.read_bytes()
    path.write_bytes(raw)
    try:
        return _silent(run, path)
    finally:
        path.write_bytes(before)


def _silent(run: Path, path: Path) -> str | None:
    where = path.relative_to(run)
    if not verify.verify(run):
        return f"{where}: verify"
    if len(where.parts) == 1 and where.name in ("config.yaml", *VOCABULARIES, "model.safetensors", checksums.SUMS):
        try:
            regard.load(run)
        except UserError:
            return None
        return f"{where}: load"
    if where.parts[0] == "state":
        try:
            checkpoint.read_state(path.parent)
        except Exception:
            return None
        return f"{where}: state"
    if where.parts[0] == "cache":
        said: list[str] = []
        origin = (
            json.loads((run / "cache" / prepare.ORIGIN).read_text(errors="replace")).get("origin")
            if where.name != prepare.ORIGIN
            else {}
        )
        prepare._reusable(run, origin, said.append)
        return None if said else f"{where}: cache"
    if where.parts[0] == "checkpoints":
        try:
            verify.check_checkpoints(run)
        except UserError:
            return None
        return f"{where}: checkpoints"
    return None  # README.md, results.json and metrics.jsonl are read by people: `verify` is theirs


# ---- mutations -----------------------------------------------------------------------------------------------------

NUMBERS = [
    "0",
    "-1",
    "65536",
    "1000000",
    "99999999999999999999",
    "1e308",
    ".inf",
    ".nan",
    "1e-400",
    "0x7fffffff",
    "12:30:45",
    "2024-02-30",
]
WORDS = [
    "null",
    "true",
    "~",
    "''",
    "[]",
    "{}",
    "[[[[1]]]]",
    "'a'",
    "!!python/object:os.system x",
    "&a [*a]",
    "*b",
    "- -",
    "\t",
    "\x00",
    "é",
    "|",
    ">",
    "%",
    "@",
]
NAMES = [
    "../config.yaml",
    "/etc/passwd",
    "a/../../b",
    "",
    ".",
    "..",
    "state/../..",
    "\x00",
    "config.yaml/",
    "CON",
    "a" * 300,
]
VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**31,
    2**63,
    2**64,
    10**30,
    1.5,
    1e308,
    "",
    "F64",
    "x" * 5000,
    [],
    {},
    [[]],
    [2**40, 2**40],
    [0, 2**62],
    [-1],
]


def bytewise(raw: bytes, generator: random.Random) -> bytes:
    """A byte flipped, or a slice left out, doubled or put elsewhere."""
    if not raw:
        return b"\0"
    start = generator.randrange(len(raw))
    end = min(len(raw), start + generator.choice((1, 2, 7, 64, 1000)))
    kind = generator.randrange(6)
    if kind == 0:
        return flip(raw, generator)
    if kind == 1:
        return raw[:start] + raw[end:]
    if kind == 2:
        return raw[:end] + raw[start:end] * generator.choice((1, 2, 50)) + raw[end:]
    if kind == 3:
        return raw[:start]
    if kind == 4:
        return raw[:start] + generator.randbytes(end - start) + raw[end:]
    return raw[end:] + raw[:end]


def mutate_config(raw: bytes, generator: random.Random) -> bytes:
    """A setting given another value, or the text hurt anywhere."""
    if generator.random() < 0.4:
        return bytewise(raw, generator)
    lines = raw.decode().splitlines()
    number = generator.choice([i for i, line in enumerate(lines) if ": " in line and not line.lstrip().startswith("#")])
    key = lines[number].partition(":")[0]
    value = generator.choice(NUMBERS + WORDS) if generator.random() < 0.8 else str(generator.randrange(10**6))
    lines[number] = f"{key}: {value}"
    return "\n".join(lines).encode()


def mutate_json(found: Any, generator: random.Random) -> Any:
    """One value somewhere in a tree replaced, left out, or put under another name."""
    spot, path = found, []
    while isinstance(spot, dict | list) and spot and (not path or generator.random() < 0.8):
        key = generator.choice(list(spot)) if isinstance(spot, dict) else generator.randrange(len(spot))
        path.append((spot, key))
        spot = spot[key]
    if not path:
        return generator.choice(VALUES)
    parent, key = path[-1]
    kind = generator.random()
    if kind < 0.15:
        del parent[key]
    elif kind < 0.35 and isinstance(parent, dict):
        parent[generator.choice(NAMES)] = parent.pop(key)
    else:
        parent[key] = generator.choice(VALUES)
    return found


def mutate_text(raw: bytes, generator: random.Random) -> bytes:
    if generator.random() < 0.4:
        return bytewise(raw, generator)
    return json.dumps(mutate_json(json.loads(raw), generator), indent=1).encode()


def mutate_weights(raw: bytes, generator: random.Random) -> bytes:
    """The header of a safetensors file: its length, its JSON, or its bytes."""
    length = int.from_bytes(raw[:8], "little")
    header, data = raw[8 : 8 + length], raw[8 + length :]
    kind = generator.random()
    if kind < 0.2:
        claimed = generator.choice((0, 1, length - 1, length + 1, len(raw), 10**8, 2**40, 2**63, 2**64 - 1))
        return claimed.to_bytes(8, "little") + header + data
    if kind < 0.5:
        header = bytewise(header, generator)
    elif kind < 0.9:
        header = json.dumps(mutate_json(json.loads(header), generator)).encode()
    else:
        return raw[: generator.randrange(len(raw))]
    return len(header).to_bytes(8, "little") + header + data


MUTATORS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "config.yaml": mutate_config,
    "tokenizer.json": mutate_text,
    "target.json": mutate_text,
    "model.safetensors": mutate_weights,
    "sums.json": mutate_text,
}


class Mutations:
    """Mutated run files, loaded one after another; what went otherwise than it must is in `faults`."""

    def __init__(self, run: Path, seed: int) -> None:
        self.run, self.generator = run, random.Random(seed)
        self.originals = {name: (run / name).read_bytes() for name in MUTATORS}
        self.files = checksums.read_sums(run)
        self.refused = self.accepted = 0
        self.slowest, self.largest = 0.0, 0  # seconds, bytes
        self.faults: list[str] = []

    def once(self) -> None:
        """Half of the time the sums are made to fit, so that what reads the files is met too."""
        name = self.generator.choice(list(MUTATORS))
        raw = MUTATORS[name](self.originals[name], self.generator)
        signed = name != "sums.json" and self.generator.random() < 0.5
        if raw == self.originals[name]:
            return
        (self.run / name).write_bytes(raw)
        if signed:
            (self.run / "sums.json").write_bytes(
                checksums.render(self.files | {name: [hashlib.sha256(raw).hexdigest()]})
            )
        memory = Memory()
        began = time.process_time()  # of this process: the machine may be busy with others
        try:
            model = regard.load(self.run)
            if signed:
                model.predict(["abc"], beam=1, longest=5)
            self.accepted += 1
            if not signed:
                self.faults.append(f"{name} loaded although it has changed since it was written: {raw[:2000]!r}")
        except UserError:
            self.refused += 1
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            self.faults.append(f"{name}: {type(error).__name__}: {error}: {raw[:2000]!r}")
        seconds = time.process_time() - began
        self.slowest = max(self.slowest, seconds)
        if seconds > 1:
            self.faults.append(f"{name} took {seconds:.1f} s: {raw[:2000]!r}")
        grown = memory.taken()
        self.largest = max(self.largest, grown)
        if grown > 512e6:
            self.faults.append(f"{name} took {grown / 1e6:.0f} MB: {raw[:2000]!r}")
        (self.run / name).write_bytes(self.originals[name])
        if signed:
            (self.run / "sums.json").write_bytes(self.originals["sums.json"])


class Memory:
    """The memory that this process takes from now on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew
        self.before = resident("VmRSS")

    def taken(self) -> int:
        """Bytes more than at the beginning, at the highest."""
        return resident("VmHWM") - self.before


def resident(what: str) -> int:
    """Bytes of memory: now (VmRSS), or at the highest since that was last counted anew (VmHWM)."""
    text = io.open("/proc/self/status").read()  # noqa: SIM115, UP020
    return int(text.split(f"{what}:")[1].split()[0]) * 1024
