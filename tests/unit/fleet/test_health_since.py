"""Since when a log dir is offline: from the stored dates, as the table `log_dir_health` tells it."""

from __future__ import annotations

from datetime import date
from typing import Any

from logagent.fleet.report.growth import Ledgers
from logagent.fleet.report.usage import health
from logagent.fleet.tables.choice import Choice

KEY = ("c", 1, "/data")


def ledgers(*healths: str | None) -> Ledgers:
    """One log dir, a date for each; None: its host was silent."""
    found = Ledgers()
    for number, said in enumerate(healths, start=1):
        row = {"cluster_id": "c", "node_id": 1, "log_dir": "/data", "bytes": 1, "used": None, "size": None}
        found.add(date(2026, 11, number), [] if said is None else [{**row, "health": said}])
    return found


def since(now: str, *healths: str | None) -> str | None:
    known: dict[str, Any] = {"cluster_id": "c", "node_id": 1, "host": "h", "at": 0, "counts": True, "cause": None}
    known |= {"agent_version": "1.0", "skew_seconds": 0.0}
    row = {"cluster_id": "c", "node_id": 1, "log_dir": "/data", "health": now, "reason": "EIO"}
    (found,) = health(Choice([known], []), [row], [], "1.0", ledgers(*healths).ill)
    said: str | None = found["since"]
    return said


def test_since_is_the_first_of_the_dates_in_a_row() -> None:
    assert since("offline", "offline") == "2026-11-01"
    assert since("offline", "online", "offline", "offline") == "2026-11-02"
    assert since("offline", "offline", "online", "offline") == "2026-11-03"
    assert since("offline", "read-only", "offline") == "2026-11-02"


def test_a_date_without_the_host_does_not_end_it() -> None:
    assert since("offline", "offline", None, "offline") == "2026-11-01"


def test_nothing_is_said_that_was_not_found() -> None:
    assert since("read-only", "offline", "offline") is None
    assert since("offline", "offline", "online") is None
    assert ledgers("offline", "online").ill == {}
