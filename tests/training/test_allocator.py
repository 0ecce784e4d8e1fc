"""Memory that a step frees is not fetched again from the system by the next: counted in page faults, in a process of its own."""

import os
import platform
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import resource, torch
from regard.training.allocator import keep_memory
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


SHAPES = r"""
import re, torch
from regard.training.allocator import keep_memory
keep_memory()
def resident():
    return 1024 * int(re.search(r"RssAnon:\s+(\d+)", open("/proc/self/status").read())[1])
rnn = torch.nn.LSTM(64, 64, bidirectional=True)
def read(length, rows):
    rnn(torch.zeros(length, rows, 64, requires_grad=True))[0].sum().backward()
read(20, 40)
before = resident()
for shape in range(160):
    read(2 + shape % 16, 10 + shape // 16)
print(resident() - before)
"""


def grown(**environment: str) -> int:
    known = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN")}
    program = [sys.executable, "-c", SHAPES]
    return int(subprocess.run(program, capture_output=True, text=True, check=True, env=known | environment).stdout)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the kernels are oneDNN's")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells how much memory is in use")
def test_kernels_of_many_shapes_are_not_all_kept() -> None:
    assert grown() < 0.5 * grown(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_a_freed_block_stays() -> None:
    assert faults_of_another_block("") > 1000
    assert faults_of_another_block("keep_memory()") < 100
