"""At the act, another verdict than the plan's is a refusal; `says` and the plan rest on one verdict per directory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.records import ActionKind, Reason, Verdict
from logagent.base.units import human_time
from logagent.cleanup.plan.assemble import as_planned
from logagent.cleanup.plan.plan import Plan
from logagent.verdict.facts import Ruling, StrayRuling
from tests.hosts import HEX, NOW, directory, facts, proposal

UNKNOWN, OLD = Ruling(Verdict.UNKNOWN, "no-assignments"), Ruling(Verdict.UNKNOWN, "too-old")
GONE, MOVED = Ruling(Verdict.ORPHAN, "topic-absent"), Ruling(Verdict.ORPHAN, "not-a-replica")
OURS = Ruling(Verdict.ASSIGNED)
LATER = NOW + 60_000
HOUR = 3_600_000


@pytest.mark.parametrize("stray", [False, True], ids=["current", "stray"])
@pytest.mark.parametrize(
    ("before", "now", "refused"),
    [
        (GONE, GONE, False),
        (OURS, replace(OURS, detail="in other words"), False),
        (UNKNOWN, OLD, False),
        (UNKNOWN, None, False),
        (None, OURS, False),
        (GONE, MOVED, True),
        (GONE, OURS, True),
        (GONE, UNKNOWN, True),
        (GONE, None, True),
        (OURS, UNKNOWN, True),
        (UNKNOWN, OURS, True),
    ],
)
def test_another_verdict_than_the_plans(stray: bool, before: Ruling | None, now: Ruling | None, refused: bool) -> None:
    d = directory(f"orders-0.{HEX}-stray" if stray else "orders-0")
    p = proposal(ActionKind.REMOVE if stray else ActionKind.QUARANTINE, d)
    rulings = {} if before is None else {d.key: before}
    seen = facts(now_ms=LATER)
    if stray:
        seen = replace(seen, strays={} if now is None else {d.key: StrayRuling(True, Reason("covered"), ruling=now)})
    else:
        seen = replace(seen, rulings={} if now is None else {d.key: now})
    refusal = as_planned(Plan("p", NOW, (p,), (), rulings=rulings), p, seen)
    assert (refusal is not None) == refused
    if refusal is not None:
        assert refusal.code == "assigned"
        assert f"as of {human_time(LATER)}; when the plan was made, at {human_time(NOW)}, it was" in refusal.fact


@pytest.mark.parametrize(
    ("by", "refused"), [(0, False), (HOUR, False), (-HOUR, False), (HOUR + 1, True), (-HOUR - 1, True)]
)
def test_a_clock_that_was_set_since_the_plan(by: int, refused: bool) -> None:
    p = proposal(ActionKind.REMOVE, directory(f"orders-0.{HEX}-stray"))
    plan = Plan("p", NOW, (p,), (), booted_ms=NOW - 5 * HOUR)
    refusal = as_planned(plan, p, replace(facts(now_ms=LATER + by), booted_ms=NOW - 5 * HOUR + by))
    assert (refusal is not None) == refused
    if refusal is not None:
        assert refusal.code == "clock" and f"set by {by // 60_000} minutes since the plan" in refusal.fact
