"""Real disks that fail: which state their log dir is in after how many rounds, and how it comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from logagent.base.records import Health
from logagent.cleanup.state.journal import Journal
from logagent.disk.log_dir import OpenLogDir
from tests.disk.conftest import MIB, Child, LoopFs, run, unmount
from tests.disk.failing import frozen, hanging_fs, loop_devices, open_below, pulled_out, put_back, shut_down
from tests.disk.sessions import HANGS, FailingHost, outcomes
from tests.host_files import DIRECTORY_IDS, bulk_partition, format_log_dir
from tests.needs import need_root
from tests.waiting import wait_until

MARKED = "orders-0." + "a" * 32 + "-delete"
# Of these nobody thinks that they could be the source of a move to a log dir that is offline now.
STRAY = "other-0." + "b" * 32 + "-stray"
# Takes the locks of the log dirs it is told, as a broker does, and lets go of one that it is told.
BROKER = """
import fcntl, sys
files = {}
for path in sys.argv[1:]:
    files[path] = open(f"{path}/.lock", "a")
    fcntl.lockf(files[path], fcntl.LOCK_EX)
print("ready", flush=True)
for line in sys.stdin:
    files.pop(line.strip()).close()
    print("let go", flush=True)
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A log dir on a disk that works all along."""
    return format_log_dir(tmp_path / "good", DIRECTORY_IDS[1])


def log_dir_on(point: Path) -> Path:
    return format_log_dir(point / "kafka")


def reason(host: FailingHost, path: Path) -> str:
    return host.health.states()[str(path)].reason or ""


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_one_dead_disk_of_two_is_offline_after_one_round_and_the_other_is_served_all_along(
    kind: str, loop_fs: LoopFs, good: Path, tmp_path: Path
) -> None:
    point = loop_fs(kind)
    bad = log_dir_on(point)
    bulk_partition(bad, MARKED)
    bulk_partition(good, STRAY)
    run("sync", "--file-system", bad)
    host = FailingHost(tmp_path / "state", bad, good)
    assert host.round() == {str(bad): Health.ONLINE, str(good): Health.ONLINE}
    shut_down(point)
    summary = host.health.round()
    assert summary.offline == (str(bad),)
    assert summary.changed == (str(bad),)
    first = reason(host, bad)
    assert "Input/output error" in first or "shut down" in first
    assert outcomes(host.clean()) == ["done"]
    assert not list(good.glob("*-stray"))
    # Once said, never again: neither as news nor with another reason.
    for _ in range(3):
        assert host.health.round().changed == ()
    assert reason(host, bad) == first
    wait_until(lambda: not open_below(point), "nothing of ours is open there")

    # Mended: unmounted while the daemon runs, and mounted again (the journal of the file system is replayed).
    pulled_out(point)
    assert host.round()[str(bad)] is Health.OFFLINE
    put_back(point)
    back = host.rounds_until(bad, Health.ONLINE)
    assert back.changed == (str(bad),)
    assert host.known[str(bad)].dirs[0].name == MARKED, "it was scanned anew"
    assert outcomes(host.clean()) == ["done"]
    assert not list(bad.glob("*-delete"))


def test_an_action_that_meets_the_dead_disk_first_takes_it_offline_and_the_others_go_on(
    loop_fs: LoopFs, good: Path, tmp_path: Path
) -> None:
    point = loop_fs("xfs")
    bad = log_dir_on(point)
    bulk_partition(bad, MARKED, segments=300)
    bulk_partition(good, STRAY, segments=50)
    host = FailingHost(tmp_path / "state", bad, good)
    removed = 0

    def progress(files: int, size: int) -> None:
        nonlocal removed
        removed += files
        if removed == 100:
            shut_down(point)

    execution = host.clean(progress)
    assert outcomes(execution) == ["done", "failed"]
    assert "failed (Input/output error" in (host.failures.reason(str(bad)) or "")
    assert host.round() == {str(bad): Health.OFFLINE, str(good): Health.ONLINE}
    assert reason(host, bad) == host.failures.reason(str(bad)), "the first failure wins"


def test_a_full_disk_is_full_and_deleting_is_the_cure(loop_fs: LoopFs, tmp_path: Path) -> None:
    point = loop_fs("ext4", size=32 * MIB)
    path = log_dir_on(point)
    bulk_partition(path, MARKED, segments=4, size=2 * MIB)
    host = FailingHost(tmp_path / "state", path)
    assert host.round() == {str(path): Health.ONLINE}
    with (path / "ballast").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * MIB)
    os.sync()
    assert host.round() == {str(path): Health.FULL}
    assert host.failures.reason(str(path)) is None
    before = {p.name for p in path.iterdir()}
    assert outcomes(host.clean()) == ["done"]
    assert {p.name for p in path.iterdir()} == before - {MARKED}, "and the probe left nothing"
    assert host.round() == {str(path): Health.ONLINE}


def test_remounted_read_only_it_is_read_only_and_back_without_a_wait(loop_fs: LoopFs, tmp_path: Path) -> None:
    point = loop_fs("ext4")
    path = log_dir_on(point)
    bulk_partition(path, MARKED, segments=300)
    host = FailingHost(tmp_path / "state", path)
    host.round()
    removed = 0

    def progress(files: int, size: int) -> None:
        nonlocal removed
        removed += files
        if removed == 100:
            run("mount", "-o", "remount,ro", point)

    # Whoever meets it first: the action fails, and what it recorded is understood as what it is.
    assert outcomes(host.clean(progress)) == ["failed"]
    assert host.round() == {str(path): Health.READ_ONLY}
    assert reason(host, path) == "its file system is mounted read-only"
    assert host.failures.reason(str(path)) is None
    assert outcomes(host.clean()) == [], "nothing is tried there"
    run("mount", "-o", "remount,rw", point)
    assert host.round() == {str(path): Health.ONLINE}
    # So many failures that a slow machine does not outwait the backoff.
    with Journal.open(str(host.state)) as journal:
        assert (str(path), MARKED) in journal.failures()
        for _ in range(9):
            journal.record_failure(str(path), MARKED, "a test says so", host.clock.now_ms())
    bulk_partition(path, STRAY)
    assert outcomes(host.clean()) == ["done"], "the other one waits, as after every failure"
    assert (path / MARKED).is_dir()


@pytest.mark.parametrize("lazy", [False, True], ids=["plain", "lazy"])
def test_an_unmount_is_possible_between_rounds_and_seen_in_the_next(
    lazy: bool, loop_fs: LoopFs, good: Path, tmp_path: Path
) -> None:
    point = format_log_dir(loop_fs("ext4"))
    host = FailingHost(tmp_path / "state", point, good)
    host.round()
    host.clean()
    host.round()
    pulled_out(point, lazy=lazy)
    # An empty directory stands there now, as good as new: that is no log dir.
    assert host.round() == {str(point): Health.OFFLINE, str(good): Health.ONLINE}
    assert "another directory (was it unmounted" in reason(host, point)
    assert outcomes(host.clean()) == []
    for _ in range(5):
        assert host.round()[str(point)] is Health.OFFLINE
    assert list(point.iterdir()) == []
    put_back(point)
    host.rounds_until(point, Health.ONLINE)


def test_unmounted_lazily_under_a_removal_the_device_comes_free_before_the_session_ends(
    loop_fs: LoopFs, good: Path, tmp_path: Path
) -> None:
    point = format_log_dir(loop_fs("ext4"))
    bulk_partition(point, MARKED, segments=10)
    bulk_partition(good, STRAY, segments=10)
    host = FailingHost(tmp_path / "state", point, good)
    host.round()
    with host.session() as session:
        session.take_inventory()
        assert open_below(point)
        # The operator pulls it out: refused as long as somebody works on it, unless lazily.
        busy = subprocess.run(["umount", point], capture_output=True, text=True, check=False)
        assert busy.returncode != 0 and "busy" in busy.stderr
        run("umount", "--lazy", point)
        assert host.round() == {str(point): Health.OFFLINE, str(good): Health.ONLINE}
        wait_until(lambda: not open_below(point), "our descriptors are closed")
        wait_until(lambda: not loop_devices(point), "the device is free")
        put_back(point)
        host.rounds_until(point, Health.ONLINE)
        # This session opened the one from before; it stays out of the new one.
        assert list(session.log_dirs.online()) == [str(good)]
        with pytest.raises(Exception, match="offline for a while after it was opened"):
            session.log_dirs.by_path[str(point)].check()
    assert outcomes(host.clean()) == ["done", "done"]


def test_another_disk_mounted_there_is_not_taken_for_the_one_before(loop_fs: LoopFs, tmp_path: Path) -> None:
    point, other = format_log_dir(loop_fs("ext4")), loop_fs("ext4")
    host = FailingHost(tmp_path / "state", point)
    host.round()
    run("mount", "--bind", other, point)
    try:
        assert host.round() == {str(point): Health.OFFLINE}
        for _ in range(4):
            assert host.round() == {str(point): Health.OFFLINE}, "nobody has formatted it"
        format_log_dir(other, "BBBBBBBBBBBBBBBBBBBBBA")
        host.rounds_until(point, Health.ONLINE)
    finally:
        unmount(point)
    # And the same again when it goes.
    assert host.round() == {str(point): Health.OFFLINE}
    host.rounds_until(point, Health.ONLINE)


def test_a_frozen_disk_hangs_and_is_back_after_it_was_thawed(loop_fs: LoopFs, good: Path, tmp_path: Path) -> None:
    path = log_dir_on(loop_fs("xfs"))
    host = FailingHost(tmp_path / "state", path, good, settings=HANGS)
    host.round()
    with frozen(path.parent) as thaw:
        assert host.round() == {str(path): Health.OFFLINE, str(good): Health.ONLINE}
        assert reason(host, path) == "it did not answer within 3 s"
        # One that hangs is neither asked nor waited for a second time.
        assert host.round() == {str(path): Health.OFFLINE, str(good): Health.ONLINE}
        assert [t.name for t in threading.enumerate()].count(f"probe {path}") == 1
        assert outcomes(host.clean()) == []
        thaw()
        host.rounds_until(path, Health.ONLINE)


def test_a_file_system_that_hangs_wholly_holds_up_neither_rounds_nor_cycles(good: Path, tmp_path: Path) -> None:
    with hanging_fs(tmp_path / "fuse") as hanging:
        format_log_dir(hanging.source)
        bulk_partition(hanging.source, MARKED)
        host = FailingHost(tmp_path / "state", hanging.point, good, settings=HANGS)
        assert host.round() == {str(hanging.point): Health.ONLINE, str(good): Health.ONLINE}
        # Without O_TMPFILE there it is only read, which is said.
        limited = {d.path: d.limited for d in host.health.round().log_dirs}
        assert limited[str(good)] is None and "O_TMPFILE" in (limited[str(hanging.point)] or "")
        hanging.hang()
        # A cycle comes first: it waits as long as a look may take, once, and serves the other.
        bulk_partition(good, STRAY)
        assert outcomes(host.clean()) == ["done"]
        assert host.failures.reason(str(hanging.point)) == "it did not answer within 3 s"
        bulk_partition(good, STRAY.replace("other", "third"))
        assert outcomes(host.clean()) == ["done"]
        assert host.round() == {str(hanging.point): Health.OFFLINE, str(good): Health.ONLINE}
        hanging.wake()
        host.rounds_until(hanging.point, Health.ONLINE)
        assert outcomes(host.clean()) == ["done"]


def test_a_broker_with_files_open_on_the_hung_disk_holds_up_nobody(good: Path, tmp_path: Path) -> None:
    """Its descriptors are looked at before every action, and that must not ask the hung disk for anything."""
    holds = "import sys\nfile = open(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.read()"
    with hanging_fs(tmp_path / "fuse") as hanging:
        format_log_dir(hanging.source)
        log = bulk_partition(hanging.source, "orders-0") / f"{0:020d}.log"
        host = FailingHost(tmp_path / "state", hanging.point, good, settings=HANGS)
        host.round()
        child = Child(holds, hanging.point / "orders-0" / log.name)
        try:
            assert child.line() == "ready"
            host.clean()
            hanging.hang()
            host.round()
            bulk_partition(good, STRAY)
            assert outcomes(host.clean()) == ["done"]
        finally:
            hanging.wake()
            child.close()


def test_a_hung_file_system_of_somebody_else_holds_up_nobody(good: Path, tmp_path: Path) -> None:
    """No log dir lies on it; a process of this host has a file open there, as any process may have."""
    holds = "import sys\nfile = open(sys.argv[1])\nprint('ready', flush=True)\nsys.stdin.read()"
    with hanging_fs(tmp_path / "fuse") as hanging:
        (hanging.source / "notes").write_text("not ours")
        host = FailingHost(tmp_path / "state", good, settings=HANGS)
        host.round()
        child = Child(holds, hanging.point / "notes")
        try:
            assert child.line() == "ready"
            hanging.hang()
            for _ in range(3):
                bulk_partition(good, STRAY)
                assert outcomes(host.clean()) == ["done"]
        finally:
            hanging.wake()
            child.close()


def test_a_log_dir_that_is_missing_at_the_start_is_served_once_it_exists(good: Path, tmp_path: Path) -> None:
    late = tmp_path / "late"
    host = FailingHost(tmp_path / "state", late, good)
    summary = host.health.round()
    assert summary.offline == summary.changed == (str(late),)
    assert reason(host, late) == "it cannot be opened (No such file or directory)"
    format_log_dir(late)
    host.rounds_until(late, Health.ONLINE)


@pytest.mark.parametrize("what", ["file", "moved away", "meta gone", "foreign meta"])
def test_what_became_of_the_path_is_reported(what: str, tmp_path: Path) -> None:
    path = format_log_dir(tmp_path / "d1")
    host = FailingHost(tmp_path / "state", path)
    host.round()
    if what in ("file", "moved away"):
        path.rename(tmp_path / "aside")
    if what == "file":
        path.write_text("no directory")
    if what == "meta gone":
        (path / "meta.properties").unlink()
    if what == "foreign meta":
        text = (path / "meta.properties").read_text()
        (path / "meta.properties").write_text(text.replace("abcdefghijklmnopqrstuv", "zzzzzzzzzzzzzzzzzzzzzz"))
    assert host.round() == {str(path): Health.OFFLINE}
    said = {
        "file": "it cannot be opened (Not a directory)",
        "moved away": "it cannot be opened (No such file or directory)",
        "meta gone": "its meta.properties is gone",
        "foreign meta": "its meta.properties has changed: is it another disk?",
    }
    assert reason(host, path) == said[what]
    for _ in range(4):
        assert host.round() == {str(path): Health.OFFLINE}


def test_an_agent_that_may_not_search_the_log_dir_says_so(tmp_path: Path) -> None:
    need_root()
    path = Path(subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip())
    try:
        path.chmod(0)
        pid = os.fork()
        if pid == 0:
            os.setgid(65534)
            os.setuid(65534)
            host = FailingHost(tmp_path / "state", path)
            there = host.round() == {str(path): Health.OFFLINE}
            os._exit(0 if there and "Permission denied" in reason(host, path) else 1)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        shutil.rmtree(path)


@contextmanager
def broker(*log_dirs: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", BROKER, *map(str, log_dirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        try:
            yield running
        finally:
            running.stdin.close()
            running.wait(60)


def let_go(running: subprocess.Popen[str], log_dir: Path) -> None:
    assert running.stdin is not None and running.stdout is not None
    running.stdin.write(f"{log_dir}\n")
    running.stdin.flush()
    assert running.stdout.readline() == "let go\n"


def test_what_the_living_broker_gave_up_is_offline_in_the_second_round_until_its_restart(
    good: Path, tmp_path: Path
) -> None:
    path = format_log_dir(tmp_path / "d1")
    host = FailingHost(tmp_path / "state", path, good)
    both = {str(path): Health.ONLINE, str(good): Health.ONLINE}
    with broker(path, good) as running:
        assert host.round() == host.round() == both
        let_go(running, path)
        assert host.round() == both
        assert host.round() == {str(path): Health.OFFLINE, str(good): Health.ONLINE}
        assert reason(host, path) == (
            f"the running broker (process {running.pid}) holds other log dirs but not this one: it gave it up"
        )
        for _ in range(5):
            assert host.round()[str(path)] is Health.OFFLINE
    with broker(path, good):
        host.rounds_until(path, Health.ONLINE)
        assert host.round() == both


def test_a_lock_file_that_somebody_unlinked_under_the_broker_is_not_given_up(good: Path, tmp_path: Path) -> None:
    path = format_log_dir(tmp_path / "d1")
    host = FailingHost(tmp_path / "state", path, good)
    with broker(path, good):
        (path / ".lock").unlink()
        for _ in range(4):
            assert host.round() == {str(path): Health.ONLINE, str(good): Health.ONLINE}


def test_a_stopped_broker_gave_nothing_up(good: Path, tmp_path: Path) -> None:
    path = format_log_dir(tmp_path / "d1")
    (path / ".lock").touch()
    host = FailingHost(tmp_path / "state", path, good)
    for _ in range(3):
        assert host.round() == {str(path): Health.ONLINE, str(good): Health.ONLINE}


def test_rounds_leave_neither_descriptors_nor_threads(good: Path, tmp_path: Path) -> None:
    host = FailingHost(tmp_path / "state", good)
    host.round()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        host.round()
        host.clean()
    wait_until(lambda: threading.active_count() == threads, "all threads have ended")
    assert len(os.listdir("/proc/self/fd")) == descriptors
    with OpenLogDir(str(good), host.failures) as opened:
        assert opened.offline() is None
