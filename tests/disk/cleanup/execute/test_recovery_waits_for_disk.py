"""What a crash left open waits for its disk: it is not settled on an empty mount point or on another disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from logagent.base.clock import SystemClock
from logagent.base.dir_names import LOG_START_OFFSET
from logagent.base.records import ActionKind, Identity, Outcome, TopicPartition
from logagent.cleanup.execute.recovery import recover
from logagent.cleanup.state.journal import CheckpointEntry, Intent, Journal
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.kafka.files.checkpoint_files import parse_checkpoint, render_checkpoint
from tests.disk.service.daemon.test_daemon_directories import cycles
from tests.disk.sessions import SETTINGS, FailingHost
from tests.host_files import GONE_ID, bulk_partition, format_log_dir, write_topic_id
from tests.hosts import HEX
from tests.needs import need_root

ORDERS = TopicPartition("orders", 0)


@contextmanager
def mounted(disk: Path, point: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", disk, point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", point], check=True)


def recovered(journal: Journal, *points: Path) -> list[Outcome | None]:
    """The outcomes in the journal after a recovery of these log dirs."""
    with ExitStack() as stack:
        failures = LogDirFailures()
        opened = {str(p): stack.enter_context(OpenLogDir(str(p), failures)) for p in points}
        recover(journal, opened, 2)
    return [e.outcome for e in journal.history()]


@pytest.fixture
def disks(tmp_path: Path) -> list[tuple[Path, Path]]:
    """Two disks and the places they are mounted at; the first one's log start offset has left its checkpoint."""
    need_root()
    made = []
    for number in (1, 2):
        disk, point = tmp_path / f"disk{number}", tmp_path / f"point{number}"
        disk.mkdir()
        point.mkdir()
        format_log_dir(disk)
        made.append((disk, point))
    bulk_partition(made[0][0], "orders-0", segments=6)
    (made[0][0] / LOG_START_OFFSET).write_bytes(render_checkpoint({}))
    return made


@pytest.fixture
def journal(tmp_path: Path, disks: list[tuple[Path, Path]]) -> Iterator[Journal]:
    """One that knows of a mark that began and did not come to its rename."""
    state = tmp_path / "state"
    state.mkdir()
    with Journal.open(str(state)) as made:
        made.begin([interrupted_mark(*disks[0])], 1)
        yield made


def interrupted_mark(disk: Path, point: Path) -> Intent:
    """Of `orders-0` on `disk`, which is the log dir `point`: its log start offset is out, it has its old name."""
    found = (disk / "orders-0").stat()
    return Intent(
        ActionKind.MARK, str(point), "orders-0", f"orders-0.{HEX}-delete", "orders", 0, None,
        Identity(found.st_dev, found.st_ino), 1, "plan", "test",
        checkpoint_entries=(CheckpointEntry(LOG_START_OFFSET, "orders", 0, 500),),
    )  # fmt: skip


def offsets(disk: Path) -> dict[TopicPartition, int]:
    return parse_checkpoint((disk / LOG_START_OFFSET).read_bytes())


def test_on_an_empty_mount_point_nothing_is_settled(journal: Journal, disks: list[tuple[Path, Path]]) -> None:
    (disk, point), _ = disks
    assert recovered(journal, point) == [None]
    with mounted(disk, point):
        assert recovered(journal, point) == [Outcome.SKIPPED]
    assert offsets(disk) == {ORDERS: 500}


def test_disks_that_changed_places_settle_nothing(journal: Journal, disks: list[tuple[Path, Path]]) -> None:
    (disk, point), (other, other_point) = disks
    with mounted(other, point), mounted(disk, other_point):
        assert recovered(journal, point, other_point) == [None]
    assert offsets(disk) == {}
    with mounted(disk, point), mounted(other, other_point):
        assert recovered(journal, point, other_point) == [Outcome.SKIPPED]
    assert offsets(disk) == {ORDERS: 500}


def test_copies_of_disks_that_changed_places_settle_nothing(journal: Journal, disks: list[tuple[Path, Path]]) -> None:
    """There only its topic id tells that the directory is in the other log dir."""
    (disk, point), (other, other_point) = disks
    (entry,) = map(journal.with_checkpoint_entries, journal.unsettled())
    journal.withdraw([entry.id])
    write_topic_id(disk / "orders-0", GONE_ID)
    journal.begin([replace(entry.intent, topic_id=GONE_ID)], 1)
    copy = disk.with_name("copy")
    subprocess.run(["cp", "-a", disk, copy], check=True)
    with mounted(other, point), mounted(copy, other_point):
        assert recovered(journal, point, other_point) == [None]
    with mounted(copy, point), mounted(other, other_point):
        assert recovered(journal, point, other_point) == [Outcome.SKIPPED]
    assert offsets(copy) == {ORDERS: 500}


def test_what_is_gone_from_its_own_disk_is_settled(journal: Journal, disks: list[tuple[Path, Path]]) -> None:
    (disk, point), _ = disks
    (disk / "orders-0").rename(disk / "moved-away-0")
    with mounted(disk, point):
        assert recovered(journal, point) == [Outcome.FAILED]


@pytest.mark.parametrize(("mode", "outcome", "wanted"), [("report", None, {}), ("enforce", "skipped", {ORDERS: 500})])
def test_report_mode_puts_nothing_back(
    tmp_path: Path, mode: Literal["report", "enforce"], outcome: str | None, wanted: dict[TopicPartition, int]
) -> None:
    """What a command left open is settled by one that may act, not by a daemon that only reports."""
    log_dir, state = format_log_dir(tmp_path / "d1"), tmp_path / "state"
    state.mkdir()
    bulk_partition(log_dir, "orders-0", segments=6)
    (log_dir / LOG_START_OFFSET).write_bytes(render_checkpoint({}))
    with Journal.open(str(state)) as journal:
        journal.begin([interrupted_mark(log_dir, log_dir)], SystemClock().now_ms())
    settings = replace(SETTINGS, cleanup=replace(SETTINGS.cleanup, mode=mode))
    life = cycles(FailingHost(state, log_dir, settings=settings))
    for summary in (life.queue(), life.inventory(), life.cleanup()):
        assert summary.error is None
    with Journal.open_read_only(str(state)) as journal:
        assert [e.outcome for e in journal.history()] == [outcome]
    assert offsets(log_dir) == wanted
