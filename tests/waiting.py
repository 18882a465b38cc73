"""Waiting for a state. No test passes or fails by time: it waits as long as it takes, up to a limit that only a fault
or a machine that stands still exceeds. Nobody else in the tests looks at a clock or
sleeps (tests/unit/test_waiting.py)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

# Generous: a machine may have six times more to do than it can.
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS, *, interval: float = 0.02
) -> T:
    """The first true answer of `condition`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(interval)
    return answer


def holds(condition: Callable[[], object], seconds: float, what: str, *, interval: float = 0.05) -> None:
    """Fails once `condition` does not hold, within as long as whoever may break it needs. It never fails for being
    slow; a machine that stands still sees less."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition(), what
        time.sleep(interval)


def pause(seconds: float, why: str) -> None:
    """Time goes by, `why`: something real depends on it, for which more of it is as good."""
    time.sleep(seconds)


@contextmanager
def within(seconds: float, why: str) -> Iterator[None]:
    """What is inside ends within `seconds`, which is ten times the usual or more; if not, `why` that matters."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"{took:.1f} s instead of at most {seconds:g} s: {why}"


@contextmanager
def within_cpu(seconds: float, why: str) -> Iterator[None]:
    """The same of this process's work, which does not grow with what else the machine has to do."""
    started = time.process_time()
    yield
    took = time.process_time() - started
    assert took < seconds, f"{took:.1f} s of work instead of at most {seconds:g} s: {why}"
