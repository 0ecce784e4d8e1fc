"""`regard serve` beside `regard predict` on the same lines, a plain FastAPI handler, LitServe, and a direct call.

    python benchmarks/serving.py RUN TEXTS [--clients 64] [--lines 512] [--overload 60]

Server, clients and peers share the machine. Ratios are of one run: every candidate takes its turns between the others'.
"""

import argparse
import asyncio
import json
import math
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

PLAIN = """
import sys
from fastapi import FastAPI
import uvicorn
import regard
model = regard.load(sys.argv[1])
app = FastAPI()

@app.post("/v1/predict")
def predict(body: dict):
    return {"answers": model.predict([body["input"]], beam=5)}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="critical")
"""

BATCHED = """
import sys
import litserve
import torch
import regard

class Batched(litserve.LitAPI):
    def setup(self, device):
        torch.set_num_threads(1)
        self.model = regard.load(sys.argv[1])

    def decode_request(self, request):
        return request["input"]

    def batch(self, texts):
        return list(texts)

    def predict(self, texts):
        return self.model.predict(texts, beam=5)

    def unbatch(self, answers):
        return answers

    def encode_response(self, answer):
        return {"answers": [answer]}

if __name__ == "__main__":
    api = Batched(max_batch_size=64, batch_timeout=0.01, api_path="/v1/predict")
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=int(sys.argv[3]), timeout=120)
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False, log_level="error")
"""
DEADLINE = 10.0  # seconds, of the server that is overloaded
QUEUE = 600  # requests that may wait
OPEN = 3000  # connections at once
PATIENCE = 300.0  # seconds until a server must answer
PEER = Path(__file__).parent / "peers" / "litserve"


async def request(reader: Any, writer: Any, text: str) -> tuple[int, bytes]:
    """One request over a connection that stays open."""
    body = json.dumps({"input": text}).encode()
    writer.write(
        b"POST /v1/predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    content = await reader.readexactly(int(found[1])) if found else b""
    return int(head[9:12]), content


async def drive(port: int, texts: list[str], clients: int) -> tuple[float, list[float], list[int]]:
    """Seconds for all texts by so many clients, the seconds of each request, and the statuses."""
    waiting, latencies, statuses = list(texts), [], []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            text, began = waiting.pop(), time.perf_counter()
            status, _ = await request(reader, writer, text)
            latencies.append(time.perf_counter() - began)
            statuses.append(status)
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - began, latencies, statuses


class Started:
    """A server in a process of its own."""

    def __init__(self, command: list[str], port: int | None) -> None:
        paths = [str(PEER), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        given = None if port is None else subprocess.DEVNULL
        self.process = subprocess.Popen(
            command, stderr=given or subprocess.PIPE, stdout=given, text=True, env=environment, start_new_session=True
        )
        self.port = port or self._port()
        ended = time.monotonic() + PATIENCE
        while time.monotonic() < ended and self.process.poll() is None:
            try:
                asyncio.run(drive(self.port, ["a"], 1))
                return
            except (OSError, asyncio.IncompleteReadError):
                time.sleep(0.1)
        self.__exit__()
        raise RuntimeError(f"the server did not start: {' '.join(command)}")

    def _port(self) -> int:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            found = re.search(r"at http://[^:]+:(\d+)", line)
            if found:
                return int(found[1])
        raise RuntimeError("the server said nothing")

    def memory(self) -> float:
        """Megabytes of the server and its workers."""
        total = 0.0
        for pid in [self.process.pid, *children(self.process.pid)]:
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                total += int(re.search(r"Pss:\s+(\d+)", text)[1]) / 1024  # type: ignore[index]
            except (OSError, TypeError):
                continue
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # a server may leave processes of its own behind


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in found.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("texts", help="a file with a text on each line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--lines", type=int, default=512)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--workers", default=str(min(4, os.cpu_count() or 1)))
    parser.add_argument(
        "--overload", type=float, default=0, help="seconds of ten times as many requests as it can answer"
    )
    given = parser.parse_args()
    texts = Path(given.texts).read_text(encoding="utf-8").splitlines()[: given.lines]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end, too
    with ExitStack() as stack:
        result = measured(given, texts, stack)
    if given.overload:
        command = [*served(given.run, DEADLINE), "--engine", given.engine, "--workers", given.workers]
        with Started(command, None) as server:
            result |= overload(server, texts, given.overload, 10 * result["serve"])
    print(json.dumps({"cores": os.cpu_count(), "clients": given.clients, "lines": len(texts), **result}, indent=1))


def measured(given: argparse.Namespace, texts: list[str], stack: ExitStack) -> dict[str, Any]:
    """Lines a second of every candidate, turn by turn; and the milliseconds of one request and of one call."""
    import regard

    model = regard.load(given.run)
    command = [*served(given.run), "--engine", given.engine, "--workers", given.workers]
    servers = {"serve": stack.enter_context(Started(command, None))}
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    for name, script in {"plain": PLAIN, **({"litserve": BATCHED} if PEER.is_dir() else {})}.items():
        path, port = folder / f"{name}_server.py", free()  # not the name of the package it imports
        path.write_text(script, encoding="utf-8")
        command = [sys.executable, str(path), given.run, str(port), given.workers]
        servers[name] = stack.enter_context(Started(command, port))
    rates: dict[str, list[float]] = {"predict": [], **{name: [] for name in servers}}
    for _ in range(given.turns):
        began = time.perf_counter()
        model.predict(texts, beam=5)
        rates["predict"].append(len(texts) / (time.perf_counter() - began))
        for name, server in servers.items():
            some = texts[: len(texts) // 4] if name == "plain" else texts
            seconds, _, statuses = asyncio.run(drive(server.port, some, given.clients))
            assert {*statuses} == {200}, (name, statuses)
            rates[name].append(len(some) / seconds)
        print({name: round(found[-1], 1) for name, found in rates.items()}, file=sys.stderr, flush=True)
    alone, direct = [], []
    for text in texts[:100]:
        alone += asyncio.run(drive(servers["serve"].port, [text], 1))[1]
        began = time.perf_counter()
        model.predict([text], beam=5)
        direct.append(time.perf_counter() - began)
    result: dict[str, Any] = {name: statistics.median(found) for name, found in rates.items()}
    for name in ("predict", *[name for name in servers if name != "serve"]):
        ratios = [a / b for a, b in zip(rates["serve"], rates[name], strict=True)]
        result[f"serve ÷ {name}"] = statistics.median(ratios)
    result["one client, ms"] = 1000 * statistics.median(alone)
    result["direct call, ms"] = 1000 * statistics.median(direct)
    return result


def free() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as some:
        port: int = some.getsockname()[1]
        return port


def served(run: str, deadline: float = 120) -> list[str]:
    """The command of our server."""
    command = [sys.executable, "-m", "regard", "serve", run, "--port", "0", "--deadline", str(deadline)]
    return [*command, "--queue", str(QUEUE)]


def overload(server: Started, texts: list[str], seconds: float, rate: float) -> dict[str, Any]:
    """Ten times as many requests a second as it can answer, for some seconds: statuses, latencies of those that were
    accepted, memory, and the time until it answers somebody new."""

    async def load() -> tuple[list[tuple[int, float]], list[float]]:
        found: list[tuple[int, float]] = []
        waiting: set[asyncio.Task[None]] = set()
        idle: list[tuple[Any, Any]] = []  # connections are kept, as a proxy keeps them
        memory, began, number = list[float](), time.monotonic(), 0

        async def one(text: str) -> None:
            started = time.perf_counter()
            reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", server.port)
            try:
                status, _ = await request(reader, writer, text)
            except (OSError, asyncio.IncompleteReadError):  # closed, because nobody had used it for long
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                status, _ = await request(reader, writer, text)
            idle.append((reader, writer))
            found.append((status, time.perf_counter() - started))

        while time.monotonic() - began < seconds:
            due = round((time.monotonic() - began) * rate)
            while number < due and len(waiting) < OPEN:
                task = asyncio.create_task(one(texts[number % len(texts)]))
                waiting.add(task)
                task.add_done_callback(waiting.discard)
                number += 1
            number = due
            await asyncio.sleep(0.01)
            if time.monotonic() - began > len(memory) + 1:
                memory.append(server.memory())
        for task in waiting:
            task.cancel()
        return found, memory

    asyncio.run(drive(server.port, texts, QUEUE))  # memory that a full queue needs once is there before
    before = server.memory()
    found, memory = asyncio.run(load())
    began = time.perf_counter()
    asyncio.run(drive(server.port, ["a"], 1))
    recovered = time.perf_counter() - began
    statuses = [status for status, _ in found]
    accepted = sorted(each for status, each in found if status == 200)
    return {
        "overload": {str(status): statuses.count(status) for status in sorted({*statuses})},
        "requests a second": len(found) / seconds,
        "accepted, p99, s": accepted[int(0.99 * len(accepted))] if accepted else math.nan,
        "deadline, s": DEADLINE,
        "memory before, MB": before,
        "memory after a sixth of the time, MB": memory[len(memory) // 6],
        "memory from then on, MB": [min(memory[len(memory) // 6 :]), max(memory[len(memory) // 6 :])],
        "recovered, s": recovered,
    }


if __name__ == "__main__":
    main()
