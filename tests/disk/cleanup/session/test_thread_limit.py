"""The limit of threads and processes (TasksMax, RLIMIT_NPROC) is hit for a moment: nothing that is held stays held."""

from __future__ import annotations

import importlib
import io
import os
import resource
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from logagent.base.clock import SystemClock
from logagent.base.errors import Busy, ItemFailed
from logagent.base.linux.access import Child
from logagent.base.records import Health, Identity
from logagent.deletion.agent.node_requests import bounded
from logagent.disk.bounded_calls import BoundedCalls
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.unlink import SEGMENTS_PER_WORKER, WorkControl
from logagent.kafka.processes.lock import Interlock
from logagent.service.daemon.daemon import Reloader
from logagent.service.daemon.host_jobs import DirWatch
from logagent.service.events import Events
from logagent.service.status.command import StatusServer, ask_status
from tests.disk.failing import open_below
from tests.disk.sessions import SETTINGS, FailingHost
from tests.fake_time import HurriedClock
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.needs import need_root
from tests.waiting import wait_until

T = TypeVar("T")
# What the user may not reach: Python's own files may be root's.
_IMPORTED_LATER = (
    "_strptime",
    "encodings.latin_1",
    "watchdog.events",
    "watchdog.observers",
    "watchdog.observers.inotify",
)
NOBODY_ELSE = 54_871  # a user without another process: the limit counts all of a user's


@contextmanager
def threads_left(count: int) -> Iterator[None]:
    """No more than `count` further threads or processes can be started. None: whatever ends meanwhile leaves no room
    (a limit of today's number would be one too many as soon as a probe that has answered is gone)."""
    before = resource.getrlimit(resource.RLIMIT_NPROC)
    if count:
        wait_until(lambda: len(os.listdir("/proc/self/task")) == threading.active_count(), "what ended is gone")
    most = len(os.listdir("/proc/self/task")) + count if count else 1
    resource.setrlimit(resource.RLIMIT_NPROC, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, before)


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an unprivileged user reaches."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def as_user(folder: Path, work: Callable[[Path], None]) -> None:
    """`work(folder)` by a user for whom the limit holds: for root there is none."""
    need_root()
    for name in _IMPORTED_LATER:
        importlib.import_module(name)
    os.chown(folder, NOBODY_ELSE, NOBODY_ELSE)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY_ELSE, NOBODY_ELSE, NOBODY_ELSE)
            os.setresuid(NOBODY_ELSE, NOBODY_ELSE, NOBODY_ELSE)
            work(folder)
        except BaseException:
            os.write(writer, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert not said, said


def host_in(folder: Path) -> FailingHost:
    first, second = folder / "first", folder / "second"
    if not first.exists():
        format_log_dir(first)
        format_log_dir(second, DIRECTORY_IDS[1])
    return FailingHost(folder / "state", first, second)


def nothing_open(folder: Path) -> None:
    for name in ("first", "second"):
        wait_until(lambda name=name: not open_below(folder / name), f"{name} is closed")  # type: ignore[misc]


def test_log_dirs_are_closed_where_no_thread_can_be_had_to_close_them(folder: Path) -> None:
    """They stayed locked by ourselves: `another logagent is acting (process <itself>)`, until the daemon's restart."""

    def work(folder: Path) -> None:
        host = host_in(folder)
        with host.session() as session:
            session.take_inventory()
            # From here on no thread can be started.
            before = resource.getrlimit(resource.RLIMIT_NPROC)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, before[1]))
        resource.setrlimit(resource.RLIMIT_NPROC, before)
        nothing_open(folder)
        with host.session() as session:
            session.take_inventory()
            assert len(session.inventory.by_log_dir) == 2

    as_user(folder, work)


class _ShortOfThreads(BoundedCalls):
    """No thread can be had for its questions."""

    def ask(
        self,
        what: str,
        fn: Callable[[], T],
        *,
        of: Iterable[str],
        limit: float,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        with threads_left(0):
            return super().ask(what, fn, of=of, limit=limit, undo=undo)


def test_what_was_opened_is_closed_where_the_rest_cannot_be(folder: Path) -> None:
    def work(folder: Path) -> None:
        host = host_in(folder)
        quarantine = folder / "quarantine"
        quarantine.mkdir()
        host.settings = replace(host.settings, cleanup=replace(SETTINGS.cleanup, quarantine_dirs=(str(quarantine),)))
        host.calls = _ShortOfThreads(host.failures, 30)
        with pytest.raises(ItemFailed, match="cannot start a thread"), host.session():
            pass
        nothing_open(folder)
        host.calls = BoundedCalls(host.failures, 30)
        with host.session() as session:
            assert len(session.log_dirs.opened()) == 3

    as_user(folder, work)


def test_workers_of_a_removal_that_get_no_thread_are_done_without(folder: Path) -> None:
    """Those that had been started went on in a directory that was closed already."""

    def work(folder: Path) -> None:
        log_dir_path = format_log_dir(folder / "first")
        name = f"orders-0.{'0' * 32}-delete"
        path = bulk_partition(log_dir_path, name, segments=4 * SEGMENTS_PER_WORKER)
        identity = Identity(path.stat().st_dev, path.stat().st_ino)
        with OpenLogDir(str(log_dir_path), LogDirFailures()) as log_dir, threads_left(1):
            watches = [Interlock(log_dir.fd, log_dir.path) for _ in range(4)]
            removed = remove_dir(log_dir, name, identity, *watches, control=WorkControl(workers=4))
        assert removed.files == 8 * SEGMENTS_PER_WORKER and not path.exists()
        assert threading.active_count() == 1

    as_user(folder, work)


def test_a_child_that_cannot_be_made_leaves_no_descriptor(folder: Path) -> None:
    def work(folder: Path) -> None:
        before = os.listdir("/proc/self/fd")
        with threads_left(0), pytest.raises(BlockingIOError):
            Child(lambda: b"")
        assert os.listdir("/proc/self/fd") == before

    as_user(folder, work)


def test_probes_without_a_thread_say_nothing_about_a_disk(folder: Path) -> None:
    def work(folder: Path) -> None:
        host = host_in(folder)
        assert set(host.round().values()) == {Health.ONLINE}
        with threads_left(0):
            assert set(host.round().values()) == {Health.ONLINE}
            assert [
                d
                for d in host.health.round().log_dirs
                if not ("cannot" in (d.limited or "") or "can't" in (d.limited or ""))
            ] == []
        # An offline one does not come back by them.
        host.failures.mark_offline(str(folder / "first"), "a test")
        with threads_left(0):
            for _ in range(6):
                assert host.round()[str(folder / "first")] is Health.OFFLINE
        host.rounds_until(folder / "first", Health.ONLINE)

    as_user(folder, work)


def test_a_reload_a_watch_and_a_question_that_got_no_thread_get_one_later(folder: Path) -> None:
    def work(folder: Path) -> None:
        reloads: list[int] = []
        reloader = Reloader(lambda: reloads.append(1), lambda: None, Events(io.StringIO(), lambda: 0))
        told: list[Mapping[str, str]] = []
        watch = DirWatch(lambda *_: None, lambda: told.append(watch.problems()))
        (folder / "first").mkdir()
        followed = {str(folder / "first"): 1}
        with threads_left(0):
            with pytest.raises(RuntimeError):
                reloader.reload()
            watch.follow(followed)
            assert told == [{str(folder / "first"): "can't start new thread"}]
            assert bounded(lambda: 1, 1.0) is None
            with pytest.raises(RuntimeError):
                StatusServer(str(folder), dict)
        assert not reloader.running
        reloader.reload()
        wait_until(lambda: bool(reloads) and not reloader.running, "it is reloaded")
        with threads_left(1):  # one for the change, none for the observer
            watch.follow(followed)
            wait_until(lambda: watch.settle(1), "it was tried")
            assert watch.problems()
        watch.follow(followed)
        wait_until(lambda: not watch.problems(), "it is watched")
        watch.close()
        server = StatusServer(str(folder), lambda: {"schema": "good"})
        assert ask_status(str(folder)) == {"schema": "good"}
        server.close()

    as_user(folder, work)


def test_a_child_that_hangs_keeps_no_lock_of_ours(tmp_path: Path) -> None:
    """It is left behind with copies of all descriptors, and a lock lasts as long as one of them is open."""
    host = host_in(tmp_path)
    with host.session():
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with host.session() as session:
            assert len(session.log_dirs.opened()) == 2
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_lock_of_this_process_itself_is_no_other_logagent(tmp_path: Path) -> None:
    """Or it would be waited for politely, for ever."""
    host = host_in(tmp_path)
    hurried = HurriedClock(SystemClock(), 2.0)
    with OpenLogDir(str(tmp_path / "first"), LogDirFailures()) as left:
        import fcntl

        fcntl.flock(left.fd, fcntl.LOCK_EX)
        with pytest.raises(ItemFailed, match="this process still has") as raised, host.session(clock=hurried):
            pass
        assert not isinstance(raised.value, Busy) and raised.value.hint
