"""Settings of the C library's memory allocator."""

import ctypes
from contextlib import suppress

M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
"""Parameters of glibc's `mallopt`."""

LARGE_BLOCK = 1024 * 1024
ARENAS = 2


def return_freed_memory() -> None:
    """Make the C library return the memory of large texts to the system as soon as they are freed.

    By default, glibc keeps up to 32 MiB of it per thread and size, so that a few large requests double the process.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        mallopt(M_ARENA_MAX, ARENAS)
