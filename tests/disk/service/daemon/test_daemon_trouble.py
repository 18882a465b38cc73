"""The daemon in trouble: told to stop amid 100 GB, no room for its journal, inotify at its limits, changing mounts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from logagent.base.clock import SystemClock
from logagent.base.records import Outcome
from logagent.cleanup.state.journal import Journal
from tests.daemon_process import FIRST, DaemonProcess, status_of
from tests.disk.conftest import MIB, LoopFs, mounted, run
from tests.disk.killed import HEX
from tests.disk.sessions import write_topic_elsewhere
from tests.host import FREELY, NO_LIMITS, Host, delete
from tests.host_files import format_log_dir, whole_partition
from tests.needs import missing, need_command, need_root
from tests.waiting import wait_until

GIB = 1 << 30
SETTINGS = {
    "LOGAGENT_KAFKA__VERSION": "3.9.1",
    "LOGAGENT_CLEANUP__MODE": "enforce",
    "LOGAGENT_CLEANUP__MAX_FRACTION": "1.0",
    "LOGAGENT_CLEANUP__MAX_DIRS": "1000",
    "LOGAGENT_CLEANUP__LEFTOVER_GRACE": "0s",
    "LOGAGENT_DELETE__FILE_DELETE_DELAY_MS": "0",
}
PROBED_OFTEN = {"LOGAGENT_HEALTH__PROBE_INTERVAL": "500ms", "LOGAGENT_HEALTH__RECOVERY_PROBES": "2"}
MARKED = f"gone-0.{HEX}-delete"
STRAY = f"stray-0.{HEX}-stray"


def log_dir(path: Path, letter: str = "Z") -> Path:
    format_log_dir(path, f"AAAAAAAAAAAAAAAAAAAA{letter}g", node_id=1)
    (path / ".lock").touch()
    whole_partition(path / "kept-0", "DDDDDDDDDDDDDDDDDDDDDA")
    return path


def daemon_on(folder: Path, *log_dirs: Path, state: Path | None = None, **environment: str) -> DaemonProcess:
    host = Host(folder, *log_dirs)
    host.state = state or host.state
    return host.daemon(**{**SETTINGS, **environment})


def test_sigterm_ends_soon_amid_100_gb(loop_fs: LoopFs, tmp_path: Path) -> None:
    """Real blocks, on a sparse image. By the budget it would take five more minutes."""
    d1 = log_dir(loop_fs("xfs", size=110 * GIB) / "d1")
    marked = d1 / MARKED
    marked.mkdir()
    for number in range(100):
        with (marked / f"{number:020d}.log").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, GIB)
    # What would come after it: nobody may look at each of them once more before the end.
    for number in range(300):
        (d1 / f"later-{number}.{HEX}-delete").mkdir()
    used = os.statvfs(d1)
    assert (used.f_blocks - used.f_bfree) * used.f_frsize > 100 * GIB
    with daemon_on(tmp_path, d1, LOGAGENT_DELETE__BYTES_PER_SECOND="300MiB") as daemon:
        first = marked / f"{0:020d}.log"
        wait_until(lambda: not first.exists(), "the first file to go")
        assert daemon.stop() == 0
        assert daemon.wait_for("stopped")["in_time"] is True
    left = sorted(marked.iterdir())
    assert 50 < len(left) < 100, "it stopped between two files"
    with Journal.open_read_only(str(tmp_path / "state")) as journal:
        assert journal.unsettled() == [] and journal.history()[-1].outcome is Outcome.YIELDED
    with daemon_on(tmp_path, d1, LOGAGENT_DELETE__BYTES_PER_SECOND="0") as daemon:
        daemon.wait_for("action", action="remove", outcome="done", name=MARKED)
        assert daemon.stop() == 0
    assert not marked.exists() and (d1 / "kept-0").is_dir()


def test_no_room_for_the_journal_stops_the_deleting_and_not_the_process(loop_fs: LoopFs, tmp_path: Path) -> None:
    state = loop_fs("tmpfs", size=MIB)
    d1 = log_dir(tmp_path / "d1")
    with daemon_on(tmp_path, d1, state=state / "s", LOGAGENT_CLEANUP__INTERVAL="1s") as daemon:
        daemon.wait_for("cycle", job="cleanup")
        filler = state / "filler"
        with pytest.raises(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        whole_partition(d1 / MARKED, "EEEEEEEEEEEEEEEEEEEEEA")
        failed = daemon.wait_for("cycle-failed")
        assert failed["level"] == "error" and failed["slug"] == "journal"

        def cycle() -> str:
            return str(next(c["started_at"] for c in status_of(state / "s")["cycles"] if c["job"] == "cleanup"))

        seen = cycle()
        wait_until(lambda: cycle() > seen, "another cycle")
        assert (d1 / MARKED).is_dir(), "nothing is done that cannot be remembered"
        assert len(daemon.events("cycle-failed")) == 1, "it is said once"
        filler.unlink()
        daemon.wait_for("cycle-recovered")
        daemon.wait_for("action", action="remove", outcome="done", name=MARKED)
        assert daemon.stop() == 0
    assert not (d1 / MARKED).exists()


def test_it_starts_and_stays_where_there_is_no_room_at_all(loop_fs: LoopFs, tmp_path: Path) -> None:
    state = loop_fs("tmpfs", size=MIB)
    d1 = log_dir(tmp_path / "d1")
    with daemon_on(tmp_path, d1, state=state / "s") as daemon:
        daemon.wait_for("cycle", job="cleanup")
        assert daemon.stop() == 0
    (state / "s" / "daemon.lock").write_text("")
    with pytest.raises(OSError), (state / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    whole_partition(d1 / MARKED, "EEEEEEEEEEEEEEEEEEEEEA")
    with daemon_on(tmp_path, d1, state=state / "s") as daemon:
        daemon.wait_for("cycle-failed", slug="journal")
        daemon.wait_for("log-dir", log_dir=str(d1), health="online")
        assert (d1 / MARKED).is_dir() and daemon.events("internal-error") == []
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("limit", "reason"), [("max_inotify_watches", "max_user_watches"), ("max_inotify_instances", "max_user_instances")]
)
def test_at_the_limits_of_inotify_it_polls_and_says_so(tmp_path: Path, limit: str, reason: str) -> None:
    need_root()
    need_command("unshare")
    enter = ("unshare", "--user", "--map-root-user", "sh", "-c", f'echo 0 > /proc/sys/user/{limit}; exec "$@"', "-")
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        missing("user namespaces")
    d1 = log_dir(tmp_path / "d1")
    with Host(tmp_path, d1).daemon((*enter, *FIRST), **SETTINGS) as daemon:
        said = daemon.wait_for("watch", by="polling")
        assert said["level"] == "warning" and reason in said["reason"]
        (row,) = status_of(tmp_path / "state")["log_dirs"]
        assert row["watch"] == "polling" and reason in row["watch_problem"]
        if limit == "max_inotify_instances":
            # Nobody tells of it: it is found by looking. (In a user namespace the descriptors of other processes cannot
            # be read; where one of them may be a broker, it is refused.)
            whole_partition(d1 / MARKED, "EEEEEEEEEEEEEEEEEEEEEA")
            wait_until(lambda: daemon.events("action", name=MARKED) or daemon.events("refused", name=MARKED), "a look")
        assert len(daemon.events("watch")) == 1
        assert daemon.stop() == 0


@pytest.fixture
def remountable(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Calling it mounts the same file system at the same place."""
    need_root()
    need_command("mkfs.ext4")
    with ExitStack() as stack:
        folder = tmp_path / "mounts"
        folder.mkdir()
        point = mounted(folder, "ext4", 100 * MIB, stack)

        def again() -> Path:
            run("mount", "-o", "loop", point.with_suffix(".img"), point)
            return point

        yield again


def test_unmounted_and_mounted_again_it_is_seen_and_watched_anew(
    remountable: Callable[[], Path], tmp_path: Path
) -> None:
    point = tmp_path / "mounts" / "ext4-0"
    d1, d2 = log_dir(point / "d1", "Y"), log_dir(tmp_path / "d2")
    with daemon_on(tmp_path, d1, d2, state=None, **PROBED_OFTEN) as daemon:
        daemon.wait_for("log-dir", log_dir=str(d1), health="online")
        daemon.wait_for("cycle", job="cleanup")
        _wait_for_hint(d1, daemon)
        wait_until(lambda: not subprocess.run(["umount", point], capture_output=True, check=False).returncode, "umount")
        daemon.wait_for("log-dir", log_dir=str(d1), health="offline")
        remountable()
        daemon.wait_for("log-dir", log_dir=str(d1), health="online", count=2)
        # The cycle that follows begins the new watch; from then on inotify tells again.
        _wait_for_hint(d1, daemon)
        assert len(daemon.events("log-dir", log_dir=str(d1))) == 3
        assert len(daemon.events("log-dir", log_dir=str(d2))) == 1
        assert daemon.stop() == 0


def _wait_for_hint(d1: Path, daemon: DaemonProcess) -> None:
    """Mark a directory a second, until one goes: long before any interval is over."""
    names: list[str] = []

    def one_went() -> bool:
        names.append(f"n{uuid4().hex}-0.{HEX}-delete")
        whole_partition(d1 / names[-1], "EEEEEEEEEEEEEEEEEEEEEA")
        return any(daemon.events("action", name=name, outcome="done") for name in names)

    wait_until(one_went, f"inotify tells of {d1}", interval=1)


def test_renamed_away_and_back_it_is_seen_and_the_other_one_served_all_along(tmp_path: Path) -> None:
    d1, d2 = log_dir(tmp_path / "d1", "Y"), log_dir(tmp_path / "d2")
    often = {"LOGAGENT_CLEANUP__INTERVAL": "1s", "LOGAGENT_CLEANUP__STRAY_RETENTION": "0s"}
    often |= {"LOGAGENT_ASSIGNMENTS__SOURCES": "file", "LOGAGENT_ASSIGNMENTS__FILE": str(tmp_path / "assignments.json")}
    write_topic_elsewhere(tmp_path / "assignments.json", SystemClock().now_ms(), node=1)
    with daemon_on(tmp_path, d1, d2, state=None, **PROBED_OFTEN, **often) as daemon:
        daemon.wait_for("log-dir", log_dir=str(d1), health="online")
        daemon.wait_for("cycle", job="cleanup")
        d1.rename(tmp_path / "elsewhere")
        daemon.wait_for("log-dir", log_dir=str(d1), health="offline")
        whole_partition(tmp_path / "elsewhere" / MARKED, "EEEEEEEEEEEEEEEEEEEEEA")
        whole_partition(d2 / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
        write_topic_elsewhere(tmp_path / "assignments.json", SystemClock().now_ms(), node=1)
        daemon.wait_for("action", log_dir=str(d2), name=STRAY, outcome="done")
        assert (tmp_path / "elsewhere" / MARKED).is_dir(), "what is no log dir any more is left alone"
        (tmp_path / "elsewhere").rename(d1)
        daemon.wait_for("log-dir", log_dir=str(d1), health="online", count=2)
        daemon.wait_for("action", log_dir=str(d1), name=MARKED, outcome="done")
        assert daemon.stop(signal.SIGINT) == 0


def test_a_command_waits_for_the_cycle_and_the_daemon_for_the_command(tmp_path: Path) -> None:
    """Held by a command, the executor lock puts the daemon's cycle off; it is said once and made good."""
    host = Host.from_disk(tmp_path / "h")
    host.with_assignments(**{"cleanup.mode": "enforce", "cleanup.interval": "1s", **NO_LIMITS})
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    hold = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDWR); fcntl.flock(fd, fcntl.LOCK_EX);"
        " os.ftruncate(fd, 0); os.pwrite(fd, f'{os.getpid()} cli:somebody'.encode(), 0);"
        " print('held', flush=True); sys.stdin.read()"
    )
    lock = host.state / "executor.lock"
    with subprocess.Popen(
        [sys.executable, "-c", hold, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with host.daemon() as daemon:
            said = daemon.wait_for("cycle-deferred")
            assert "cli:somebody" in said["error"] and str(holder.pid) in said["error"]
            holder.stdin.close()
            daemon.wait_for("cycle-recovered")
            assert len(daemon.events("cycle-deferred")) == 1
            assert daemon.stop() == 0


def test_a_command_gets_its_turn_amid_a_removal_of_hours(loop_fs: LoopFs, tmp_path: Path) -> None:
    """It waits for ten seconds at most (prestart for one); the daemon ends its cycle at the next file and goes on
    afterwards."""
    d1 = log_dir(loop_fs("xfs") / "d1")
    marked = d1 / MARKED
    marked.mkdir()
    for number in range(200):
        with (marked / f"{number:020d}.log").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, MIB)
    with daemon_on(tmp_path, d1, LOGAGENT_DELETE__BYTES_PER_SECOND="3MiB") as daemon:
        wait_until(lambda: not (marked / f"{0:020d}.log").exists(), "the first file to go")
        whole_partition(d1 / STRAY, "EEEEEEEEEEEEEEEEEEEEEA")
        words = ("--log-dir", d1, "--state-dir", tmp_path / "state", "--json")
        done = subprocess.run(
            [sys.executable, "-m", "logagent", "restore", "--retention-will-delete", MARKED, "--execute", *words],
            env={**os.environ, **SETTINGS},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 3, done.stderr
        assert "its removal has started" in done.stdout, "it got its turn, and an answer"
        assert daemon.wait_for("cycle-deferred")["level"] == "info"
        left = len(list(marked.iterdir()))
        assert left > 20
        wait_until(lambda: len(list(marked.iterdir())) < left - 5, "the removal to go on")
        assert daemon.stop() == 0
