"""Whether ages can be trusted: the wall clock can be set, the clock since boot (CLOCK_BOOTTIME) cannot.

Nothing is due while the two have drifted apart by more than an hour since the last trustworthy cycle, until the drift
is gone (the wall clock was set back) or an operator says that the clock is right (`cleanup --trust-clock`). Then the
age of anything before a jump forward is what the clock since boot says, not what the wall clock says.

If there is no last cycle of this boot to compare with (a new or lost state dir, a reboot) and the kernel does not
report the clock as synchronised, times on disk are used: no change of a directory (ctime) can be in the future, and the
last one before this boot shows how long the host was off, or how wrong the clock is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

TRUST_CLOCK = "logagent cleanup --trust-clock if it is right now"
MOST_DRIFT_MS = 3_600_000
# Two readings of one boot's time agree to this much.
SAME_BOOT_MS = 5_000
# A change on disk may have a time a little later than the clock reading that it is compared with.
MOST_AHEAD_MS = 60_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """The two clocks at one moment (ms)."""

    boot_id: str
    wall_ms: int
    boottime_ms: int

    def same_boot(self, earlier: Clocks) -> bool:
        """Whether no boot lies between. Within one, the daemon's sandbox and a shell may show different ids (a
        container of systemd-nspawn has its own, which a sandbox in it does not see): then the time of the boot
        counts."""
        if self.boot_id == earlier.boot_id:
            return True
        booted, before = self.wall_ms - self.boottime_ms, earlier.wall_ms - earlier.boottime_ms
        return abs(booted - before) <= SAME_BOOT_MS and self.boottime_ms >= earlier.boottime_ms


@dataclass(frozen=True, slots=True)
class ClockDoubt:
    """Why ages cannot be trusted. drift_ms: how far the wall clock moved ahead of (or, if negative, behind) the clock
    since boot; 0 if unknown. until_ms: times up to this one were recorded with the clock before the drift."""

    why: str
    boot_id: str
    until_ms: int
    drift_ms: int = 0


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A jump forward that an operator has accepted: anything recorded at or before `until_ms` is `delta_ms` younger
    than it looks."""

    until_ms: int
    delta_ms: int


def clock_doubt(
    last: Clocks | None,
    known: ClockDoubt | None,
    now: Clocks,
    *,
    synchronised: bool | None = True,
    changed_ms: Callable[[], Iterable[int]] = tuple,
) -> ClockDoubt | None:
    """Why ages cannot be trusted now; None if they can.

    last: the clocks of the last trustworthy cycle. known: the doubt since then. synchronised: the kernel's view of the
    wall clock (None: it cannot be asked); it matters after a boot, when there is nothing to compare with. changed_ms:
    when things in the log dirs last changed; called only if nothing else decides.
    """
    if last is None:
        return None if synchronised else _doubted_by_disk(changed_ms(), now)
    if now.same_boot(last):
        since = now.boottime_ms - last.boottime_ms
        drift = now.wall_ms - last.wall_ms - since
        if abs(drift) <= MOST_DRIFT_MS:
            return None
        why = f"the wall clock was set by {drift // 60_000} minutes since the last trustworthy cycle"
        return ClockDoubt(why, now.boot_id, last.wall_ms + since, drift)
    behind = last.wall_ms - now.wall_ms
    if behind > MOST_DRIFT_MS:
        return ClockDoubt(
            f"the wall clock is {behind // 60_000} minutes behind the last cycle", now.boot_id, last.wall_ms
        )
    if known is not None and known.drift_ms:
        why = f"the wall clock was set by {known.drift_ms // 60_000} minutes before the host was restarted"
        return ClockDoubt(why, known.boot_id, known.until_ms, known.drift_ms)
    if synchronised is False:
        return ClockDoubt(
            "since this boot the kernel has reported the wall clock as unsynchronised", now.boot_id, last.wall_ms
        )
    return None if synchronised else _doubted_by_disk([last.wall_ms, *changed_ms()], now)


def _doubted_by_disk(changed_ms: Iterable[int], now: Clocks) -> ClockDoubt | None:
    """A doubt because something changed in the future, or because the last change before this boot is so old that the
    clock may be ahead by that much."""
    booted_ms = now.wall_ms - now.boottime_ms
    latest = before_boot = None
    for at in changed_ms:
        latest = at if latest is None else max(latest, at)
        if at <= booted_ms:
            before_boot = at if before_boot is None else max(before_boot, at)
    if latest is not None and latest - now.wall_ms > MOST_AHEAD_MS:
        minutes = (latest - now.wall_ms) // 60_000
        why = f"something in the log dirs was changed {minutes} minutes in the future, by the wall clock"
        return ClockDoubt(why, now.boot_id, latest)
    if before_boot is not None and booted_ms - before_boot > MOST_DRIFT_MS:
        minutes = (booted_ms - before_boot) // 60_000
        why = f"the host was off for {minutes} minutes before this boot, or its wall clock is wrong"
        return ClockDoubt(f"{why}: the kernel does not report it as synchronised", now.boot_id, before_boot)
    return None


def accepted(doubt: ClockDoubt) -> ClockJump | None:
    """The jump to correct for once an operator vouches for the clock. A jump backward makes nothing look older."""
    return ClockJump(doubt.until_ms, doubt.drift_ms) if doubt.drift_ms > 0 else None


def corrected(at_ms: int, jumps: Iterable[ClockJump]) -> int:
    """Translate `at_ms` from the clock before the jumps to today's clock. `jumps`: oldest first."""
    for jump in jumps:
        if at_ms <= jump.until_ms:
            at_ms += jump.delta_ms
    return at_ms


def reaching_back(at_ms: int, jumps: Sequence[ClockJump]) -> int:
    """The earliest recorded time of anything that, by today's clock, happened at or after `at_ms`."""
    for jump in reversed(jumps):
        if at_ms - jump.delta_ms <= jump.until_ms:
            at_ms -= jump.delta_ms
    return at_ms
