"""Which removed files that are still open are room, and which may be the only copy of records."""

from __future__ import annotations

import pytest

from logagent.base.dir_names import delete_name, stray_name
from logagent.base.records import ActionKind, Holder, HolderState, Identity, RemovedFile, Verdict
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Refusal
from logagent.cleanup.rescue.rules import at_risk, without_a_stop
from logagent.verdict.facts import Ruling
from logagent.verdict.rules import GONE_FOR_GOOD, VerdictReason
from tests.host_files import future_name
from tests.hosts import HEX, LOG_DIR, directory, facts, log_dir, proposal

SEGMENT = "00000000000000000000.log"


def lost(path: str, verdict: Verdict | None = None, reason: str | None = None) -> list[str]:
    """What is at risk where only `path` is removed and open; `verdict`: on the directory that has its name now."""
    file = RemovedFile(path, 42, 7, Identity(1, 2), 100, 4096)
    rulings = {} if verdict is None else {(LOG_DIR, path.partition("/")[0]): Ruling(verdict, reason)}
    return [f.path for _, f in at_risk(facts(log_dir(open_removed=(file,)), rulings=rulings))]


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        (f"orders-0/{SEGMENT}", Verdict.ASSIGNED),
        (f"orders-0/{SEGMENT}", Verdict.UNKNOWN),
        (f"orders-0/{SEGMENT}", None),  # rm -r: its topic id went with it
        (f"orders-0.bak/{SEGMENT}", None),  # renamed first
        (f"/backup/orders-0/{SEGMENT}", None),  # moved away first
        (f"{future_name('orders', 0, HEX)}/{SEGMENT}", Verdict.UNKNOWN),
        (f"__cluster_metadata-0/{SEGMENT}", None),
        ("orders-0/00000000000000000000.txnindex", Verdict.ASSIGNED),
    ],
)
def test_what_no_broker_removes_under_that_name_is_at_risk(path: str, verdict: Verdict | None) -> None:
    assert lost(path, verdict) == [path]


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        (f"orders-0/{SEGMENT}.deleted", Verdict.ASSIGNED),
        (f"{delete_name('orders', 0, HEX)}/{SEGMENT}", None),
        (f"{stray_name('orders', 0, HEX)}/{SEGMENT}", None),
        ("remote-log-index-cache/8_x.index", None),
        ("kafka.log", None),
    ],
)
def test_leaks_are_room(path: str, verdict: Verdict | None) -> None:
    assert lost(path, verdict) == []


def test_only_of_a_topic_that_is_gone_nothing_is_at_risk() -> None:
    """What lives on other nodes may lack these records, after an unclean election and a reassignment."""
    path = f"orders-0/{SEGMENT}"
    found = {reason: lost(path, Verdict.ORPHAN, reason) for reason in (*GONE_FOR_GOOD, VerdictReason.NOT_A_REPLICA)}
    assert found == {**{reason: [] for reason in GONE_FOR_GOOD}, VerdictReason.NOT_A_REPLICA: [path]}
    assert lost(path, Verdict.ORPHAN) == [path], "for a reason that says nothing of its topic"


@pytest.mark.parametrize("state", [HolderState.HELD, HolderState.HIDDEN])
def test_no_guard_that_only_a_stop_lifts_asks_for_one_while_something_is_at_risk(state: HolderState) -> None:
    held = facts(log_dir(holder=Holder(state, 42)))
    found = proposal(ActionKind.QUARANTINE, directory("orders-0"), new_name=stray_name("orders", 0, HEX))
    refusals = [r for guard in GUARDS if (r := guard(found, held)) is not None]
    assert any("stop" in r.hint for r in refusals), refusals
    assert [r for r in refusals if "stop" in without_a_stop(Refusal.of(found.dir, r)).why.hint] == []
