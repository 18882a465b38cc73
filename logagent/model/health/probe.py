"""What one probe of a log dir saw: facts only; what state follows from several of them is decided elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProbeOutcome(StrEnum):
    """GOOD: it works (as far as `ProbeResult.wrote` says). FULL: no block or inode is left for an ordinary user, or
    the quota is used up. READ_ONLY: it is mounted so. FAILED: the disk gave an error, or the path no longer leads to
    the directory that was opened. HUNG: no answer within the time limit."""

    GOOD = "good"
    FULL = "full"
    READ_ONLY = "read-only"
    FAILED = "failed"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe of one log dir.

    ms: how long it took, in milliseconds; of one that hangs, how long was waited. reason: what went wrong, None where
    nothing did. wrote: a file was written, made durable and read back; where False only reading was tried, and
    `limited` says why. errno: of a failure.
    """

    path: str
    outcome: ProbeOutcome
    ms: float
    reason: str | None = None
    wrote: bool = False
    limited: str | None = None
    errno: int | None = None
