"""Memory goes back to the system between two cycles: what a daemon holds while it waits is what it needs to wait.

glibc only (`mallopt(3)`, `malloc_trim(3)`); elsewhere nothing happens.
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
    """No arena per thread: the threads here wait for disks, not for memory. To be called before there are any."""
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """What was freed and lies idle goes back to the system (some milliseconds)."""
    malloc_trim = getattr(_libc(), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
