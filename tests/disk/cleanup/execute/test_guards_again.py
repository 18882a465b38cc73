"""The guards run again right before every rename and every removal, on facts gathered anew: a plan may be old."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.dir_names import delete_name, stray_name
from logagent.base.records import Kind, Outcome, PartitionDir, Reason
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.execute.log_manager import FACTS_VALID_SECONDS, LogManager
from logagent.cleanup.plan.guards import GUARDS
from logagent.cleanup.plan.plan import Flags, Plan, Proposal
from logagent.cleanup.plan.proposals import rename_away
from logagent.cleanup.session.session import Session
from logagent.disk.calls import DirectCalls
from logagent.verdict.facts import Facts
from tests.command_line import LOCKER, process
from tests.disk.sessions import FailingHost
from tests.fake_time import HurriedClock
from tests.host_files import bulk_partition, format_log_dir
from tests.hosts import HEX

ALLOWED = Flags(allow_assigned=True, even_last_copy=True)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    made = format_log_dir(tmp_path / "d1")
    bulk_partition(made, "orders-0")
    for number in range(3):
        bulk_partition(made, delete_name("gone", number, HEX))
    bulk_partition(made, stray_name("old", 0, HEX))
    return made


def planned(session: Session) -> Plan:
    """Everything that is due, and one partition that an operator named."""
    session.take_inventory()
    due = plan_cleanup(session, session.facts())
    (current,) = session.of_kind(Kind.CURRENT)
    named = rename_away(current, is_stray=False, reason="asked for", new_uuid=lambda: HEX, flags=ALLOWED)
    plan = replace(due, actions=(*due.actions, named))
    assert len(plan.actions) == 5
    return plan


def manager_of(session: Session, *, parallel: bool) -> LogManager:
    made = session.log_manager()
    return made if parallel else replace(made, calls=DirectCalls())


def names(log_dir: Path) -> set[str]:
    return {d.name for d in log_dir.iterdir() if d.is_dir()}


@pytest.mark.parametrize("parallel", [False, True], ids=["command", "daemon"])
def test_what_a_guard_refuses_now_is_not_done(tmp_path: Path, log_dir: Path, parallel: bool) -> None:
    def no(p: Proposal, facts: Facts) -> Reason:
        return Reason("not now", "wait", "policy")

    before = names(log_dir)
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        plan = planned(session)
        execution = replace(manager_of(session, parallel=parallel), guards=(*GUARDS, no)).execute(plan)
        assert {r.outcome for r in execution.results.values()} == {Outcome.SKIPPED}
        assert len(execution.refusals) == 5
        assert session.journal.history() == []
    assert names(log_dir) == before


@pytest.mark.parametrize("parallel", [False, True], ids=["command", "daemon"])
def test_a_broker_that_came_after_the_plan_is_seen(tmp_path: Path, log_dir: Path, parallel: bool) -> None:
    before = names(log_dir)
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        plan = planned(session)
        manager = manager_of(session, parallel=parallel)
        with process(LOCKER, log_dir):
            execution = manager.execute(plan)
        assert {r.why.code for r in execution.refusals} == {"window"}
        assert session.journal.history() == []
    assert names(log_dir) == before


@pytest.mark.parametrize("parallel", [False, True], ids=["command", "daemon"])
def test_facts_are_gathered_anew_amid_a_long_plan(tmp_path: Path, log_dir: Path, parallel: bool) -> None:
    """Every removal takes longer than facts are good for: each has facts of its own."""
    looked: list[int] = []
    with FailingHost(tmp_path / "state", log_dir).session() as session:
        plan = planned(session)
        manager = manager_of(session, parallel=parallel)

        def read_facts(dirs: Sequence[PartitionDir]) -> Facts:
            looked.append(1)
            return session.facts(dirs)

        hurried = HurriedClock(session.clock, 2 * FACTS_VALID_SECONDS)
        execution = replace(manager, read_facts=read_facts, clock=hurried).execute(plan)
        assert {r.outcome for r in execution.results.values()} == {Outcome.DONE}
        removals = 4
        assert len(looked) >= removals
    assert names(log_dir) == {delete_name("orders", 0, HEX)}
