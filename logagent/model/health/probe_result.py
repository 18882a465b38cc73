"""The result of one probe of a log dir: facts only. `health.states` decides on the state from several of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProbeOutcome(StrEnum):
    """GOOD: it works (as far as `ProbeResult.wrote` says). FULL: no block or inode is left for an ordinary user, or
    the quota is used up. READ_ONLY: mounted read-only. FAILED: the disk returned an error, or the path no longer leads
    to the directory that was opened. HUNG: no answer within the time limit."""

    GOOD = "good"
    FULL = "full"
    READ_ONLY = "read-only"
    FAILED = "failed"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe of one log dir.

    ms: how long it took, in milliseconds; if it hangs, how long we waited. reason: what went wrong, None if nothing
    did. wrote: whether a file was written, made durable and read back; if False, only reading was tried, and `limited`
    says why. errno: that of a failure.
    """

    path: str
    outcome: ProbeOutcome
    ms: float
    reason: str | None = None
    wrote: bool = False
    limited: str | None = None
    errno: int | None = None
