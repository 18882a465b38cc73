"""A controller's rounds on a real store: requests seen through, and what must not happen on the way."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from logagent.controller.controller_context import ReplicaState
from logagent.errors import LogAgentError, ServiceUnreachable
from logagent.files.safe_open import FileLimit
from logagent.store.answers import answers_folder, write_answer
from logagent.store.deletion import Answer, Closed, Kind, RequestedPartition
from logagent.store.epochs import EpochLost
from logagent.store.orders import REQUESTS, Requests, encode, instant, moment, write_closed, write_request
from logagent.store.signing import PrivateKey
from logagent.store.tree import StoreTree
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, KEY, TOPIC_ID, SmallFleet


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def closings(fleet: SmallFleet, request_id: str) -> list[str]:
    return sorted(fleet.control.names(f"{REQUESTS}/{request_id}"))


def test_a_topic_goes_from_every_host_and_the_request_is_closed(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert fleet.admin.asked == [TOPIC_ID]
    assert all(not host.disk for host in fleet.hosts.values())
    assert closings(fleet, request.request_id) == ["0000000001-done.json"]
    assert [order.action for order in fleet.orders(1)] == ["stop", "delete"]


@pytest.mark.parametrize("kind", ["topics", "directories"])
def test_a_controller_for_each_round_gets_on_as_well(fleet: SmallFleet, kind: Kind) -> None:
    """`topics run --once` of a timer: what hosts told the one before is known to the next."""
    if kind == "topics":
        fleet.request(topics=(fleet.topic(),))
    else:
        fleet.request(kind, directories=tuple(fleet.directory(n, only_copy=True) for n in (1, 2, 3)), approved=True)
    for _ in range(3):
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller, 1)
    assert closings(fleet, "request-1") == ["0000000003-done.json"]
    assert all(not host.disk for host in fleet.hosts.values())


@pytest.mark.parametrize("kind", ["topics", "directories"])
def test_a_refusal_of_an_order_of_before_holds_up_no_later_controller(fleet: SmallFleet, kind: Kind) -> None:
    """The agent of node 2 did not know the schema; it was upgraded since."""
    if kind == "topics":
        fleet.request(topics=(fleet.topic(),))
    else:
        fleet.request(kind, directories=tuple(fleet.directory(n, only_copy=True) for n in (1, 2, 3)), approved=True)
    controller = fleet.controller()
    controller.start()
    controller.round()
    (order,) = fleet.orders(2)
    fleet.seen[2].add(order.order_id)
    why = "its schema is logagent.order/2, this version knows logagent.order/1"
    at = instant(fleet.now)
    write_answer(fleet.control, Answer(order.order_id, 1, 1, CLUSTER, 2, f"{2:032x}", 0, "stop", at, "1", refused=why))
    for _ in range(5):
        fleet.now += timedelta(minutes=10)
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller, 1)
    assert controller.states.of("request-1") == "done" and all(not host.disk for host in fleet.hosts.values())


@pytest.mark.parametrize("kind", ["topics", "directories"])
def test_a_log_dir_that_was_offline_holds_up_no_later_controller(fleet: SmallFleet, kind: Kind) -> None:
    if kind == "topics":
        fleet.request(topics=(fleet.topic(),))
    else:
        fleet.request(kind, directories=tuple(fleet.directory(n, only_copy=True) for n in (1, 2, 3)), approved=True)
    for number in range(6):
        fleet.hosts[2].disk_offline = number == 0
        fleet.now += timedelta(minutes=10)
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller, 1)
    assert controller.states.of("request-1") == "done" and all(not host.disk for host in fleet.hosts.values())


def test_what_was_told_before_is_asked_again_when_it_is_another_directory_now(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    first = fleet.controller()
    first.start()
    fleet.rounds(first, 1)
    fleet.hosts[1].disk[TOPIC_ID, 0] = replace(DIRECTORY, inode=99)
    second = fleet.controller()
    second.start()
    fleet.rounds(second, 1)
    assert fleet.hosts[1].disk and not fleet.hosts[2].disk
    fleet.rounds(second, 6)
    assert not fleet.hosts[1].disk and second.states.of("request-1") == "done"


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


def test_an_answer_of_long_ago_is_no_sign_of_life(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 2)
    fleet.hosts[3].silent = True
    fleet.now += timedelta(hours=3)
    for node in (1, 2):
        fleet.publish(node)
    fleet.rounds(controller, 2)
    assert "nothing heard since" in controller.context.silent_nodes[3]
    assert controller.context.silent_nodes.keys() == {3}


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


def test_what_was_added_since_the_request_is_read_right_before_the_deletion(fleet: SmallFleet) -> None:
    asked = fleet.topic((1, 2))
    fleet.hosts[3].disk.clear()
    fleet.publish(3)
    fleet.admin.now[TOPIC_ID] = replace(
        asked, partitions=(RequestedPartition(0, (1, 2, 3)), RequestedPartition(1, (3,)))
    )
    fleet.request(topics=(asked,))
    controller = fleet.controller()
    controller.start()
    controller.round()
    assert {(r.partition, r.node_id) for r in controller.context.replicas} == {(0, 1), (0, 2), (0, 3), (1, 3)}
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done" and fleet.admin.asked == [TOPIC_ID]


def test_a_topic_id_that_bears_another_name_is_not_deleted(fleet: SmallFleet) -> None:
    asked = fleet.topic()
    fleet.admin.now[TOPIC_ID] = replace(asked, topic="__consumer_offsets")
    fleet.request(topics=(asked,))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 3)
    (known,) = controller.context.topics_to_be_deleted.values()
    assert fleet.admin.asked == [] and "__consumer_offsets" in (known.waits_for_cluster or "")


def test_a_cancellation_counts_until_right_before_the_deletion(fleet: SmallFleet) -> None:
    def cancel() -> None:
        closed = Closed("request-1", CLUSTER, 1, "cancelled", "ops", instant(fleet.now))
        write_closed(fleet.control, closed, KEY)

    fleet.request(topics=(fleet.topic(),))
    fleet.admin.between = cancel
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 2)
    assert fleet.admin.asked == [] and controller.states.of("request-1") == "cancelled"


def test_a_controller_that_lost_its_epoch_meanwhile_deletes_no_topic(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()

    def take_over() -> None:
        fleet.controller().start()

    fleet.admin.between = take_over
    with pytest.raises(EpochLost):
        controller.round()
    assert fleet.admin.asked == []


def test_closed_requests_and_what_was_answered_to_them_are_collected_after_a_month(fleet: SmallFleet) -> None:
    is_done(fleet)
    answers = sum(len(fleet.control.names(answers_folder(node))) for node in (1, 2, 3))
    fleet.now += timedelta(days=29)
    fleet.controller().start()
    assert sum(len(fleet.control.names(answers_folder(node))) for node in (1, 2, 3)) == answers > 0
    fleet.now += timedelta(days=2)
    fleet.request(number=2, topics=(fleet.topic(topic_id="B" * 22),))
    last = fleet.controller()
    last.start()
    assert [n for n in fleet.control.names("requests") if n.endswith(".json")] == ["request-2.json"]
    assert [name for node in (1, 2, 3) for name in fleet.control.names(answers_folder(node))] == []
    assert last.epoch == 3 and fleet.controller().highest_epoch() is not None


def is_done(fleet: SmallFleet) -> None:
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done"


@pytest.mark.parametrize("minutes", [-31 * 24 * 60, -6, 6, 31 * 24 * 60])
def test_a_controller_whose_clock_is_not_the_stores_collects_nothing(fleet: SmallFleet, minutes: int) -> None:
    is_done(fleet)
    fleet.now += timedelta(days=90)
    for ahead in (minutes, minutes // abs(minutes) * 4):
        fleet.ahead = timedelta(minutes=ahead)
        fleet.controller().start()
        assert ("request-1.json" in fleet.control.names("requests")) == (ahead == minutes)


def test_a_request_whose_closing_has_a_time_to_come_is_not_kept_forever(fleet: SmallFleet) -> None:
    is_done(fleet)
    fleet.now += timedelta(days=31)
    (closing,) = fleet.store.glob("control/*/requests/request-1/*-done.json")
    os.utime(closing, (fleet.now.timestamp() + 1e6,) * 2)
    fleet.controller().start()
    assert "request-1.json" not in fleet.control.names("requests")


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
        zombie.epoch, zombie.requests.requests, zombie.states.valid_until, KEY, fleet.now, lambda: None
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
    assert "lost" in later.states.on_hold[request.request_id]
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
    assert fleet.admin.asked == [] and "expired" in controller.states.on_hold[request.request_id]
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
    fleet.admin.disabled = {TOPIC_ID}
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert any("TOPIC_DELETION_DISABLED" in line for line in fleet.warnings)
    done, dropped = closings(fleet, request.request_id)
    assert done == "0000000001-done.json" and dropped.startswith("0000000001-dropped-")
    assert controller.states.of(request.request_id) == "dropped" and len(fleet.admin.asked) == 1
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
    assert len(waits) == 1 and "could not ask the cluster" in waits[0]
    fleet.admin.unreachable = False
    fleet.now += timedelta(minutes=10)
    fleet.rounds(controller)
    assert other not in fleet.admin.living and not controller.context.topics_to_be_deleted


@pytest.mark.parametrize("controller_each_round", [False, True])
def test_a_copy_that_shows_up_after_the_answer_is_deleted_by_the_next_controller_too(
    fleet: SmallFleet, controller_each_round: bool
) -> None:
    """Its host's answers of before say that it was set aside: of the directory that was there then."""
    controller = fleet.controller()
    fleet.request(topics=(fleet.topic(),))
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done"
    fleet.now += timedelta(hours=1)
    fleet.hosts[2].disk[TOPIC_ID, 0] = replace(DIRECTORY, inode=99)
    for node in fleet.hosts:
        fleet.publish(node)
    for number in range(6):
        if controller_each_round or number == 0:
            controller = fleet.controller()
            controller.start()
        fleet.rounds(controller, 1)
    assert not fleet.hosts[2].disk and controller.states.of("request-1") == "done"


def test_of_several_closings_the_newest_counts_however_the_folder_lists_them(fleet: SmallFleet) -> None:
    request = fleet.request(topics=(fleet.topic(),))
    for epoch in (*range(2, 31, 2), *range(31, 1, -2)):
        closed = Closed(request.request_id, CLUSTER, epoch, "done", "ops", instant(fleet.now))
        assert write_closed(fleet.control, closed, KEY)
    requests = Requests(fleet.control, fleet.keys)
    requests.refresh()
    assert requests.closed[request.request_id]["done"].epoch == 31


def test_what_was_closed_again_is_kept_for_a_month_from_then(fleet: SmallFleet) -> None:
    """What agents did in between is not to be forgotten, and what is open again is not to be dropped."""
    long_ago, now = instant(fleet.now - timedelta(days=31)), instant(fleet.now)
    for number in (1, 2, 3):
        fleet.request(number=number, topics=(fleet.topic(topic_id=str(number) * 22),))
        write_closed(fleet.control, Closed(f"request-{number}", CLUSTER, 1, "done", "ops", long_ago), KEY)
    for path in fleet.store.glob("control/*/requests/*/*.json"):
        os.utime(path, (moment(long_ago).timestamp(),) * 2)
    write_closed(fleet.control, Closed("request-1", CLUSTER, 1, "cancelled", "ops", now), KEY)
    write_closed(fleet.control, Closed("request-2", CLUSTER, 1, "done", "ops", now), KEY, "a" * 16)
    controller = fleet.controller()
    controller.start()
    kept = sorted(n for n in fleet.control.names("requests") if n.endswith(".json"))
    assert kept == ["request-1.json", "request-2.json"]


@pytest.mark.parametrize("name", ["request-1.json", "0000000001-cancelled.json"])
def test_what_could_not_be_read_for_a_moment_is_read_again(
    fleet: SmallFleet, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIO of a disk, ESTALE of an NFS mount: once."""
    controller = fleet.controller()
    controller.start()
    controller.round()
    fleet.request(topics=(fleet.topic(),))
    cancelled = name != "request-1.json"
    if cancelled:
        write_closed(fleet.control, Closed("request-1", CLUSTER, 1, "cancelled", "ops", instant(fleet.now)), KEY)
    read, failed = StoreTree.read, list[str]()

    def fails_once(tree: StoreTree, names: Sequence[str], limit: FileLimit) -> bytes:
        if names[-1] == name and not failed:
            failed.append(name)
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(tree, names, limit)

    monkeypatch.setattr(StoreTree, "read", fails_once)
    with pytest.raises(ServiceUnreachable):
        controller.round()
    assert failed
    fleet.rounds(controller)
    assert controller.states.of("request-1") == ("cancelled" if cancelled else "done")
