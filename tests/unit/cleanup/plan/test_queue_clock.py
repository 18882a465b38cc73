"""Attacks on the age of what is marked or set aside: the clock was wrong when the broker renamed it."""

from __future__ import annotations

from dataclasses import replace

from logagent.base.records import Kind, PartitionDir
from logagent.cleanup.plan.planner import Candidates, strays
from logagent.cleanup.plan.queue import NO_REMOVALS, build_queue, marked_at_ms
from logagent.verdict.marks import Mark

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
YESTERDAY_NS = (NOW_MS - DAY_MS) * 1_000_000
NAME = "orders-0.0123456789abcdef0123456789abcdef"
# A host without a battery for its clock starts in 1970; the broker renames, then the time is set.
STRAY = PartitionDir(
    "/d1", f"{NAME}-stray", Kind.STRAY, "orders", 0, NAME[9:], False, 7, 11, 0, YESTERDAY_NS, newest_mtime_ns=1
)


def test_no_rename_is_older_than_the_last_write() -> None:
    assert marked_at_ms(STRAY, None) == NOW_MS - DAY_MS
    assert marked_at_ms(replace(STRAY, mtime_ns=0, newest_mtime_ns=YESTERDAY_NS), None) == NOW_MS - DAY_MS
    assert marked_at_ms(STRAY, Mark(5, None)) == 5


def test_a_stray_of_yesterday_is_kept_whatever_its_ctime_says() -> None:
    proposals, waiting = strays(Candidates(dirs=[STRAY]), 7 * DAY_MS, NOW_MS)
    assert proposals == [] and waiting[0].why.until_ms == NOW_MS + 6 * DAY_MS


def test_so_is_what_the_broker_marked() -> None:
    marked = replace(STRAY, name=f"{NAME}-delete", kind=Kind.DELETE, mtime_ns=NOW_MS * 1_000_000)
    (entry,) = build_queue([marked], {}, {}, NO_REMOVALS, delay_ms=60_000, leftover_grace_ms=3_600_000)
    assert entry.due_at_ms == NOW_MS + 3_660_000
