"""When a broker gave up a log dir: one rule for guards, probes and `check`."""

from __future__ import annotations

import pytest

from logagent.base.records import Holder, HolderState
from logagent.disk.health import SETTLED_MS, GivenUp, LockFacts, given_up, lock_facts

HELD = LockFacts(True, 5, 1_000)
FREE = LockFacts(False)


def lost(*locks: LockFacts) -> list[str]:
    return sorted(given_up({f"/d{number}": lock for number, lock in enumerate(locks, 1)}))


@pytest.mark.parametrize(
    ("locks", "expected"),
    [
        ((), []),
        ((HELD,), []),
        ((HELD, HELD), []),
        ((FREE, FREE), []),
        ((HELD, FREE), ["/d2"]),
        ((FREE, HELD, FREE), ["/d1", "/d3"]),
        # Somebody unlinked its `.lock`; the broker has it open still.
        ((HELD, LockFacts(False, open_by=frozenset({5}))), []),
        # Another process has it open: that keeps nothing.
        ((HELD, LockFacts(False, open_by=frozenset({6}))), ["/d2"]),
        # The holder has no number here (another PID namespace): it may be the one that has it open.
        ((LockFacts(True), LockFacts(False, open_by=frozenset({6}))), []),
        ((LockFacts(True), FREE), ["/d2"]),
        # It cannot be told.
        ((HELD, LockFacts(None)), []),
        ((HELD, LockFacts(False, open_by=None)), []),
        ((LockFacts(None), FREE), []),
    ],
)
def test_which_log_dirs_it_seems_to_have_given_up(locks: tuple[LockFacts, ...], expected: list[str]) -> None:
    assert lost(*locks) == expected


def test_who_gave_it_up_is_said() -> None:
    found = given_up({"/d1": LockFacts(True, 7, 2_000), "/d2": HELD, "/d3": FREE})["/d3"]
    assert found == GivenUp(5, 1_000)
    assert "process 5" in found.reason
    assert "process" not in GivenUp(None, None).reason


def test_one_look_is_certain_only_of_a_broker_that_has_run_for_a_while() -> None:
    assert not GivenUp(5, 1_000).is_settled(1_000 + SETTLED_MS - 1)
    assert GivenUp(5, 1_000).is_settled(1_000 + SETTLED_MS)
    assert not GivenUp(5, None).is_settled(10**15)


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (Holder(HolderState.STARTING, 5, 1_000), HELD),
        (Holder(HolderState.HELD, 5, 1_000), HELD),
        (Holder(HolderState.FREE), FREE),
        (Holder(HolderState.HIDDEN, 6, lock_open_by=(6, 8)), LockFacts(False, open_by=frozenset({6, 8}))),
        (Holder(HolderState.HIDDEN, 6), FREE),
        (Holder(HolderState.UNREADABLE), LockFacts(None, open_by=None)),
    ],
)
def test_what_a_holder_says_of_the_lock(holder: Holder, expected: LockFacts) -> None:
    assert lock_facts(holder) == expected
