"""Which configuration is in force: that of the running broker, which may be another one than its file has by now.

It explains only: no act rests on it, and none may touch more because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from logagent.base.units import rough

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
    after = rough(changed_ms - started_ms)
    return InForce(InForceBy.UNKNOWN, f"{file} changed {after} after the broker started: what runs may differ")


_SHOWN_KEYS = 3
# Of other settings a broker does not describe what it does not know, or keeps secret; and it sets some by others, such
# as `broker.id` by `node.id`.
_DESCRIBED = ("log.", "metadata.")


def still_in_doubt(doubt: str, file: Mapping[str, str] | None, running: Mapping[str, str] | None) -> str | None:
    """What is left of `doubt` once the broker said with what it was started (`running`; None: it was not asked, or did
    not say): where the file says otherwise; None if it says the same."""
    if file is None or running is None:
        return doubt
    told: list[str] = []
    for key in sorted(file.keys() | running.keys()):
        here, there = file.get(key), running.get(key)
        if here is None and key.startswith(_DESCRIBED):
            told.append(f"it no longer has {key}={there}, with which the broker runs")
        elif there is None and key.startswith(_DESCRIBED):
            told.append(f"it has {key}, without which the broker was started")
        elif here is not None and there is not None and _plain(here) != _plain(there):
            told.append(f"it has {key}={here.strip()}, and the broker runs with {there}")
    more = f"; and {len(told) - _SHOWN_KEYS} more" if len(told) > _SHOWN_KEYS else ""
    return f"{doubt}: {'; '.join(told[:_SHOWN_KEYS])}{more}" if told else None


def _plain(text: str) -> str:
    """As a broker describes a value: lists without blanks, truth in lower case; a path keeps its letters."""
    text = ",".join(part.strip() for part in text.split(","))
    return text.lower() if text.lower() in ("true", "false") else text
