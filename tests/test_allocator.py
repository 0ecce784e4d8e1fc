"""What a step frees is not fetched again from the system by the next: counted in page faults, in a process of its own."""

import os
import platform
import subprocess
import sys

import pytest
import torch

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


SHAPES = """
import re, torch
from regard.allocator import keep_memory
{keep}
def resident():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])
rnn = torch.nn.LSTM(192, 192, bidirectional=True)
rnn(torch.zeros(40, 100, 192, requires_grad=True))[0].sum().backward()
before = resident()
for length in range(2, 32):
    rnn(torch.zeros(length, 100, 192, requires_grad=True))[0].sum().backward()
print(resident() - before)
"""


def grown(keep: str) -> int:
    program = [sys.executable, "-c", SHAPES.format(keep=keep)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN")}
    return int(subprocess.run(program, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the kernels are oneDNN's")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells how much memory is in use")
def test_kernels_of_many_shapes_are_not_all_kept() -> None:
    assert grown("keep_memory()") < 0.7 * grown("")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_a_freed_block_stays() -> None:
    assert faults_of_another_block("") > 1000
    assert faults_of_another_block("keep_memory()") < 100
