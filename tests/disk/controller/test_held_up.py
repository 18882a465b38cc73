"""What holds a deletion up, for how long is said, and how it ends: reassignments, dead agents, hosts that are gone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from logagent.cli.deletions.progress import progress_document
from logagent.controller.rounds import DeletionRounds
from logagent.documents.topics import MissingReplica
from tests.disk.controller.small_fleet import TOPIC_ID, SmallFleet


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    fleet = SmallFleet(tmp_path).everywhere()
    fleet.request(topics=(fleet.topic(),))
    return fleet


def started(fleet: SmallFleet) -> DeletionRounds:
    controller = fleet.controller()
    controller.start()
    return controller


def missing(fleet: SmallFleet) -> list[MissingReplica]:
    """What `topics status` says is missing, of somebody who only looks."""
    look = fleet.controller()
    look.look()
    ((topic,),) = [request["topics"] for request in progress_document(look)["requests"]]
    return topic["missing"]


def test_a_reassignment_holds_the_topic_up_until_it_is_over(fleet: SmallFleet) -> None:
    fleet.admin.moving = {TOPIC_ID}
    controller = started(fleet)
    fleet.rounds(controller, 3)
    (known,) = controller.context.topics_to_be_deleted.values()
    assert fleet.admin.asked == [] and known.ineligible == {"reassignment": "a partition of it is being reassigned"}
    assert all(host.disk for host in fleet.hosts.values())
    fleet.admin.moving = set()
    fleet.rounds(controller)
    assert fleet.admin.asked == [TOPIC_ID] and all(not host.disk for host in fleet.hosts.values())


def test_a_dead_agent_beside_a_host_that_publishes_is_said(fleet: SmallFleet) -> None:
    fleet.hosts[3].dumb = True
    controller = started(fleet)
    fleet.rounds(controller, 3)
    fleet.now += controller.setting.pauses.answer_within
    for node in fleet.hosts:
        fleet.publish(node)
    fleet.rounds(controller, 1)
    whys = {r.node_id: p.reason.why for r, p in controller.context.replicas.items() if p.reason is not None}
    assert whys == {3: "its agent does not answer"}
    fleet.hosts[3].dumb = False
    fleet.now += timedelta(minutes=6)
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done" and not fleet.hosts[3].disk


def test_a_host_that_never_returns_is_waited_for_until_the_request_is_cancelled(fleet: SmallFleet) -> None:
    fleet.hosts[3].silent = True
    silent_since = fleet.now
    controller = started(fleet)
    fleet.rounds(controller, 3)
    for _ in range(5):
        fleet.now += timedelta(days=1)
        for node in (1, 2):
            fleet.publish(node)
        fleet.rounds(controller, 1)
    (left,) = missing(fleet)
    assert (left["node_id"], left["state"]) == (3, "ReplicaDeletionIneligible")
    assert f"nothing heard since {silent_since:%Y-%m-%dT%H:%M}" in (left["why"] or "")
    controller.close("request-1", "cancelled")
    fleet.rounds(controller, 1)
    fleet.hosts[3].silent = False
    fleet.publish(3)
    fleet.rounds(controller, 3)
    assert controller.states.of("request-1") == "cancelled" and fleet.hosts[3].disk


def test_a_host_whose_clock_is_behind_is_asked_again_after_the_same_pauses(fleet: SmallFleet) -> None:
    fleet.hosts[2].refuses = fleet.hosts[3].refuses = True
    fleet.behind = {3: timedelta(days=1)}
    controller = started(fleet)
    fleet.rounds(controller, 20)
    assert len(fleet.orders(3)) == len(fleet.orders(2)) < 10
