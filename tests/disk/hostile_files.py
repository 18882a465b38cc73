"""Every file that we open and did not write ourselves, and what another user can put in its place."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from tests.cli_host import CliHost

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
    path.chmod(0)  # root reads it all the same


KINDS: dict[str, Callable[[Path], None]] = {
    "unreadable": _unreadable,
    "fifo": _fifo,
    "directory": _directory,
    "dangling": _dangling,
    "device": _device,
    "to-device": _to_device,
    "sparse": _sparse,
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
    """A file: where it lies on a host, and the commands that read it."""

    where: Callable[[CliHost], Path]
    commands: tuple[str, ...]


def _metadata(host: CliHost, pattern: str) -> Path:
    (log,) = host.disk.glob("*/__cluster_metadata-0")
    return sorted(log.glob(pattern))[-1]


LOOKS = ("check", "cleanup")
FILES: dict[str, Opened] = {
    "logagent.toml": Opened(lambda h: h.toml, ("scan", "doctor")),
    "server.properties": Opened(lambda h: h.properties, ("scan", "doctor")),
    "assignments.json": Opened(lambda h: h.root / "assignments.json", ("assignments show", "cleanup")),
    "client.properties": Opened(lambda h: h.root / "client.properties", ("assignments show",)),
    "truststore.pem": Opened(lambda h: h.root / "trust.pem", ("assignments show",)),
    "meta.properties": Opened(lambda h: h.d1 / "meta.properties", LOOKS),
    "recovery-point": Opened(lambda h: h.d1 / "recovery-point-offset-checkpoint", LOOKS),
    "log-start-offset": Opened(lambda h: h.d1 / "log-start-offset-checkpoint", LOOKS),
    ".lock": Opened(lambda h: h.d1 / ".lock", ("cleanup", "delete --topic x --execute")),
    "partition.metadata": Opened(lambda h: h.d1 / "x-1/partition.metadata", ("scan", "delete --topic x --execute")),
    "leader-epoch-checkpoint": Opened(lambda h: _metadata(h, "leader-epoch-checkpoint"), ("assignments show",)),
    "quorum-state": Opened(lambda h: _metadata(h, "quorum-state"), ("assignments show", "cleanup")),
    "metadata segment": Opened(lambda h: _metadata(h, "*.log"), ("assignments show", "cleanup")),
    "metadata index": Opened(lambda h: _metadata(h, "*.index"), ("assignments show",)),
    "journal.db": Opened(lambda h: h.state / "journal.db", ("history", "cleanup --execute", "doctor")),
    "journal.db-wal": Opened(lambda h: h.state / "journal.db-wal", ("history", "cleanup --execute")),
    "journal.db-shm": Opened(lambda h: h.state / "journal.db-shm", ("history", "cleanup --execute")),
    "executor.lock": Opened(lambda h: h.state / "executor.lock", ("cleanup --execute",)),
    "status.sock": Opened(lambda h: h.state / "status.sock", ("status", "doctor")),
}
