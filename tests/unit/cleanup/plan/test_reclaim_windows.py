"""What a snapshot says of each directory: when the next step on it is open, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from logagent.advice.scan.command import step_row
from logagent.base.records import ActionKind, Health, Holder, HolderState, Reason
from logagent.cleanup.plan.assemble import BlastRadius, assemble
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Proposal, Waiting
from logagent.cleanup.plan.planner import Planner, Told, Window
from logagent.cleanup.plan.queue import Recalled
from logagent.verdict.facts import Facts, StrayRuling
from tests.hosts import HEX, LOG_DIR, NOW, directory, facts, gone, log_dir, proposal

STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"
WIDE = BlastRadius(1000, 1.0)
DUE = 5_000
DELAY = 60_000


class Step(NamedTuple):
    window: Window | None
    goes_at_ms: int | None = None
    obstacle: str | None = None
    covered: str | None = None


def told(given: Facts, *proposals: Proposal, waiting: tuple[Waiting, ...] = (), limits: BlastRadius = WIDE) -> Told:
    """What is said of the first directory in the plan, or the first that waits."""
    dirs = [*(p.dir for p in proposals), *(directory(w.dir.name) for w in waiting)]
    planner = Planner(dirs, Recalled(), given, 0, DELAY, 0, 0, 1, 0, 20, 1.0, lambda: HEX)
    return planner.after(assemble(proposals, waiting, given, GUARDS, limits)).says(dirs[0])


def said(given: Facts, *proposals: Proposal, waiting: tuple[Waiting, ...] = (), limits: BlastRadius = WIDE) -> Step:
    found = told(given, *proposals, waiting=waiting, limits=limits)
    assert found.obstacle is None or found.reasons[-1] == found.obstacle
    return Step(
        found.window, found.goes_at_ms, found.obstacle.code if found.obstacle is not None else None, found.covered
    )


def remove(name: str = STRAY) -> Proposal:
    return replace(proposal(ActionKind.REMOVE, directory(name)), due_at_ms=DUE)


def test_what_is_due_and_passes_every_guard_is_open_now() -> None:
    ruling = StrayRuling(True, Reason("covered"), "yes", proof=gone())
    given = facts(strays={(LOG_DIR, STRAY): ruling})
    assert said(given, remove()) == Step("now", DUE, None, "yes")


def test_a_stray_that_nothing_covers_wants_a_person() -> None:
    given = facts(strays={(LOG_DIR, STRAY): StrayRuling(False, Reason("nothing covers it"), "no")})
    assert said(given, remove()) == Step("approval", None, "assigned", "no")


@pytest.mark.parametrize("state", [HolderState.HELD, HolderState.STARTING])
def test_what_a_live_broker_forbids_comes_at_its_restart(state: HolderState) -> None:
    """But what is marked, which it removes itself."""
    beside, started = log_dir(holder=Holder(state, 4711)), Holder(state, 4711, start_time_ms=NOW)
    orphan = proposal(ActionKind.QUARANTINE, directory("orders-0"))
    assert said(facts(beside), orphan) == Step("restart", None, "window")
    assert said(facts(replace(beside, holder=started)), remove(MARKED)) == Step("later", NOW + DELAY, "window")


def test_what_has_to_be_mended_has_no_window() -> None:
    given = facts(log_dir(health=Health.READ_ONLY, health_reason="EROFS"))
    assert said(given, remove(MARKED)) == Step(None, None, "online")


def test_beyond_the_limits_all_of_it_wants_a_person() -> None:
    marked = [remove(f"orders-{n}.{HEX}-delete") for n in range(3)]
    assert said(facts(), *marked, limits=BlastRadius(2, 1.0)) == Step("approval", DUE, "blast-radius")


@pytest.mark.parametrize(
    ("action", "rule", "until", "window"),
    [
        (ActionKind.REMOVE, "file.delete.delay.ms", 9_000, "later"),
        (ActionKind.QUARANTINE, "min_age", 9_000, "later"),
        # Old enough: nothing but the broker's stop is missing.
        (ActionKind.QUARANTINE, "window", None, "restart"),
        # Kept while a log dir is offline, or while the clock is in doubt: no restart helps.
        (ActionKind.REMOVE, "log-dir-not-seen", None, None),
        (ActionKind.REMOVE, "clock", None, None),
        (ActionKind.QUARANTINE, "clock", None, None),
    ],
)
def test_what_waits(action: ActionKind, rule: str, until: int | None, window: Window | None) -> None:
    waits = Waiting(Reason("a sentence", code=rule, until_ms=until), action, directory("orders-0"))
    assert said(facts(), waiting=(waits,)) == Step(window, until, rule)
    short = replace(waits, why=replace(waits.why, fact=rule))
    details = [step_row(told(facts(), waiting=(w,)))["obstacle_detail"] for w in (waits, short)]
    assert details == ["a sentence", None]


def test_a_sentence_that_quotes_a_path_has_an_end() -> None:
    waits = Waiting(Reason("x" * 5000, code="retry"), ActionKind.REMOVE, directory(STRAY))
    row = step_row(told(facts(), waiting=(waits,)))
    assert row["obstacle"] == "retry" and len(str(row["obstacle_detail"])) == 600
