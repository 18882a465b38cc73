"""When a broker that holds a log dir counts as serving: once it says so, and never by age or by what it has open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logagent.base.claims import Witness
from logagent.base.records import Health, Holder, HolderState, Identity
from logagent.kafka.image import BrokerRegistration
from logagent.verdict.brokers import mark_serving, registered_by
from logagent.verdict.facts import SAME_START_MS, Facts, LogDirFacts, SeenHolder
from tests.hosts import HEX, LOG_DIR, NOW

PID, STARTED = 4711, NOW - 3_600_000
LOADED = ("orders-0", f"orders-1.{HEX}-delete", f"orders-2.{HEX}-stray", f"orders-3.{HEX}-future")


def held(*, open_dirs: tuple[str, ...] = (), pid: int | None = PID) -> LogDirFacts:
    holder = Holder(HolderState.STARTING, pid, STARTED)
    return LogDirFacts(LOG_DIR, Identity(1, 2), Health.ONLINE, None, holder, open_by=dict.fromkeys(open_dirs, (PID,)))


def serves(_: LogDirFacts) -> Witness | str:
    return Witness.DESCRIBE_LOG_DIRS


def silent(_: LogDirFacts) -> Witness | str:
    return "it does not answer"


def test_a_broker_that_has_everything_open_may_still_be_recovering() -> None:
    """It opens a log, then recovers it, and strays come last."""
    told, noted = mark_serving({LOG_DIR: held(open_dirs=LOADED)}, {}, silent, 0, NOW)
    assert (told[LOG_DIR].holder.state, noted) == (HolderState.STARTING, {})
    assert told[LOG_DIR].holder.detail == "it does not answer"
    told, noted = mark_serving({LOG_DIR: held(open_dirs=LOADED)}, {}, serves, 0, NOW)
    assert told[LOG_DIR].holder.state is HolderState.HELD
    assert noted == {LOG_DIR: SeenHolder(PID, STARTED, NOW)}


def test_an_answer_is_of_a_process_that_is_known() -> None:
    told, noted = mark_serving({LOG_DIR: held(pid=None)}, {}, serves, 0, NOW)
    assert (told[LOG_DIR].holder.state, noted) == (HolderState.STARTING, {})


def test_what_is_known_is_not_asked_again() -> None:
    asked: list[LogDirFacts] = []

    def ask(where: LogDirFacts) -> Witness | str:
        asked.append(where)
        return Witness.REGISTRATION

    known = {LOG_DIR: SeenHolder(PID, STARTED, NOW - 1)}
    assert mark_serving({LOG_DIR: held()}, known, ask, 0, NOW)[1] == known
    assert asked == []


def test_a_wall_clock_that_is_set_does_not_shorten_the_settling() -> None:
    """The kernel reckons a process's start from the wall clock of now: with a clock that was set it is another holder,
    and what is waited begins anew. What is set by less than that shows is less than two seconds."""
    settle_ms, before = 60_000, {LOG_DIR: SeenHolder(PID, STARTED, NOW - 1_000)}
    for step in (settle_ms, 3_600_000, -3_600_000, SAME_START_MS + 1):
        where = replace(held(), holder=Holder(HolderState.STARTING, PID, STARTED + step))
        told, noted = mark_serving({LOG_DIR: where}, before, serves, settle_ms, NOW + step)
        assert told[LOG_DIR].holder.state is HolderState.STARTING
        assert noted[LOG_DIR].since_ms == NOW + step


REGISTERED = BrokerRegistration(
    1, fenced=False, incarnation="new", registered_ms=STARTED + 10_000, unfenced_ms=NOW - 120_000
)


@pytest.mark.parametrize(
    ("registration", "settled"),
    [
        (REGISTERED, True),
        (REGISTERED._replace(unfenced_ms=NOW - 30_000), False),
        (REGISTERED._replace(unfenced_ms=None), False),
        (REGISTERED._replace(fenced=True), False),
        # A crashed one before it, whose session has not ended.
        (REGISTERED._replace(registered_ms=STARTED - 10_000), False),
        (REGISTERED._replace(registered_ms=None), False),
        (None, False),
    ],
)
def test_a_fresh_install_does_not_count_an_old_broker_from_its_first_look(
    registration: BrokerRegistration | None, settled: bool
) -> None:
    told, _ = mark_serving({LOG_DIR: held()}, {}, serves, 60_000, NOW, registration)
    assert (told[LOG_DIR].holder.state is HolderState.HELD) is settled
    # Its age is nothing where it does not say itself that it serves.
    told, noted = mark_serving({LOG_DIR: held()}, {}, silent, 60_000, NOW, registration)
    assert (told[LOG_DIR].holder.state, noted) == (HolderState.STARTING, {})


def test_age_alone_never_ends_starting() -> None:
    told, noted = mark_serving({LOG_DIR: held()}, {}, silent, 0, NOW + 10**10)
    assert told[LOG_DIR].holder.state is HolderState.STARTING
    assert noted == {}


@pytest.mark.parametrize(("waited", "state"), [(0, "starting"), (59_999, "starting"), (60_000, "held")])
def test_settle_is_waited_from_the_first_time_it_was_seen(waited: int, state: str) -> None:
    known = {LOG_DIR: SeenHolder(PID, STARTED, NOW)}
    told, noted = mark_serving({LOG_DIR: held()}, known, silent, 60_000, NOW + waited)
    assert told[LOG_DIR].holder.state.value == state
    assert noted == known


@pytest.mark.parametrize(
    "other",
    [
        SeenHolder(PID + 1, STARTED, NOW - 1),
        SeenHolder(PID, STARTED - SAME_START_MS - 1, NOW - 1),
        SeenHolder(PID, STARTED, NOW + 1),
    ],
    ids=["another process", "another start of that id", "seen in the future"],
)
def test_who_was_seen_serving_is_one_process(other: SeenHolder) -> None:
    told, noted = mark_serving({LOG_DIR: held()}, {LOG_DIR: other}, silent, 0, NOW)
    assert (told[LOG_DIR].holder.state, noted) == (HolderState.STARTING, {})
    assert mark_serving({LOG_DIR: held()}, {LOG_DIR: other}, serves, 0, NOW)[1] == {
        LOG_DIR: SeenHolder(PID, STARTED, NOW)
    }


def test_nobody_serves_without_the_lock() -> None:
    free = {LOG_DIR: replace(held(), holder=Holder(HolderState.FREE))}
    assert mark_serving(free, {LOG_DIR: SeenHolder(PID, STARTED, NOW)}, serves, 0, NOW) == (free, {})


HOLDER = Holder(HolderState.HELD, PID, STARTED)
NOW_REGISTERED = BrokerRegistration(1, ("dir-1", "dir-2"), False, (), "now", STARTED + 5_000)
SEEN = {"before": STARTED - 86_400_000}


def test_a_registration_of_this_process_shows_that_it_has_loaded_everything() -> None:
    assert registered_by(HOLDER, NOW_REGISTERED, SEEN, "dir-1")
    # Seen by an earlier look at this process.
    assert registered_by(HOLDER, NOW_REGISTERED, {**SEEN, "now": STARTED + 6_000}, "dir-1")


@pytest.mark.parametrize(
    ("changes", "seen", "directory_id"),
    [
        ({"fenced": True}, SEEN, "dir-1"),
        ({"fenced": None}, SEEN, "dir-1"),
        ({}, SEEN, "dir-3"),  # offline when it registered
        ({}, SEEN, None),  # before 3.7
        ({}, {}, "dir-1"),  # nothing was seen before: it may be the one of a process that crashed
        ({}, {"now": STARTED - 60_000}, "dir-1"),  # it crashed, and stays unfenced until its session ends
        ({}, {"now": STARTED + 6_000}, "dir-1"),
        ({}, {"before": STARTED - SAME_START_MS}, "dir-1"),
        ({"registered_ms": STARTED - 5_000}, SEEN, "dir-1"),  # of one that crashed between two looks
        ({"registered_ms": STARTED + SAME_START_MS}, SEEN, "dir-1"),
        ({"registered_ms": None}, SEEN, "dir-1"),
        ({"directory_ids": ()}, SEEN, "dir-1"),
    ],
)
def test_any_other_registration_shows_nothing(
    changes: dict[str, Any], seen: dict[str, int], directory_id: str | None
) -> None:
    assert not registered_by(HOLDER, NOW_REGISTERED._replace(**changes), seen, directory_id)
    assert not registered_by(HOLDER, None, SEEN, "dir-1")
    assert not registered_by(replace(HOLDER, start_time_ms=None), NOW_REGISTERED, SEEN, "dir-1")


@pytest.mark.parametrize(
    ("holders", "process"),
    [
        ([Holder(HolderState.HELD, 5, 100), Holder(HolderState.STARTING, 5, 100)], (5, 100)),
        ([Holder(HolderState.HELD, 5, 100), Holder(HolderState.FREE)], (5, 100)),
        ([Holder(HolderState.HELD, 5, 100), Holder(HolderState.HELD, 6, 90)], (None, 90)),
        ([Holder(HolderState.HELD, 5, None)], (5, None)),
        # A broker in a container, and whoever reads its files beside it, started after its file was changed.
        ([Holder(HolderState.HELD), Holder(HolderState.HIDDEN, 7, 500)], (None, None)),
    ],
)
def test_a_process_that_is_seen_does_not_stand_for_a_broker_that_is_not(
    holders: list[Holder], process: tuple[int | None, int | None]
) -> None:
    """By its start it is told whether `server.properties` is what the broker runs with."""
    where = {f"/d{n}": replace(held(), holder=holder) for n, holder in enumerate(holders)}
    assert Facts(0, where).process() == process
