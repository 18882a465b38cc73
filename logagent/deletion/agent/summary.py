"""What one look at the fleet's deletion requests came to, for metrics, `logagent status` and log lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RequestsSummary:
    """One look at the fleet's deletion requests. `directories`: those of this host, by the last answer. `strays_left`:
    of deleted topics. `held`: the requests on which nobody may act, and why. `refuses`: why nothing is carried out."""

    at_ms: int
    open: int = 0
    directories: Mapping[str, int] = field(default_factory=dict)
    strays_left: int = 0
    held: Mapping[str, str] = field(default_factory=dict)
    refuses: str | None = None
    error: str | None = None
