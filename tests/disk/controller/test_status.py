"""What `topics status` says to somebody who only looks: what is true of a real store, whoever controls it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from logagent.cli.deletions.progress import progress_document
from logagent.controller.cluster_waits import with_brokers_down
from logagent.controller.deletion_client import TopicOutcome
from logagent.controller.rounds import DeletionRounds
from logagent.documents.topics import RequestProgress
from logagent.store.deletion import ORDER_SCHEMA, Waits
from logagent.store.orders import REQUESTS, closings_folder, encode, instant, orders_folder, write_waits
from logagent.store.signing import PrivateKey
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, KEY, TOPIC_ID, SmallFleet

REASSIGNED = "a partition of it is being reassigned"


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    fleet = SmallFleet(tmp_path).everywhere()
    fleet.request(topics=(fleet.topic(),))
    return fleet


def controller(fleet: SmallFleet) -> DeletionRounds:
    started = fleet.controller()
    started.start()
    return started


def status(fleet: SmallFleet) -> RequestProgress:
    look = fleet.controller()
    look.look()
    (request,) = progress_document(look)["requests"]
    return request


def waits_for(fleet: SmallFleet) -> str | None:
    ((topic),) = status(fleet)["topics"]
    return topic["waits_for"]


def done(fleet: SmallFleet) -> DeletionRounds:
    """The request is done, and a while later a copy is back on host 2 (a disk that was exchanged, a backup)."""
    first = controller(fleet)
    fleet.rounds(first)
    for node in fleet.hosts:
        fleet.publish(node)
    assert status(fleet)["state"] == "done"
    fleet.now += timedelta(minutes=10)
    fleet.hosts[2].disk[TOPIC_ID, 0] = DIRECTORY
    fleet.publish(2)
    fleet.now += timedelta(minutes=1)
    return first


def test_a_request_is_open_again_when_a_copy_is_back(fleet: SmallFleet) -> None:
    done(fleet)
    request = status(fleet)
    assert request["state"] == "open"
    ((topic),) = request["topics"]
    assert [(m["node_id"], m["state"]) for m in topic["missing"]] == [(2, "OnlineReplica")]


@pytest.mark.parametrize("successor", [False, True], ids=["same controller", "next controller"])
def test_it_is_done_again_when_that_copy_is_gone_too(fleet: SmallFleet, successor: bool) -> None:
    """Before the host publishes again: its newest snapshot still shows the copy."""
    acting = done(fleet)
    if successor:
        acting = controller(fleet)
    acting.round()
    assert status(fleet)["topics"][0]["missing"][0]["state"] == "OfflineReplica"
    fleet.rounds(acting)
    assert not fleet.hosts[2].disk and acting.states.of("request-1") == "done"
    assert (status(fleet)["state"], status(fleet)["topics"]) == ("done", [])


def test_a_snapshot_from_before_it_was_done_opens_nothing(fleet: SmallFleet) -> None:
    fleet.rounds(controller(fleet))
    assert (status(fleet)["state"], status(fleet)["topics"]) == ("done", [])


def test_what_the_cluster_waits_for_is_said_as_long_as_it_does(fleet: SmallFleet) -> None:
    """The generation of ZooKeeper: a broker with a replica is down, and Kafka goes on deleting the topic until it is
    back. The controller that was told is long gone."""
    fleet.admin.still_deleting, fleet.admin.live_brokers = True, frozenset({1, 2})
    for _ in range(3):
        controller(fleet).round()
        fleet.now += timedelta(minutes=10)
    assert waits_for(fleet) == "the cluster is still deleting it: it waits for broker 3, which is down"
    assert len([name for name in fleet.control.names(f"{REQUESTS}/request-1") if "waits" in name]) == 1
    fleet.admin.still_deleting = False
    last = controller(fleet)
    last.round()
    assert waits_for(fleet) is None
    fleet.rounds(last)
    assert status(fleet)["state"] == "done"


def test_a_reassignment_is_said(fleet: SmallFleet) -> None:
    fleet.admin.moving = {TOPIC_ID}
    acting = controller(fleet)
    acting.round()
    assert waits_for(fleet) == REASSIGNED
    fleet.admin.moving, fleet.admin.unreachable = set(), True
    fleet.now += timedelta(minutes=10)
    acting.round()
    assert "nobody listens there" in (waits_for(fleet) or "")


def test_what_nobody_signed_or_an_older_controller_wrote_is_not_said(fleet: SmallFleet) -> None:
    fleet.admin.moving = {TOPIC_ID}
    acting = controller(fleet)
    acting.round()
    waits = Waits("request-1", CLUSTER, 9, 1, instant(fleet.now), {TOPIC_ID: "a lie"})
    assert write_waits(fleet.control, waits, PrivateKey("ops", b"\x02" * 32))
    moved = fleet.control.read(closings_folder("request-1"), "0000000001-0000000001-waits.json")
    assert moved is not None and fleet.control.create(
        closings_folder("request-1"), "0000000008-0000000001-waits.json", moved
    )
    assert waits_for(fleet) == REASSIGNED
    fleet.admin.moving = set()
    fleet.admin.still_deleting = True
    controller(fleet).round()
    zombie = Waits("request-1", CLUSTER, 1, 7, instant(fleet.now), {TOPIC_ID: "long over"})
    assert write_waits(fleet.control, zombie, acting.setting.key)
    assert waits_for(fleet) == "the cluster is still deleting it"


def test_orders_of_another_version_or_node_do_not_end_a_look(fleet: SmallFleet) -> None:
    acting = controller(fleet)
    acting.round()
    (order,) = fleet.orders(1)
    content = encode(replace(order, order_id="0000000001-0000000099"))
    later = KEY.sign("logagent.order/2", content)
    assert fleet.control.create(orders_folder(1), "0000000001-0000000099.json", later)
    assert fleet.control.create(orders_folder(2), "0000000001-0000000099.json", KEY.sign(ORDER_SCHEMA, content))
    states = {m["node_id"]: m["state"] for m in status(fleet)["topics"][0]["missing"]}
    assert states == dict.fromkeys((1, 2, 3), "OfflineReplica")


def test_a_name_that_junk_has_is_passed_over(fleet: SmallFleet) -> None:
    fleet.admin.moving = {TOPIC_ID}
    assert fleet.control.create(closings_folder("request-1"), "0000000001-0000000001-waits.json", b"junk")
    controller(fleet).round()
    assert waits_for(fleet) == REASSIGNED


@pytest.mark.parametrize(
    ("live", "replicas", "ending"),
    [(frozenset({1}), {1, 2, 3}, ": it waits for brokers 2, 3, which are down"), (frozenset({1}), {1}, ""),
     (None, {1, 2}, ""), (frozenset(), set(range(11)), ", 9, …, which are down")],
)  # fmt: skip
def test_the_brokers_that_are_down_are_named(live: frozenset[int] | None, replicas: set[int], ending: str) -> None:
    said = with_brokers_down(TopicOutcome("again", "asked", live), replicas)
    assert said.outcome == "again" and said.why.startswith("asked") and said.why.endswith(ending)
    assert bool(ending) == ("down" in said.why)
