"""Can ages be trusted? The wall clock can be set; the clock since boot (CLOCK_BOOTTIME) cannot.

Nothing is due while the two have drifted apart by more than an hour since the last cycle that could be trusted: until
the drift is gone (the wall clock was set back), or an operator says that it is right now (`cleanup --trust-clock`).
Then what happened before a jump forward is as old as the clock since boot says, not as the wall clock does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_DRIFT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks at one moment (ms)."""

    boot_id: str
    wall_ms: int
    boottime_ms: int


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """Why ages cannot be trusted. drift_ms: by how much the wall clock went ahead of (or fell behind) the clock since
    boot; 0 where that cannot be told. until_ms: moments up to this one were written down by the clock before that."""

    why: str
    boot_id: str
    until_ms: int
    drift_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A jump forward that an operator has accepted: what was written down as `until_ms` or before is `delta_ms` younger
    than it looks."""

    until_ms: int
    delta_ms: int


def clock_doubt(
    last: Clocks | None, known: ClockDoubt | None, now: Clocks, *, synchronised: bool = True
) -> ClockDoubt | None:
    """Why ages cannot be trusted now; None where they can, or where nothing is known yet.

    last: the clocks of the last cycle that could be trusted. known: the doubt since then. synchronised: what the kernel
    says of the wall clock; it counts after a boot, when there is nothing to compare with.
    """
    if last is None:
        return None
    if last.boot_id == now.boot_id:
        since = now.boottime_ms - last.boottime_ms
        drift = now.wall_ms - last.wall_ms - since
        if abs(drift) <= MOST_DRIFT_MS:
            return None
        why = f"the wall clock was set by {drift // 60_000} minutes since the last cycle that could be trusted"
        return ClockDoubt(why, now.boot_id, last.wall_ms + since, drift)
    behind = last.wall_ms - now.wall_ms
    if behind > MOST_DRIFT_MS:
        return ClockDoubt(
            f"the wall clock is {behind // 60_000} minutes behind the last cycle", now.boot_id, last.wall_ms
        )
    if known is not None and known.drift_ms:
        why = f"the wall clock was set by {known.drift_ms // 60_000} minutes before the host was restarted"
        return ClockDoubt(why, known.boot_id, known.until_ms, known.drift_ms)
    if not synchronised:
        return ClockDoubt("since this boot the kernel calls the wall clock unsynchronised", now.boot_id, last.wall_ms)
    return None


def accepted(doubt: ClockDoubt) -> ClockJump | None:
    """What an operator's word for the present clock makes of a doubt. A jump backward makes nothing look older."""
    return ClockJump(doubt.until_ms, doubt.drift_ms) if doubt.drift_ms > 0 else None


def corrected(at_ms: int, jumps: Iterable[ClockJump]) -> int:
    """`at_ms`, as the clock before the jumps wrote it down, by the clock of today. `jumps`: oldest first."""
    for jump in jumps:
        if at_ms <= jump.until_ms:
            at_ms += jump.delta_ms
    return at_ms


def reaching_back(at_ms: int, jumps: Sequence[ClockJump]) -> int:
    """The earliest moment that was written down for anything at or after `at_ms` by the clock of today."""
    for jump in reversed(jumps):
        if at_ms - jump.delta_ms <= jump.until_ms:
            at_ms -= jump.delta_ms
    return at_ms
