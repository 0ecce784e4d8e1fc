"""Memory that one training step leaves is there for the next."""

from __future__ import annotations

import ctypes
import sys

# From glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4


def keep_memory() -> None:
    """Freed blocks stay with the process, however large.

    glibc maps every block of more than 32 MB anew and unmaps it when freed, and the kernel then hands it out page by
    page, zeroed: about an eighth of a Transformer's step. Elsewhere than on glibc nothing is changed.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # another C library
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, 2**31 - 1)
    mallopt(TOP_PAD, 2**26)  # 64 MB asked for at a time
