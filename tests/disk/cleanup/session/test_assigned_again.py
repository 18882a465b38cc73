"""What the cluster decides between plan and act counts: the assignments are read again before acting."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import AssignmentsSettings, KafkaSettings
from logagent.base.dir_names import stray_name
from logagent.base.records import Outcome
from logagent.base.units import human_time
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.kafka.image import PartitionAssignment, Topic
from tests.disk.sessions import SETTINGS, FailingHost, in_a_moment, write_topic_elsewhere
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_export, write_topic_id
from tests.hosts import HEX, TOPIC_ID

THIS_NODE, OTHER = 3, 4


class Later(SystemClock):
    """The machine's clocks, but for how many seconds have passed."""

    passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


@pytest.fixture
def clock() -> Later:
    return Later()


@pytest.fixture
def host(tmp_path: Path, clock: Later) -> FailingHost:
    log_dir = format_log_dir(tmp_path / "d1")
    bulk_partition(log_dir, "kept-0")
    now_due = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, sightings=1, min_age=0))
    made = FailingHost(tmp_path / "state", log_dir, settings=now_due)
    made.clock = clock
    return made


def assign(host: FailingHost, node: int) -> None:
    """An export in which `orders` lives with `node` as its only replica."""
    topics = [("orders", GONE_ID, node), ("kept", TOPIC_ID, THIS_NODE)]
    live = [Topic(name, topic_id, {0: PartitionAssignment((n,), (n,))}) for name, topic_id, n in topics]
    write_export(host.assignments, *live, at_ms=in_a_moment(host.clock.now_ms()))


@pytest.mark.parametrize("read_again", [True, False])
def test_a_partition_that_is_reassigned_back_is_not_set_aside(
    host: FailingHost, clock: Later, read_again: bool
) -> None:
    """One log dir, so that nothing ends the plan: the image was that of its beginning up to `assignments.max_age`."""
    orders = bulk_partition(Path(host.paths[0]), "orders-0")
    write_topic_id(orders, GONE_ID)
    with host.session() as session:
        assign(host, OTHER)
        session.read_assignments()
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [(p.dir.name, p.reason) for p in plan.actions] == [("orders-0", "not-a-replica")]
        assign(host, THIS_NODE)
        clock.passed += 60
        manager = session.log_manager()
        if not read_again:
            manager.read_facts = session.facts
        done = manager.execute(plan)
    if read_again:
        assert [(r.key.name, r.why.code) for r in done.refusals] == [("orders-0", "assigned")]
        assert "its verdict is assigned" in done.refusals[0].why.fact
        assert f"at {human_time(plan.made_at_ms)}, it was orphan (not-a-replica)" in done.refusals[0].why.fact
    assert orders.is_dir() is read_again


def test_what_is_an_orphan_for_another_reason_waits_for_a_new_plan(host: FailingHost, clock: Later) -> None:
    """Nothing else would refuse it: it is proven either way. But what was read, and approved, was another plan."""
    orders = bulk_partition(Path(host.paths[0]), "orders-0")
    write_topic_id(orders, GONE_ID)
    with host.session() as session:
        assign(host, OTHER)
        session.read_assignments()
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        write_topic_elsewhere(host.assignments, host.clock.now_ms())
        clock.passed += 60
        done = session.log_manager().execute(plan)
        (refusal,) = done.refusals
        says = re.fullmatch(
            r"its verdict is orphan \(topic-absent\) as of (\S+ \S+); when .* at (\S+ \S+), it was .*", refusal.why.fact
        )
        assert says is not None and says[2] == human_time(plan.made_at_ms) <= says[1]
        assert "it was orphan (not-a-replica)" in refusal.why.fact
        assert [r.outcome for r in done.results.values()] == [Outcome.SKIPPED] and orders.is_dir()
        # The new plan is carried out.
        session.take_inventory()
        again = plan_cleanup(session, session.facts())
        assert [p.reason for p in again.actions] == ["topic-absent"]
        assert [r.outcome for r in session.log_manager().execute(again).results.values()] == [Outcome.DONE]


def test_nor_is_a_stray_of_it_removed(host: FailingHost, clock: Later) -> None:
    stray = bulk_partition(Path(host.paths[0]), stray_name("orders", 0, HEX))
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        assert [p.dir.name for p in plan.actions] == [stray.name]
        assign(host, THIS_NODE)
        clock.passed += 60
        done = session.log_manager().execute(plan)
    assert [(r.key.name, r.why.code) for r in done.refusals] == [(stray.name, "assigned")]
    assert len(list(stray.iterdir())) == 3


def test_what_can_no_longer_be_read_permits_nothing(host: FailingHost, clock: Later) -> None:
    stray = bulk_partition(Path(host.paths[0]), stray_name("orders", 0, HEX))
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        host.assignments.write_text("{}")
        clock.passed += 60
        (result,) = session.log_manager().execute(plan).results.values()
    assert result.outcome is Outcome.SKIPPED
    assert stray.is_dir()


def test_nor_does_a_configuration_that_went_wrong_meanwhile_end_it_half_told(host: FailingHost, clock: Later) -> None:
    stray = bulk_partition(Path(host.paths[0]), stray_name("orders", 0, HEX))
    with host.session() as session:
        session.take_inventory()
        plan = plan_cleanup(session, session.facts())
        session.settings = replace(
            session.settings,
            assignments=AssignmentsSettings(sources=("admin",)),
            kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1", client=f"{host.state}-is-gone.properties"),
        )
        clock.passed += 60
        (result,) = session.log_manager().execute(plan).results.values()
    assert result.outcome is Outcome.SKIPPED and "assigned" in (result.error or "")
    assert stray.is_dir()
