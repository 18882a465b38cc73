"""Compares the wall clock with the clock since boot, from cycle to cycle, as the journal remembers them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from logagent.base.clock import Clock
from logagent.cleanup.state.journal import Journal
from logagent.verdict.clock_doubt import ClockDoubt, ClockJump, Clocks, accepted, clock_doubt, corrected, reaching_back

_STA_UNSYNC = 0x0040
# systemd-timesyncd creates it once it has set the clock; /run does not survive a reboot.
_TIMESYNCD = "/run/systemd/timesync/synchronized"


@dataclass(slots=True)
class ClockWatch:
    """Whether ages can be trusted, and how old things are after an accepted jump. Only a session that acts writes.

    `changed_ms`: when files and directories of the log dirs were last changed, as far as they were looked at.
    """

    journal: Journal
    clock: Clock
    acting: bool
    changed_ms: Callable[[], Iterable[int]] = tuple
    _read: list[ClockJump] | None = None
    _trusted: bool = False

    def doubt(self) -> ClockDoubt | None:
        """Raises JournalError."""
        if self._trusted:
            return None
        last, known = self.journal.last_clocks(), self.journal.clock_doubt()
        now = clocks_now(self.clock)
        return clock_doubt(last, known, now, synchronised=is_synchronised(), changed_ms=self.changed_ms)

    def note(self) -> None:
        """Remember the current clocks if they can be trusted; else the doubt, which survives a restart."""
        doubt = self.doubt()
        if doubt is None:
            self.journal.note_clocks(clocks_now(self.clock))
        elif doubt.drift_ms:
            self.journal.note_clock_doubt(doubt)

    def trust(self) -> None:
        """The operator confirms that the wall clock is right now. In a session that does not act this counts only for
        that session."""
        doubt = self.doubt()
        jump = accepted(doubt) if doubt is not None else None
        self._read = [*self._jumps(), *([jump] if jump is not None else [])]
        if self.acting:
            self.journal.trust_clocks(clocks_now(self.clock), jump)
        self._trusted = True

    def jumped(self) -> bool:
        """Whether a jump was ever accepted."""
        return bool(self._jumps())

    def corrected(self, at_ms: int) -> int:
        """A recorded time, converted to the current clock."""
        return corrected(at_ms, self._jumps())

    def reaching_back(self, at_ms: int) -> int:
        return reaching_back(at_ms, self._jumps())

    def _jumps(self) -> list[ClockJump]:
        if self._read is None:
            self._read = self.journal.clock_jumps()
        return self._read


def clocks_now(clock: Clock) -> Clocks:
    return Clocks(boot_id() or "unknown", clock.now_ms(), int(clock.boottime() * 1000))


def is_synchronised() -> bool | None:
    """What the kernel says of the wall clock (`adjtimex`, used only for reading).

    If that is not permitted (EPERM in a container, ENOSYS), the mark of systemd-timesyncd counts; else None.
    """
    timex = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        state = -1
    if state < 0:
        return True if os.path.exists(_TIMESYNCD) else None
    # struct timex: modes (int), offset, freq, maxerror, esterror (long), status (int).
    status = ctypes.c_int.from_buffer(timex, 5 * ctypes.sizeof(ctypes.c_long)).value
    return not status & _STA_UNSYNC


def boot_id() -> str | None:
    """The kernel's id of this boot: across a reboot, ages depend on the wall clock alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
