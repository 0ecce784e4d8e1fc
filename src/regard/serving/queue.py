"""The queue of a server: which of the waiting jobs are answered together next.

Jobs that wait while a model is busy form its next batch; nobody waits for a batch to fill. A batch holds jobs of one
model with the same options. The oldest job is always in it; those of similar length among the next ones join it, as
long as the padded batch (jobs × the longest of them) stays within the budget. Several workers share what waits and what
is being computed: one that took more than its share would leave the others idle.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW = 256  # jobs behind the oldest one that may join its batch
MOST = 128  # jobs of a batch


class Refused(Exception):
    """A request that gets no answer: an HTTP status, a sentence, and seconds after which to try again."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error", again: float | None = None):
        super().__init__(message)
        self.status, self.message, self.kind, self.again = status, message, kind, again


_numbers = itertools.count()


@dataclass(eq=False)
class Job:
    """One thing to answer. `alone` keeps it apart from the jobs of other requests, as draws must be."""

    model: str
    content: str  # a text, or bytes in base64
    media: str
    options: Mapping[str, Any]
    deadline: float  # on the clock of `time.monotonic`
    size: int = 1
    wants: str = "answer"  # or "attention", "stream"
    place: int = 0  # among the things of its request
    alone: str = ""
    pieces: Callable[[str], None] | None = None  # is given the pieces of a streamed answer
    done: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def key(self) -> tuple[Any, ...]:
        """Jobs with equal keys may be answered together."""
        single = self.number if self.wants != "answer" else -1
        return self.model, tuple(sorted(self.options.items())), self.alone, single

    def end(self, result: dict[str, Any] | Refused) -> None:
        """Give the job its result, unless nobody waits for it any more."""
        if self.done.done():
            return
        if isinstance(result, Refused):
            self.done.set_exception(result)
            self.done.exception()  # it may be that nobody ever looks at it
        else:
            self.done.set_result(result)


class Queue:
    """Waiting jobs, the oldest first; at most `most`."""

    def __init__(self, most: int, budget: int) -> None:
        self.most, self.budget = most, budget
        self.waiting: list[Job] = []

    def add(self, jobs: list[Job], pace: float) -> None:
        """Add the jobs of one request, all or none; `pace` is about how many jobs are answered in a second."""
        if len(self.waiting) + len(jobs) > self.most:
            raise self.busy(pace)
        self.waiting += jobs

    def busy(self, pace: float) -> Refused:
        """Return the refusal of a request that finds too much before it."""
        again = max(1.0, len(self.waiting) / max(pace, 0.1))
        return Refused(429, "The server is busy: try again later.", kind="overloaded", again=again)

    def expired(self, now: float | None = None) -> list[Job]:
        """Remove and return jobs that nobody waits for any more, or whose time is up."""
        now = time.monotonic() if now is None else now
        gone = [job for job in self.waiting if job.done.done() or job.deadline <= now]
        if gone:
            left = {job.number for job in gone}
            self.waiting = [job for job in self.waiting if job.number not in left]
        return gone

    def take(self, workers: int = 1, computed: int = 0) -> list[Job]:
        """Remove and return the next batch for one of so many workers, while the others compute so many jobs; empty if
        nothing waits."""
        if not self.waiting:
            return []
        oldest = self.waiting[0]
        near = [job for job in self.waiting[1 : WINDOW + 1] if job.key == oldest.key]
        near.sort(key=lambda job: (abs(job.size - oldest.size), job.number))
        chosen, longest = [oldest], oldest.size
        most = MOST if oldest.alone else min(MOST, -(-(1 + len(near) + computed) // workers))
        for job in near:
            longest = max(longest, job.size)
            if len(chosen) >= most or longest * (len(chosen) + 1) > self.budget:
                break
            chosen.append(job)
        taken = {job.number for job in chosen}
        self.waiting = [job for job in self.waiting if job.number not in taken]
        return sorted(chosen, key=lambda job: job.number)
