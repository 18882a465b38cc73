"""What the first answers of a report are short of is a line of its warnings, and how small it has to be to be none."""

from __future__ import annotations

from typing import Any

import pytest

from logagent.fleet.report.answers import doubts
from logagent.fleet.report.usage import log_dirs
from logagent.fleet.tables.choice import Choice

GIB = 1 << 30


def by_log_dir(unread: int | None, unexplained: int | None) -> list[dict[str, Any]]:
    host = {"cluster_id": "c", "node_id": 1, "host": "h1", "counts": True, "unread_processes": unread}
    row = {"cluster_id": "c", "node_id": 1, "log_dir": "/d1", "health": "online", "allocated": GIB}
    size = None if unexplained is None else 100 * GIB
    row |= {"size": size, "used": size and 10 * GIB, "unexplained": unexplained}
    return log_dirs(Choice([host], []), [row], {})


@pytest.mark.parametrize(
    "unread, unexplained, most",
    [
        (0, 90 * GIB, 0),
        (3, 2 * GIB, 2 * GIB),
        (None, 2 * GIB, 2 * GIB),
        (3, GIB, GIB),
        (3, -5, 0),
        (3, None, 0),
    ],
)
def test_what_agents_could_not_read_is_at_most_what_is_unexplained(
    unread: int | None, unexplained: int | None, most: int
) -> None:
    rows = by_log_dir(unread, unexplained)
    assert [row["open_unread"] for row in rows] == [most]
    # A file system's own metadata is unexplained, too: up to a hundredth of it is no warning.
    assert ["on 1 host up to 2.0 GiB more" in line for line in doubts(rows, 0, 0)] == [True] * (most > GIB)


def test_log_dirs_without_figures_or_pace_are_counted() -> None:
    rows = by_log_dir(0, None)
    assert [*doubts(rows, 1, 1)] == [
        "1 log dir without figures: what is used and free there is not counted",
        "how fast a log dir fills is not known of 1 of 1: that needs figures of two dates",
    ]
