"""A controller's rounds on a real store: requests seen through, and what must not happen on the way."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from logagent.controller.controller_context import ReplicaState
from logagent.errors import LogAgentError
from logagent.store.deletion import Identity
from logagent.store.epochs import EpochLost
from logagent.store.orders import REQUESTS, Requests, encode, write_request
from logagent.store.signing import PrivateKey
from tests.disk.controller.small_fleet import CLUSTER, KEY, TOPIC_ID, SmallFleet

DIRECTORY = Identity("/d1", "clicks-0", 11, 1, bytes=100, end_offset=5)


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    fleet = SmallFleet(tmp_path)
    for node in fleet.hosts:
        fleet.hosts[node].disk[TOPIC_ID, 0] = DIRECTORY
        fleet.publish(node)
    return fleet


def closings(fleet: SmallFleet, request_id: str) -> list[str]:
    return fleet.control.names(f"{REQUESTS}/{request_id}")


def test_a_topic_goes_from_every_host_and_the_request_is_closed(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.admin.asked == [TOPIC_ID]
    assert all(not host.disk for host in fleet.hosts.values())
    assert closings(fleet, request.request_id) == ["0000000001-done.json"]
    assert [order.action for order in fleet.orders(1)] == ["stop", "delete"]


def test_nothing_is_resent_to_those_that_succeeded_while_one_host_is_down(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    fleet.hosts[3].silent = True
    fleet.now += timedelta(hours=3)
    for node in (1, 2):
        fleet.publish(node)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 12)
    assert [len(fleet.orders(node)) for node in (1, 2, 3)] == [2, 2, 0]
    states = {r.node_id: p for r, p in controller.context.replicas.items()}
    assert states[3].state is ReplicaState.INELIGIBLE
    assert states[3].reason is not None and "nothing heard since" in states[3].reason.why
    fleet.hosts[3].silent = False
    fleet.publish(3)
    fleet.rounds(controller)
    assert not fleet.hosts[3].disk and not controller.context.topics_to_be_deleted
    assert [len(fleet.orders(node)) for node in (1, 2, 3)] == [2, 2, 2]


def test_a_look_calls_a_host_silent_though_an_order_stands_for_it(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    controller.round()
    assert len(fleet.orders(3)) == 1
    fleet.now += timedelta(hours=3)
    for node in (1, 2):
        fleet.publish(node)
    look = fleet.controller()
    look.look()
    states = {r.node_id: p for r, p in look.context.replicas.items()}
    assert states[3].state is ReplicaState.INELIGIBLE and states[1].state is ReplicaState.OFFLINE
    assert states[3].reason is not None and "nothing heard since" in states[3].reason.why


def test_a_purge_never_deletes_the_living_topic(fleet: SmallFleet) -> None:
    fleet.admin.living.add(TOPIC_ID)
    fleet.request("directories", directories=(fleet.directory(1),))
    for _ in range(3):  # three controllers, each killed after a few rounds
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller, 3)
    assert fleet.admin.asked == [] and TOPIC_ID in fleet.admin.living
    assert not fleet.hosts[1].disk and fleet.hosts[2].disk and fleet.hosts[3].disk


def test_all_copies_of_a_partition_in_one_plan_want_an_approval(fleet: SmallFleet) -> None:
    fleet.request("directories", directories=tuple(fleet.directory(node) for node in (1, 2, 3)))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert all(host.disk for host in fleet.hosts.values())
    assert {p.reason.guard for p in controller.context.replicas.values() if p.reason} == {"only-copy"}


def test_approved_only_copies_go(fleet: SmallFleet) -> None:
    directories = tuple(fleet.directory(node, only_copy=True) for node in (1, 2, 3))
    fleet.request("directories", directories=directories, approved=True)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert all(not host.disk for host in fleet.hosts.values())


def test_two_purges_do_not_count_on_each_others_copy(fleet: SmallFleet) -> None:
    del fleet.hosts[3].disk[TOPIC_ID, 0]
    fleet.now += timedelta(seconds=1)
    fleet.publish(3)
    fleet.request("directories", 1, directories=(fleet.directory(1),))
    fleet.request("directories", 2, directories=(fleet.directory(2),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.hosts[1].disk and fleet.hosts[2].disk


def test_a_copy_on_a_silent_host_is_none(fleet: SmallFleet) -> None:
    fleet.now += timedelta(hours=3)
    fleet.publish(1)
    fleet.request("directories", directories=(fleet.directory(1),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.hosts[1].disk


def test_a_forged_request_causes_nothing(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    (fleet.store / "control" / CLUSTER / REQUESTS / f"{request.request_id}.json").unlink()
    write_request(fleet.control, request, PrivateKey("ops", b"\x02" * 32))
    (fleet.store / "control" / CLUSTER / REQUESTS / "request-2.json").write_bytes(encode(request))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.admin.asked == [] and controller.requests.ignored.count == 2
    assert all(host.disk for host in fleet.hosts.values())


def test_a_signed_request_under_another_name_is_nobodys(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    folder = fleet.store / "control" / CLUSTER / REQUESTS
    (folder / f"{request.request_id}.json").rename(folder / "request-9.json")
    requests = Requests(fleet.control, fleet.keys)
    requests.refresh()
    assert requests.requests == {}


def test_a_controller_ends_when_another_one_took_over(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    first, second = fleet.controller(), fleet.controller()
    first.start()
    first.round()
    second.start()
    with pytest.raises(EpochLost, match="epoch 2 was taken"):
        first.round()
    fleet.rounds(second)
    assert all(not host.disk for host in fleet.hosts.values())


def test_what_a_stopped_controller_writes_afterwards_is_obeyed_by_nobody(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    zombie, second = fleet.controller(), fleet.controller()
    zombie.start()
    zombie.round()
    # It is stopped between its check and its write.
    zombie.check_epoch = lambda: None  # type: ignore[method-assign]
    second.start()
    fleet.rounds(second)
    before = {node: fleet.orders(node) for node in fleet.hosts}
    zombie.manager.on_broker_failure(1, "x", fleet.now)
    zombie.manager.on_broker_startup(1, fleet.now)
    zombie.manager.resume_deletions(fleet.now)
    zombie.exchange.write_orders(
        zombie.epoch, zombie.requests.requests, zombie.valid_until, KEY, fleet.now, lambda: None
    )
    added = [o for o in fleet.orders(1) if o not in before[1]]
    assert [o.epoch for o in added] == [1]
    fleet.agent(1)
    assert added[0].order_id not in fleet.seen[1]


def test_a_store_put_back_to_yesterday_holds_its_requests_until_they_are_resumed(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    for _ in range(3):
        controller = fleet.controller()
        controller.start()
    fleet.rounds(controller, 1)
    fleet.now += timedelta(minutes=1)
    assert {o.epoch for o in fleet.orders(1)} == {3}
    for name in ("1.json", "2.json", "3.json"):
        (fleet.store / "control" / CLUSTER / "epoch" / name).unlink()
    with pytest.raises(EpochLost, match="older state"):
        controller.round()
    later = fleet.controller()
    assert later.start().epoch == 4
    fleet.rounds(later, 3)
    assert "lost" in later.on_hold[request.request_id]
    assert any(host.disk for host in fleet.hosts.values())
    later.close(request.request_id, "resumed")
    fleet.rounds(later)
    assert all(not host.disk for host in fleet.hosts.values())


def test_a_request_older_than_a_week_goes_on_only_when_resumed(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    fleet.now += timedelta(days=7, minutes=1)
    for node in fleet.hosts:
        fleet.publish(node)
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 3)
    assert fleet.admin.asked == [] and "expired" in controller.on_hold[request.request_id]
    controller.close(request.request_id, "resumed")
    fleet.rounds(controller)
    assert all(not host.disk for host in fleet.hosts.values())


def test_a_cancelled_request_is_forgotten(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    controller.close(request.request_id, "cancelled")
    fleet.rounds(controller)
    assert fleet.admin.asked == [] and all(host.disk for host in fleet.hosts.values())


def test_deletion_that_is_disabled_drops_the_request_with_a_warning(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    fleet.admin.disabled = True
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert any("TOPIC_DELETION_DISABLED" in line for line in fleet.warnings)
    assert closings(fleet, request.request_id) == ["0000000001-done.json"]
    assert all(host.disk for host in fleet.hosts.values())


def test_two_hosts_with_one_node_id_are_told_nothing(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    fleet.publish(2, host="kafka-2-clone")
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.orders(2) == [] and fleet.hosts[2].disk
    assert any("two hosts claim node id 2" in p.reason.why for p in controller.context.replicas.values() if p.reason)


def test_a_copy_that_shows_up_later_joins_the_request_also_when_it_was_done(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic((1, 2)),))
    controller = fleet.controller()
    controller.start()
    del fleet.hosts[3].disk[TOPIC_ID, 0]
    fleet.now += timedelta(minutes=1)
    fleet.publish(3)
    fleet.rounds(controller)
    assert not controller.context.topics_to_be_deleted
    fleet.hosts[3].disk[TOPIC_ID, 0] = DIRECTORY
    fleet.publish(3)
    fleet.rounds(controller)
    assert not fleet.hosts[3].disk


def test_an_unreadable_store_is_never_an_empty_one(fleet: SmallFleet, tmp_path: Path) -> None:
    controller = fleet.controller()
    controller.start()
    (tmp_path / "control").rename(tmp_path / "control-away")
    (tmp_path / "control").symlink_to(tmp_path / "control-away")
    with pytest.raises(LogAgentError):
        controller.round()


def test_a_cluster_that_cannot_be_reached_holds_up_no_other_deletion(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    controller.round()
    other = "B" * 22
    fleet.request(number=2, topics=(fleet.topic((1, 2), other),))
    fleet.admin.unreachable = True
    fleet.rounds(controller)
    assert all(not host.disk for host in fleet.hosts.values()) and other in fleet.admin.living
    waits = [k.waits_for_cluster or "" for k in controller.context.topics_to_be_deleted.values()]
    assert len(waits) == 1 and "cannot be reached" in waits[0]
    fleet.admin.unreachable = False
    fleet.now += timedelta(minutes=10)
    fleet.rounds(controller)
    assert other not in fleet.admin.living and not controller.context.topics_to_be_deleted
