"""Small trained runs, made once and shared by all tests and all xdist workers, which only read them; and the commands."""

import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SPELLED = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FAST = [
    "training.rate=0.01",
    "training.warmup=10",
    "training.smoothing=0",
    "model.dropout=0",
    "training.every=40",
    "training.budget=3000",
]
RECURRENT = [
    "model.kind=recurrent",
    "model.cell=lstm",
    "model.attention=additive",
    "model.feeding=true",
    "model.layers=1",
    "model.width=48",
    *FAST,
]
TRANSFORMER = ["model.kind=transformer", "model.layers=2", "model.width=32", "model.hidden=64", "model.heads=2"]


def write_letters(path: Path, count: int = 600, seed: int = 0) -> Path:
    """Words of ten letters and the same words in capitals: learned in seconds."""
    chosen = random.Random(seed)
    words = ["".join(chosen.choices("abcdefghij", k=chosen.randint(2, 6))) for _ in range(count)]
    path.write_text("".join(f"{word}\t{word.upper()}\n" for word in words), encoding="utf-8")
    return path


def write_numbers(path: Path, count: int = 300, seed: int = 0) -> Path:
    """Digits spelled in words, several to a line, and the words of the next digits: running text for sub-words."""
    chosen = random.Random(seed)
    lines = []
    for _ in range(count):
        digits = chosen.choices(range(10), k=chosen.randint(2, 5))
        lines.append(" ".join(SPELLED[d] for d in digits) + "\t" + " ".join(SPELLED[(d + 1) % 10] for d in digits))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_pairs(path: Path, count: int = 400, longest: int = 6) -> Path:
    """Words of six letters and the same letters in capitals, separated by spaces; no word twice."""
    chosen = random.Random(0)
    words = {"".join(chosen.choices("abcdef", k=chosen.randint(2, longest))) for _ in range(count)}
    path.write_text("".join(f"{word}\t{' '.join(word.upper())}\n" for word in sorted(words)), encoding="utf-8")
    return path


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A file of such pairs of the test's own."""
    return write_pairs(tmp_path / "pairs.tsv")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this session see."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def once(shared: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """`once(name, make)` is a shared folder, made by whichever worker asks first; the others wait for it."""

    def get(name: str, make: Callable[[Path], object]) -> Path:
        folder = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "complete").exists():
                folder.mkdir(exist_ok=True)
                make(folder)
                (folder / "complete").touch()
        return folder

    return get


# Folders of tests that train, and are about something else than the training itself.
BESIDE = {"commands", "comparison", "exchange", "inference", "inputs", "inspection", "outputs", "serving", "text"}


@pytest.fixture(autouse=True)
def _quick_trainings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out what takes most of a toy training and cannot be seen in these tests: the trace of the memory that it will
    need, and waiting until each file would survive a power cut. The tests of costs, training and runs, and those of all
    pairs of input and output, have both."""
    folder = request.path.parent.name
    if folder not in BESIDE | {"runs"}:
        yield
        return
    from regard.runs import checksums
    from regard.training.loop import Trainer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trainer, "_foretell", lambda self: None)
        if folder in BESIDE:
            patched.setattr(checksums, "sync", lambda path: None)
        yield


@pytest.fixture(scope="session")
def letters(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A recurrent run with additive attention that writes letters as capitals: its data.tsv, test.tsv and run/."""
    import regard

    def make(folder: Path) -> None:
        write_letters(folder / "data.tsv")
        write_letters(folder / "test.tsv", 60, seed=1)
        regard.train(folder / "data.tsv", folder / "run", steps=120, set=RECURRENT, quiet=True)

    return once("letters", make)


@pytest.fixture(scope="session")
def numbers(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A Transformer run on sub-words of running text: its data.tsv, test.tsv and run/."""
    import regard

    def make(folder: Path) -> None:
        write_numbers(folder / "data.tsv")
        write_numbers(folder / "test.tsv", 40, seed=1)
        subwords = ["tokens.level=bpe", "output.level=bpe", "tokens.size=24"]
        regard.train(folder / "data.tsv", folder / "run", steps=60, set=[*TRANSFORMER, *FAST, *subwords], quiet=True)

    return once("numbers", make)


@pytest.fixture(scope="session")
def blind(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A recurrent run without attention, hardly trained: its data.tsv and run/."""
    import regard

    def make(folder: Path) -> None:
        write_letters(folder / "data.tsv", 100)
        settings = [*RECURRENT, "model.attention=none", "model.width=8"]
        regard.train(folder / "data.tsv", folder / "run", steps=2, set=settings, quiet=True)

    return once("blind", make)


# ---- commands ------------------------------------------------------------------------------------------------------


class Regard:
    """Runs commands in this process; `run(*arguments, given=…)` is what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.capsys, self.monkeypatch, self.folder = capsys, monkeypatch, folder
        self.said = ""

    def run(self, *arguments: str | Path, given: str | None = None, code: int = 0) -> str:
        if given is not None:
            (self.folder / "given").write_text(given, encoding="utf-8")
            self.monkeypatch.setattr("sys.stdin", (self.folder / "given").open(encoding="utf-8"))
        from regard.commands.app import main

        self.capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        out, self.said = self.capsys.readouterr()
        assert left.value.code == code, self.said
        return out

    def lines(self, *arguments: str | Path, given: str | None = None) -> list[str]:
        out = self.run(*arguments, given=given)
        assert out.endswith("\n")
        return out[:-1].split("\n")

    def objects(self, *arguments: str | Path, given: str | None = None) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines(*arguments, "--json", given=given)]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Regard:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DEBUG", raising=False)
    return Regard(capsys, monkeypatch, tmp_path)
