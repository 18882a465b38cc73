"""The clocks of this moment, as the journal remembers them from cycle to cycle."""

from __future__ import annotations

from logagent.agent.clock import Clock
from logagent.model.assignments.sightings import Clocks


def clocks_now(clock: Clock) -> Clocks:
    return Clocks(_boot_id(), clock.now_ms(), int(clock.boottime() * 1000))


def _boot_id() -> str:
    """The kernel's id of this boot: ages over a reboot are compared by the wall clock alone."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
