"""Every file that we open and did not write ourselves, who opens it, and what another user can put in its place.

`FILES` is the list; `tests/unit/test_opened_files.py` compares it with the code: nothing else is opened.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from tests.host import Host

SPARSE_BYTES = 200_000_000_000


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    (path / "sub").mkdir(parents=True)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _device(path: Path) -> None:
    os.mknod(path, 0o020666, os.makedev(1, 5))  # /dev/zero, which never ends


def _to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, SPARSE_BYTES)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's address has room for 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 8)


def _deep(path: Path) -> None:
    path.write_bytes(b"a=" + b"[" * 30_000)


def _braces(path: Path) -> None:
    path.write_bytes(b'{"a":' * 30_000)


def _unreadable(path: Path) -> None:
    path.write_bytes(b"a=b\n")
    path.chmod(0)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _to_fifo(path: Path) -> None:
    _fifo(path.with_name("a-fifo"))
    path.symlink_to("a-fifo")


def _large(path: Path) -> None:
    """As large as some of them may be, and nothing in it."""
    path.touch()
    os.truncate(path, 16 << 20)


KINDS: dict[str, Callable[[Path], None]] = {
    "unreadable": _unreadable,
    "fifo": _fifo,
    "directory": _directory,
    "dangling": _dangling,
    "device": _device,
    "to-device": _to_device,
    "sparse": _sparse,
    "large": _large,
    "loop": _loop,
    "to-fifo": _to_fifo,
    "socket": _socket,
    "garbage": _garbage,
    "deep": _deep,
    "braces": _braces,
}


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Somebody rewrites the file all the time, in place and by renames."""
    ending = threading.Event()

    def rewrite() -> None:
        sizes = cycle((0, 1, 10, 5_000, 70_000))
        while not ending.is_set():
            path.write_bytes(b"0\n" * next(sizes))
            aside = path.with_name(path.name + ".new")
            aside.write_bytes(b"1\n" * next(sizes))
            aside.replace(path)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        yield
    finally:
        ending.set()
        writer.join()


@dataclass(frozen=True)
class Opened:
    """A file: where it lies on a host, the commands that read it, and the kind of file that it is opened as
    (its limit's name in the code)."""

    where: Callable[[Host], Path]
    commands: tuple[str, ...]
    kind: str


def _metadata(host: Host, pattern: str) -> Path:
    (log,) = host.disk.glob("*/__cluster_metadata-0")
    return sorted(log.glob(pattern))[-1]


def _in_x(host: Host, pattern: str) -> Path:
    """A file of the last segment of a stray, which `restore` looks at."""
    return sorted((host.d1 / STRAY).glob(pattern))[-1]


STRAY = "labels-0.8b6d5fdf4ca34fdf9182049bc5ca85a0-stray"
LOOKS = ("cleanup", "check")
CLIENT = ("assignments show",)
RESTORE = (f"restore {STRAY}", "cleanup")
PURGE = ("topics purge --report {root}/report --store {root}/store --key {root}/key",)
FILES: dict[str, Opened] = {
    "logagent.toml": Opened(lambda h: h.toml, ("scan", "doctor"), "CONFIG"),
    "server.properties": Opened(lambda h: h.properties, ("scan", "doctor"), "PROPERTIES"),
    "assignments.json": Opened(
        lambda h: h.root / "assignments.json", ("cleanup", "assignments show"), "EXPORTED_ASSIGNMENTS"
    ),
    "--assignments": Opened(
        lambda h: h.root / "asked.json", ("cleanup --assignments {root}/asked.json",), "EXPORTED_ASSIGNMENTS"
    ),
    "client.properties": Opened(lambda h: h.root / "client.properties", CLIENT, "PROPERTIES"),
    "truststore.pem": Opened(lambda h: h.root / "trust.pem", CLIENT, "PEM"),
    "meta.properties": Opened(lambda h: h.d1 / "meta.properties", LOOKS, "META_PROPERTIES"),
    "recovery-point": Opened(lambda h: h.d1 / "recovery-point-offset-checkpoint", LOOKS, "CHECKPOINT"),
    "log-start-offset": Opened(lambda h: h.d1 / "log-start-offset-checkpoint", LOOKS, "CHECKPOINT"),
    ".lock": Opened(lambda h: h.d1 / ".lock", ("cleanup", "delete --topic x --execute"), ""),
    "partition.metadata": Opened(
        lambda h: h.d1 / "x-1/partition.metadata", ("scan", "delete --topic x --execute"), "PARTITION_METADATA"
    ),
    "segment": Opened(lambda h: _in_x(h, "*.log"), RESTORE, "SEGMENT"),
    "index": Opened(lambda h: _in_x(h, "*.index"), RESTORE, "INDEX"),
    "time index": Opened(lambda h: _in_x(h, "*.timeindex"), RESTORE, "INDEX"),
    "leader epochs": Opened(lambda h: h.d1 / STRAY / "leader-epoch-checkpoint", RESTORE, "LEADER_EPOCHS"),
    "leader epochs of the metadata log": Opened(
        lambda h: _metadata(h, "leader-epoch-checkpoint"), ("assignments show",), "LEADER_EPOCHS"
    ),
    "quorum-state": Opened(lambda h: _metadata(h, "quorum-state"), ("cleanup", "assignments show"), "QUORUM_STATE"),
    "metadata segment": Opened(lambda h: _metadata(h, "*.log"), ("assignments show", "cleanup"), "SEGMENT"),
    "metadata index": Opened(lambda h: _metadata(h, "*.index"), ("assignments show",), "INDEX"),
    "journal.db": Opened(lambda h: h.state / "journal.db", ("cleanup --execute", "history", "doctor"), "DATABASE"),
    "journal.db-wal": Opened(lambda h: h.state / "journal.db-wal", ("cleanup --execute", "history"), "DATABASE"),
    "journal.db-shm": Opened(lambda h: h.state / "journal.db-shm", ("cleanup --execute", "history"), "DATABASE"),
    "executor.lock": Opened(lambda h: h.state / "executor.lock", ("cleanup --execute",), ""),
    "metadata-seen.json": Opened(lambda h: h.state / "metadata-seen.json", ("cleanup",), ""),
    "brokers-seen.json": Opened(lambda h: h.state / "brokers-seen.json", ("cleanup",), ""),
    "log-dirs-seen.json": Opened(lambda h: h.state / "log-dirs-seen.json", ("cleanup",), ""),
    "version-seen.json": Opened(lambda h: h.state / "version-seen.json", ("cleanup",), ""),
    "status.sock": Opened(lambda h: h.state / "status.sock", ("status", "doctor"), ""),
    "a report": Opened(lambda h: h.root / "report/latest", PURGE, "MARKER"),
    "a report's table": Opened(lambda h: h.root / "report/orphans.csv", PURGE, "REPORT_TABLE"),
    "a private key": Opened(lambda h: h.root / "key", PURGE, "KEY_FILE"),
}

# Kinds of files that tests of their own make the same of.
ELSEWHERE = {
    "UNIT": "units of systemd and drop-ins: tests/disk/service/setup/test_setup.py, tests/disk/kafka/processes",
    "SCRIPT": "a start script that a unit of root's names: tests/fakefs",
    "_SERVER_LOG": "the log of a broker before 2.2.2: tests/disk/advice/check/test_server_log.py",
    "_LIMITS[name]": "what was seen, in the state dir: here",
    "_LIMITS[LOG_DIRS_FILE_NAME]": "log-dirs-seen.json in the state dir: here",
    "SNAPSHOT_FILE": "the base in the spool: tests/disk/service",
    "LIMIT": "orders in the store, and those kept in the state dir: tests/disk/deletion/agent",
    "STORE_FILE": "commits and tables of the job: tests/spark/ingest/test_poison.py",
}

# Functions that open files otherwise, and why that is safe.
OTHERWISE = {
    "overwrite": "the ingest lock in the store: O_NOFOLLOW and O_NONBLOCK",
    "create": "the journal: O_NOFOLLOW and O_NONBLOCK, and `check_files` looks at it next",
    "_create_reserve": "in the state dir: O_NOFOLLOW and O_NONBLOCK, and a look at what it is",
    "lend_reserve": "the same",
    "open_seen": "in safe_open: what was just lstated, O_NOFOLLOW and O_NONBLOCK, and it must be the same file",
    "write_version_seen": "in the state dir, what we wrote: O_NOFOLLOW and O_NONBLOCK",
    "secure_streams": "descriptors 0 and 1, by number",
    "_answer": "the status socket: connected to without waiting",
    "_proc_line": "/etc/fstab, root's",
    "launch_of_process": "/proc",
    "_overlay_moves": "/sys",
    "_zfs_version": "/sys",
    "_send": "the spool in the state dir, written by us",
    "claim": "the same",
    "base_of": "the same",
    "_send_base": "the same",
    "deliver": "the same",
    "replacement": "made anew, O_EXCL",
    "create_file": "made anew, O_EXCL",
    "_folder": "a directory",
    "_write_and_read_back": "a file without a name",
    "open_file": "in the store by a descriptor, O_NOFOLLOW and O_NONBLOCK, and a look at what it is",
    "query_lock": "`.lock`: O_NONBLOCK and a look at what it is; in the demo its own folder",
    "shorten": "for writing, O_NONBLOCK, and a look at what it is",
    "_sound": "a descriptor of safe_open's",
    "open_directory": "a directory",
    "open_regular": "safe_open itself",
    "connect": "SQLite, after a look by safe_open",
    "inspect_journal": "SQLite, after a look by safe_open",
    "_opened": "executor.lock: O_RDWR, which waits for nobody, and a look at what it is",
    "_say_waiting": "executor.waiting: O_RDWR, which waits for nobody",
    "somebody_waits": "the same",
    "_asset": "the package's own assets",
}
# Rooms that open nothing but what they made themselves.
OWN_FOLDERS = ("demo/",)
