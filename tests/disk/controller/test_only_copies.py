"""Copies that requests have deleted since the snapshots that show them: the next request must not rely on them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from logagent.controller.deletion_plan import DeletionPlan, plan_directories
from logagent.controller.rounds import DeletionRounds
from logagent.controller.store_client import Outcome
from logagent.store.deletion import Request
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, TOPIC_ID, SmallFleet

AN_HOUR = timedelta(hours=1)


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return fleet_of_two(tmp_path)


def fleet_of_two(store: Path) -> SmallFleet:
    """Hosts 1 and 2 have a copy, and have published it."""
    fleet = SmallFleet(store).everywhere()
    del fleet.hosts[3].disk[TOPIC_ID, 0]
    fleet.now += timedelta(minutes=1)
    fleet.publish(3)
    return fleet


def started(fleet: SmallFleet) -> DeletionRounds:
    controller = fleet.controller()
    controller.start()
    return controller


def looking(fleet: SmallFleet) -> DeletionRounds:
    look = fleet.controller()
    look.look()
    return look


def plan_of_the_other_copy(fleet: SmallFleet, *, no_retention: bool = False) -> DeletionPlan:
    look = looking(fleet)
    return plan_directories(
        [fleet.directory(2)], CLUSTER, look.copies({TOPIC_ID: "clicks"}), dirs_on_host={2: 1000},
        open_requests=look.states.not_closed(), no_retention=no_retention,
    )  # fmt: skip


def first_is_done(fleet: SmallFleet) -> Request:
    request = fleet.request("directories", 1, directories=(fleet.directory(1),))
    controller = started(fleet)
    fleet.rounds(controller, 4)
    assert controller.states.of("request-1") == "done" and not fleet.hosts[1].disk
    return request


def test_what_a_done_request_took_is_no_copy_though_the_snapshot_still_shows_it(fleet: SmallFleet) -> None:
    assert plan_of_the_other_copy(fleet).approval == ()
    first_is_done(fleet)
    plan = plan_of_the_other_copy(fleet)
    assert plan.directories[0].only_copy and plan.approval
    assert plan_of_the_other_copy(fleet, no_retention=True).directories == ()


def test_nor_is_it_when_the_order_is_written(fleet: SmallFleet) -> None:
    """The second request was planned before the first was done, or by somebody with an older logagent."""
    first_is_done(fleet)
    fleet.request("directories", 2, directories=(fleet.directory(2),), no_retention=True)
    controller = started(fleet)
    fleet.rounds(controller)
    assert fleet.hosts[2].disk
    assert {p.reason.guard for p in controller.context.replicas.values() if p.reason} == {"only-copy"}


@pytest.mark.parametrize("outcome", ["done", "cancelled"])
def test_a_controller_whose_clock_is_behind_closed_it_when_the_store_says(tmp_path: Path, outcome: str) -> None:
    """The snapshots of 25 minutes ago show what it deleted since, and its clock says that this was an hour ago."""
    fleet = SmallFleet(tmp_path)
    now = fleet.now
    fleet.now = now - timedelta(minutes=90)
    fleet.everywhere()
    fleet.now = now - timedelta(minutes=25)
    for node in fleet.hosts:
        fleet.publish(node)
    fleet.now = now - AN_HOUR
    asked = tuple(fleet.directory(node, only_copy=True) for node in (1, 3))
    fleet.request("directories", 1, directories=asked, approved=True)
    controller = started(fleet)
    while fleet.hosts[1].disk or fleet.hosts[3].disk:
        controller.round()
        for node in (1, 3):
            fleet.agent(node)
    if outcome == "cancelled":
        controller.close("request-1", "cancelled")
    for _ in range(2):
        controller.round()
    assert controller.states.of("request-1") == outcome
    (closing,) = fleet.store.glob(f"control/*/requests/request-1/*-{outcome}.json")
    os.utime(closing, (now.timestamp(), now.timestamp()))
    fleet.now = now + timedelta(minutes=1)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy
    fleet.request("directories", 2, directories=(fleet.directory(2),), no_retention=True)
    fleet.rounds(started(fleet))
    assert fleet.hosts[2].disk


@pytest.mark.parametrize("outcome", ["done", "cancelled"])
def test_a_closing_of_a_clock_a_month_behind_is_not_collected_at_once(fleet: SmallFleet, outcome: Outcome) -> None:
    """The snapshots still show what it deleted, and nothing else says so."""
    fleet.request("directories", 1, directories=(fleet.directory(1),))
    controller = started(fleet)
    while fleet.hosts[1].disk:
        controller.round()
        fleet.agent(1)
    fleet.ahead = timedelta(days=-31)
    controller.close("request-1", outcome)
    fleet.ahead = timedelta(0)
    fleet.request("directories", 2, directories=(fleet.directory(2),), no_retention=True)
    fleet.rounds(started(fleet))
    assert fleet.hosts[2].disk


def test_a_clock_a_month_ahead_collects_no_request_that_was_just_closed(fleet: SmallFleet) -> None:
    first_is_done(fleet)
    fleet.ahead = timedelta(days=31)
    started(fleet)
    fleet.ahead = timedelta(0)
    fleet.request("directories", 2, directories=(fleet.directory(2),), no_retention=True)
    fleet.rounds(started(fleet))
    assert fleet.hosts[2].disk


@pytest.mark.parametrize("seconds", [1 << 40, (1 << 63) // 10**9, -(1 << 40), 1 << 33])
def test_whatever_time_a_closing_has_it_stops_nobody(seconds: int) -> None:
    """Its signed time counts too, and a time to come only asks for an approval."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as store:  # where any time can be set
        fleet = fleet_of_two(Path(store))
        first_is_done(fleet)
        (closing,) = fleet.store.glob("control/*/requests/request-1/*-done.json")
        os.utime(closing, (seconds, seconds))
        assert plan_of_the_other_copy(fleet).directories[0].only_copy


@pytest.mark.parametrize("kind", ["topics", "directories"])
def test_what_a_cancelled_request_may_have_taken_is_no_copy(fleet: SmallFleet, kind: str) -> None:
    if kind == "topics":
        fleet.request("topics", 1, topics=(fleet.topic((1,)),))
    else:
        fleet.request("directories", 1, directories=(fleet.directory(1),))
    controller = started(fleet)
    for _ in range(3):
        controller.round()
        fleet.agent(1)
    assert not fleet.hosts[1].disk
    controller.close("request-1", "cancelled")
    assert plan_of_the_other_copy(fleet).directories[0].only_copy


@pytest.mark.parametrize("same_controller", [True, False])
def test_a_request_that_was_done_twice_is_closed_the_second_time(fleet: SmallFleet, same_controller: bool) -> None:
    """A copy came back on host 1 once the topic was gone, and was deleted too."""
    fleet.now += timedelta(minutes=1)
    for node in (1, 2):
        fleet.hosts[node].disk.clear()
        fleet.publish(node)
    fleet.request("topics", 1, topics=(fleet.topic(),))
    controller = started(fleet)
    fleet.rounds(controller)
    fleet.now += AN_HOUR
    fleet.hosts[1].disk[TOPIC_ID, 0] = DIRECTORY
    fleet.publish(1)
    if not same_controller:
        controller = started(fleet)
    fleet.rounds(controller)
    assert not fleet.hosts[1].disk and controller.states.of("request-1") == "done"
    for states in (controller.states, looking(fleet).states):
        ((_, at),) = states.closed()
        assert fleet.now - at < timedelta(minutes=10)
    controller = started(fleet)
    fleet.rounds(controller, 1)
    assert controller.states.of("request-1") == "done", "the snapshot is from before it was done"


def test_what_a_brokers_start_takes_after_the_cancellation_is_no_copy(fleet: SmallFleet) -> None:
    """Its daemon saw the order standing, and the store does not answer at the start, 9 minutes later."""
    fleet.request("directories", 1, directories=(fleet.directory(1),))
    controller = started(fleet)
    controller.round()
    fleet.agent(1)
    controller.round()
    assert [order.action for order in fleet.orders(1)] == ["stop", "delete"]
    controller.close("request-1", "cancelled")
    fleet.now += timedelta(minutes=6)
    fleet.publish(1)
    fleet.now += timedelta(minutes=3)
    fleet.hosts[1].disk.clear()
    assert plan_of_the_other_copy(fleet).directories[0].only_copy


def test_an_expired_request_counts_when_the_order_is_written(fleet: SmallFleet) -> None:
    fleet.request("directories", 1, directories=(fleet.directory(1),))
    fleet.hosts[1].silent = True
    fleet.rounds(started(fleet), 2)
    fleet.now += timedelta(days=8)
    fleet.publish(1)
    fleet.publish(2)
    fleet.request("directories", 2, directories=(fleet.directory(2),))
    controller = started(fleet)
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "on-hold" and fleet.hosts[2].disk


def test_a_copy_that_a_later_snapshot_shows_counts_again(fleet: SmallFleet) -> None:
    """It was restored on the host, say."""
    first_is_done(fleet)
    fleet.hosts[1].disk[TOPIC_ID, 0] = DIRECTORY
    fleet.publish(1)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy, "too close to tell"
    fleet.now += timedelta(minutes=20)
    fleet.publish(1, taken_at=fleet.now - AN_HOUR)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy, "it was taken before, and arrived late"
    fleet.now += timedelta(minutes=1)
    fleet.publish(1)
    assert not plan_of_the_other_copy(fleet).directories[0].only_copy


def test_a_snapshot_that_a_clock_ahead_took_before_and_sent_late_shows_no_copy(fleet: SmallFleet) -> None:
    before = fleet.now
    first_is_done(fleet)
    fleet.hosts[1].disk[TOPIC_ID, 0] = DIRECTORY
    fleet.now = before + timedelta(minutes=70)
    fleet.publish(1, taken_at=before + AN_HOUR)
    fleet.hosts[1].disk.clear()
    fleet.publish(2)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy


@pytest.mark.parametrize("behind", [6, 30, 20 * 60])
def test_a_controller_that_is_behind_takes_no_old_snapshot_for_the_newest(tmp_path: Path, behind: int) -> None:
    """Host 1 has removed its copy since, and says so in snapshots that the controller takes for false."""
    fleet = SmallFleet(tmp_path)
    now = fleet.now
    fleet.now -= timedelta(minutes=behind + 30)
    fleet.everywhere()
    for node in (1, 3):
        fleet.hosts[node].disk.clear()
    fleet.now = now
    for node in fleet.hosts:
        fleet.publish(node)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy
    fleet.ahead = timedelta(minutes=-behind)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy
    fleet.request("directories", 1, directories=(fleet.directory(2),), no_retention=True)
    fleet.rounds(started(fleet), 4)
    assert fleet.hosts[2].disk


@pytest.mark.parametrize("same_controller", [True, False])
def test_a_host_that_gives_its_manifests_times_to_come_has_no_copy_and_others_have(
    fleet: SmallFleet, same_controller: bool
) -> None:
    look = looking(fleet)
    fleet.now += timedelta(minutes=1)
    fleet.publish(1)
    newest = max((fleet.store / "landing").glob("*/*/1/*"), key=lambda path: path.stat().st_mtime)
    manifests = [path for path in newest.parent.iterdir() if path.stat().st_mtime == newest.stat().st_mtime]
    for path in manifests:
        os.utime(path, (fleet.now.timestamp() + 600,) * 2)

    def nodes_with_a_copy() -> set[int]:
        nonlocal look
        look = look if same_controller else fleet.controller()
        look.look()
        return {place[0] for place in look.copies({TOPIC_ID: "clicks"})[TOPIC_ID, 0]}

    assert nodes_with_a_copy() == {2}
    fleet.now += timedelta(minutes=11)
    fleet.publish(1)
    assert nodes_with_a_copy() == {1, 2}


def test_a_spool_that_arrives_late_replaces_nothing_newer(fleet: SmallFleet) -> None:
    """It is sent newest first, so the oldest snapshot arrives last. The host has removed its copy since."""
    fleet.now += timedelta(minutes=90)
    copy = fleet.hosts[1].disk.pop((TOPIC_ID, 0))
    fleet.publish(1)
    fleet.publish(2)
    fleet.hosts[1].disk[TOPIC_ID, 0] = copy
    fleet.now += timedelta(minutes=1)
    fleet.publish(1, taken_at=fleet.now - AN_HOUR)
    assert plan_of_the_other_copy(fleet).directories[0].only_copy


def test_nor_does_one_of_a_clock_that_is_ahead(fleet: SmallFleet) -> None:
    fleet.publish(1, taken_at=fleet.now + AN_HOUR)
    copy = fleet.hosts[1].disk.pop((TOPIC_ID, 0))
    fleet.now += timedelta(minutes=1)
    fleet.publish(1)
    fleet.hosts[1].disk[TOPIC_ID, 0] = copy
    assert plan_of_the_other_copy(fleet).directories[0].only_copy


def test_what_hosts_show_of_topics_that_were_not_asked_about_does_not_matter(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only other copy is on a host that shows too many directories of a topic that goes in the same round."""
    monkeypatch.setattr("logagent.store.publications.MAX_ROWS", 3)
    other = "B" * 22
    for node in (1, 2):
        for partition in range(4):
            fleet.hosts[node].disk[other, partition] = replace(
                DIRECTORY, name=f"views-{partition}", inode=20 + partition
            )
        fleet.publish(node)
    fleet.request("topics", 1, topics=(fleet.topic((3,), other),))
    fleet.hosts[3].disk[other, 0] = replace(DIRECTORY, name="views-0")
    fleet.request("directories", 2, directories=(fleet.directory(1),))
    fleet.rounds(started(fleet))
    assert not fleet.hosts[3].disk and (TOPIC_ID, 0) not in fleet.hosts[1].disk


def test_a_host_that_answers_but_no_longer_publishes_has_no_copy(fleet: SmallFleet) -> None:
    first = started(fleet)
    assert not plan_of_the_other_copy(fleet).directories[0].only_copy
    fleet.now += first.setting.silent_after + timedelta(minutes=1)
    fleet.publish(2)
    look = fleet.controller()
    look.look()
    look.context.live_nodes.add(1)
    assert {place[0] for place in look.copies({TOPIC_ID: "clicks"})[TOPIC_ID, 0]} == {2}


@pytest.mark.parametrize("how", ["leader down", "out of sync", "not asked"])
def test_a_copy_that_no_live_broker_serves_in_sync_is_none(fleet: SmallFleet, how: str) -> None:
    """Its host is heard, and shows it. Neither the plan nor the order of a request without an approval relies on it."""
    assert not plan_of_the_other_copy(fleet).directories[0].only_copy
    fleet.request("directories", 1, directories=(fleet.directory(2),))
    fleet.admin.unreachable = how == "not asked"
    if how != "not asked":
        fleet.admin.isr[TOPIC_ID, 0] = frozenset() if how == "leader down" else frozenset({3})
    plan = plan_of_the_other_copy(fleet)
    assert plan.directories == () and "already queued" in plan.dropped[0].why
    controller = started(fleet)
    fleet.rounds(controller)
    assert fleet.hosts[2].disk and not fleet.hosts[2].acted
    assert {p.reason.guard for p in controller.context.replicas.values() if p.reason} == {"only-copy"}
    controller.close("request-1", "cancelled")
    plan = plan_of_the_other_copy(fleet)
    assert plan.directories[0].only_copy and any("on a live broker and in sync" in why for why in plan.approval)
    assert plan_of_the_other_copy(fleet, no_retention=True).directories == ()
    assert (how == "not asked") == any("nobody listens there" in line for line in fleet.warnings)
