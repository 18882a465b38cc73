"""What a host refused is asked again as soon as its snapshot looks different, and not before its pause otherwise."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from logagent.controller.rounds import DeletionRounds
from tests.disk.controller.small_fleet import Change, SmallFleet, unchanged


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    """Node 3 refuses, and has been asked a few times: its pause is hours long."""
    fleet = SmallFleet(tmp_path)
    fleet.everywhere(log_dirs={"/d1": "online"})
    fleet.hosts[3].disk_offline = True
    fleet.request(topics=(fleet.topic(),))
    return fleet


@pytest.fixture
def controller(fleet: SmallFleet) -> DeletionRounds:
    """After the first snapshot that is younger than the refusal: that one counts as a change."""
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 3)
    fleet.now += timedelta(seconds=10)
    publish_all(fleet)
    fleet.rounds(controller, 3)
    fleet.now += timedelta(minutes=40)
    publish_all(fleet)
    fleet.rounds(controller, 30)
    (known,) = [p for r, p in controller.context.replicas.items() if r.node_id == 3]
    assert known.attempts >= 3 and known.retry_at is not None and known.retry_at > fleet.now + timedelta(minutes=5)
    return controller


def publish_all(fleet: SmallFleet, health: str = "offline", change: Change = unchanged) -> None:
    for node in fleet.hosts:
        fleet.publish(node, log_dirs={"/d1": health if node == 3 else "online"}, change=change)


def asked(fleet: SmallFleet) -> int:
    return len(fleet.orders(3))


def test_a_log_dir_that_is_back_is_asked_at_once(fleet: SmallFleet, controller: DeletionRounds) -> None:
    publish_all(fleet)
    before = asked(fleet)
    fleet.rounds(controller, 2)
    assert asked(fleet) == before, "nothing has changed"
    fleet.hosts[3].disk_offline = False
    publish_all(fleet, "online")
    fleet.rounds(controller, 4)
    assert not fleet.hosts[3].disk and controller.states.of("request-1") == "done"


@pytest.mark.parametrize(
    "change", [lambda row: row.update(verdict="orphan"), lambda row: row.update(obstacle=None, window="now"),
               lambda row: row.update(kind="future")],
)  # fmt: skip
def test_other_facts_are_a_change(fleet: SmallFleet, controller: DeletionRounds, change: Change) -> None:
    before = asked(fleet)
    publish_all(fleet, change=change)
    fleet.rounds(controller, 1)
    assert asked(fleet) == before + 1


def test_other_bytes_are_no_change(fleet: SmallFleet, controller: DeletionRounds) -> None:
    before = asked(fleet)
    publish_all(fleet, change=lambda row: row.update(bytes=7, sightings=9))
    fleet.rounds(controller, 2)
    assert asked(fleet) == before
