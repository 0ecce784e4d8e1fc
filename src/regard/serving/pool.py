"""The worker processes of a server: given batches, watched, restarted when they die, and replaced on reload."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from regard.errors import UserError
from regard.serving.queue import Job, Queue, Refused
from regard.serving.worker import Order, main

TICK = 0.05  # seconds between two looks at the clock
PATIENCE = 600.0  # seconds until a worker must be ready
RESTARTS = 5  # deaths in a row, without an answer in between, after which it waits longer
AGAIN = 2.0  # seconds of that waiting
HEADROOM = 0.5  # of a request's time that others before it may take
GONE = "The worker that computed the answer died: try again."
LATE = "The deadline passed before the answer was ready."


class WorkerProcess:
    """One worker, and the batch it computes."""

    def __init__(self, order: Order, take: Callable[[WorkerProcess, dict[str, Any] | None], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self.stopped = context.Value("Q", 0)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=main, args=(theirs, order, self.stopped), daemon=True)
        self.process.start()
        theirs.close()
        self.batch, self.jobs, self.ready, self.retired = 0, list[Job](), False, False
        self.began = time.monotonic()  # of the process, then of its batch
        self._take, self._loop = take, asyncio.get_running_loop()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        message: dict[str, Any] | None
        while True:
            try:
                message = json.loads(self.pipe.recv_bytes())
            except (EOFError, OSError, ValueError):
                message = None
            try:
                self._loop.call_soon_threadsafe(self._take, self, message)
            except RuntimeError:  # the loop has ended
                return
            if message is None:
                return

    @property
    def idle(self) -> bool:
        return self.ready and not self.jobs and not self.retired

    def give(self, jobs: list[Job]) -> None:
        """Send a batch; the pipe's buffer may be full, so a thread of its own waits for it."""
        self.batch, self.jobs, first, self.began = self.batch + 1, jobs, jobs[0], time.monotonic()
        message = {
            "batch": self.batch,
            "model": first.model,
            "wants": first.wants,
            "options": dict(first.options),
            "jobs": [{"content": job.content, "media": job.media, "place": job.place} for job in jobs],
        }
        content = json.dumps(message).encode()
        if len(content) < 1 << 15:
            self._send(content)
        else:
            threading.Thread(target=self._send, args=(content,), daemon=True).start()

    def _send(self, content: bytes) -> None:
        try:
            self.pipe.send_bytes(content)
        except OSError:
            return  # the listener notices the death

    def give_up(self) -> None:
        """Stop computing the batch: nobody waits for any of its answers."""
        self.stopped.value = self.batch

    def end(self) -> None:
        """Let the process end after its batch. Closing the pipe would not tell it: the listener still reads from it."""
        self.retired = True
        self._send(json.dumps({"quit": True}).encode())


class WorkerPool:
    """All workers of a server, and the queue before them."""

    def __init__(self, order: Order, workers: int, queue: Queue, say: Callable[[str], None]) -> None:
        self.order, self.count, self.queue, self.say = order, workers, queue, say
        self.workers: list[WorkerProcess] = []
        self.facts: dict[str, Any] = {}
        self.failed: asyncio.Future[str] | None = None
        self.sizes: deque[int] = deque(maxlen=10_000)  # of batches, for the metrics
        self.deaths, self.restarts, self.answered = 0, 0, 0
        self.taken: deque[tuple[float, int]] = deque(maxlen=20)  # seconds and jobs of the last batches
        self._soon = False  # batches are about to be given out
        self._clock: asyncio.Task[None] | None = None
        self._fresh: list[WorkerProcess] = []  # of a reload, until they are ready
        self._old: list[WorkerProcess] = []  # that finish their last batch after a reload
        self.closing = False

    # ---- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers, and wait until one of them has answered."""
        self.failed = asyncio.get_running_loop().create_future()
        self.workers = [WorkerProcess(self.order, self._take) for _ in range(self.count)]
        self._clock = asyncio.create_task(self._tick())

    @property
    def ready(self) -> bool:
        return any(worker.ready for worker in self.workers)

    async def until_ready(self) -> None:
        """Wait for the first worker; what is wrong with a run is raised as it would be by `predict`."""
        assert self.failed is not None
        ended = time.monotonic() + PATIENCE
        while not self.ready:
            if self.failed.done():
                raise UserError(self.failed.result())
            if time.monotonic() > ended:
                raise UserError(f"No worker was ready after {PATIENCE:.0f} seconds.")
            await asyncio.sleep(0.02)

    async def reload(self, order: Order) -> None:
        """Replace all workers by new ones as soon as these are ready; nothing that waits is dropped."""
        self.order = order
        self._end_fresh()
        self._fresh = [WorkerProcess(order, self._take) for _ in range(self.count)]

    def _end_fresh(self) -> None:
        """End the workers of a reload that has failed, or that another one follows."""
        for worker in self._fresh:
            worker.end()
        self._fresh = []

    async def close(self) -> None:
        """End the workers; what they compute is lost."""
        self.closing = True
        if self._clock is not None:
            self._clock.cancel()
        everyone = [*self.workers, *self._fresh, *self._old]
        for worker in everyone:
            worker.end()
        for job in [*self.queue.waiting, *(job for worker in everyone for job in worker.jobs)]:
            job.end(Refused(503, "The server is stopping.", kind="unavailable", again=1))
        await asyncio.get_running_loop().run_in_executor(None, self._join, everyone)

    @staticmethod
    def _join(workers: list[WorkerProcess]) -> None:
        for worker in workers:
            worker.process.join(2)
            if worker.process.is_alive():
                worker.process.kill()

    # ---- work ---------------------------------------------------------------------------------------------------

    def submit(self, jobs: list[Job]) -> None:
        """Queue the jobs of one request, all or none of them."""
        if self.closing:
            raise Refused(503, "The server is stopping.", kind="unavailable", again=1)
        self.refuse_late(min(job.deadline for job in jobs) - time.monotonic())
        self.queue.add(jobs, self.pace())
        self._dispatch_soon()

    def refuse_late(self, seconds: float) -> None:
        """Refuse what could hardly be answered within so many seconds. Before a request is read, that is cheap."""
        jobs = len(self.queue.waiting) + sum(len(worker.jobs) for worker in self.workers)
        late = bool(self.taken and self.queue.waiting) and jobs / self.pace() > HEADROOM * seconds
        if late or len(self.queue.waiting) >= self.queue.most:
            raise self.queue.busy(self.pace())

    def pace(self) -> float:
        """Return about how many jobs are answered in a second while there is work."""
        seconds, jobs = (sum(each) for each in zip(*self.taken, strict=True)) if self.taken else (1.0, 1)
        return jobs / max(seconds, 1e-3) * max(1, sum(worker.ready for worker in self.workers))

    def _dispatch_soon(self, seen: int = -1) -> None:
        """Give out batches once everything is queued that has arrived by now: what is read from the sockets in one go
        belongs together. Nothing is waited for."""
        if seen < 0 and self._soon:
            return
        self._soon = seen != len(self.queue.waiting)
        if self._soon:
            asyncio.get_running_loop().call_soon(self._dispatch_soon, len(self.queue.waiting))
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        ready = max(1, sum(worker.ready and not worker.retired for worker in self.workers))
        for worker in self.workers:
            if worker.idle:
                jobs = self.queue.take(ready, sum(len(other.jobs) for other in self.workers))
                if not jobs:
                    return
                self.sizes.append(len(jobs))
                worker.give(jobs)

    def _take(self, worker: WorkerProcess, message: dict[str, Any] | None) -> None:
        """Take a message of a worker; None is its death."""
        if message is None:
            self._dead(worker)
        elif "ready" in message:
            self._made_ready(worker, message["ready"])
        elif "failed" in message:
            self._not_loaded(worker, message["failed"])
        elif message.get("batch") == worker.batch and worker.jobs:
            self._result(worker, message)

    def _made_ready(self, worker: WorkerProcess, facts: dict[str, Any]) -> None:
        worker.ready = True
        if worker in self._fresh:
            if not all(fresh.ready for fresh in self._fresh):
                return
            self._old += self.workers
            for old in self.workers:
                old.end()
            self.workers, self._fresh = self._fresh, []
        self.facts = facts
        self._dispatch()

    def _not_loaded(self, worker: WorkerProcess, why: str) -> None:
        """Take the reason why a worker has not loaded the runs: at the start, in a reload, or in a dead one's place."""
        worker.retired = True
        if worker in self._fresh:
            self._end_fresh()
            self.say(f"the runs could not be reloaded, and the old ones stay: {why}")
        elif worker in self.workers and self.facts:
            self.workers.remove(worker)
            self.say(f"a worker cannot load the runs, and tries again: {why}")
            asyncio.get_running_loop().call_later(AGAIN, self._replace)
        elif self.failed is not None and not self.failed.done():
            self.failed.set_result(why)

    def _result(self, worker: WorkerProcess, message: dict[str, Any]) -> None:
        if "piece" in message:
            job = worker.jobs[message["job"]]
            if job.pieces is not None and not job.done.done():
                job.pieces(message["piece"])
            return
        for number, found in message["found"]:
            self.answered += 1
            if "answer" in found:
                worker.jobs[number].end(found["answer"])
            else:
                kind = "invalid_request_error" if found["status"] == 422 else "server_error"
                worker.jobs[number].end(Refused(found["status"], found["fault"], kind=kind))
        if message["end"]:
            for job in worker.jobs:  # a job that got no answer would wait for ever
                job.end(Refused(500, "The model gave no answer.", kind="server_error"))
            if worker.stopped.value != worker.batch:  # one that was given up tells nothing
                self.taken.append((time.monotonic() - worker.began, len(worker.jobs)))
            worker.jobs, self.restarts = [], 0
            self._dispatch_soon()

    def _dead(self, worker: WorkerProcess) -> None:
        for job in worker.jobs:
            job.end(Refused(503, GONE, kind="unavailable", again=1))
        worker.jobs, worker.ready = [], False
        self._old = [old for old in self._old if old is not worker]
        if self.closing or worker.retired:
            return
        if worker in self._fresh:
            self._end_fresh()
            self.say("the runs could not be reloaded, and the old ones stay: a worker died")
            return
        if worker in self.workers:
            self.deaths += 1
            self.restarts += 1
            self.workers.remove(worker)
            if not self.facts and self.restarts >= RESTARTS and self.failed is not None and not self.failed.done():
                self.failed.set_result("The workers died while they loaded the models: try `regard predict` first.")
                return
            delay = 0.0 if self.restarts < RESTARTS else AGAIN
            asyncio.get_running_loop().call_later(delay, self._replace)

    def _replace(self) -> None:
        if not self.closing and len(self.workers) < self.count:
            self.workers.append(WorkerProcess(self.order, self._take))

    async def _tick(self) -> None:
        """Refuse what is late, and give up batches that nobody waits for."""
        while True:
            await asyncio.sleep(TICK)
            now = time.monotonic()
            for job in self.queue.expired(now):
                job.end(Refused(504, LATE, kind="timeout"))
            for worker in [*self.workers, *self._old]:
                for job in worker.jobs:
                    if job.deadline <= now:
                        job.end(Refused(504, LATE, kind="timeout"))
                if worker.jobs and all(job.done.done() for job in worker.jobs):
                    worker.give_up()
