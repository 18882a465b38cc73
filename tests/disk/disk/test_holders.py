"""What other processes have open below a log dir: descriptors, maps, deleted files, containers, bind mounts."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.records import HolderState
from logagent.disk.holders import OpenFiles, holder_of, process_start_ticks, process_start_time_ms, scan_open_files
from logagent.disk.log_dir import OpenLogDir
from tests.disk.conftest import run
from tests.disk.failing import hanging_fs
from tests.needs import need_root

Open = Callable[[Path], OpenLogDir]
Spawn = Callable[..., Any]

OPEN_FILES = """
import sys
files = [open(path, "rb") for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""
MAP_FILE = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""
OPEN_DESCRIPTORS = """
import os, sys
fds = [os.open(path, os.O_RDONLY) for path in sys.argv[1:]]
print("ready", flush=True)
sys.stdin.read()
"""
OPEN_AND_UNLINK = """
import os, sys
files = [open(path, "a") for path in sys.argv[1:]]
for path in sys.argv[1:]:
    os.unlink(path)
print("ready", flush=True)
sys.stdin.read()
"""
LOCK = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


def partition(log_dir: Path, name: str) -> Path:
    path = log_dir / name
    path.mkdir()
    for suffix in (".log", ".index"):
        (path / f"{0:020d}{suffix}").write_bytes(b"x" * 4096)
    return path


def test_nobody_is_free(tmp_path: Path, open_log_dir: Open) -> None:
    partition(tmp_path, "orders-0")
    log_dir = open_log_dir(tmp_path)
    open_files = scan_open_files([log_dir])
    assert open_files.occupants(log_dir.path) == frozenset()
    assert open_files.users(log_dir.path, "orders-0") == frozenset()
    assert os.getppid() in open_files.read | open_files.unreadable
    # Our own descriptors do not count.
    with (tmp_path / "orders-0" / f"{0:020d}.log").open("rb"):
        assert scan_open_files([log_dir]).occupants(log_dir.path) == frozenset()
    holder = holder_of(log_dir.fd, log_dir.path, open_files)
    assert (holder.state, holder.pid) == (HolderState.FREE, None)


@pytest.mark.parametrize("name", ["orders-0", "new\nline-0", "b\udcffd-0", "with blank-0", r"esc\012ape-0", "ü-0"])
def test_open_and_mapped_files_name_their_directory(tmp_path: Path, spawn: Spawn, name: str) -> None:
    opened = partition(tmp_path, name)
    mapped = partition(tmp_path, "mapped-" + name)
    partition(tmp_path, "idle-0")
    opener = spawn(OPEN_FILES, opened / f"{0:020d}.log", tmp_path / "idle-0" / ".." / "idle-0" / f"{0:020d}.log")
    mapper = spawn(MAP_FILE, mapped / f"{0:020d}.index")
    open_files = scan_open_files([str(tmp_path)])
    assert open_files.users(str(tmp_path), name) == {opener.pid}
    assert open_files.users(str(tmp_path), "mapped-" + name) == {mapper.pid}
    assert open_files.users(str(tmp_path), "idle-0") == {opener.pid}
    assert open_files.occupants(str(tmp_path)) == {opener.pid, mapper.pid}
    assert open_files.could_read(opener.pid)
    assert not open_files.could_read(None)
    assert not open_files.could_read(2**22 + 1)


def test_a_rename_does_not_hide_what_is_open(tmp_path: Path, spawn: Spawn) -> None:
    path = partition(tmp_path, "orders-0")
    opener = spawn(OPEN_FILES, path / f"{0:020d}.log")
    path.rename(tmp_path / "orders-0.x-delete")
    open_files = scan_open_files([str(tmp_path)])
    assert open_files.users(str(tmp_path), "orders-0.x-delete") == {opener.pid}


def test_deleted_files_and_an_unlinked_lock_still_count(tmp_path: Path, spawn: Spawn, open_log_dir: Open) -> None:
    """A broker that locked `.lock` and lost its name serves on, and nobody can see its lock."""
    partition(tmp_path, "orders-0")
    child = spawn(OPEN_AND_UNLINK, tmp_path / ".lock", tmp_path / "orders-0" / f"{0:020d}.log")
    log_dir = open_log_dir(tmp_path)
    open_files = scan_open_files([log_dir])
    assert open_files.lock_pids[log_dir.path] == {child.pid}
    assert open_files.users(log_dir.path, "orders-0") == {child.pid}
    holder = holder_of(log_dir.fd, log_dir.path, open_files)
    assert (holder.state, holder.pid) == (HolderState.HIDDEN, child.pid)
    assert holder.detail == f"process {child.pid} has .lock open, without the lock"


def test_a_removed_file_is_known_by_the_name_that_it_had_and_can_be_copied(tmp_path: Path, spawn: Spawn) -> None:
    """Removed alone, with its directory, below one that was renamed, and below one that was moved away."""
    log_dir = tmp_path / "d1"
    log_dir.mkdir()
    alone, whole, renamed, moved, kept = (partition(log_dir, f"{name}-0") for name in "abcde")
    logs = [path / f"{0:020d}.log" for path in (alone, whole, renamed, moved, kept)]
    process = spawn(OPEN_FILES, *map(str, logs))
    os.link(logs[4], tmp_path / "elsewhere.log")
    logs[0].unlink()
    shutil.rmtree(whole)
    shutil.rmtree(renamed.rename(log_dir / "c-0.bak"))
    shutil.rmtree(moved.rename(tmp_path / "d-0"))
    logs[4].unlink()
    found = scan_open_files([str(log_dir)]).removed_files[str(log_dir)]
    name = logs[0].name
    assert {f.path for f in found} == {f"a-0/{name}", f"b-0/{name}", f"c-0.bak/{name}", f"{tmp_path}/d-0/{name}"}
    assert {f.pid for f in found} == {process.pid} and {f.bytes for f in found} == {4096}
    assert {Path(f.descriptor).read_bytes() for f in found} == {b"x" * 4096}


def test_files_of_the_log_dir_itself_do_not_make_a_holder(tmp_path: Path, spawn: Spawn) -> None:
    (tmp_path / "meta.properties").touch()
    spawn(OPEN_FILES, tmp_path / "meta.properties")
    assert scan_open_files([str(tmp_path)]).occupants(str(tmp_path)) == frozenset()


def test_each_log_dir_for_itself(tmp_path: Path, spawn: Spawn) -> None:
    one, two = tmp_path / "logs", tmp_path / "logs2"
    for log_dir in (one, two):
        log_dir.mkdir()
        partition(log_dir, "orders-0")
    child = spawn(OPEN_FILES, two / "orders-0" / f"{0:020d}.log")
    open_files = scan_open_files([str(one), str(two)])
    assert open_files.occupants(str(one)) == frozenset()
    assert open_files.occupants(str(two)) == {child.pid}
    assert open_files.occupants("elsewhere") == frozenset()
    assert scan_open_files([str(two)], pids=[os.getppid()]).occupants(str(two)) == frozenset()


def test_through_a_symlink_and_a_bind_mount(
    tmp_path: Path, bind_mount: Callable[[Path, Path], None], spawn: Spawn
) -> None:
    """The kernel names the path that was used; the log dir is recognised by device and inode."""
    real, link, bound = tmp_path / "real", tmp_path / "link", tmp_path / "bound"
    real.mkdir()
    bound.mkdir()
    link.symlink_to(real)
    partition(real, "orders-0")
    partition(real, "orders-1")
    bind_mount(real, bound)
    through_link = spawn(OPEN_FILES, link / "orders-0" / f"{0:020d}.log")
    through_bind = spawn(OPEN_FILES, bound / "orders-1" / f"{0:020d}.log")
    mapped = spawn(MAP_FILE, bound / "orders-1" / f"{0:020d}.index")
    for log_dir in (real, link):
        open_files = scan_open_files([str(log_dir)])
        assert open_files.users(str(log_dir), "orders-0") == {through_link.pid}
        assert open_files.users(str(log_dir), "orders-1") == {through_bind.pid, mapped.pid}
    shutil.rmtree(real / "orders-1")
    removed = scan_open_files([str(real)]).removed_files[str(real)]
    (found,) = (f for f in removed if f.pid == through_bind.pid)
    assert found.path == f"orders-1/{0:020d}.log" and Path(found.descriptor).read_bytes() == b"x" * 4096


def test_beside_many_files_of_a_directory_elsewhere_each_of_a_log_dir_is_seen(
    tmp_path: Path, bind_mount: Callable[[Path, Path], None], spawn: Spawn
) -> None:
    """Of a directory that is in no log dir one file is looked at; of one that a bind mount leads to, each; and so is a
    removed segment, whose directory may have been in the log dir."""
    log_dir, bound, other = (tmp_path / name for name in ("d1", "bound", "d2"))
    for path in (log_dir, bound, other):
        path.mkdir()
    made, elsewhere = partition(log_dir, "orders-0"), partition(other, "orders-0")
    bind_mount(log_dir, bound)
    live = [elsewhere / f"{0:020d}{suffix}" for suffix in (".log", ".index")]
    segment = elsewhere / f"{1:020d}.log"
    segment.write_bytes(b"x" * 4096)
    child = spawn(OPEN_DESCRIPTORS, *live, *((bound / made.name / path.name) for path in live), *live, segment)
    mapped = spawn(MAP_FILE, bound / made.name / f"{0:020d}.index")
    segment.unlink()
    open_files = scan_open_files([str(log_dir)])
    assert open_files.users(str(log_dir), "orders-0") == {child.pid, mapped.pid}
    assert [(f.pid, f.path) for f in open_files.removed_files[str(log_dir)]] == [(child.pid, str(segment))]
    assert scan_open_files([str(other)]).users(str(other), "orders-0") == {child.pid}


@pytest.mark.parametrize("detached", [False, True])
def test_what_a_process_has_open_on_a_file_system_that_never_answers_is_not_waited_for(
    tmp_path: Path, spawn: Spawn, detached: bool
) -> None:
    """A dead NFS server's, or one of any user's own (FUSE): its root directory, too, and after `umount --lazy`, when
    the mount table no longer has it."""
    log_dir = tmp_path / "d1"
    log_dir.mkdir()
    partition(log_dir, "orders-0")
    found: list[OpenFiles] = []
    with hanging_fs(tmp_path / "fuse") as hanging:
        (hanging.source / "file").touch()
        ours = log_dir / "orders-0" / f"{0:020d}.log"
        held = spawn(OPEN_DESCRIPTORS, hanging.point, hanging.point / "file", ours)
        if detached:
            run("umount", "--lazy", hanging.point)
        hanging.hang()
        scan = threading.Thread(target=lambda: found.append(scan_open_files([str(log_dir)], [held.pid])))
        scan.start()
        scan.join(20)
        in_time = not scan.is_alive()
        hanging.wake()
        scan.join()
        held.close()
    assert in_time
    assert found[0].users(str(log_dir), "orders-0") == {held.pid}


def test_in_a_container(tmp_path: Path, spawn: Spawn, open_log_dir: Open) -> None:
    """Another mount namespace, where the log dir has another path and its own path is another directory."""
    need_root()
    real, inside, other = tmp_path / "real", tmp_path / "inside", tmp_path / "other"
    for directory in (real, inside, other):
        directory.mkdir()
    partition(real, "orders-0")
    partition(other, "orders-7")
    child = spawn(
        """
import ctypes, os, subprocess, sys
real, inside, other = sys.argv[1:]
assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "--bind", real, inside], check=True)
subprocess.run(["mount", "--bind", other, real], check=True)
files = [open(inside + "/orders-0/" + "0" * 20 + ".log"), open(real + "/orders-7/" + "0" * 20 + ".log"),
         open(inside + "/.lock", "a")]
print("ready", flush=True)
sys.stdin.read()
""",
        real,
        inside,
        other,
    )
    log_dir = open_log_dir(real)
    open_files = scan_open_files([log_dir])
    assert open_files.users(log_dir.path, "orders-0") == {child.pid}
    assert open_files.users(log_dir.path, "orders-7") == frozenset()
    assert open_files.lock_pids[log_dir.path] == {child.pid}


@pytest.mark.parametrize("namespace", ["ours", "its own"])
def test_in_a_chroot(tmp_path: Path, bind_mount: Callable[[Path, Path], None], spawn: Spawn, namespace: str) -> None:
    """The kernel tells a link from the root of the mount namespace, whatever root the process has."""
    need_root()
    real, jail = tmp_path / "real", tmp_path / "jail"
    (jail / "data").mkdir(parents=True)
    real.mkdir()
    partition(real, "orders-0")
    partition(real, "orders-1")
    bind_mount(real, jail / "data")
    child = spawn(
        """
import ctypes, mmap, os, sys
if sys.argv[2] != "ours":
    assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
os.chroot(sys.argv[1])
os.chdir("/")
log = open("/data/orders-0/" + "0" * 20 + ".log")
with open("/data/orders-1/" + "0" * 20 + ".index", "r+b") as file:
    index = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
""",
        jail,
        namespace,
    )
    # Nobody has the root of a namespace of its own: by device and inode.
    open_files = scan_open_files([str(real)])
    assert open_files.users(str(real), "orders-0") == {child.pid}
    assert open_files.users(str(real), "orders-1") == {child.pid}
    assert child.pid not in open_files.doubtful[str(real)]


@pytest.mark.parametrize("inside", ["orders-0", ".lock", None])
def test_a_path_that_leads_nowhere_from_here_is_compared_with_what_is_in_the_log_dir(
    tmp_path: Path, spawn: Spawn, open_log_dir: Open, inside: str | None
) -> None:
    """`nsenter`, `docker exec`, a container's standard output: nothing that they have open stops acting unless it is in
    the log dir, or was removed and may have been."""
    need_root()
    real = tmp_path / "real"
    real.mkdir()
    partition(real, "orders-0")
    (real / ".lock").touch()
    (tmp_path / "container.log").touch()
    opened = {None: tmp_path / "container.log", ".lock": real / ".lock"}.get(
        inside, real / "orders-0" / f"{0:020d}.log"
    )
    removed = partition(real, "gone-0") / f"{0:020d}.log"
    child = spawn(
        """
import ctypes, os, subprocess, sys
where, opened, removed = sys.argv[1:]
files = [open(opened), *([open(removed)] if "container" not in opened else [])]
assert ctypes.CDLL(None).unshare(0x00020000) == 0  # CLONE_NEWNS
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "none", where], check=True)
print("ready", flush=True)
sys.stdin.read()
""",
        tmp_path,
        opened,
        removed,
    )
    log_dir = open_log_dir(real)
    open_files = scan_open_files([log_dir], [child.pid])
    assert open_files.users(log_dir.path, "orders-0") == ({child.pid} if inside == "orders-0" else frozenset())
    assert open_files.lock_pids[log_dir.path] == ({child.pid} if inside == ".lock" else frozenset())
    assert open_files.doubt(log_dir.path) is None
    shutil.rmtree(removed.parent)
    doubt = scan_open_files([log_dir], [child.pid]).doubt(log_dir.path)
    assert (doubt is None) is (inside is None)
    assert doubt is None or (doubt[0] == child.pid and "gone-0" in doubt[1])


def test_the_holder_of_the_lock(tmp_path: Path, spawn: Spawn, open_log_dir: Open) -> None:
    """In doubt a broker is starting; that it serves is told elsewhere."""
    before = time.time() * 1000
    child = spawn(LOCK, tmp_path / ".lock")
    log_dir = open_log_dir(tmp_path)
    open_files = scan_open_files([log_dir])
    holder = holder_of(log_dir.fd, log_dir.path, open_files)
    assert (holder.state, holder.pid, holder.detail) == (HolderState.STARTING, child.pid, None)
    assert holder.start_time_ms == process_start_time_ms(child.pid)
    # The boot time is known to the second only.
    assert before - 2000 < holder.start_time_ms < time.time() * 1000 + 2000
    unread = holder_of(log_dir.fd, log_dir.path, OpenFiles())
    assert unread.detail == "its open files cannot be read"


def test_an_unreadable_lock_cannot_be_told(tmp_path: Path, open_log_dir: Open) -> None:
    (tmp_path / ".lock").mkdir()
    log_dir = open_log_dir(tmp_path)
    holder = holder_of(log_dir.fd, log_dir.path, OpenFiles())
    assert holder.state is HolderState.UNREADABLE


def test_a_process_that_cannot_be_read(tmp_path: Path, spawn: Spawn, open_log_dir: Open) -> None:
    """As an unprivileged user: a JVM of the log dir's owner that hides its files makes it doubtful, and one of root
    with a broker's main class. Words prove nothing: root's `tail -F` of the broker's log has Kafka's name in them, and
    others hide their files too (systemd's `(sd-pam)`, ssh-agent)."""
    need_root()
    partition(tmp_path, "orders-0")
    owner = 54321
    os.chown(tmp_path, owner, owner)
    tmp_path.chmod(0o755)
    hiding = """
import ctypes, os, sys
os.setuid(int(sys.argv[1]))
ctypes.CDLL(None).prctl(15, sys.argv[2].encode(), 0, 0, 0)  # PR_SET_NAME: what it runs
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody but root may look
print("ready", flush=True)
sys.stdin.read()
"""
    hidden = [
        spawn(hiding, str(owner), "java", "kafka.Kafka", "server.properties"),
        spawn(hiding, str(owner), "java", "-jar", "anything.jar"),
        spawn(hiding, "0", "java", "-cp", "x.jar", "kafka.Kafka", "server.properties"),
        spawn(hiding, "0", "java", "@options"),
    ]
    others = [
        spawn(hiding, str(owner), "ssh-agent", "-a", "/home/kafka/agent"),
        spawn(hiding, "0", "tail", "-F", "/var/log/kafka/server.log", "kafka.Kafka"),
        spawn(hiding, "0", "java", "-jar", "/opt/kafka-ui/app.jar"),
        spawn(hiding, "65534", "java", "kafka.Kafka"),
    ]
    onlooker = spawn(
        """
import os, sys
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.holders import holder_of, scan_open_files
from logagent.base.linux.kernel import is_kernel_thread
import ctypes, encodings.ascii
with OpenLogDir(sys.argv[1], LogDirFailures()) as log_dir:
    os.setuid(54321)
    open_files = scan_open_files([log_dir])
    holder = holder_of(log_dir.fd, log_dir.path, open_files)
    print("ready", flush=True)
    print(*open_files.doubtful[log_dir.path], flush=True)
    print(holder.state.value, flush=True)
    print(os.getppid() in open_files.unreadable, os.getppid() in open_files.read, flush=True)
    print(any(is_kernel_thread(pid) for pid in open_files.unreadable), flush=True)
""",
        tmp_path,
    )
    # Other tests may run brokers of root here, which are doubtful too.
    doubtful = set(onlooker.line().split())
    assert {str(process.pid) for process in hidden} <= doubtful
    assert doubtful.isdisjoint(str(process.pid) for process in others)
    assert onlooker.line() == "unreadable"
    assert onlooker.line() == "True False"
    assert onlooker.line() == "False", "a thread of the kernel has no files"


def test_start_times_and_dead_processes(spawn: Spawn) -> None:
    child = spawn(OPEN_FILES)
    assert process_start_ticks(child.pid) >= process_start_ticks(os.getpid())
    child.close()
    with pytest.raises(ProcessLookupError):
        process_start_time_ms(child.pid)
    assert scan_open_files([], pids=[child.pid]).read == frozenset()
