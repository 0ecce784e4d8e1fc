"""Worker processes: each trains and measures one cell, so that its memory is its own and its threads are counted."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from regard.comparison.cells import Cell
from regard.errors import UserError

PATIENCE = 30.0  # seconds until a run is free that a stopped comparison has held
STOPPED = 3  # exit codes of a worker
REFUSED = 4
# Workers are forks of one process that has imported everything and computed nothing: they begin at once.
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Work:
    """The way a cell is worked on: threads, lengths to evaluate on, and the file of its log."""

    threads: int
    lengths: tuple[int, ...]
    log: Path


def work_on(
    cells: Iterable[Cell],
    jobs: int,
    work: Callable[[Cell], Work],
    wanted: Callable[[Cell], bool],
    done: Callable[[Cell], None],
) -> None:
    """Train and measure all cells that are `wanted` when it is their turn, `jobs` at a time; `done` is told of each."""
    CONTEXT.set_forkserver_preload(["regard.comparison.training"])
    running: dict[Any, tuple[Cell, Path]] = {}
    waiting = iter(cells)
    try:
        while True:
            while len(running) < jobs and (cell := next(waiting, None)) is not None:
                if wanted(cell):
                    how = work(cell)
                    process = CONTEXT.Process(target=main, args=(cell, how))
                    process.start()
                    running[process] = cell, how.log
            if not running:
                return
            for process in _ended(running):
                cell, log = running.pop(process)
                _refuse_failed(process, cell, log)
                done(cell)
    finally:
        for process in running:
            process.terminate()  # saves its state first
        for process in running:
            process.join()


def _ended(running: Mapping[Any, object]) -> list[Any]:
    ready = {*wait([process.sentinel for process in running])}
    found = [process for process in running if process.sentinel in ready]
    for process in found:
        process.join()
    return found


def _refuse_failed(process: BaseProcess, cell: Cell, log: Path) -> None:
    if process.exitcode == 0:
        return
    if process.exitcode == STOPPED:
        raise KeyboardInterrupt
    lines = log.read_text(encoding="utf-8").strip().splitlines() if log.is_file() else []
    if process.exitcode == REFUSED and lines:
        raise UserError(f"{cell.said}: {lines[-1]}")
    raise UserError(f"{cell.said}: the training ended with {process.exitcode}; its log is {log}.")


def main(cell: Cell, how: Work) -> None:
    """Train, measure and write one cell; its log goes to a file. The process ends with the one that started it."""
    from regard.comparison.training import trained_and_measured
    from regard.training.loop import Interrupted

    threading.Thread(target=_end_with_parent, daemon=True).start()
    how.log.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(how.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout = sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    try:
        trained_and_measured(cell, how.threads, how.lengths)
    except (Interrupted, KeyboardInterrupt):
        _leave(STOPPED)
    except UserError as error:
        print(error.args[0], file=sys.stderr)  # whoever started the comparison says it in its own way
        _leave(REFUSED)


def _leave(code: int) -> None:
    sys.stderr.flush()
    os._exit(code)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(STOPPED)


def wait_until_free(run: Path) -> None:
    """Wait for a process that still holds a run, as that of a comparison which has just been killed."""
    from regard.runs import folder

    until = time.monotonic() + PATIENCE
    while run.is_dir():
        try:
            with folder.locked(run):
                return
        except UserError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
