"""How far a long ingest has come."""

from __future__ import annotations

from logagent.fleet.ingest.dates import pace


def test_rate_and_time_left_come_from_what_was_read() -> None:
    mib = 1 << 20
    assert pace(2, 8, 200 * mib, 800 * mib, 100.0) == "2 of 8 dates, 200 MiB of 800 MiB, 2.00 MiB/s, about 5 min left"
    assert pace(1, 2, 0, 0, 3.0) == "1 of 2 dates, 0 B of 0 B, 0 B/s"
