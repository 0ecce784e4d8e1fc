"""`regard serve` beside `regard predict` on the same lines, beside a plain FastAPI handler, and beside a direct call.

    python benchmarks/serving.py RUN TEXTS [--clients 64] [--lines 512] [--overload 20]

Server, clients and peers share the machine. Ratios are of one run: every candidate takes its turns between the others'.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.port = port or self._port()
        for _ in range(600):
            try:
                asyncio.run(drive(self.port, ["a"], 1))
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the server did not start")

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

    def end(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


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
    parser.add_argument("--workers", default="1")
    parser.add_argument(
        "--overload", type=float, default=0, help="seconds of ten times as many requests as it can answer"
    )
    given = parser.parse_args()
    texts = Path(given.texts).read_text(encoding="utf-8").splitlines()[: given.lines]
    import regard

    model = regard.load(given.run)
    serve = [sys.executable, "-m", "regard", "serve", given.run, "--port", "0", "--deadline", "120"]
    ours = Started([*serve, "--engine", given.engine, "--workers", given.workers], None)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(PLAIN)
        script.flush()
        plain = Started([sys.executable, script.name, given.run, "8731"], 8731)
        rates: dict[str, list[float]] = {"predict": [], "serve": [], "plain": []}
        for _ in range(given.turns):
            began = time.perf_counter()
            model.predict(texts, beam=5)
            rates["predict"].append(len(texts) / (time.perf_counter() - began))
            seconds, _, statuses = asyncio.run(drive(ours.port, texts, given.clients))
            assert {*statuses} == {200}, statuses
            rates["serve"].append(len(texts) / seconds)
            few = texts[: len(texts) // 4]
            seconds, _, _ = asyncio.run(drive(plain.port, few, given.clients))
            rates["plain"].append(len(few) / seconds)
        plain.end()
    alone, direct = [], []
    for text in texts[:100]:
        alone += asyncio.run(drive(ours.port, [text], 1))[1]
        began = time.perf_counter()
        model.predict([text], beam=5)
        direct.append(time.perf_counter() - began)
    result: dict[str, Any] = {name: statistics.median(found) for name, found in rates.items()}
    result["serve ÷ predict"] = statistics.median(a / b for a, b in zip(rates["serve"], rates["predict"], strict=True))
    result["serve ÷ plain"] = statistics.median(a / b for a, b in zip(rates["serve"], rates["plain"], strict=True))
    result["one client, ms"] = 1000 * statistics.median(alone)
    result["direct call, ms"] = 1000 * statistics.median(direct)
    if given.overload:
        result |= overload(ours, texts, given.overload)
    ours.end()
    print(json.dumps({"cores": os.cpu_count(), "clients": given.clients, "lines": len(texts), **result}, indent=1))


def overload(server: Started, texts: list[str], seconds: float) -> dict[str, Any]:
    """Many more clients than it can answer, for some seconds: statuses, memory, and the time until it answers again."""
    before, ended, statuses = server.memory(), time.monotonic() + seconds, []
    while time.monotonic() < ended:
        statuses += asyncio.run(drive(server.port, texts * 4, 1500))[2]
    after, began = server.memory(), time.perf_counter()
    asyncio.run(drive(server.port, ["a"], 1))
    counts = {str(status): statuses.count(status) for status in sorted({*statuses})}
    grown = {"memory before, MB": before, "memory after, MB": after}
    return {"overload": counts, **grown, "recovered, s": time.perf_counter() - began}


if __name__ == "__main__":
    main()
