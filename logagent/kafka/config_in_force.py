"""Which configuration is in force: that of the running broker, which may be another one than its file has by now.

It explains only: no act rests on it, and none may touch more because of it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

ROUNDED_MS: Final = 1000
"""How exactly the start of a process is known: the kernel has its own boot time in whole seconds."""


class InForceBy(StrEnum):
    """Who says what is in force. BROKER: the running one itself, asked for it (DescribeConfigs). NOTED: the file is as
    it was when this process was seen with a file older than itself. FILE: it is older than the process. START: nobody
    runs, so it is what a start would take. UNKNOWN: what runs may differ from the file."""

    BROKER = "broker"
    NOTED = "noted"
    FILE = "file"
    START = "start"
    UNKNOWN = "unknown"


class InForce(NamedTuple):
    """doubt: in words, why what runs may differ from the file; None unless that is UNKNOWN."""

    by: InForceBy
    doubt: str | None = None


def in_force(
    file: str,
    *,
    running: bool | None,
    started_ms: int | None,
    changed_ms: int | None,
    answered: bool = False,
    noted: bool = False,
) -> InForce:
    """Of the configuration in `file`. running: whether its broker runs; None: that cannot be seen. started_ms: when its
    process started. changed_ms: the newest change of the file and of all links to it; None: unknown. answered: the
    broker that holds the log dirs was asked and said. noted: the file has the hash that was noted for this process."""
    if running is False:
        return InForce(InForceBy.START)
    if answered:
        return InForce(InForceBy.BROKER)
    if noted:
        return InForce(InForceBy.NOTED)
    if running is None:
        return InForce(InForceBy.UNKNOWN, f"whether a broker runs with {file} cannot be seen: what runs may differ")
    if started_ms is None or changed_ms is None:
        what = "when the broker started" if started_ms is None else f"when {file} was changed"
        return InForce(InForceBy.UNKNOWN, f"{what} is unknown: what runs may differ from the file")
    if changed_ms <= started_ms + ROUNDED_MS:
        return InForce(InForceBy.FILE)
    minutes = (changed_ms - started_ms) // 60_000
    after = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"
    return InForce(InForceBy.UNKNOWN, f"{file} changed {after} after the broker started: what runs may differ")
