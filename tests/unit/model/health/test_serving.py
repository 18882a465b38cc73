"""When a broker that holds a log dir counts as serving: never by age alone, never by a part of what it has to load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logagent.model.facts import LogDirFacts
from logagent.model.health import serving
from logagent.model.health.serving import (
    LOCKED_WITHIN_MS,
    SAME_START_MS,
    SeenHolder,
    first_held,
    locked_by_ms,
    mark_serving,
    serving_now,
)
from logagent.model.records import Health, Holder, HolderState, Identity, PartitionDir
from tests.hosts import HEX, LOG_DIR, NOW, directory

PID, STARTED = 4711, NOW - 3_600_000
LOCKED_BY = NOW - 1_800_000
DIRS = [directory(name) for name in ("orders-0", f"orders-1.{HEX}-delete", f"orders-2.{HEX}-stray")]
DIRS.append(directory(f"orders-3.{HEX}-future"))


def held(*, open_dirs: tuple[str, ...] = (), pid: int | None = PID) -> LogDirFacts:
    holder = Holder(HolderState.STARTING, pid, STARTED)
    return LogDirFacts(LOG_DIR, Identity(1, 2), Health.ONLINE, None, holder, open_by=dict.fromkeys(open_dirs, (PID,)))


NAMES = tuple(d.name for d in DIRS)


def has_all_open(where: LogDirFacts, dirs: list[PartitionDir], *, born: int | None = None) -> bool:
    return serving.has_all_open(where, dirs, lambda _: born, LOCKED_BY, NOW)


def test_all_that_is_loaded_has_to_be_open() -> None:
    assert has_all_open(held(open_dirs=NAMES), DIRS)
    for missing in NAMES:
        assert not has_all_open(held(open_dirs=tuple(n for n in NAMES if n != missing)), DIRS)


@pytest.mark.parametrize(
    ("born", "serves"),
    [
        (LOCKED_BY, False),  # it may have been there when the lock was taken
        (LOCKED_BY + 1, True),
        (NOW, True),
        (NOW + 1, False),  # by a clock that cannot be believed
        (None, False),
    ],
)
def test_what_was_made_after_the_lock_was_taken_need_not_be_open(born: int | None, serves: bool) -> None:
    planted = directory(f"planted-0.{HEX}-stray")
    assert has_all_open(held(open_dirs=NAMES), [*DIRS, planted], born=born) is serves
    assert not has_all_open(held(), [planted], born=born), "and nothing else is open"
    assert not serving.has_all_open(held(open_dirs=NAMES), [*DIRS, planted], lambda _: born, None, NOW)


def test_a_wall_clock_that_is_set_does_not_shorten_the_settling() -> None:
    """The kernel reckons a process's start from the wall clock of now: with a clock that was set it is another holder,
    and what is waited begins anew. What is set by less than that shows is less than two seconds."""
    settle_ms, before = 60_000, {LOG_DIR: SeenHolder(PID, STARTED, NOW - 1_000)}
    for step in (settle_ms, 3_600_000, -3_600_000, SAME_START_MS + 1):
        where = replace(held(), holder=Holder(HolderState.STARTING, PID, STARTED + step))
        told, noted = mark_serving({LOG_DIR: where}, before, lambda _: True, settle_ms, NOW + step)
        assert told[LOG_DIR].holder.state is HolderState.STARTING
        assert noted[LOG_DIR].since_ms == NOW + step


@pytest.mark.parametrize(
    ("known", "locked_by"),
    [
        (None, STARTED + LOCKED_WITHIN_MS),
        (SeenHolder(PID, STARTED, STARTED + 5_000), STARTED + 5_000),
        (SeenHolder(PID, STARTED, NOW - 1), STARTED + LOCKED_WITHIN_MS),
        (SeenHolder(PID + 1, STARTED, STARTED + 5_000), STARTED + LOCKED_WITHIN_MS),
        (SeenHolder(PID, STARTED - SAME_START_MS - 1, STARTED), STARTED + LOCKED_WITHIN_MS),
        (SeenHolder(PID, STARTED, NOW + 1), STARTED + LOCKED_WITHIN_MS),
    ],
)
def test_the_lock_was_taken_before_it_was_seen_or_soon_after_the_start(
    known: SeenHolder | None, locked_by: int
) -> None:
    seen = first_held({LOG_DIR: held()}, {} if known is None else {LOG_DIR: known}, NOW)
    assert locked_by_ms(seen[LOG_DIR]) == locked_by
    free = replace(held(), holder=Holder(HolderState.FREE))
    assert first_held({LOG_DIR: free}, seen, NOW) == {} and locked_by_ms(None) is None


def test_what_is_not_loaded_need_not_be_open() -> None:
    assert has_all_open(held(open_dirs=NAMES), [*DIRS, directory("__cluster_metadata-0"), directory("notes")])


def test_nothing_open_in_an_empty_log_dir_proves_nothing() -> None:
    assert not has_all_open(held(), [])
    assert not has_all_open(held(), [directory("notes")])


def test_what_another_process_has_open_proves_nothing() -> None:
    others = replace(held(), open_by=dict.fromkeys(NAMES, (PID + 1,)))
    assert not has_all_open(others, DIRS)
    assert not has_all_open(held(open_dirs=NAMES, pid=None), DIRS)


def test_age_alone_never_ends_starting() -> None:
    told, noted = mark_serving({LOG_DIR: held()}, {}, lambda _: False, 0, NOW + 10**10)
    assert told[LOG_DIR].holder.state is HolderState.STARTING
    assert noted == {}


@pytest.mark.parametrize(("waited", "state"), [(0, "starting"), (59_999, "starting"), (60_000, "held")])
def test_settle_is_waited_from_the_first_time_it_was_seen(waited: int, state: str) -> None:
    known = {LOG_DIR: SeenHolder(PID, STARTED, NOW)}
    told, noted = mark_serving({LOG_DIR: held()}, known, lambda _: False, 60_000, NOW + waited)
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
    assert serving_now(held(), other, seen=False, now_ms=NOW) is None
    assert serving_now(held(), other, seen=True, now_ms=NOW) == SeenHolder(PID, STARTED, NOW)


def test_nobody_serves_without_the_lock() -> None:
    free = replace(held(), holder=Holder(HolderState.FREE))
    assert serving_now(free, SeenHolder(PID, STARTED, NOW), seen=True, now_ms=NOW) is None
