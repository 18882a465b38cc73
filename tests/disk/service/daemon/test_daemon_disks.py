"""`logagent run` as a process, while real disks fail under it: it stays up, says so once, and serves the others."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from logagent.base.records import Outcome
from logagent.cleanup.state.journal import Journal
from tests.disk.conftest import MIB, LoopFs, run
from tests.disk.daemons import HANGS, DaemonProcess
from tests.disk.failing import frozen, hanging_fs, loop_devices, pulled_out, put_back, shut_down
from tests.disk.sessions import write_topic_elsewhere
from tests.host_files import DIRECTORY_IDS, GONE_ID, bulk_partition, format_log_dir, write_topic_id
from tests.waiting import PATIENCE_SECONDS, wait_until

MARKED = "orders-0." + "a" * 32 + "-delete"
STRAY = "other-0." + "b" * 32 + "-stray"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return format_log_dir(tmp_path / "good", DIRECTORY_IDS[1])


@pytest.fixture
def told(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Settings of a daemon that is told every second what the cluster has: a stray whose topic nobody knows stays."""
    file = tmp_path / "assignments.json"
    ending = threading.Event()

    def tell() -> None:
        write_topic_elsewhere(file, time.time_ns() // 1_000_000)

    def work() -> None:
        while not ending.wait(1.0):
            tell()

    tell()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield {"ASSIGNMENTS__SOURCES": "file", "ASSIGNMENTS__FILE": str(file)}
    finally:
        ending.set()
        thread.join(PATIENCE_SECONDS)


class Served:
    """Makes a stray in a log dir again and again; `times` is how many the daemon has removed."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._ending = threading.Event()
        self.times = 0
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._ending.is_set():
            made = bulk_partition(self._log_dir, f"other-{self.times}.{'b' * 32}-stray")
            while made.exists():
                if self._ending.wait(0.02):
                    return
            self.times += 1

    @contextmanager
    def all_along(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._ending.set()
            self._thread.join(PATIENCE_SECONDS * 2)


def offline_said(daemon: DaemonProcess, path: Path) -> list[str]:
    return [line["reason"] for line in daemon.said("log-dir", log_dir=str(path), health="offline")]


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_dead_log_dir_is_logged_once_and_the_healthy_one_is_served(
    kind: str, loop_fs: LoopFs, good: Path, tmp_path: Path, told: dict[str, str]
) -> None:
    point = format_log_dir(loop_fs(kind))
    run("sync", "--file-system", point)
    served = Served(good)
    with DaemonProcess.of(tmp_path, point, good, settings=told) as daemon, served.all_along():
        daemon.wait_health((point, "online"), (good, "online"))
        shut_down(point)
        daemon.wait_health((point, "offline"), (good, "online"))
        wait_until(lambda: daemon.metric("logagent_log_dir_state", point, state="offline") == 1.0, "the metric says so")
        assert daemon.metric("logagent_log_dir_state", good, state="offline") == 0.0
        # It can be unmounted under the running daemon, mended, and mounted again.
        pulled_out(point)
        seen = served.times
        wait_until(lambda: served.times > seen + 3, "the good one is served meanwhile")
        put_back(point)
        bulk_partition(point, STRAY)
        daemon.wait_health((point, "online"), (good, "online"))
        wait_until(lambda: not (point / STRAY).exists(), "it is served again")
        assert len(offline_said(daemon, point)) == 1, daemon.log_text()
        assert not offline_said(daemon, good)
        assert not daemon.said("internal-error") and not daemon.said("cycle-failed")
        daemon.end()


@pytest.mark.parametrize("lazy", [False, True], ids=["plain", "lazy"])
def test_unmounted_under_the_running_service_it_stays_up_and_the_device_is_free(
    lazy: bool, loop_fs: LoopFs, good: Path, tmp_path: Path, told: dict[str, str]
) -> None:
    point = format_log_dir(loop_fs("ext4"))
    with DaemonProcess.of(tmp_path, point, good, settings=told) as daemon:
        daemon.wait_health((point, "online"), (good, "online"))
        pulled_out(point, lazy=lazy)
        daemon.wait_health((point, "offline"), (good, "online"))
        wait_until(lambda: not daemon.open_below(point), "its descriptors are closed, those of a probe under way too")
        (said,) = offline_said(daemon, point)
        assert "another directory (was it unmounted" in said
        bulk_partition(good, STRAY)
        wait_until(lambda: not (good / STRAY).exists(), "the other one is served")
        assert list(point.iterdir()) == [], "nothing was written to the bare mount point"
        put_back(point)
        daemon.wait_health((point, "online"))
        daemon.end()


def test_unmounted_lazily_in_the_middle_of_a_removal_the_device_comes_free(
    loop_fs: LoopFs, good: Path, tmp_path: Path
) -> None:
    point = format_log_dir(loop_fs("ext4"))
    victim = bulk_partition(point, MARKED, segments=200, size=100_000)
    slow = {"DELETE__BYTES_PER_SECOND": "1MB"}
    with DaemonProcess.of(tmp_path, point, good, settings=slow) as daemon:
        wait_until(lambda: len(os.listdir(victim)) < 390, "the removal is under way")
        run("umount", "--lazy", point)
        daemon.wait_health((point, "offline"), (good, "online"))
        wait_until(lambda: not daemon.open_below(point), "its descriptors are closed")
        wait_until(lambda: not loop_devices(point), "the device is free")
        put_back(point)
        left = len(os.listdir(victim))
        daemon.wait_health((point, "online"))
        assert left > 0
        daemon.end()


def test_a_disk_that_fills_is_reported_full_and_still_cleaned(
    loop_fs: LoopFs, tmp_path: Path, told: dict[str, str]
) -> None:
    point = format_log_dir(loop_fs("ext4", size=32 * MIB))
    with DaemonProcess.of(tmp_path, point, settings=told) as daemon:
        daemon.wait_health((point, "online"))
        made = write_topic_id(bulk_partition(point, "other-0", segments=2, size=2 * MIB), GONE_ID)
        with (point / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"x" * MIB)
        os.sync()
        daemon.wait_health((point, "full"))
        made.rename(point / STRAY)
        wait_until(lambda: not (point / STRAY).exists(), "the stray is removed")
        daemon.wait_health((point, "online"))
        assert not offline_said(daemon, point)
        assert [line["health"] for line in daemon.said("log-dir")] == ["online", "full", "online"]
        assert {p.name for p in point.iterdir()} == {"meta.properties", "ballast", "lost+found"}


def test_a_disk_that_was_remounted_read_only_is_reported(loop_fs: LoopFs, tmp_path: Path, told: dict[str, str]) -> None:
    point = format_log_dir(loop_fs("ext4"))
    with DaemonProcess.of(tmp_path, point, settings=told) as daemon:
        daemon.wait_health((point, "online"))
        write_topic_id(bulk_partition(point, "other-0"), GONE_ID).rename(point / STRAY)
        wait_until(lambda: not (point / STRAY).exists(), "the stray is removed")
        # Not while a probe has its file open.
        command = ["mount", "-o", "remount,ro", str(point)]
        wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, "it is read-only")
        daemon.wait_health((point, "read-only"))
        run("mount", "-o", "remount,rw", point)
        daemon.wait_health((point, "online"))
        bulk_partition(point, STRAY)
        wait_until(lambda: not (point / STRAY).exists(), "it is served again")
        daemon.end()


def test_frozen_in_the_middle_of_a_removal_it_is_left_alone_until_it_thawed(
    loop_fs: LoopFs, good: Path, tmp_path: Path, told: dict[str, str]
) -> None:
    point = format_log_dir(loop_fs("xfs"))
    victim = bulk_partition(point, MARKED, segments=200, size=100_000)
    served = Served(good)
    slow = {"DELETE__BYTES_PER_SECOND": "2MB", **HANGS, **told}
    with DaemonProcess.of(tmp_path, point, good, settings=slow) as daemon, served.all_along():
        wait_until(lambda: len(os.listdir(victim)) < 390, "the removal is under way")
        with frozen(point) as thaw:
            daemon.wait_health((point, "offline"), (good, "online"))
            left = len(os.listdir(victim))
            seen = served.times
            wait_until(lambda: served.times > seen + 3, "the good one is served meanwhile")
            assert len(offline_said(daemon, point)) == 1
            thaw()
            daemon.wait_health((point, "online"), (good, "online"))
        assert left > 0
        wait_until(lambda: len(os.listdir(victim)) < left - 5, "the removal is taken up where it was")
        daemon.end()
    with Journal.open_read_only(str(daemon.state)) as journal:
        removals = [e for e in journal.history() if e.intent.name == MARKED]
        # By the freeze and by the end; where it is slow, by the next cycle too.
        assert len(removals) >= 2 and {e.outcome for e in removals} == {Outcome.YIELDED}, removals


def test_a_file_system_that_hangs_wholly_holds_up_nothing_not_even_the_end(
    good: Path, tmp_path: Path, told: dict[str, str]
) -> None:
    served = Served(good)
    with hanging_fs(tmp_path / "fuse") as hanging:
        format_log_dir(hanging.source)
        point = hanging.point
        with (
            DaemonProcess.of(tmp_path, point, good, settings={**HANGS, **told}) as daemon,
            served.all_along(),
        ):
            daemon.wait_health((point, "online"), (good, "online"))
            hanging.hang()
            daemon.wait_health((point, "offline"), (good, "online"))
            seen = served.times
            wait_until(lambda: served.times > seen + 3, "the good one is served meanwhile")
            assert len(offline_said(daemon, point)) == 1
            hanging.wake()
            daemon.wait_health((point, "online"), (good, "online"))
            hanging.hang()
            daemon.wait_health((point, "offline"))
            daemon.reload()
            seen = served.times
            wait_until(lambda: served.times > seen + 1, "and after a reload while it hangs")
            daemon.end_while_a_disk_hangs()
            hanging.wake()
            assert daemon.process.wait(PATIENCE_SECONDS) == 0
            assert not daemon.said("loop-stalled") and not daemon.said("internal-error")


def test_started_while_a_disk_hangs_it_serves_the_others(good: Path, tmp_path: Path, told: dict[str, str]) -> None:
    with hanging_fs(tmp_path / "fuse") as hanging:
        format_log_dir(hanging.source)
        bulk_partition(hanging.source, STRAY)
        hanging.hang()
        try:
            with DaemonProcess.of(tmp_path, hanging.point, good, settings={**HANGS, **told}) as daemon:
                daemon.wait_health((hanging.point, "offline"), (good, "online"))
                bulk_partition(good, STRAY)
                wait_until(lambda: not (good / STRAY).exists(), "the other one is served")
                hanging.wake()
                daemon.wait_health((hanging.point, "online"))
                wait_until(lambda: not (hanging.source / STRAY).exists(), "and this one now, too")
                daemon.end()
        finally:
            hanging.wake()


@pytest.mark.parametrize("answer", ["stay", "halt"])
def test_when_all_log_dirs_are_offline_it_stays_or_halts(answer: str, loop_fs: LoopFs, tmp_path: Path) -> None:
    point = format_log_dir(loop_fs("xfs"))
    run("sync", "--file-system", point)
    with DaemonProcess.of(tmp_path, point, settings={"HEALTH__ON_ALL_OFFLINE": answer}) as daemon:
        daemon.wait_health((point, "online"))
        shut_down(point)
        if answer == "halt":
            assert daemon.process.wait(PATIENCE_SECONDS) == Exit.HALTED
            return
        daemon.wait_health((point, "offline"))
        pulled_out(point)
        put_back(point)
        daemon.wait_health((point, "online"))
        daemon.end()
