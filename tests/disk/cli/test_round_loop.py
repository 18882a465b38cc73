"""`topics run --interval`: errors that pass do not end it, and two of them end in one that works."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from logagent.cli.deletions import round_loop
from logagent.controller.rounds import DeletionRounds
from logagent.errors import UnreadableError
from logagent.store.epochs import EpochLost
from tests.disk.controller.small_fleet import SmallFleet

MINUTE = timedelta(minutes=1)


class Over(Exception):
    """The test has seen enough."""


@dataclass
class Running:
    """`topics run --interval 1m` on this fleet; `minute` is called between its rounds."""

    fleet: SmallFleet
    minute: Callable[[int], object]
    minutes: int = 0
    said: list[str] = field(default_factory=list)

    def rounds(self, *, signing: bool) -> DeletionRounds:
        return self.fleet.controller()

    def say(self, line: str) -> None:
        self.said.append(line)

    detail = record_status = say

    def sleep(self, seconds: float) -> None:
        assert seconds == 60
        for node in self.fleet.hosts if self.fleet.store.exists() else ():
            self.fleet.agent(node)
        self.fleet.now += MINUTE
        self.minutes += 1
        self.minute(self.minutes)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.sleep", self.sleep)
        ours: Any = self
        with pytest.raises(Over):
            round_loop.run_rounds(ours, ours, once=False, interval="1m", pause=60)


@pytest.fixture
def fleet(tmp_path: Path) -> SmallFleet:
    fleet = SmallFleet(tmp_path / "store")
    fleet.store.mkdir()
    fleet.everywhere().request(topics=(fleet.topic(),))
    return fleet


def over(when: bool) -> None:
    if when:
        raise Over


def state(fleet: SmallFleet) -> str:
    look = fleet.controller()
    look.look()
    return look.states.of("request-1")


def test_an_answer_of_the_cluster_that_cannot_be_read_passes(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reassigning(topics: Mapping[str, str]) -> Collection[str]:
        asked.append(1)
        if len(asked) == 1:
            raise UnreadableError("reassignments cannot be listed: NOT_CONTROLLER")
        return set()

    asked = list[int]()
    monkeypatch.setattr(fleet.admin, "reassigning", reassigning)
    Running(fleet, lambda minutes: over(minutes == 6)).run(monkeypatch)
    assert state(fleet) == "done"


def test_a_store_that_is_away_during_a_takeover_passes(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    away = fleet.store.with_name("away")

    def minute(minutes: int) -> None:
        if minutes == 1:
            fleet.controller().start()
        elif minutes == 2:
            fleet.store.rename(away)
        elif minutes == 3:
            away.rename(fleet.store)
        over(minutes == 12)

    running = Running(fleet, minute)
    running.run(monkeypatch)
    assert state(fleet) == "done" and [line for line in running.said if "does not exist" in line or "No such" in line]


def test_two_of_them_end_in_one_whose_agents_finish(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.needs = dict.fromkeys(fleet.hosts, 4 * MINUTE)
    other = fleet.controller()

    def minute(minutes: int) -> None:
        if minutes == 1:
            other.start()
        other.round()
        over(state(fleet) == "done" or minutes == 30)

    Running(fleet, minute).run(monkeypatch)
    assert state(fleet) == "done" and other.epoch == 2


def test_it_follows_another_that_ended(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    other = fleet.controller()

    def minute(minutes: int) -> None:
        if minutes == 1:
            other.start()
            other.round()
        over(state(fleet) == "done" or minutes == 30)

    running = Running(fleet, minute)
    running.run(monkeypatch)
    assert state(fleet) == "done" and 4 <= running.minutes <= 8
    with pytest.raises(EpochLost):
        other.round()
