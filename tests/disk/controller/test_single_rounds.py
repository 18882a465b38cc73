"""`topics run --once` of a timer: every minute a controller of its own, and agents that need longer than that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from logagent.store.deletion import Kind
from logagent.store.epochs import FOLDER
from logagent.store.orders import REQUESTS
from tests.disk.controller.small_fleet import SmallFleet

MINUTE = timedelta(minutes=1)


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def ask(fleet: SmallFleet, kind: Kind = "topics") -> None:
    if kind == "topics":
        fleet.request(topics=(fleet.topic(),))
    else:
        fleet.request(kind, directories=tuple(fleet.directory(n, only_copy=True) for n in (1, 2, 3)), approved=True)


def timer(fleet: SmallFleet, minutes: int) -> list[int]:
    """A call a minute, agents that look at once; the minutes of the calls that had something to do."""
    acted = []
    for minute in range(minutes):
        if fleet.controller().is_due():
            acted.append(minute)
            controller = fleet.controller()
            controller.start()
            controller.round()
        for node in fleet.hosts:
            fleet.agent(node)
        fleet.now += MINUTE
    return acted


def state(fleet: SmallFleet) -> str:
    look = fleet.controller()
    look.look()
    return look.states.of("request-1")


@pytest.mark.parametrize("kind", ["topics", "directories"])
def test_agents_that_need_longer_than_the_period_finish_their_orders(fleet: SmallFleet, kind: Kind) -> None:
    ask(fleet, kind)
    fleet.needs = {1: 2 * MINUTE, 3: 4 * MINUTE}
    timer(fleet, 20)
    assert state(fleet) == "done" and all(not host.disk for host in fleet.hosts.values())


def test_a_controller_whose_clock_was_ahead_holds_up_nothing(fleet: SmallFleet) -> None:
    ask(fleet)
    fleet.admin.still_deleting = True
    ahead_by = timedelta(hours=5)
    fleet.now += ahead_by
    ahead = fleet.controller()
    ahead.start()
    ahead.round()
    fleet.now -= ahead_by
    fleet.admin.still_deleting = False
    assert fleet.controller().is_due()
    timer(fleet, 5)
    assert state(fleet) == "done" and len(fleet.control.names(FOLDER)) <= 6


def test_without_anything_to_do_no_epoch_is_taken(fleet: SmallFleet) -> None:
    ask(fleet)
    assert timer(fleet, 10) == [0, 1, 2]
    assert state(fleet) == "done" and len(fleet.control.names(FOLDER)) == 3


def test_a_host_that_refuses_is_asked_again_after_growing_pauses(fleet: SmallFleet) -> None:
    """It holds up no agent that needs its time, and is asked at once when its snapshot says that it can."""
    ask(fleet)
    fleet.hosts[2].disk_offline = True
    fleet.needs = {3: 9 * MINUTE}
    acted = timer(fleet, 100)
    assert not fleet.hosts[1].disk and not fleet.hosts[3].disk and state(fleet) == "open"
    assert len(acted) < 12, acted
    fleet.hosts[2].disk_offline = False
    fleet.publish(2)
    timer(fleet, 4)
    assert state(fleet) == "done"


def test_a_host_whose_clock_is_behind_is_asked_again_after_growing_pauses(fleet: SmallFleet) -> None:
    ask(fleet)
    fleet.hosts[2].refuses = True
    fleet.behind = {2: timedelta(minutes=30)}
    acted = timer(fleet, 60)
    assert len(acted) < 12 and state(fleet) == "open", acted


def test_a_dead_agent_is_asked_again_and_the_others_finish(fleet: SmallFleet) -> None:
    ask(fleet)
    fleet.hosts[2].dumb = True
    acted = timer(fleet, 60)
    assert len(acted) <= 6, acted
    assert not fleet.hosts[1].disk and not fleet.hosts[3].disk and state(fleet) == "open"
    fleet.hosts[2].dumb = False
    timer(fleet, 20)
    assert state(fleet) == "done"


def test_a_new_request_is_begun_while_orders_stand(fleet: SmallFleet) -> None:
    ask(fleet)
    fleet.needs = dict.fromkeys(fleet.hosts, 5 * MINUTE)
    assert timer(fleet, 3) == [0]
    fleet.request(number=2, topics=(fleet.topic(topic_id="B" * 22),))
    assert fleet.controller().is_due()
    timer(fleet, 20)
    assert state(fleet) == "done" and "B" * 22 in fleet.admin.asked


def test_the_cluster_is_asked_again_after_a_pause(fleet: SmallFleet) -> None:
    ask(fleet)
    fleet.admin.still_deleting = True
    assert timer(fleet, 15) == [0, 1, 2, 4, 8, 13]
    fleet.admin.still_deleting = False
    timer(fleet, 10)
    assert state(fleet) == "done"


def test_a_copy_that_is_back_is_something_to_do(fleet: SmallFleet) -> None:
    ask(fleet)
    timer(fleet, 5)
    assert state(fleet) == "done" and not fleet.controller().is_due()
    fleet.everywhere()
    assert fleet.controller().is_due()
    timer(fleet, 5)
    assert state(fleet) == "done" and all(not host.disk for host in fleet.hosts.values())


def test_a_host_that_is_gone_for_good_stops_nobody(fleet: SmallFleet) -> None:
    """It had the only copy of a topic: no order stands for it, and no answer will."""
    fleet.hosts[3].silent = True
    fleet.now += timedelta(hours=3)
    fleet.needs = dict.fromkeys((1, 2), 9 * MINUTE)
    for node in (1, 2):
        fleet.publish(node)
    fleet.request(number=1, topics=(fleet.topic((1, 2)),))
    fleet.request(number=2, topics=(fleet.topic((3,), "B" * 22),))
    timer(fleet, 60)
    assert state(fleet) == "done" and not fleet.hosts[1].disk and not fleet.hosts[2].disk
    fleet.hosts[3].silent = False
    fleet.publish(3)
    assert fleet.controller().is_due()


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(days=31)])
def test_a_request_closed_a_month_ago_is_something_to_collect(fleet: SmallFleet, ahead: timedelta) -> None:
    """A timer whose clock is ahead may not collect it, and tries no more than once a day."""
    ask(fleet)
    timer(fleet, 5)
    fleet.now += timedelta(days=31)
    fleet.ahead = ahead
    assert timer(fleet, 3) == [0]
    assert ("request-1.json" in fleet.control.names(REQUESTS)) == (ahead > timedelta(0))
