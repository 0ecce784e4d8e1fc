"""Memory that one training step leaves is there for the next."""

from __future__ import annotations

import ctypes
import os
import sys

# From glibc's malloc.h.
TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4
SHAPES = 16  # whose compiled kernels oneDNN keeps


def keep_memory() -> None:
    """Freed blocks stay with the process, however large.

    glibc maps every block of more than 32 MB anew and unmaps it when freed, and the kernel then hands it out page by
    page, zeroed: about an eighth of a Transformer's step. Elsewhere than on glibc nothing is changed.

    What oneDNN keeps is bounded: for each shape of a batch that an LSTM has read it holds kernels and their room, of a
    thousand shapes if nobody says otherwise, which come to more than the training itself. Results are the same.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(SHAPES))
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # another C library
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, 2**31 - 1)
    mallopt(TOP_PAD, 2**26)  # 64 MB asked for at a time
