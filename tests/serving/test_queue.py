"""The queue: the oldest job first, others of its kind and length beside it, bounds, and jobs that nobody waits for."""

import asyncio
import random
import time
from typing import Any

import pytest

from regard.commands.serve import languages_in
from regard.serving.libretranslate import languages_of
from regard.serving.pool import WorkerPool
from regard.serving.queue import MOST, Job, Queue, Refused
from regard.serving.worker import Order


def job(size: int = 5, model: str = "m", **more: Any) -> Job:
    return Job(model, "x" * size, "text/plain", more.pop("options", {}), time.monotonic() + 60, size, **more)


def run(work: Any) -> Any:
    return asyncio.run(work())


def test_the_oldest_is_always_in_the_next_batch_and_all_get_their_turn() -> None:
    async def work() -> None:
        chosen, queue = random.Random(0), Queue(1000, 400)
        jobs = [job(chosen.randint(1, 200), chosen.choice("ab")) for _ in range(300)]
        queue.add(jobs, 1)
        seen: list[int] = []
        while queue.waiting:
            oldest = queue.waiting[0]
            batch = queue.take()
            assert oldest in batch
            assert len({one.key for one in batch}) == 1
            assert len(batch) == 1 or len(batch) * max(one.size for one in batch) <= 400
            assert len(batch) <= MOST
            seen += [one.number for one in batch]
        assert sorted(seen) == [one.number for one in jobs]

    run(work)


def test_those_of_similar_length_join() -> None:
    async def work() -> None:
        queue = Queue(100, 40)
        jobs = [job(10), job(300), job(11), job(9), job(12), job(10)]
        queue.add(jobs, 1)
        assert queue.take() == [jobs[0], jobs[2], jobs[5]]  # four would be 44 of 40
        assert queue.take() == [jobs[1]], "one that is longer than the budget goes alone"

    run(work)


def test_options_draws_and_streams_keep_apart() -> None:
    async def work() -> None:
        queue = Queue(100, 1000)
        one, other = job(options={"beam": 2}), job(options={"beam": 3})
        drawn, same = job(alone="7", place=0), job(alone="7", place=1)
        first, second = job(wants="stream"), job(wants="stream")
        queue.add([one, other, drawn, same, first, second], 1)
        assert [queue.take() for _ in range(5)] == [[one], [other], [drawn, same], [first], [second]]
        assert queue.take() == []

    run(work)


def test_a_full_queue_takes_all_of_a_request_or_nothing() -> None:
    async def work() -> None:
        queue = Queue(3, 100)
        queue.add([job(), job()], 10)
        with pytest.raises(Refused) as refused:
            queue.add([job(), job()], 0.1)
        assert (refused.value.status, refused.value.again) == (429, 20)
        queue.add([job()], 1)
        assert len(queue.waiting) == 3

    run(work)


def test_what_could_hardly_be_answered_in_time_is_refused_at_once() -> None:
    async def work() -> None:
        pool = WorkerPool(Order({}, "torch", 1, 100), 1, Queue(20, 1000), print)
        pool.queue.add([job() for _ in range(8)], 1)
        pool.refuse_late(0.1)  # nobody knows yet how long they take
        pool.taken.extend([(3.0, 1), (7.0, 9)])
        assert pool.pace() == 1.0
        pool.refuse_late(17.0)
        for seconds in (15.0, 1.0):
            with pytest.raises(Refused) as refused:
                pool.refuse_late(seconds)
            assert (refused.value.status, refused.value.again) == (429, 8)
        pool.queue.add([job() for _ in range(12)], 1)
        with pytest.raises(Refused):
            pool.refuse_late(1000.0)
        pool.queue.waiting.clear()
        pool.refuse_late(0.1)  # one that finds nobody before it is never refused

    run(work)


def test_late_and_abandoned_jobs_leave() -> None:
    async def work() -> None:
        queue = Queue(10, 100)
        late, gone, kept = job(), job(), job()
        late.deadline = 5.0
        gone.done.cancel()
        queue.add([late, gone, kept], 1)
        assert queue.expired(10.0) == [late, gone]
        assert queue.waiting == [kept]
        late.end(Refused(504, "late"))
        late.end({"never": "twice"})
        assert isinstance(late.done.exception(), Refused)

    run(work)


def test_several_workers_share_what_waits_and_draws_stay_together() -> None:
    async def work() -> None:
        queue = Queue(100, 10_000)
        queue.add([job() for _ in range(9)], 1)
        assert [len(queue.take(2)), len(queue.take(2, 5))] == [5, 4]
        queue.add([job() for _ in range(6)], 1)
        assert [len(queue.take(2, 6)), len(queue.take(2, 6))] == [6, 0], "the other one has its half already"
        queue.add([job() for _ in range(6)], 1)
        assert [len(queue.take(2, 2)), len(queue.take(2, 4))] == [4, 2], "the other one is about to want more"
        drawn = [job(alone="7", place=i) for i in range(6)]
        queue.add(drawn, 1)
        assert queue.take(3) == drawn

    run(work)


def test_languages_of_files_and_of_the_command_line() -> None:
    assert languages_of(["data/train.en.gz", "data/train.DE"]) == ("en", "de")
    assert languages_of(["data/pairs.tsv"]) == languages_of(["a.txt1", "b.txt1"]) == ("und", "und")
    assert languages_in("en:de") == ("en", "de")
    assert languages_in(None) is None
