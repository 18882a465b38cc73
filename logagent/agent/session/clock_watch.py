"""The wall clock against the clock since boot, from cycle to cycle, as the journal remembers them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from logagent.agent.clock import Clock
from logagent.host.state.journal import Journal
from logagent.model.health.clock import ClockDoubt, ClockJump, Clocks, accepted, clock_doubt, corrected, reaching_back

_STA_UNSYNC = 0x0040


@dataclass(slots=True)
class ClockWatch:
    """Why ages cannot be trusted, and how old things are since a jump that was accepted. Only what acts writes."""

    journal: Journal
    clock: Clock
    acting: bool
    _read: list[ClockJump] | None = None
    _trusted: bool = False

    def doubt(self) -> ClockDoubt | None:
        """Raises JournalError."""
        if self._trusted:
            return None
        last, known = self.journal.last_clocks(), self.journal.clock_doubt()
        return clock_doubt(last, known, clocks_now(self.clock), synchronised=is_synchronised())

    def note(self) -> None:
        """Remember this moment, if it can be trusted; else the doubt, over a restart too."""
        doubt = self.doubt()
        if doubt is None:
            self.journal.note_clocks(clocks_now(self.clock))
        elif doubt.drift_ms:
            self.journal.note_clock_doubt(doubt)

    def trust(self) -> None:
        """The operator's word that the wall clock is right now. Where nobody acts it holds for this session only."""
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
        """A moment that was written down, by the clock of today."""
        return corrected(at_ms, self._jumps())

    def reaching_back(self, at_ms: int) -> int:
        return reaching_back(at_ms, self._jumps())

    def _jumps(self) -> list[ClockJump]:
        if self._read is None:
            self._read = self.journal.clock_jumps()
        return self._read


def clocks_now(clock: Clock) -> Clocks:
    return Clocks(_boot_id(), clock.now_ms(), int(clock.boottime() * 1000))


def is_synchronised() -> bool:
    """What the kernel says of the wall clock (`adjtimex`, which may only be read here); True where it says nothing."""
    timex = ctypes.create_string_buffer(512)
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(timex)
    except (OSError, AttributeError):
        return True
    # struct timex: modes (int), offset, freq, maxerror, esterror (long), status (int).
    status = ctypes.c_int.from_buffer(timex, 5 * ctypes.sizeof(ctypes.c_long)).value
    return state < 0 or not status & _STA_UNSYNC


def _boot_id() -> str:
    """The kernel's id of this boot: ages over a reboot are compared by the wall clock alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
