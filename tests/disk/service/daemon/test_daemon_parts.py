"""The daemon's parts against the real thing: APScheduler, inotify, UNIX sockets, threads."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import ServiceUnreachable
from logagent.service.daemon.daemon import Notifier
from logagent.service.daemon.host_jobs import DirWatch
from logagent.service.daemon.scheduling import ApsScheduler, Loop
from logagent.service.status.command import SOCKET_NAME, StatusServer, ask_status
from tests.daemon_process import notify_socket
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """watchdog keeps one reader of inotify for the whole process; everything else ends with its owner."""
    before = set(threading.enumerate())
    yield

    def left() -> list[threading.Thread]:
        return [t for t in set(threading.enumerate()) - before if type(t).__name__ != "InotifyFD"]

    wait_until(lambda: not left(), "threads to end", 10)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def scheduler() -> Iterator[ApsScheduler]:
    found = ApsScheduler()
    found.start()
    yield found
    found.shutdown()


def test_ticks_come_at_their_time_and_repeat(scheduler: ApsScheduler) -> None:
    seen: list[str] = []
    scheduler.every("often", 50, lambda: seen.append("often"), first_ms=now_ms())
    scheduler.at("once", now_ms() + 100, lambda: seen.append("once"))
    wait_until(lambda: seen.count("often") >= 3 and "once" in seen, "ticks")
    assert seen.count("once") == 1 and scheduler.next_ms("once") is None
    assert scheduler.next_ms("often") is not None
    scheduler.cancel("often")
    scheduler.cancel("often")
    assert scheduler.next_ms("often") is None


def test_a_moment_that_is_past_is_now_and_a_name_is_there_once(scheduler: ApsScheduler) -> None:
    seen: list[int] = []
    scheduler.at("x", now_ms() + 3_600_000, lambda: seen.append(1))
    scheduler.at("x", now_ms() - 3_600_000, lambda: seen.append(2))
    wait_until(lambda: seen, "the tick")
    assert seen == [2]


def test_a_tick_that_fails_does_not_end_the_others(scheduler: ApsScheduler) -> None:
    seen: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError

    scheduler.every("bad", 30, fail, first_ms=now_ms())
    scheduler.every("good", 30, lambda: seen.append(1), first_ms=now_ms())
    wait_until(lambda: len(seen) > 3, "ticks")


def test_after_a_clock_was_set_nothing_waits_longer_than_its_interval(scheduler: ApsScheduler) -> None:
    """As after a clock that was two hours ahead: the next run is far off, until we are told."""
    seen: list[int] = []
    scheduler.every("x", 60_000, lambda: seen.append(1), first_ms=now_ms() + 7_200_000)
    scheduler.at("once", now_ms() + 7_200_000, lambda: seen.append(2))
    scheduler.clock_was_set()
    wait_until(lambda: seen, "the tick")
    assert seen == [1]
    coming = scheduler.next_ms("x")
    assert coming is not None and coming <= now_ms() + 60_000


# Loops


def test_a_loop_does_one_after_the_other_and_each_waiting_job_once() -> None:
    ran: list[str] = []
    go = threading.Event()

    def run(job: str) -> None:
        go.wait(30)
        ran.append(job)

    loop = Loop("test", run, time.monotonic)
    loop.start()
    loop.post("a")
    wait_until(lambda: loop.job == "a", "the first")
    for job in ("b", "c", "b", "a", "c"):
        loop.post(job)
    go.set()
    wait_until(lambda: len(ran) == 4, "the rest")
    assert ran == ["a", "b", "c", "a"]
    loop.end()
    assert loop.join(10)


def test_a_loop_that_ends_drops_what_waits() -> None:
    go, ran = threading.Event(), []

    def run(job: str) -> None:
        ran.append(job)
        go.wait(30)

    loop = Loop("test", run, time.monotonic)
    loop.start()
    loop.post("a")
    wait_until(lambda: ran, "the first")
    loop.post("b")
    loop.end()
    assert not loop.join(0.05), "it is still at its job"
    go.set()
    assert loop.join(10) and ran == ["a"]


# inotify


@pytest.fixture
def hints() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def watch(hints: list[tuple[str, str]]) -> Iterator[DirWatch]:
    found = DirWatch(lambda path, name: hints.append((path, name)))
    yield found
    found.close()


def identity(path: Path) -> tuple[int, int]:
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def follow(watch: DirWatch, *paths: Path) -> None:
    watch.follow({str(p): identity(p) for p in paths})
    assert watch.settle(30) and watch.problems() == {}


def test_new_and_renamed_directories_are_hinted_at_and_files_are_not(
    tmp_path: Path, watch: DirWatch, hints: list[tuple[str, str]]
) -> None:
    (tmp_path / "t-0").mkdir()
    follow(watch, tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "t-0" / "below").mkdir()
    (tmp_path / "t-0").rename(tmp_path / "t-0.x-delete")
    (tmp_path / "t-1").mkdir()
    wait_until(lambda: len(hints) >= 2, "hints")
    assert set(hints) == {(str(tmp_path), "t-0.x-delete"), (str(tmp_path), "t-1")}


def test_a_directory_that_became_another_one_is_watched_anew(
    tmp_path: Path, watch: DirWatch, hints: list[tuple[str, str]]
) -> None:
    d = tmp_path / "d"
    d.mkdir()
    follow(watch, d)
    d.rename(tmp_path / "away")
    d.mkdir()
    follow(watch, d)
    (d / "new").mkdir()
    wait_until(lambda: (str(d), "new") in hints, "a hint")


def test_a_directory_that_reuses_an_inode_is_watched_anew(
    tmp_path: Path, watch: DirWatch, hints: list[tuple[str, str]]
) -> None:
    """File systems give inode numbers again: the identity alone does not tell."""
    d = tmp_path / "d"
    d.mkdir()
    watch.follow({str(d): 1})
    assert watch.settle(30)
    d.rmdir()
    d.mkdir()
    watch.renew([str(d)])
    watch.follow({str(d): 1})
    assert watch.settle(30) and watch.problems() == {}
    (d / "new").mkdir()
    wait_until(lambda: (str(d), "new") in hints, "a hint")


def test_what_cannot_be_watched_is_named_and_tried_again(tmp_path: Path, watch: DirWatch) -> None:
    d = tmp_path / "d"
    watch.follow({str(d): 1})
    assert watch.settle(30)
    assert "No such file" in watch.problems()[str(d)]
    d.mkdir()
    watch.follow({str(d): 1})
    assert watch.settle(30) and watch.problems() == {}


def test_what_is_followed_no_longer_is_silent(tmp_path: Path, watch: DirWatch, hints: list[tuple[str, str]]) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    follow(watch, a, b)
    follow(watch, b)
    (a / "x").mkdir()
    (b / "x").mkdir()
    wait_until(lambda: hints, "a hint")
    assert hints == [(str(b), "x")]


# The status socket


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Longer than any address of a socket may be."""
    path = tmp_path / ("s" * 120)
    path.mkdir()
    return path


def test_whoever_asks_gets_the_document_of_this_moment(state: Path) -> None:
    count = iter(range(100))
    server = StatusServer(str(state), lambda: {"n": next(count), "name": "\udc80"})
    try:
        assert [ask_status(str(state))["n"] for _ in range(3)] == [0, 1, 2]
        assert ask_status(str(state))["name"] == "\udc80"
        assert (state / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    finally:
        server.close()
    with pytest.raises(ServiceUnreachable, match="no daemon is running"):
        ask_status(str(state))


def test_a_socket_of_one_that_was_killed_is_replaced(state: Path) -> None:
    fd = os.open(state, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
    os.close(fd)
    with pytest.raises(ServiceUnreachable, match="no daemon is running"):
        ask_status(str(state))
    server = StatusServer(str(state), dict)
    assert ask_status(str(state)) == {}
    server.close()


def test_one_who_does_not_read_keeps_nobody_waiting_for_long(state: Path) -> None:
    big: dict[str, Any] = {"big": "x" * 4_000_000}
    server = StatusServer(str(state), lambda: big)
    fd = os.open(state, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as idle:
            idle.connect(f"/proc/self/fd/{fd}/{SOCKET_NAME}")
            assert ask_status(str(state), timeout=30) == big
    finally:
        os.close(fd)
        server.close()


# systemd


def test_without_systemd_nothing_happens() -> None:
    for environment in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}):
        notifier = Notifier(environment)
        notifier.ready("x")
        notifier.ping()
        assert notifier.watchdog_seconds is None


def test_the_watchdog_counts_for_the_process_that_it_is_meant_for() -> None:
    assert Notifier({"WATCHDOG_USEC": "30000000"}).watchdog_seconds == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}).watchdog_seconds == 30
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).watchdog_seconds is None
    assert Notifier({"WATCHDOG_USEC": "0"}).watchdog_seconds is None


def test_a_listener_that_never_reads_never_blocks_us() -> None:
    with notify_socket() as systemd:
        notifier = Notifier({"NOTIFY_SOCKET": systemd.path})
        for _ in range(5000):
            notifier.ping()
        notifier.reloading()
        assert {"WATCHDOG": "1"} in systemd.read()


def test_an_abstract_socket_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0logagent-test-{os.getpid()}")
        systemd.settimeout(10)
        Notifier({"NOTIFY_SOCKET": f"@logagent-test-{os.getpid()}"}).ready("well")
        assert systemd.recv(100) == b"READY=1\nSTATUS=well"
