"""Several processes for real (torchrun, gloo): the same losses, states that move between numbers of processes, restarts."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import regard
from regard.training import distributed
from tests.conftest import write_pairs

Once = Callable[[str, Callable[[Path], object]], Path]

SETTINGS = [
    "model.kind=transformer", "model.width=16", "model.layers=1", "model.hidden=32", "model.heads=2", "model.dropout=0.0", "training.budget=300",
    "training.every=10", "training.rate=0.005", "training.warmup=5", "data.held_out=20", "training.patience=1000",
]  # fmt: skip
# The rate of a step depends on no number of steps, so that fewer of them are the first of many.
LONG = ("training.every=100", "training.schedule=inverse_sqrt")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(
    processes: int, arguments: list[str], *, more: tuple[str, ...] = (), code: str = "", text: str = ""
) -> subprocess.CompletedProcess[str]:
    """`regard ARGUMENTS` in one or two processes; `code` is run before it in each of them."""
    start = ["-m", "regard"]
    if code:
        out = Path(arguments[arguments.index("-o") + 1])
        start = [str(out.with_name(f"{out.name}.py"))]
        Path(start[0]).write_text(code + "\nfrom regard.commands.app import main\nmain()\n")
    command = [sys.executable, *start] if processes == 1 else [*TORCHRUN, *more, *start]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, input=text, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    return done


def command(pairs: Path, out: Path, steps: int, *settings: str) -> list[str]:
    changes = [word for setting in [*SETTINGS, *settings] for word in ("--set", setting)]
    return ["train", str(pairs), "-o", str(out), "--steps", str(steps), *changes]


def metrics(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def train(processes: int, pairs: Path, out: Path, steps: int, *settings: str) -> list[dict[str, float]]:
    run(processes, command(pairs, out, steps, *settings))
    return metrics(out)


# ---- the same losses -----------------------------------------------------------------------------------------------


def losses(processes: int, pairs: Path, out: Path, steps: int, *settings: str) -> list[float]:
    """The loss of every step with all its digits, as process 0 has it."""
    written = out.with_name(f"{out.name}.losses")
    code = f"""
from regard.training.loop import Trainer
inner = Trainer._step
def step(self):
    found = inner(self)
    if self.world.first:
        with open({str(written)!r}, "a") as file:
            print(repr(found[0]), file=file)
    return found
Trainer._step = step
"""
    run(processes, command(pairs, out, steps, *settings), code=code)
    return [float(line) for line in written.read_text().splitlines()]


@pytest.fixture(scope="session")
def alone(once: Once) -> Path:
    """Return what one process does: the losses of 200 steps, and a run of 20; tests only read it."""

    def make(folder: Path) -> None:
        pairs = write_pairs(folder / "pairs.tsv")
        losses(1, pairs, folder / "long", 200, *LONG)
        train(1, pairs, folder / "short", 20)

    return once("alone", make)


@pytest.mark.parametrize(
    ("how", "steps"), [("ddp", 200), ("fsdp", 30), pytest.param("fsdp", 200, marks=pytest.mark.soak)]
)
def test_one_and_two_processes_have_the_same_losses(
    how: str, steps: int, alone: Path, pairs: Path, tmp_path: Path
) -> None:
    """To a millionth in each step; only the order in which numbers are added differs."""
    one = [float(line) for line in (alone / "long.losses").read_text().splitlines()]
    two = losses(2, pairs, tmp_path / "two", steps, *LONG, f"training.parallel={how}")
    assert len(one) == 200
    assert one[-1] < 0.5 * one[0]  # it learns: the equality is not that of a model at rest
    assert two == pytest.approx(one[:steps], abs=1e-6, rel=0)
    if steps == 200:
        assert regard.load(tmp_path / "two").predict(["abc"]) == regard.load(alone / "long").predict(["abc"])


def test_accumulated_batches_too(pairs: Path, tmp_path: Path) -> None:
    """Two processes that synchronise once in two batches; dropped gradients or counts would show at once."""
    one, two = (losses(count, pairs, tmp_path / str(count), 12, *LONG, "training.accumulate=2") for count in (1, 2))
    assert one[-1] < one[0]
    assert two == pytest.approx(one, abs=1e-6, rel=0)


TOYS = """
import json, sys
from pathlib import Path
import torch
from regard.training.distributed import World, together
from tests.training.toys import adversaries, toy, trainer, two_terms
@together()
def main(out):
    world = World()
    for name, network, turns in (("turns", adversaries, ("critic", "generator")), ("terms", two_terms, ("all",))):
        torch.manual_seed(5)
        one = trainer(toy(network().double(), turns, scored=False), out / name, world, accumulate=2)
        found = [one._step()[0] for _ in range(6)]
        weights = [parameter.tolist() for parameter in one.network.parameters()]
        if world.first:
            (out / f"{name}.json").write_text(json.dumps([found, weights]))
main(Path(sys.argv[1]))
"""


def test_turns_and_terms_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    """In float64, with accumulated batches: the same losses and the same weights."""
    script, home = tmp_path / "toys.py", Path(__file__).parent.parent.parent
    script.write_text(TOYS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{home / 'src'}{os.pathsep}{home}"}
    for number, command in ((1, [sys.executable]), (2, TORCHRUN)):
        done = subprocess.run(
            [*command, str(script), str(tmp_path / str(number))], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
    for name in ("turns", "terms"):
        (one, weights), (two, other) = (json.loads((tmp_path / n / f"{name}.json").read_text()) for n in "12")
        assert two == pytest.approx(one, rel=1e-10)
        for mine, theirs in zip(weights, other, strict=True):
            assert torch.tensor(theirs).allclose(torch.tensor(mine), rtol=1e-10)


def write_task(path: Path, task: str) -> Path:
    """Data from which a task is recognised."""
    chosen = random.Random(2)
    words = [chosen.choices(["red", "blue", "one", "two", "sea", "sky"], k=chosen.randint(3, 9)) for _ in range(200)]
    if task == "tag":
        lines = ["".join(f"{word}\t{'NUM' if word in ('one', 'two') else 'WORD'}\n" for word in row) for row in words]
    elif task == "classify":
        lines = [f"{'many' if len(row) > 5 else 'few'}\t{' '.join(row)}" for row in words]
    else:
        lines = [" ".join(row) for row in words]
    path.write_text("\n".join(lines) + "\n")
    return path


READER = ("model.kind=bert", "tokens.level=bpe", "tokens.unknown=0")  # words that become unknown are drawn


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("continue", ("model.kind=gpt",)),
        pytest.param("tag", READER, marks=pytest.mark.soak),
        pytest.param("classify", READER, marks=pytest.mark.soak),
    ],
)
def test_other_tasks_have_the_same_losses_too(task: str, more: tuple[str, ...], tmp_path: Path) -> None:
    data, settings = write_task(tmp_path / "data.txt", task), (*LONG, *more)
    one, two = (losses(count, data, tmp_path / str(count), 12, *settings) for count in (1, 2))
    assert regard.load(tmp_path / "2").config.task == task
    assert one[-1] < one[0]
    assert two == pytest.approx(one, abs=1e-5, rel=0)


def test_muon_puts_sharded_matrices_together(pairs: Path, tmp_path: Path) -> None:
    one = losses(1, pairs, tmp_path / "one", 15, *LONG, "training.optimiser=muon")
    two = losses(2, pairs, tmp_path / "two", 15, *LONG, "training.optimiser=muon", "training.parallel=fsdp")
    assert two == pytest.approx(one, abs=1e-5, rel=0)


@pytest.mark.parametrize(("first", "then", "how"), [(2, 1, "fsdp"), (1, 2, "fsdp"), (2, 1, "ddp")])
def test_a_run_goes_on_with_another_number_of_processes(
    first: int, then: int, how: str, alone: Path, pairs: Path, tmp_path: Path
) -> None:
    train(first, pairs, tmp_path / "parts", 20, f"training.parallel={how}")
    for newest in sorted((tmp_path / "parts" / "state").glob("[0-9]*"))[-1:]:  # as if it had stopped after step 10
        shutil.rmtree(newest)
    parts = train(then, pairs, tmp_path / "parts", 20, f"training.parallel={how}")
    assert parts[-1]["step"] == 20
    assert parts[-1]["loss"] == pytest.approx(metrics(alone / "short")[-1]["loss"], abs=2e-4)


# ---- a worker that dies --------------------------------------------------------------------------------------------


def test_attempts_share_a_store_but_no_part_of_it() -> None:
    """Whoever comes first, and whatever dead processes have left behind."""
    store = torch.distributed.HashStore()
    for attempt, order in enumerate(([0, 1, 2], [2, 1, 0], [1, 0, 2])):
        store.set("regard/asks/2", "somebody who died before an answer came")
        with ThreadPoolExecutor(3) as pool:
            coming = []
            for rank in order:
                coming.append(pool.submit(distributed.own_part, store, rank, 3))
                time.sleep(0.05)
            parts = [part.result(timeout=10) for part in coming]
        assert not any(part.check(["address"]) for part in parts)
        parts[0].set("address", str(attempt))
        assert [part.get("address") for part in parts] == [str(attempt).encode()] * 3


def killed(pairs: Path, out: Path, step: int, rank: int, seconds: float) -> tuple[list[dict[str, float]], str]:
    """A run of 20 steps, one process of which is killed that long after it has done a step; what it said."""
    mark = out.with_name(f"{out.name}.killed")
    code = f"""
import os, signal, threading
from pathlib import Path
from regard.training.loop import Trainer
inner, mark = Trainer._step, Path({str(mark)!r})
def end():
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)
def step(self):
    found = inner(self)
    if self.at.step == {step} and self.world.rank == {rank} and not mark.exists():
        threading.Timer({seconds}, end).start() if {seconds} else end()
    return found
Trainer._step = step
"""
    done = run(2, command(pairs, out, 20), more=("--max-restarts", "1"), code=code)
    assert mark.exists(), "nobody was killed"
    return metrics(out), done.stderr


def test_a_killed_worker_is_started_again_and_the_run_completes(alone: Path, pairs: Path, tmp_path: Path) -> None:
    """SIGKILL after step 15; torchrun starts both processes again, and they go on from step 10."""
    found, said = killed(pairs, tmp_path / "killed", 15, rank=1, seconds=0)
    assert [entry["step"] for entry in found] == [10, 20]
    assert found[-1]["loss"] == pytest.approx(metrics(alone / "short")[-1]["loss"], abs=2e-4)
    assert "regard: Another process of this run has ended or cannot be reached (" in said
    assert "resuming at step 10" in said
    assert "Traceback" not in said


@pytest.mark.soak
@pytest.mark.timeout(36_000)
def test_twenty_killed_workers(pairs: Path, tmp_path: Path) -> None:
    """Either process, at random moments: in a step, a validation, a save, or when all is done but the card."""
    generator = random.Random(4)
    whole = train(2, pairs, tmp_path / "whole", 20)
    for number in range(1, 21):
        step, rank, seconds = generator.randint(1, 20), generator.randint(0, 1), generator.uniform(0, 0.1)
        out = tmp_path / f"killed-{number}"
        found, said = killed(pairs, out, step, rank, seconds)
        assert [entry["loss"] for entry in found] == [entry["loss"] for entry in whole]
        assert "Traceback" not in said, said
        print(f"{number} kills, {number} completions (process {rank}, {seconds:.2f} s after step {step})", flush=True)


def test_predict_shares_its_lines_and_keeps_their_order(pairs: Path, tmp_path: Path) -> None:
    train(1, pairs, tmp_path / "run", 30)
    lines = "".join(f"{word}\n" for word in ["abc", "", "fed", "ab", "cafe", "", "dd"])
    alone = run(1, ["predict", str(tmp_path / "run")], text=lines).stdout
    assert run(2, ["predict", str(tmp_path / "run")], text=lines).stdout == alone
    assert alone.count("\n") == 7
