"""Whether it is known what a host did since an earlier date: from what its snapshots say that they have."""

from __future__ import annotations

from typing import Any

import pytest

from logagent.fleet.report.audit import is_known

THEN, NOON, NOW = 100, 200, 300
Row = dict[str, Any]


def look(at: int, since: int | None, last_id: int = 9) -> Row:
    return {"at": at, "acts": None if since is None else {"since": since, "rows": 1, "left_out": 0, "last_id": last_id}}


@pytest.mark.parametrize(
    ("entries", "known"),
    [
        ([look(NOW, THEN)], True),
        ([look(NOW, THEN - 1)], True),
        ([look(NOW, THEN + 1)], False),
        ([look(NOW, None)], False),
        ([{"at": NOW}], False),
        ([], False),
        # The newest says nothing, so it is not known what was done last.
        ([look(NOW, None), look(NOON, THEN)], False),
        # Together they have all of it; or there is a gap, of which neither has anything.
        ([look(NOW, NOON), look(NOON, THEN)], True),
        ([look(NOW, NOON - 50), look(NOON, THEN)], True),
        ([look(NOW, NOON + 1), look(NOON, THEN)], False),
        ([look(NOW, NOON), look(NOON, THEN + 1)], False),
        # An older agent in between is no gap where a later snapshot reaches back.
        ([look(NOW, THEN), look(NOON, None)], True),
        # The ids went back: a journal was lost, or replaced by a copy.
        ([look(NOW, THEN, 2), look(THEN, 0, 7)], False),
        ([look(NOW, THEN, 7), look(THEN, 0, 7)], True),
        ([look(NOW, THEN, 2), look(NOON, None), look(THEN, 0, 7)], False),
    ],
)
def test_whether_all_is_known_since(entries: list[Row], known: bool) -> None:
    assert is_known(entries, THEN) is known
