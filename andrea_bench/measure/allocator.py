"""What is fixed in a measuring process before anything is measured: threads, and the C allocator."""

import ctypes
import os
from typing import Any

# Parameters of mallopt(3) in glibc's malloc.h: M_TRIM_THRESHOLD and M_MMAP_MAX.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
TRIM_THRESHOLD_BYTES = 2**31 - 1


def keep_freed_memory() -> dict[str, Any]:
    """Keep glibc from giving memory back to the kernel between calls, and tell what was set.

    Without it the same attention took 0.77 ms in some processes and 1.87 ms in others, by heap layout: each
    call maps its score matrix anew and pays for every page of it. So: no block is mapped by itself (the
    threshold for that can't exceed 32 MiB, less than one score matrix), and the heap is not trimmed.
    """
    try:
        libc = ctypes.CDLL(None)
        if libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES):
            return {"mmap_max": 0, "trim_threshold_bytes": TRIM_THRESHOLD_BYTES}
    except (OSError, AttributeError) as error:
        return {"allocator": "default", "allocator_reason": f"no mallopt here: {error}"}
    return {"allocator": "default", "allocator_reason": "mallopt refused"}


def fix_threads(threads: int) -> None:
    """One pool of `threads` threads for everything; must run before torch is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
