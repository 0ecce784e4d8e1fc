"""Training steps of Regard, OpenNMT-py and Hugging Face's Marian side by side: `make bench-train`, `make bench-memory`.

All train models of one shape on the same batches with the same number of threads, each in a process of its own, and
only one of them runs at a time: they take turns of a few batches, and the order of a turn is reversed in the next. What
is reported are tokens of source and target without padding a second, the ratio to Regard within a turn (median and
quartiles), and the share of the matrix products per second that the machine reached in the same run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.measure import quartiles, report
from benchmarks.peers import ours
from benchmarks.peers.programs import Shape, batches

PEERS = Path(__file__).parent / "peers" / "env"
SHAPES = {
    "transformer 256": Shape("transformer", 3, 256, 1024, 4, 8004, 0.1),
    "transformer 128 (tiny)": Shape("transformer", 4, 128, 256, 4, 8004, 0.1),
    "rnn 256": Shape("rnn", 1, 256, 0, 0, 8004, 0.1),
}
STEPS = 6  # batches to a turn


class Worker:
    """A program in a process of its own."""

    def __init__(self, program: str, shape: Shape, folder: Path, threads: int, python: Path | str) -> None:
        command = [str(python), str(Path(__file__).parent / "peers" / "work.py"), program, json.dumps(asdict(shape))]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        self.process = subprocess.Popen(
            [*command, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if self._line() != "ready":
            sys.exit(f"{program} could not begin: its own words stand above.")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, what: str) -> list[float]:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return [float(word) for word in self._line().split()]

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


def tokens_of(folder: Path) -> list[int]:
    """Real tokens of each batch: those of the source, those of the target and its end."""
    ready, found = batches(folder), np.load(folder / "batches.npz")
    return [sum(len(s) + len(t) + 1 for s, t in next(ready)) for _ in found["batch_ends"]]


def flops(shape: Shape, folder: Path, steps: int) -> float:
    """Floating-point operations in matrix products that the first batches ask of a Transformer, in 10⁹."""
    from torch.utils.flop_counter import FlopCounterMode

    trainer = ours.trainer(shape, folder)
    with FlopCounterMode(display=False) as counter:
        for _ in range(steps):
            trainer._step()
    return counter.get_total_flops() / 1e9 / steps


def compare(name: str, shape: Shape, threads: int, turns: int) -> list[dict[str, Any]]:
    """Rows of the table: one for each program."""
    programs = ["regard", "opennmt", *(["transformers"] if shape.kind == "transformer" else []), "matmul"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ours.write(ours.trainer(shape, folder), folder)
        tokens = tokens_of(folder)
        pythons = {
            program: sys.executable if program in ("regard", "matmul") else PEERS / "bin/python" for program in programs
        }
        workers = {program: Worker(program, shape, folder, threads, pythons[program]) for program in programs}
        for worker in workers.values():
            worker.ask(f"steps {STEPS}")  # warm
        seconds: dict[str, list[float]] = {program: [] for program in programs}
        for turn in range(turns):
            for program in programs if turn % 2 == 0 else programs[::-1]:
                seconds[program].append(workers[program].ask(f"steps {STEPS}")[0])
        product = workers["matmul"].ask("steps 1")[1] * STEPS
        peak = max(product / each for each in seconds.pop("matmul"))
        memory = {program: workers[program].ask("memory")[0] for program in seconds}
        for worker in workers.values():
            worker.end()
        rate = {
            program: [
                sum(tokens[i % len(tokens)] for i in range(STEPS * (t + 1), STEPS * (t + 2))) / s
                for t, s in enumerate(found)
            ]
            for program, found in seconds.items()
        }
        done = flops(shape, folder, 2 * STEPS) if shape.kind == "transformer" else None
        return [
            {
                "shape": name,
                "threads": threads,
                "program": program,
                "tokens/s": statistics.median(rate[program]),
                "regard is × faster": quartiles([a / b for a, b in zip(rate["regard"], rate[program], strict=True)]),
                "of the peak": done * STEPS / statistics.median(seconds[program]) / peak if done else "",
                "MB at most": memory[program],
            }
            for program in seconds
        ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, action="append", help="one or several; all without it")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--turns", type=int, default=9)
    asked = parser.parse_args()
    rows = [row for name in asked.shape or SHAPES for row in compare(name, SHAPES[name], asked.threads, asked.turns)]
    report("training", rows)
