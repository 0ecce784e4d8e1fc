"""Measuring on a shared machine: candidates take turns in one run, medians and ratios are reported."""

import gc
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Candidates = dict[str, Callable[[], object]]


def alternate(
    candidates: Candidates, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds per call. Every candidate warms up once; then they alternate, so that noise meets all alike.

    With `time.process_time` as the clock, seconds in which other programs had the processor do not count.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for call in candidates.values():
        call()
    for turn in range(repeats):
        order = list(candidates) if turn % 2 == 0 else list(candidates)[::-1]
        for name in order:
            gc.collect()
            start = clock()
            candidates[name]()
            times[name].append(clock() - start)
    return times


def ratio(times: dict[str, list[float]], one: str, other: str) -> dict[str, float]:
    """Median of `one` ÷ `other` over the turns, with the quartiles: the two of a turn met the same noise."""
    turns = sorted(a / b for a, b in zip(times[one], times[other], strict=True))
    quarter = len(turns) // 4
    return {"ratio": statistics.median(turns), "low": turns[quarter], "high": turns[-1 - quarter]}


def quartiles(found: list[float]) -> str:
    """The median, and the quartiles in brackets."""
    found, quarter = sorted(found), len(found) // 4
    return f"{statistics.median(found):.2f} [{found[quarter]:.2f}, {found[-1 - quarter]:.2f}]"


def peak_memory(code: str) -> float:
    """Megabytes by which a process of its own grows at its peak while running `code` after its call of `mark()`.

    Linux's high-water mark is set back at `mark()`: the one of getrusage would begin with the parent's.
    """
    head = """
def status(key): return int(next(line for line in open('/proc/self/status') if line.startswith(key)).split()[1])
def mark():
    global marked
    open('/proc/self/clear_refs', 'w').write('5')
    marked = status('VmRSS')
"""
    command = [sys.executable, "-c", head + code + "\nprint(status('VmHWM') - marked)"]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(out.stdout.split()[-1]) / 1024


def facts() -> dict[str, Any]:
    """Return what a figure depends on: machine, versions, commit."""
    import torch

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "commit": commit,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.processor() or platform.machine(),
    }


def report(name: str, rows: list[dict[str, Any]]) -> None:
    """The table to standard output, and all of it with the facts to benchmarks/results/NAME.json."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(c, "")) for c in columns] for row in rows]
    widths = [max(len(c), *(len(r[i]) for r in cells)) for i, c in enumerate(columns)]
    for line in [columns, ["-" * w for w in widths], *cells]:
        print("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip())
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"facts": facts(), "rows": rows}, indent=1))
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}", file=sys.stderr)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
