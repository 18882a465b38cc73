"""What a snapshot says of each directory: when the next step on it is open, and what stands in the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.base.records import ActionKind, Health, Holder, HolderState
from logagent.cleanup.plan.assemble import BlastRadius, assemble
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Proposal, Reclaim, Waiting, Window, reclaims
from logagent.verdict.facts import Facts, StrayRuling
from tests.hosts import HEX, LOG_DIR, directory, facts, gone, log_dir, proposal

STRAY = f"orders-0.{HEX}-stray"
MARKED = f"orders-0.{HEX}-delete"
WIDE = BlastRadius(1000, 1.0)
DUE = 5_000


def said(given: Facts, *proposals: Proposal, waiting: tuple[Waiting, ...] = (), limits: BlastRadius = WIDE) -> Reclaim:
    """What is said of the first directory in the plan, or the first that waits."""
    found = reclaims(assemble(proposals, waiting, given, GUARDS, limits))
    first = proposals[0].dir if proposals else waiting[0]
    return found[first.key]


def remove(name: str = STRAY) -> Proposal:
    return replace(proposal(ActionKind.REMOVE, directory(name)), due_at_ms=DUE)


def test_what_is_due_and_passes_every_guard_is_open_now() -> None:
    ruling = StrayRuling(True, "covered", "yes", proof=gone())
    given = facts(strays={(LOG_DIR, STRAY): ruling})
    assert said(given, remove()) == Reclaim("now", DUE, None, "yes")


def test_a_stray_that_nothing_covers_wants_a_person() -> None:
    given = facts(strays={(LOG_DIR, STRAY): StrayRuling(False, "nothing covers it", "no")})
    assert said(given, remove()) == Reclaim("approval", None, "assigned", "no")


@pytest.mark.parametrize("state", [HolderState.HELD, HolderState.STARTING])
def test_what_a_live_broker_forbids_comes_at_its_restart(state: HolderState) -> None:
    assert said(facts(log_dir(holder=Holder(state, 4711))), remove(MARKED)) == Reclaim("restart", None, "window")


def test_what_has_to_be_mended_has_no_window() -> None:
    given = facts(log_dir(health=Health.READ_ONLY, health_reason="EROFS"))
    assert said(given, remove(MARKED)) == Reclaim(None, None, "online")


def test_beyond_the_limits_all_of_it_wants_a_person() -> None:
    marked = [remove(f"orders-{n}.{HEX}-delete") for n in range(3)]
    assert said(facts(), *marked, limits=BlastRadius(2, 1.0)) == Reclaim("approval", DUE, "blast-radius")


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
    waits = Waiting(LOG_DIR, "orders-0", action, rule, "a sentence", until)
    assert said(facts(), waiting=(waits,)) == Reclaim(window, until, rule, detail="a sentence")
    assert said(facts(), waiting=(replace(waits, reason=rule),)) == Reclaim(window, until, rule)


def test_a_sentence_that_quotes_a_path_has_an_end() -> None:
    said = Reclaim(None, None, "retry", detail="x" * 5000).row()
    assert said["obstacle"] == "retry" and len(str(said["obstacle_detail"])) == 600
