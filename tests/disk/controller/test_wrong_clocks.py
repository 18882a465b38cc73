"""Hosts whose clocks are wrong: which of their snapshots is the newest, and what is said about it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from logagent.store.publications import FleetPublications
from tests.disk.controller.small_fleet import CLUSTER, DIRECTORY, TOPIC_ID, SmallFleet

MINUTE, AN_HOUR = timedelta(minutes=1), timedelta(hours=1)
WINDOW = 2 * AN_HOUR
WRONG = 2
"""The node whose clock is wrong."""


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    return SmallFleet(tmp_path).everywhere()


def publications(fleet: SmallFleet) -> FleetPublications:
    return FleetPublications(str(fleet.store), CLUSTER, WINDOW, fleet.warnings.append)


def publish(fleet: SmallFleet, ahead: timedelta, after: timedelta = AN_HOUR) -> str:
    """The next snapshot of the wrong host, and of the others; returns its name."""
    fleet.now += after
    for node in fleet.hosts:
        fleet.publish(node, taken_at=fleet.now + (ahead if node == WRONG else timedelta(0)))
        if node == WRONG:
            name = f"s{fleet.snapshots:04d}"
    return name


@pytest.mark.parametrize("ahead", [timedelta(0), 6 * MINUTE, 5 * AN_HOUR])
def test_a_copy_on_a_host_whose_clock_is_ahead_is_found(fleet: SmallFleet, ahead: timedelta) -> None:
    """Its log dir was offline when the topic was deleted, and is back."""
    fleet.hosts[WRONG].disk.clear()
    publish(fleet, timedelta(0), MINUTE)
    fleet.request(topics=(fleet.topic((1, 3)),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller)
    assert controller.states.of("request-1") == "done"
    fleet.hosts[WRONG].disk[TOPIC_ID, 0] = DIRECTORY
    for _ in range(2):
        publish(fleet, ahead)
        fleet.rounds(controller)
    assert not fleet.hosts[WRONG].disk and controller.states.of("request-1") == "done"


@pytest.mark.parametrize("behind", [0, 4])
def test_a_controller_a_little_behind_the_store_reopens_nothing_that_it_has_done(
    fleet: SmallFleet, behind: int
) -> None:
    """The snapshots arrived before the request was done, and its clock says that it was done before."""
    fleet.ahead = -behind * MINUTE
    fleet.request(topics=(fleet.topic(),))
    controller = fleet.controller()
    controller.start()
    fleet.rounds(controller, 2)
    for node in fleet.hosts:
        fleet.hosts[node].disk[TOPIC_ID, 0] = DIRECTORY
        fleet.publish(node)
        fleet.hosts[node].disk.clear()
    fleet.now += timedelta(seconds=1)
    fleet.rounds(controller, 2)
    assert controller.states.of("request-1") == "done"
    for _ in range(2):
        controller = fleet.controller()
        assert not controller.is_due()
        controller = fleet.controller()
        controller.start()
        fleet.rounds(controller, 1)
        assert controller.states.of("request-1") == "done"


@pytest.mark.parametrize("clock", [
    [6, 6, 6], [0, 6, 0], [0, 6, 12, 4, 0], [60, 0, -60, 0], [300, 6, -6, 300], [0, 60, 240, -4, -30]
])  # fmt: skip
def test_the_newest_snapshot_is_the_same_whoever_looks_for_how_long(fleet: SmallFleet, clock: list[int]) -> None:
    """`clock`: the minutes that the host's clock is ahead, hour by hour; never an hour back, so the last one counts."""
    long_running = publications(fleet)
    for ahead in clock:
        last = publish(fleet, ahead * MINUTE)
        fresh = publications(fleet)
        for heard in (long_running, fresh):
            heard.look(fleet.now)
            if ahead > -60:
                assert heard.nodes[WRONG].stem == last
        assert long_running.nodes[WRONG].taken_at == fresh.nodes[WRONG].taken_at
        trusted = ahead <= 5
        assert (long_running.nodes[WRONG].taken_at > fleet.now - WINDOW) == trusted


def test_a_clock_that_is_set_back_a_day_hides_nothing_for_longer_than_the_window(fleet: SmallFleet) -> None:
    long_running = publications(fleet)
    long_running.look(fleet.now)
    for hour in range(1, 7):
        last = publish(fleet, -24 * AN_HOUR, AN_HOUR + MINUTE)
        fresh = publications(fleet)
        for heard in (long_running, fresh):
            heard.look(fleet.now)
            assert (heard.nodes[WRONG].stem == last) == (hour >= 2), hour


def test_a_spool_of_such_a_host_does_not_make_its_newest_snapshot_older(fleet: SmallFleet) -> None:
    """It is sent newest first, hours later."""
    publish(fleet, timedelta(0))
    heard = publications(fleet)
    newest = publish(fleet, -AN_HOUR, 9 * AN_HOUR)
    for hours in range(2, 9):
        heard.look(fleet.now)
        publish(fleet, -hours * AN_HOUR, timedelta(seconds=1))
    heard.look(fleet.now)
    fresh = publications(fleet)
    fresh.look(fleet.now)
    assert heard.nodes[WRONG].stem == fresh.nodes[WRONG].stem == newest


def test_a_clock_that_is_ahead_is_told_once_and_stops_nobody_else(fleet: SmallFleet) -> None:
    heard = publications(fleet)
    for ahead in (0, 6, 10, 20, 0):
        last = publish(fleet, ahead * MINUTE)
        for _ in range(3):
            heard.look(fleet.now)
    assert [line.partition(":")[0] for line in fleet.warnings] == ["node 2 publishes snapshots with impossible times"]
    assert heard.nodes[WRONG].stem == last
    assert all(fleet.now - heard.nodes[node].taken_at < MINUTE for node in (1, 3))
    publish(fleet, 6 * MINUTE)
    heard.look(fleet.now)
    assert len(fleet.warnings) == 2, "it was right in between"


def test_manifests_with_a_time_to_come_are_told_once(fleet: SmallFleet) -> None:
    heard = publications(fleet)
    for _ in range(3):
        publish(fleet, timedelta(0), MINUTE)
        folders = list((fleet.store / "landing" / CLUSTER).glob(f"*/{WRONG}"))
        for path in (path for folder in folders for path in folder.iterdir()):
            os.utime(path, (fleet.now.timestamp() + 1e6,) * 2)
        for _ in range(2):
            heard.look(fleet.now)
    assert sorted(line.partition(" manifests in ")[2] for line in fleet.warnings) == sorted(
        f"{'/'.join(folder.parts[-4:])} are ignored: their times are in the future, or before 1970; while there are "
        "some from the future, no copy of node 2 counts"
        for folder in folders
    )
