"""Turns for scans: one at a time while they compute, all at once while they wait for their disks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from logagent.disk.scan import ALONE_SECONDS, STUCK_SECONDS, TURN_SECONDS, ScanTurn, ScanTurns
from tests.waiting import wait_until

LIMIT = 60.0


@dataclass
class Clocks:
    """Both clocks of the turns; a test moves them on."""

    now: float = 100.0
    computed: float = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.computed += seconds

    def wait_for_disk(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Hosts:
    clocks: Clocks = field(default_factory=Clocks)

    def __post_init__(self) -> None:
        self.turns = ScanTurns(lambda: self.clocks.now, lambda: self.clocks.computed)

    def turn(self) -> ScanTurn:
        return ScanTurn(self.turns)

    @contextmanager
    def other_scan(self) -> Iterator[threading.Event]:
        """Another scan begins in a thread of its own; the event is set once it has its turn, which it keeps until the
        end."""
        has_it, may_end = threading.Event(), threading.Event()

        def scan() -> None:
            with self.turn():
                has_it.set()
                may_end.wait(LIMIT)

        thread = threading.Thread(target=scan)
        thread.start()
        try:
            wait_until(lambda: has_it.is_set() or self.turns._waiting, "it has its turn or waits for it")
            yield has_it
        finally:
            may_end.set()
            while thread.is_alive():
                self.clocks.wait_for_disk(STUCK_SECONDS * 1.1)
                thread.join(0.01)


@pytest.fixture
def hosts() -> Hosts:
    return Hosts()


def test_a_scan_that_computes_keeps_its_turn_until_it_is_over_and_then_hands_it_on(hosts: Hosts) -> None:
    mine = hosts.turn()
    with mine, hosts.other_scan() as has_it:
        hosts.clocks.work(TURN_SECONDS * 0.9)
        mine.tick()
        assert not has_it.is_set()
        hosts.clocks.work(TURN_SECONDS * 0.2)
        # It is mine again only when the other one has ended or seems stuck.
        ended = threading.Thread(target=mine.tick)
        ended.start()
        assert has_it.wait(LIMIT)
        assert ended.is_alive()
        hosts.clocks.wait_for_disk(STUCK_SECONDS * 1.1)
        ended.join(LIMIT)
        assert not ended.is_alive()


def test_while_no_other_scan_waits_a_turn_goes_on(hosts: Hosts) -> None:
    mine = hosts.turn()
    with mine:
        for _ in range(10):
            hosts.clocks.work(TURN_SECONDS * 2)
            mine.tick()
        with hosts.other_scan() as has_it:
            hosts.clocks.work(TURN_SECONDS * 0.9)
            mine.tick()
            assert not has_it.is_set()


def test_a_scan_that_waits_for_its_disk_lets_the_others_in_and_goes_on(hosts: Hosts) -> None:
    mine = hosts.turn()
    with mine, hosts.other_scan() as has_it:
        hosts.clocks.wait_for_disk(TURN_SECONDS * 1.1)
        mine.tick()
        assert has_it.wait(LIMIT)
        # The other one keeps its turn all the time, and this one does not wait for it.
        hosts.clocks.wait_for_disk(ALONE_SECONDS * 0.9)
        mine.tick()


def test_after_a_while_a_scan_that_waited_for_its_disk_takes_turns_again(hosts: Hosts) -> None:
    mine = hosts.turn()
    with mine:
        hosts.clocks.wait_for_disk(TURN_SECONDS * 1.1)
        mine.tick()
        hosts.clocks.wait_for_disk(ALONE_SECONDS * 1.1)
        mine.tick()
        with hosts.other_scan() as has_it:
            hosts.clocks.work(TURN_SECONDS * 0.9)
            mine.tick()
            assert not has_it.is_set()


def test_a_turn_that_is_stuck_in_a_call_to_its_disk_is_waited_for_only_briefly(hosts: Hosts) -> None:
    mine = hosts.turn()
    with mine, hosts.other_scan() as has_it:
        assert not has_it.is_set()
        hosts.clocks.wait_for_disk(STUCK_SECONDS * 1.1)
        assert has_it.wait(LIMIT)
        # When its disk answers after all, it does not take the turn from the one that has it now.
        mine.tick()
        with hosts.other_scan() as third:
            assert not third.is_set()


def test_a_scan_that_fails_hands_its_turn_on(hosts: Hosts) -> None:
    with pytest.raises(OSError, match="it fails"), hosts.turn():
        raise OSError("it fails")
    with hosts.other_scan() as has_it:
        assert has_it.wait(LIMIT)


def test_computing_scans_never_run_side_by_side_and_every_one_comes_to_its_end(hosts: Hosts) -> None:
    running, most, done = [0], [0], []

    def scan() -> None:
        turn = hosts.turn()
        with turn:
            for _ in range(100):
                running[0] += 1
                most[0] = max(most[0], running[0])
                threading.Event().wait(0.0001)
                running[0] -= 1
                hosts.clocks.work(TURN_SECONDS / 3)
                turn.tick()
        done.append(turn)

    threads = [threading.Thread(target=scan) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len(done) == 5
    assert most[0] == 1
