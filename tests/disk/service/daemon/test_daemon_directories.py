"""Attacks on the daemon over real directories, each of which once lost something, hurt a broker or lied."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logagent.advice.scan import command as scan_rows
from logagent.base.config.settings import HealthSettings
from logagent.base.dir_names import LOG_START_OFFSET, delete_name, stray_name
from logagent.base.records import ActionKind, Health, Identity, Outcome
from logagent.base.units import DAY_MS
from logagent.cleanup.plan.queue import KEEP_MS
from logagent.cleanup.session.session import forget_old_actions
from logagent.cleanup.state.executor_lock import WAITING_NAME
from logagent.cleanup.state.journal import CheckpointEntry, Intent
from logagent.service.daemon import cycles as cycle_notes
from logagent.service.daemon.command import answering
from logagent.service.daemon.cycles import Cycles
from logagent.service.daemon.scheduling import RunConfig
from logagent.service.events import Events, LogLines
from tests.disk.conftest import Child
from tests.disk.failing import hanging_fs
from tests.disk.sessions import FailingHost
from tests.fake_time import SetClock
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.publish_host import Publishing

HEX = "0123456789abcdef" * 2


def cycles(host: FailingHost, inventory_taken: Callable[[], None] = lambda: None) -> Cycles:
    return Cycles(
        target=host.target,
        settings=host.settings,
        clock=host.clock,
        state_dir=str(host.state),
        lines=LogLines(Events(io.StringIO(), host.clock.now_ms)),
        inventory_taken=lambda session, facts: inventory_taken(),
        stop=lambda: False,
        aborting=lambda: False,
        failures=host.failures,
        calls=host.calls,
        known=host.known,
    )


def test_the_source_of_a_move_waits_for_a_target_that_is_not_mounted(tmp_path: Path) -> None:
    """After a reboot a dead disk is an empty mount point, and not offline."""
    source, target = format_log_dir(tmp_path / "source"), tmp_path / "target"
    target.mkdir()
    only_copy = bulk_partition(source, delete_name("orders", 0, HEX))
    host = FailingHost(tmp_path / "state", source, target)
    host.round()
    life = cycles(host)
    for summary in (life.queue(), life.cleanup()):
        assert (summary.error, summary.planned, summary.waiting) == (None, 0, 1)
    assert only_copy.is_dir()
    format_log_dir(target, DIRECTORY_IDS[1])
    assert life.queue().results == {("remove", "done"): 1}


@pytest.mark.parametrize("store", ["the log dir", "a directory in it", "a symlink to it", "offline"])
def test_nothing_is_published_into_a_log_dir(store: str, tmp_path: Path) -> None:
    """Kafka does not start with a directory such as `landing` in a log dir."""
    link = tmp_path / "link"
    publishing = Publishing(tmp_path, link if store == "a symlink to it" else tmp_path / "host" / "d1")
    d1 = publishing.host.d1
    if store == "a directory in it":
        publishing.store = (
            d1 / "orders-0" if (d1 / "orders-0").is_dir() else next(d for d in d1.iterdir() if d.is_dir())
        )
        publishing.publisher = publishing.started()
    if store == "offline":
        d1.rename(tmp_path / "elsewhere")
    link.symlink_to(d1)
    publishing.look()
    if store == "offline":
        (tmp_path / "elsewhere").rename(d1)
    before = sorted(d1.rglob("*"))
    told = publishing.publisher.send()
    assert told.sent == 0 and told.waiting
    assert told.error is not None and f"is inside the log dir {d1}" in told.error
    assert sorted(d1.rglob("*")) == before


def test_a_log_dir_comes_back_in_the_middle_of_a_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cycle went over the inventories while the health loop added one: its summary was lost, and the retry of what
    had failed there was forgotten."""
    good, late = format_log_dir(tmp_path / "good"), tmp_path / "late"
    bulk_partition(good, "orders-0")
    host = FailingHost(tmp_path / "state", good, late)
    host.round()
    with host.session() as session:
        session.journal.record_failure(str(late), "gone-delete", "why", 1)
        session.journal.record_failure(str(good), "gone-delete", "why", 1)

    def comes_back() -> None:
        # In the thread of the cycle here, in another one in the daemon.
        format_log_dir(late, DIRECTORY_IDS[1])
        host.rounds_until(late, Health.ONLINE)
        sizes.append(len(host.known))

    sizes: list[int] = []
    going = iter([comes_back])
    real = scan_rows.ledgers_of

    def ledgers(*args: Any) -> dict[str, dict[str, int]]:
        next(going, lambda: None)()
        return real(*args)

    monkeypatch.setattr(cycle_notes, "ledgers_of", ledgers)
    life = cycles(host)
    summary = life.cleanup()
    assert (summary.error, list(summary.ledgers), sizes) == (None, [str(good)], [2])
    with host.session() as session:
        assert list(session.journal.failures()) == [(str(late), "gone-delete")]
    assert set(life.cleanup().ledgers) == {str(good), str(late)}


@pytest.mark.parametrize("mounted", [True, False])
def test_what_the_journal_knows_of_a_disk_that_is_not_mounted_is_not_forgotten(mounted: bool, tmp_path: Path) -> None:
    """An empty mount point looked like a log dir whose strays are all gone, and their log start offsets went too."""
    here, there = format_log_dir(tmp_path / "here"), tmp_path / "there"
    there.mkdir()
    if mounted:
        format_log_dir(there, DIRECTORY_IDS[1])
    host = FailingHost(tmp_path / "state", here, there)
    old = host.clock.now_ms() - 2 * KEEP_MS
    stray, identity = stray_name("orders", 0, HEX), Identity(1, 2)
    entry = CheckpointEntry(LOG_START_OFFSET, "orders", 0, 500)
    with host.session() as session:
        for path in host.paths:
            meant = Intent(
                action=ActionKind.QUARANTINE,
                log_dir=path,
                name="orders-0",
                new_name=stray,
                topic="orders",
                partition=0,
                topic_id=None,
                identity=identity,
                bytes=1,
                plan_id="p",
                actor="test",
                checkpoint_entries=(entry,),
            )
            ids = session.journal.begin([meant], old)
            session.journal.finish([(ids[0], Outcome.DONE, None)], old)
    with host.session() as session:
        session.take_inventory()
        session.facts()
        assert forget_old_actions(session) == (2 if mounted else 1)
        assert session.journal.saved_checkpoint_entries(stray, identity) == (() if mounted else (entry,))


def test_of_a_copy_nothing_is_forgotten(tmp_path: Path) -> None:
    """It has other inodes, and its unique name: after 90 days a copy of the disk lost its full names, its log start
    offsets, and that its removal had begun. Also what was renamed once more, in a first copy, has its whole story."""
    log_dir = format_log_dir(tmp_path / "log-dir")
    host = FailingHost(tmp_path / "state", log_dir)
    old = host.clock.now_ms() - 2 * KEEP_MS
    stray, marked = stray_name("orders", 0, HEX), delete_name("orders", 0, HEX[::-1])
    bulk_partition(log_dir, marked)
    entry = CheckpointEntry(LOG_START_OFFSET, "orders", 0, 500)
    meant = Intent(
        ActionKind.QUARANTINE, str(log_dir), "orders-0", stray, "orders", 0, None, Identity(1, 2), 1, "p", "test",
        checkpoint_entries=(entry,),
    )  # fmt: skip
    again = replace(meant, action=ActionKind.MARK, name=stray, new_name=marked, identity=Identity(1, 3))
    begun = replace(meant, action=ActionKind.REMOVE, name=marked, new_name=None, identity=Identity(1, 4))
    other = replace(meant, new_name=stray_name("clicks", 0, HEX), topic="clicks", identity=Identity(1, 5))
    with host.session() as session:
        ids = session.journal.begin([meant, again, begun, other], old)
        outcomes = (Outcome.DONE, Outcome.DONE, Outcome.YIELDED, Outcome.DONE)
        session.journal.finish([(n, o, None) for n, o in zip(ids, outcomes, strict=True)], old)
    with host.session() as session:
        session.take_inventory()
        session.facts()
        assert forget_old_actions(session) == 1
        assert [e.id for e in session.journal.history()] == ids[:3]


def test_nothing_is_forgotten_by_a_clock_in_doubt(tmp_path: Path) -> None:
    """What it calls old may be of today, and counts for the blast radius."""
    clock = SetClock()
    log_dir = format_log_dir(tmp_path / "log-dir")
    host = FailingHost(tmp_path / "state", log_dir)
    host.clock = clock
    bulk_partition(log_dir, delete_name("orders", 0, HEX))
    life = cycles(host)
    assert life.cleanup().results == {("remove", "done"): 1}
    later = cycles(host)
    for days in (2 * KEEP_MS // DAY_MS, 0):
        clock.ahead_ms = days * DAY_MS
        assert later.cleanup().error is None
        with host.session() as session:
            assert len(session.journal.history()) == 1


def test_the_queue_removes_nothing_by_a_clock_in_doubt(tmp_path: Path) -> None:
    """What it calls due may have been marked a moment ago."""
    clock = SetClock()
    log_dir = format_log_dir(tmp_path / "log-dir")
    host = FailingHost(tmp_path / "state", log_dir)
    host.clock = clock
    life = cycles(host)
    assert life.cleanup().error is None
    marked = bulk_partition(log_dir, delete_name("orders", 0, HEX))
    clock.ahead_ms = 2 * 3_600_000
    summary = life.queue()
    assert (summary.error, summary.results, summary.planned, summary.waiting) == (None, {}, 0, 1)
    assert marked.is_dir()
    clock.ahead_ms = 0
    assert life.queue().results == {("remove", "done"): 1}


def test_a_start_beside_a_disk_that_hangs_makes_no_thread(tmp_path: Path) -> None:
    """As root the daemon then becomes somebody else, and `setresuid` waits for every thread, the hanging one too."""
    good = format_log_dir(tmp_path / "good")
    with hanging_fs(tmp_path / "fs") as fs:
        host = FailingHost(tmp_path / "state", good, format_log_dir(fs.point / "hung"), tmp_path / "missing")
        config = RunConfig(replace(host.settings, health=HealthSettings(probe_timeout=30_000)), host.target)
        there = answering(config)
        assert [path for path, found in there.items() if found is not None] == host.paths[:2]
        assert set(there) == set(host.paths)
        config = RunConfig(replace(host.settings, health=HealthSettings(probe_timeout=1_000)), host.target)
        fs.hang()
        before = threading.enumerate()
        assert [path for path, found in answering(config).items() if found is not None] == [str(good)]
        assert threading.enumerate() == before


def test_who_waits_for_its_turn_and_never_comes_does_not_stop_the_work(
    tmp_path: Path, spawn: Callable[..., Child]
) -> None:
    """Ctrl-Z on a command that waited: the daemon gave way to it again and again, 0.2 s after each beginning."""
    log_dir = format_log_dir(tmp_path / "log-dir")
    host = FailingHost(tmp_path / "state", log_dir)
    life = cycles(host)
    assert life.cleanup().error is None
    bulk_partition(log_dir, delete_name("orders", 0, HEX), segments=200)
    waiting = """
import fcntl, os, sys, time
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_SH)
print("ready", flush=True)
time.sleep(1000)
"""
    spawn(waiting, host.state / WAITING_NAME)
    life.yield_check_seconds = 0.0
    summaries = [life.queue() for _ in range(3)]
    # The scan gives way, then the removal; then it is our turn.
    assert [s.error_slug for s in summaries] == ["busy", "busy", None]
    assert summaries[-1].results == {("remove", "done"): 1}


def test_one_directory_under_two_paths_waits_until_the_second_is_gone(tmp_path: Path) -> None:
    """Two lanes removed the same directory side by side, and had one temp file of a checkpoint between them. The second
    path is offline, and what an offline log dir may be the source of waits."""
    log_dir = format_log_dir(tmp_path / "log-dir")
    (tmp_path / "link").symlink_to(log_dir)
    life = cycles(FailingHost(tmp_path / "state", log_dir, tmp_path / "link"))
    inventory = life.inventory()
    assert set(inventory.ledgers) == {str(log_dir)}
    for n in range(3):
        bulk_partition(log_dir, delete_name("orders", n, HEX))
    both = life.queue()
    assert (both.planned, both.waiting, both.results) == (0, 3, {})
    one = cycles(FailingHost(tmp_path / "state", log_dir))
    one.inventory()
    assert one.queue().results == {("remove", "done"): 3}
