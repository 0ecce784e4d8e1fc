"""One program in a process of its own, told what to do by lines on its standard input.

    python work.py PROGRAM SHAPE FOLDER

`steps N` makes it train on the next N batches (answer all texts N times, learn for N turns) and tell the seconds that
took and what the last of them returned; `memory` makes it tell the most megabytes it has needed so far.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))
from benchmarks.peers.decoders import DECODERS
from benchmarks.peers.learners import LEARNERS
from benchmarks.peers.programs import PROGRAMS, Shape


def peak() -> float:
    """Megabytes resident at the highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def main() -> None:
    program, shape, folder = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr  # a library may print what it likes
    step = (PROGRAMS | DECODERS | LEARNERS)[program](Shape(**json.loads(shape)), Path(folder))
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        what, *count = line.split()
        if what == "memory":
            print(peak(), file=answers, flush=True)
            continue
        began = time.perf_counter()
        for _ in range(int(count[0])):
            value = step()
        print(time.perf_counter() - began, value, file=answers, flush=True)


if __name__ == "__main__":
    main()
