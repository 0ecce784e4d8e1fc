"""Work side by side: everything is found, in order, and the number of threads is what it was."""

import threading
from collections.abc import Iterator

import pytest
import torch

from regard.inference.threads import side_by_side


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_workers_of_one_thread_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=60)

    def work(part: int) -> tuple[int, int]:
        meeting.wait()  # nobody gets past it alone
        return part, torch.get_num_threads()

    assert side_by_side(work, [5, 6, 7, 8]) == [(5, 1), (6, 1), (7, 1), (8, 1)]
    assert torch.get_num_threads() == 2


def test_threads_are_given_back_after_a_fault() -> None:
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda part: 1 // part, [1, 0, 2])
    assert torch.get_num_threads() == 2


def test_one_part_has_all_threads() -> None:
    assert side_by_side(lambda _: torch.get_num_threads(), ["all"]) == [2]
