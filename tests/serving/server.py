"""A real server in a process of its own, on this machine alone."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

OLD = Path(__file__).parents[1] / "runs" / "old"
RUNS = ["convert_transformer", "convert_recurrent", "classify", "tag", "continue_gpt", "fill_bert"]


class Server:
    """`regard serve`, started and ended; `url` is known once it is ready."""

    def __init__(self, *arguments: str | Path, runs: list[str] | None = None) -> None:
        folders = [str(OLD / run) for run in (RUNS if runs is None else runs)]  # an absolute one stays as it is
        command = [sys.executable, "-m", "regard", "serve", *folders, "--port", "0", *map(str, arguments)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.said: list[str] = []
        self.url = ""
        self._ready = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"at (http://\S+)", line)
            if found:
                self.url = found[1]
                self._ready.set()
        self._ready.set()

    def __enter__(self) -> Self:
        if not self._ready.wait(120) or not self.url:
            self.process.kill()
            raise AssertionError(self.said)
        self.client = httpx.Client(base_url=self.url, timeout=60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait(10)

    def end(self, name: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(name)
        return self.process.wait(60)

    def workers(self) -> list[int]:
        """The processes of the workers: children that run a spawned function."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                started = (entry / "cmdline").read_bytes()
            except (OSError, ValueError, IndexError):
                continue
            if parent == self.process.pid and b"spawn_main" in started:
                found.append(int(entry.name))
        return found

    def memory(self) -> float:
        """Megabytes of the server and its workers."""
        pids = [self.process.pid, *self.workers()]
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20 for pid in pids)

    def until_said(self, sentence: str, seconds: float = 60) -> None:
        ended = time.monotonic() + seconds
        while not any(sentence in line for line in self.said):
            assert time.monotonic() < ended, self.said
            time.sleep(0.05)

    def until(self, path: str, status: int, seconds: float = 60) -> None:
        ended = time.monotonic() + seconds
        while time.monotonic() < ended:
            if self.client.get(path).status_code == status:
                return
            time.sleep(0.05)
        raise AssertionError(f"{path} never had the status {status}")
