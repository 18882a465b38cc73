"""What processes have open holds for a moment between two acts; who has the lock is looked at each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from logagent.base.records import HolderState
from logagent.cleanup.session.open_host import HOLDS_MOST_SECONDS, LogDirs
from logagent.disk.holders import OpenFiles
from logagent.disk.log_dir import OpenLogDir
from logagent.kafka.files.properties import parse_server_properties
from logagent.kafka.processes.target import Target
from tests.command_line import process
from tests.fake_time import FakeClock
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir

OPENS = "import sys\nf = open(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.read()"
LOCKS = (
    "import fcntl, sys\nf = open(sys.argv[1], 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\n"
    "print('ready', flush=True)\nsys.stdin.read()"
)


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    made = [format_log_dir(tmp_path / f"d{n}", DIRECTORY_IDS[n]) for n in range(2)]
    bulk_partition(made[0], "orders-0")
    return made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log_dirs(two: list[Path], clock: FakeClock) -> Iterator[LogDirs]:
    target = Target(None, parse_server_properties(b"", "(none)"), tuple(map(str, two)), (3, 9, 1))
    with LogDirs(target, clock) as opened:
        yield opened


def test_a_file_that_is_opened_is_seen_within_five_seconds(
    log_dirs: LogDirs, clock: FakeClock, two: list[Path]
) -> None:
    here = str(two[0])
    assert not log_dirs.log_dir_facts("held")[here].open_by
    with process(OPENS, two[0] / "orders-0" / f"{0:020d}.log") as pid:
        assert not log_dirs.log_dir_facts("held")[here].open_by
        assert log_dirs.log_dir_facts("now")[here].open_by == {"orders-0": (pid,)}
        clock.sleep(HOLDS_MOST_SECONDS)
        assert log_dirs.log_dir_facts("held")[here].open_by == {"orders-0": (pid,)}


def test_a_lock_that_changes_hands_ends_what_was_held(log_dirs: LogDirs, two: list[Path]) -> None:
    here = str(two[0])
    seen = []
    for _ in range(2):
        with ExitStack() as stack:
            log_dirs.log_dir_facts("held")
            stack.enter_context(process(OPENS, two[0] / "orders-0" / f"{0:020d}.log"))
            holder = stack.enter_context(process(LOCKS, two[0] / ".lock"))
            found = log_dirs.log_dir_facts("held")[here]
            assert found.holder.pid == holder and found.open_by
            seen.append(holder)
        found = log_dirs.log_dir_facts("held")[here]
        assert (found.holder.state, dict(found.open_by)) == (HolderState.FREE, {})
    assert len(set(seen)) == 2


def test_who_only_asks_for_the_locks_asks_more_where_the_broker_may_have_given_a_log_dir_up(
    log_dirs: LogDirs, two: list[Path]
) -> None:
    with process(LOCKS, two[0] / ".lock"), process(OPENS, two[0] / "orders-0" / f"{0:020d}.log"):
        found = log_dirs.log_dir_facts("no")
        assert found[str(two[0])].open_by and found[str(two[1])].health.value == "offline"
        with process(LOCKS, two[1] / ".lock"):
            found = log_dirs.log_dir_facts("no")
            assert {f.health.value for f in found.values()} == {"online"}
            assert [f for f in found.values() if f.open_by] == []


def test_looks_at_processes_that_take_a_tenth_of_a_second_take_less_than_4_percent_of_the_time(
    log_dirs: LogDirs, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none is older than five seconds when it is used."""
    ended: list[float] = []
    look = LogDirs._open_files

    def slow(self: LogDirs, opened: Mapping[str, OpenLogDir]) -> tuple[OpenFiles, str | None]:
        found = look(self, opened)
        clock.sleep(0.1)
        ended.append(clock.monotonic())
        return found

    monkeypatch.setattr(LogDirs, "_open_files", slow)
    began, oldest = clock.monotonic(), 0.0
    while clock.monotonic() < began + 60:
        log_dirs.log_dir_facts("held")
        oldest = max(oldest, clock.monotonic() - ended[-1])
        clock.sleep(0.05)
    assert 0.1 * len(ended) < 0.04 * 60
    assert oldest <= HOLDS_MOST_SECONDS
