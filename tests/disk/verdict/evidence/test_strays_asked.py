"""Strays past their retention are asked whose they are, when a plan is made and again when it is carried out."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.dir_names import stray_name
from logagent.base.records import Outcome
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.plan.guards import GUARDS, assigned
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.session.session import Session
from logagent.kafka.image import PartitionAssignment, Topic
from logagent.service.prestart.command import plan_prestart
from logagent.verdict.evidence.assignment_sources import Assignments
from logagent.verdict.facts import Facts
from tests.disk.sessions import SETTINGS, FailingHost, in_a_moment
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_export
from tests.hosts import HEX, TOPIC_ID

THIS_NODE = 3


def assign(host: FailingHost, session: Session, topic: str, node: int = THIS_NODE, partitions: int = 1) -> None:
    """From now on `topic`, with the id of what is an orphan here, lives with `node` as its only replica."""
    kept = Topic("kept", TOPIC_ID, {0: PartitionAssignment((THIS_NODE,), (THIS_NODE,))})
    lives = Topic(topic, GONE_ID, {n: PartitionAssignment((node,), (node,)) for n in range(partitions)})
    write_export(host.assignments, lives, kept, at_ms=in_a_moment(host.clock.now_ms()))
    session.read_assignments()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    made = format_log_dir(tmp_path / "d1")
    bulk_partition(made, "kept-0")
    return made


def _prestart(session: Session, facts: Facts) -> Plan:
    return plan_prestart(session, facts).plan


@pytest.mark.parametrize("planner", [plan_cleanup, _prestart], ids=["remove", "mark"])
def test_only_the_guard_keeps_a_stray_whose_partition_lives_here(tmp_path: Path, log_dir: Path, planner: Any) -> None:
    stray = bulk_partition(log_dir, stray_name("orders", 0, HEX))
    host = FailingHost(tmp_path / "state", log_dir)
    with host.session() as session:
        assign(host, session, "orders")
        session.take_inventory()
        plan: Plan = planner(session, session.facts())
        assert plan.actions == ()
        assert [(r.key.name, r.why.code) for r in plan.refusals] == [(stray.name, "assigned")]
        assert "no copy is known to cover it" in plan.refusals[0].why.fact


def test_a_stray_that_is_assigned_again_since_the_plan_was_made_stays(tmp_path: Path, log_dir: Path) -> None:
    stray = bulk_partition(log_dir, stray_name("orders", 0, HEX))
    host = FailingHost(tmp_path / "state", log_dir)
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [p.dir.name for p in plan.actions] == [stray.name]
        assign(host, session, "orders")
        manager = session.log_manager()
        done = manager.execute(plan)
        assert [(r.key.name, r.why.code) for r in done.refusals] == [(stray.name, "assigned")]
        assert len(list(stray.iterdir())) == 3
        # Nothing else stands between, but that it is not what was planned.
        unguarded = replace(manager, guards=[g for g in GUARDS if g is not assigned])
        (result,) = unguarded.execute(plan).results.values()
        assert result.outcome is Outcome.SKIPPED and "when the plan was made" in (result.error or "")
        (result,) = unguarded.execute(replace(plan, rulings={})).results.values()
    assert result.outcome is Outcome.DONE
    assert not stray.exists()


def test_strays_of_internal_topics_go_by_the_operators_word(tmp_path: Path, log_dir: Path) -> None:
    stray = bulk_partition(log_dir, stray_name("__consumer_offsets", 7, HEX))
    host = FailingHost(tmp_path / "state", log_dir)
    with host.session() as session:
        session.take_inventory()
        # prestart, which nobody watches, has no such word.
        for plan in (_prestart(session, session.facts()), plan_cleanup(session, session.facts())):
            assert plan.actions == ()
            assert [(r.key.name, r.why.code) for r in plan.refusals] == [(stray.name, "policy")]
            assert "cleanup --include-internal" in plan.refusals[0].why.hint
        session.ask_leaders = True
        asked = plan_cleanup(session, session.facts(), include_internal=True)
        (result,) = session.log_manager().execute(asked).results.values()
    assert result.outcome is Outcome.DONE
    assert not stray.exists()


@pytest.mark.parametrize(
    ("reason", "edited", "earlier", "goes"),
    [
        ("topic-absent", False, False, True),
        ("topic-absent", True, False, False),
        # An earlier release believed a metadata log that a reverted migration had left behind.
        ("topic-absent", False, True, False),
        ("not-a-replica", False, False, False),
    ],
)
def test_what_the_journal_says_counts_while_nothing_is_known(
    tmp_path: Path, log_dir: Path, reason: str, edited: bool, earlier: bool, goes: bool
) -> None:
    orders = bulk_partition(log_dir, "orders-0")
    metadata = orders / "partition.metadata"
    metadata.write_text(f"version: 0\ntopic_id: {GONE_ID}\n")
    now_due = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, sightings=1, min_age=0))
    host = FailingHost(tmp_path / "state", log_dir, settings=now_due)
    with host.session() as session:
        if reason == "not-a-replica":
            assign(host, session, "orders", node=4)
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [(p.dir.name, p.reason) for p in plan.actions] == [("orders-0", reason)]
        session.log_manager().execute(plan)
        (entry,) = session.journal.history()
        assert entry.intent.reason == reason
    if edited:
        (log_dir / (entry.intent.new_name or "") / "partition.metadata").write_text(
            "version: 0\ntopic_id: LivesLivesLivesLivesLA\n"
        )
    if earlier:
        with closing(sqlite3.connect(tmp_path / "state" / "journal.db")) as journal, journal:
            journal.execute("UPDATE actions SET files = NULL")
    with host.session() as session:
        session.assignments = Assignments(problems=["nobody answers"])
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [p.dir.name for p in plan.actions] == [entry.intent.new_name] * goes
        assert [r.why.code for r in plan.refusals] == ["assigned"] * (not goes)
