"""The journal of a daemon stays bounded and forgets nothing that is needed; cycles in this process, on a real disk."""

from __future__ import annotations

import fcntl
import io
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import (
    AssignmentsSettings,
    CleanupSettings,
    DeleteSettings,
    KafkaSettings,
    Settings,
)
from logagent.base.records import ActionKind, Identity, Outcome
from logagent.base.units import DAY_MS
from logagent.cleanup.plan.plan import Plan
from logagent.cleanup.state.executor_lock import WAITING_NAME
from logagent.cleanup.state.journal import FILE_NAME, CheckpointEntry, Intent, Journal
from logagent.kafka.processes.target import resolve_target
from logagent.service.daemon.cycles import Cycles
from logagent.service.events import Events, LogLines
from tests.disk.killed import HEX, PARTITIONS, lay_out
from tests.disk.sessions import write_topic_elsewhere
from tests.fake_time import LaterClock
from tests.host_files import whole_partition

STRAY = f"orders-0.{HEX}-stray"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    lay_out(tmp_path)
    yield tmp_path


def cycles_of(root: Path, *log_dirs: str, clock: LaterClock | None = None, **cleanup: Any) -> Cycles:
    cleanup = {"mode": "enforce", "max_fraction": 1.0, "leftover_grace": 0, "stray_retention": 400 * DAY_MS, **cleanup}
    settings = Settings(
        kafka=KafkaSettings(version="3.9.1"),
        cleanup=CleanupSettings(**cleanup),
        delete=DeleteSettings(file_delete_delay_ms=0),
    )
    file = root / "assignments.json"
    if file.exists():
        settings = replace(settings, assignments=AssignmentsSettings(sources=("file",), file=str(file)))
    return Cycles(
        target=resolve_target(settings, log_dirs or [str(root / "d1")]),
        settings=settings,
        clock=clock or LaterClock(),
        state_dir=str(root / "state"),
        lines=LogLines(Events(io.StringIO(), (clock or LaterClock()).now_ms)),
        stop=lambda: False,
        aborting=lambda: False,
    )


def intent(root: Path, name: str, *, inode: int, new_name: str | None = None, log_dir: str | None = None) -> Intent:
    return Intent(
        action=ActionKind.QUARANTINE if new_name else ActionKind.REMOVE,
        log_dir=log_dir or str(root / "d1"),
        name=name,
        new_name=new_name,
        topic="orders",
        partition=0,
        topic_id=None,
        identity=Identity(1, inode),
        bytes=1,
        plan_id="p",
        actor="test",
        checkpoint_entries=(CheckpointEntry("log-start-offset-checkpoint", "orders", 0, 5),),
    )


def settle(root: Path, *intents: Intent, age_ms: int) -> None:
    (root / "state").mkdir(exist_ok=True)
    now = SystemClock().now_ms()
    with Journal.open(str(root / "state")) as journal:
        for i in intents:
            (number,) = journal.begin([i], now - age_ms)
            journal.finish([(number, Outcome.DONE, None)], now - age_ms)


def names(root: Path) -> list[str]:
    with Journal.open_read_only(str(root / "state")) as journal:
        return [e.intent.name for e in journal.history()]


def test_old_rows_go_and_those_that_a_directory_still_needs_stay(root: Path) -> None:
    whole_partition(root / "d1" / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
    inode = (root / "d1" / STRAY).stat().st_ino
    away = str(root / "away")
    settle(
        root,
        intent(root, "orders-0", inode=inode, new_name=STRAY),
        intent(root, "old-0", inode=999_999, new_name=f"old-0.{HEX}-stray"),
        intent(root, f"old-1.{HEX}-delete", inode=999_998),
        intent(root, "elsewhere-0", inode=999_997, new_name=f"elsewhere-0.{HEX}-stray", log_dir=away),
        age_ms=91 * DAY_MS,
    )
    settle(root, intent(root, "young-0", inode=999_996), age_ms=89 * DAY_MS)
    # `away` is a log dir of this broker that is offline now.
    summary = cycles_of(root, str(root / "d1"), away).cleanup()
    assert summary.error is None, summary.error
    assert sorted(names(root)) == ["elsewhere-0", "orders-0", "young-0"]
    with Journal.open_read_only(str(root / "state")) as journal:
        saved = journal.saved_checkpoint_entries(STRAY, Identity(1, inode))
    assert [e.offset for e in saved] == [5], "restore still has what it puts back"
    assert (root / "state" / f"{FILE_NAME}-wal").stat().st_size == 0 or not os.path.exists(
        root / "state" / f"{FILE_NAME}-wal"
    )


def test_a_log_dir_that_went_offline_since_the_last_inventory_loses_nothing(root: Path) -> None:
    d2 = root / "d2"
    (root / "d1" / "meta.properties").rename(root / "meta")
    d2.mkdir()
    meta = (root / "meta").read_text()
    (root / "d1" / "meta.properties").write_text(meta)
    (d2 / "meta.properties").write_text(meta.replace("AAZg", "AAYg"))
    whole_partition(d2 / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
    inode = (d2 / STRAY).stat().st_ino
    settle(root, intent(root, "orders-0", inode=inode, new_name=STRAY, log_dir=str(d2)), age_ms=91 * DAY_MS)
    clock = LaterClock()
    cycles = cycles_of(root, str(root / "d1"), str(d2), clock=clock)
    with Journal.open(str(root / "state")) as journal:
        journal.record_failure(str(d2), STRAY, "busy", clock.now_ms())
    assert cycles.cleanup().error is None
    assert names(root) == ["orders-0"]
    cycles.failures.mark_offline(str(d2), "a test says so")
    clock.ahead_ms = 2 * DAY_MS
    summary = cycles.cleanup()
    assert summary.error is None
    assert str(d2) not in summary.ledgers, "what is not seen is not told"
    assert names(root) == ["orders-0"]
    with Journal.open_read_only(str(root / "state")) as journal:
        assert (str(d2), STRAY) in journal.failures()


def test_failures_of_directories_that_somebody_else_removed_are_forgotten(root: Path) -> None:
    settle(root, age_ms=0)
    whole_partition(root / "d1" / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
    with Journal.open(str(root / "state")) as journal:
        for name in (STRAY, f"purged-0.{HEX}-delete"):
            journal.record_failure(str(root / "d1"), name, "busy", SystemClock().now_ms())
    assert cycles_of(root).cleanup().error is None
    with Journal.open_read_only(str(root / "state")) as journal:
        assert list(journal.failures()) == [(str(root / "d1"), STRAY)]


def test_a_stray_whose_removal_failed_waits_for_its_backoff(root: Path) -> None:
    settle(root, age_ms=0)
    whole_partition(root / "d1" / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
    clock = LaterClock()
    with Journal.open(str(root / "state")) as journal:
        for _ in range(10):
            journal.record_failure(str(root / "d1"), STRAY, "busy", clock.now_ms())
    write_topic_elsewhere(root / "assignments.json", clock.now_ms(), node=1)
    cycles = cycles_of(root, clock=clock, stray_retention=0)
    first = cycles.cleanup()
    # The others are orphans now, and wait for their grace.
    assert (first.planned, first.waiting) == (0, 1 + len(PARTITIONS)) and (root / "d1" / STRAY).is_dir()
    clock.ahead_ms = 513_000
    assert cycles.cleanup().results == {("remove", "done"): 1}
    assert not (root / "d1" / STRAY).exists()


def test_before_the_first_inventory_only_what_was_counted_is_removed_by_the_queue(root: Path) -> None:
    """The blast radius needs the size of the host; what we marked within a day has passed it."""
    for number in range(3):
        whole_partition(root / "d1" / f"broker-{number}.{HEX}-delete", "EEEEEEEEEEEEEEEEEEEEEA")
    mine = f"mine-0.{HEX}-delete"
    whole_partition(root / "d1" / mine, "EEEEEEEEEEEEEEEEEEEEEA")
    found = (root / "d1" / mine).stat()
    (root / "state").mkdir()
    with Journal.open(str(root / "state")) as journal:
        marked = intent(root, "mine-0", inode=found.st_ino, new_name=mine)
        marked = replace(
            marked,
            action=ActionKind.MARK,
            identity=Identity(found.st_dev, found.st_ino),
            topic_id="EEEEEEEEEEEEEEEEEEEEEA",
            checkpoint_entries=(),
        )
        (number,) = journal.begin([marked], SystemClock().now_ms() - 5000)
        journal.finish([(number, Outcome.DONE, None)], SystemClock().now_ms() - 5000)
    cycles = cycles_of(root, max_fraction=0.1)
    early = cycles.queue()
    assert early.results == {("remove", "done"): 1} and early.waiting == 3
    assert not (root / "d1" / mine).exists()
    whole = cycles.cleanup()
    assert whole.needs_approval is not None, "four of eight directories are more than a tenth"
    after = cycles.queue()
    assert after.needs_approval is not None and after.results == {}
    assert len([n for n in os.listdir(root / "d1") if n.startswith("broker-")]) == 3


def test_a_scan_gives_way_to_a_command_once_a_minute(root: Path) -> None:
    """`logagent prestart` has no more than a second; a cold scan can take many."""
    settle(root, age_ms=0)
    fd = os.open(root / "state" / WAITING_NAME, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        cycles = cycles_of(root)
        # This scan is a short one.
        cycles.yield_check_seconds = 0.0
        first = cycles.cleanup()
        assert first.error_slug == "busy" and first.plan_id is None
        again = cycles.cleanup()
        assert again.error is None and again.plan_id is not None, "but it is not kept from working for good"
    finally:
        os.close(fd)
    assert cycles.cleanup().error is None


def test_in_report_mode_what_a_crash_left_open_is_left_to_those_who_act(root: Path) -> None:
    """Settling can rewrite a checkpoint; the daemon that only reports changes nothing."""
    (root / "state").mkdir()
    inode = (root / "d1" / "orders-0").stat().st_ino
    with Journal.open(str(root / "state")) as journal:
        journal.begin([intent(root, "orders-0", inode=inode, new_name=STRAY)], SystemClock().now_ms())
    assert cycles_of(root, mode="report").cleanup().error is None
    with Journal.open_read_only(str(root / "state")) as journal:
        assert len(journal.unsettled()) == 1
    assert cycles_of(root).cleanup().error is None
    with Journal.open_read_only(str(root / "state")) as journal:
        assert journal.unsettled() == []


@pytest.mark.parametrize("job", ["cleanup", "inventory"])
def test_an_inventory_is_reported_even_if_nothing_can_be_planned(root: Path, job: str) -> None:
    """For a snapshot, which matters more than its plan: here the journal fails after the inventory."""
    cycles, told = cycles_of(root), list[Plan | None]()
    cycles.inventory_taken = lambda session, facts: session.journal.close()
    cycles.planned = lambda session, facts, plan: told.append(plan)
    getattr(cycles, job)()
    # An inventory rests on what was read of the journal before; it has a plan.
    assert len(told) == 1 and (told[0] is None) is (job == "cleanup")
