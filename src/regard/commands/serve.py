"""`regard serve`: models behind an HTTP API, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from regard.errors import UserError
from regard.exchange.engine import ENGINES

BUDGET = 16_384  # characters of a padded batch
WORKERS = 4  # at most, unless told otherwise


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def names_of(runs: Sequence[Path]) -> dict[str, str]:
    """Return a name for each run: that of its folder, with those above it where two are the same."""
    paths = [Path(run).resolve() for run in runs]
    for run, path in zip(runs, paths, strict=True):
        if not (path / "config.yaml").is_file():
            raise UserError(f"{run} is not a run folder: expected what `regard train` wrote.")
    for depth in range(1, 20):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len({*names}) == len(names):
            return {name: str(path) for name, path in zip(names, paths, strict=True)}
    twice = next(path for path in paths if paths.count(path) > 1)
    raise UserError(f"{twice} is named twice, expected each run once: leave one out.")


def models_and_folders(given: Sequence[Path]) -> tuple[dict[str, str], tuple[Path, ...]]:
    """Return the runs to serve by their names, and the folders whose runs are only shown: those that are no runs."""
    from regard.serving.browsing import Browser, is_run

    folders = tuple(Path(path) for path in given if Path(path).is_dir() and not is_run(Path(path)))
    for folder in folders:
        if not Browser((folder,), {}).found():
            raise UserError(f"{folder} is not a run folder and holds none: expected what `regard train` wrote.")
    return names_of([path for path in given if Path(path) not in folders]), folders


def tokens_of(path: Path | None) -> tuple[str, ...]:
    """Return the tokens of a file, one to a line."""
    if path is None:
        return ()
    try:
        found = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: the tokens cannot be read: {getattr(error, 'strerror', error)}.") from error
    if not found or any(len(token) < 8 or not token.isascii() for token in found):
        raise UserError(f"{path}: expected one token a line, each of 8 ASCII characters or more.")
    return found


def languages_in(text: str | None) -> tuple[str, str] | None:
    """Return the two languages of `en:de`."""
    if text is None:
        return None
    source, colon, target = text.partition(":")
    if not colon or not source or not target:
        raise UserError(f"--languages is {text!r}, expected two codes such as en:de.")
    return source, target


def serve(
    runs: Sequence[Path],
    say: Callable[[str], None],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    engine: str = "auto",
    workers: int | None = None,
    queue: int = 1000,
    deadline: float = 30.0,
    languages: str | None = None,
) -> None:
    """Answer requests until SIGTERM or SIGINT, which finish what was accepted; SIGHUP loads the runs anew."""
    if engine not in ENGINES:
        raise UserError(f"--engine is {engine!r}, expected one of {', '.join(ENGINES)}.")
    workers = min(WORKERS, cores()) if workers is None else workers
    if not 0 <= port < 65536:
        raise UserError(f"--port is {port}, expected 0 to 65535.")
    for option, count in (("--workers", workers), ("--queue", queue)):
        if count < 1:
            raise UserError(f"{option} is {count}, expected 1 or more.")
    if not deadline > 0:  # nan, too
        raise UserError(f"--deadline is {deadline:g}, expected more than 0 seconds.")
    named, browsed = models_and_folders(runs)
    tokens, pair = tokens_of(token_file), languages_in(languages)
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise UserError(
            f"{host}:{port} cannot be listened on: {error.strerror or error}. "
            "Give another --host or --port (0: any that is free)."
        ) from error
    with listening:
        # Inherited by connections: asyncio sets it only where a socket was made for TCP by name. Without it, the end of
        # an answer waits for the client's delayed acknowledgement, 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asyncio.run(_serve(listening, named, say, tokens, engine, workers, queue, deadline, pair, browsed))


async def _serve(
    listening: socket.socket,
    named: dict[str, str],
    say: Callable[[str], None],
    tokens: tuple[str, ...],
    engine: str,
    workers: int,
    most: int,
    deadline: float,
    languages: tuple[str, str] | None,
    browsed: tuple[Path, ...],
) -> None:
    import uvicorn

    from regard.serving.app import build
    from regard.serving.pool import WorkerPool
    from regard.serving.queue import Queue
    from regard.serving.requests import RequestLimits
    from regard.serving.worker import Order

    limits = RequestLimits(deadline=deadline)
    threads = max(1, cores() // workers)
    order = Order(named, engine, threads, limits.characters)
    pool = WorkerPool(order, workers, Queue(most, BUDGET), say)
    await pool.start()
    config = uvicorn.Config(
        build(pool, limits, tokens, languages, browsed), log_level="critical", access_log=False, server_header=False,
        timeout_keep_alive=15, timeout_graceful_shutdown=round(deadline) + 5, http="h11", ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    for name in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them once more when it has ended
        signal.signal(name, lambda *_: None)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(pool.reload(order)))
    try:
        await pool.until_ready()
        host, port = listening.getsockname()[:2]
        what = ", ".join([*named, *(f"the runs in {folder}" for folder in browsed)])
        say(f"serving {what} at http://{f'[{host}]' if ':' in host else host}:{port}")
        await running
    finally:
        server.should_exit = True
        await pool.close()
        await asyncio.gather(running, return_exceptions=True)
