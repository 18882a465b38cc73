"""Which configuration of a broker is in force: never the file's where that is not known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logagent.kafka.config_in_force import ROUNDED_MS, InForceBy, in_force, still_in_doubt

HOUR = 3_600_000
KNOWN = {"running": True, "started_ms": 10 * HOUR, "changed_ms": 9 * HOUR}
CASES: list[tuple[dict[str, Any], InForceBy, str | None]] = [
    ({}, InForceBy.FILE, None),
    ({"changed_ms": 13 * HOUR}, InForceBy.UNKNOWN, "/s.p changed 3 h after the broker started: what runs may differ"),
    ({"changed_ms": 13 * HOUR, "noted": True}, InForceBy.NOTED, None),
    ({"changed_ms": 13 * HOUR, "answered": True}, InForceBy.BROKER, None),
    ({"changed_ms": None}, InForceBy.UNKNOWN, "when /s.p was changed is unknown: what runs may differ from the file"),
    ({"started_ms": None}, InForceBy.UNKNOWN, "when the broker started is unknown: what runs may differ from the file"),
    ({"running": None}, InForceBy.UNKNOWN, "whether a broker runs with /s.p cannot be seen: what runs may differ"),
    ({"running": False, "changed_ms": None}, InForceBy.START, None),
]


@pytest.mark.parametrize("changes, by, doubt", CASES)
def test_each_source_in_its_order(changes: dict[str, Any], by: InForceBy, doubt: str | None) -> None:
    assert in_force("/s.p", **{**KNOWN, **changes}) == (by, doubt)


@given(st.integers(0, 1 << 44) | st.none(), st.integers(0, 1 << 44) | st.none(), st.sampled_from([True, None]))
def test_the_file_is_in_force_only_where_it_is_known_to_be_older(
    started_ms: int | None, changed_ms: int | None, running: bool | None
) -> None:
    found = in_force("/s.p", running=running, started_ms=started_ms, changed_ms=changed_ms)
    known = running and started_ms is not None and changed_ms is not None and changed_ms <= started_ms + ROUNDED_MS
    assert (found.by is InForceBy.FILE) == bool(known) and (found.doubt is None) == bool(known)


@pytest.mark.parametrize(
    ("file", "running", "left"),
    [
        ({"a": "1"}, None, "it changed"),
        ({"log.dirs": "/d1, /d2"}, {"log.dirs": "/d1,/d2"}, None),
        ({"log.preallocate": "TRUE"}, {"log.preallocate": "true"}, None),
        ({"log.dirs": "/D1"}, {"log.dirs": "/d1"}, "it changed: it has log.dirs=/D1, and the broker runs with /d1"),
        ({"ssl.key.password": "secret", "of.a.plugin": "1"}, {}, None),
        ({"log.roll.ms": "7"}, {"log.roll.ms": "9"}, "it changed: it has log.roll.ms=7, and the broker runs with 9"),
        ({"log.roll.ms": "7"}, {}, "it changed: it has log.roll.ms, without which the broker was started"),
        ({"node.id": "1"}, {"node.id": "1", "broker.id": "1"}, None),
        ({}, {"log.roll.ms": "9"}, "it changed: it no longer has log.roll.ms=9, with which the broker runs"),
    ],
)
def test_a_broker_that_was_asked_leaves_the_doubt_where_it_differs(
    file: dict[str, str], running: dict[str, str] | None, left: str | None
) -> None:
    assert still_in_doubt("it changed", file, running) == left
