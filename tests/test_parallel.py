"""Several processes for real (torchrun, gloo): the same losses, states that move between numbers of processes, restarts."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import regard

SETTINGS = [
    "model.kind=transformer", "model.width=16", "model.layers=1", "model.hidden=32", "model.heads=2", "model.dropout=0.0", "training.budget=300",
    "training.every=10", "training.rate=0.005", "training.warmup=5", "data.held_out=20", "training.patience=1000",
]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    generator = random.Random(0)
    words = {"".join(generator.choices("abcdef", k=generator.randint(2, 6))) for _ in range(300)}
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{w}\t{' '.join(w.upper())}\n" for w in sorted(words)))
    return path


def run(
    processes: int, arguments: list[str], *, more: tuple[str, ...] = (), code: str | None = None, text: str = ""
) -> str:
    """`regard ARGUMENTS` in one or two processes; `code` is run before it in each of them."""
    start = ["-m", "regard"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if code is not None:
        start = [str(Path(os.environ["REGARD_TEST_FOLDER"]) / "with_code.py")]
        Path(start[0]).write_text(code + "\nfrom regard.cli import main\nmain()\n")
    command = [sys.executable, *start] if processes == 1 else [*TORCHRUN, *more, *start]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, input=text, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def train(
    processes: int, pairs: Path, out: Path, steps: int, *settings: str, **options: object
) -> list[dict[str, float]]:
    arguments = ["train", str(pairs), "-o", str(out), "--steps", str(steps)]
    for setting in [*SETTINGS, *settings]:
        arguments += ["--set", setting]
    run(processes, arguments, **options)  # type: ignore[arg-type]
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_one_and_two_processes_have_the_same_losses(how: str, pairs: Path, tmp_path: Path) -> None:
    one = train(1, pairs, tmp_path / "one", 30)
    two = train(2, pairs, tmp_path / "two", 30, f"training.parallel={how}")
    assert [entry["step"] for entry in one] == [entry["step"] for entry in two]
    for a, b in zip(one, two, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=2e-4)  # written with four digits
    assert regard.load(tmp_path / "two").predict(["abc"]) == regard.load(tmp_path / "one").predict(["abc"])


@pytest.mark.parametrize(("first", "then", "how"), [(2, 1, "fsdp"), (1, 2, "fsdp"), (2, 1, "ddp")])
def test_a_run_goes_on_with_another_number_of_processes(
    first: int, then: int, how: str, pairs: Path, tmp_path: Path
) -> None:
    whole = train(1, pairs, tmp_path / "whole", 20)
    train(first, pairs, tmp_path / "parts", 20, f"training.parallel={how}")
    for newest in sorted((tmp_path / "parts" / "state").glob("[0-9]*"))[-1:]:  # as if it had stopped after step 10
        subprocess.run(["rm", "-r", str(newest)], check=True)
    parts = train(then, pairs, tmp_path / "parts", 20, f"training.parallel={how}")
    assert parts[-1]["step"] == 20
    assert parts[-1]["loss"] == pytest.approx(whole[-1]["loss"], abs=2e-4)


@pytest.mark.soak
def test_a_killed_worker_is_started_again_and_the_run_completes(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL to the second process at step 15; torchrun starts both again, and they go on from step 10."""
    monkeypatch.setenv("REGARD_TEST_FOLDER", str(tmp_path))
    code = f"""
import os, signal
from pathlib import Path
from regard.training import Trainer
inner, mark = Trainer._step, Path({str(tmp_path / "killed")!r})
def step(self):
    found = inner(self)
    if self.at.step == 15 and self.world.rank == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found
Trainer._step = step
"""
    killed = train(2, pairs, tmp_path / "killed-run", 20, more=("--max-restarts", "2"), code=code)
    assert (tmp_path / "killed").exists()
    whole = train(2, pairs, tmp_path / "whole", 20)
    assert [entry["step"] for entry in killed] == [10, 20]
    assert killed[-1]["loss"] == whole[-1]["loss"]


def test_predict_shares_its_lines_and_keeps_their_order(pairs: Path, tmp_path: Path) -> None:
    train(1, pairs, tmp_path / "run", 30)
    lines = "".join(f"{word}\n" for word in ["abc", "", "fed", "ab", "cafe", "", "dd"])
    alone = run(1, ["predict", str(tmp_path / "run")], text=lines)
    assert run(2, ["predict", str(tmp_path / "run")], text=lines) == alone
    assert alone.count("\n") == 7
