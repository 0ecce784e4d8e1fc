"""Facts about the machine that Regard runs on."""

import os
import re
from pathlib import Path

OUT_OF_MEMORY = re.compile("out of memory|not enough memory|allocate memory|bad_alloc")  # in an error of torch's


def memory() -> int:
    """Return the bytes of memory there are for this process: the machine's, or less if a container allows less."""
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text().strip() if limit.is_file() else ""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, int(allowed)) if allowed.isdigit() else machine


def is_shortage(error: BaseException) -> bool:
    """Return True for an error that says that there is too little memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and OUT_OF_MEMORY.search(str(error)) is not None
    )
