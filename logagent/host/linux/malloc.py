"""Returns memory to the system between two cycles, so that the waiting daemon holds only what it needs.

glibc only (`mallopt(3)`, `malloc_trim(3)`); does nothing elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_M_ARENA_MAX = -8


@cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def share_one_arena() -> None:
    """Use one arena for all threads: ours wait for disks, not for memory. Call it before any thread is started."""
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system (takes some milliseconds)."""
    malloc_trim = getattr(_libc(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
