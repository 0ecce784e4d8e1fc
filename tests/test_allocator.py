"""What a step frees is not fetched again from the system by the next: counted in page faults, in a process of its own."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from regard.allocator import keep_memory
{keep}
def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(count)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(26_000_000)
print(faults(25_000_000))  # 100 MB
"""


def faults_of_another_block(keep: str) -> int:
    program = [sys.executable, "-c", PROGRAM.format(keep=keep)]
    return int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_a_freed_block_stays() -> None:
    assert faults_of_another_block("") > 1000
    assert faults_of_another_block("keep_memory()") < 100
