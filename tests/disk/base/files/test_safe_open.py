"""Nothing that another user can put under a name makes reading it block, allocate or follow."""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import (
    KIB,
    FileLimit,
    entries,
    open_regular,
    opened_directory,
    opened_regular,
    read_open,
    read_regular,
)

SMALL = FileLimit("a test file", 4 * KIB)


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 200_000_000_000)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _symlink(path: Path) -> None:
    (path.parent / "target").write_text("secret")
    path.symlink_to("target")


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (os.mkfifo, "is a FIFO, not a regular file"),
    "directory": (Path.mkdir, "is a directory, not a regular file"),
    "symlink": (_symlink, "is a symlink, not a regular file"),
    "link-to-device": (lambda path: path.symlink_to("/dev/zero"), "is a symlink, not a regular file"),
    "socket": (_socket, "is a socket, not a regular file"),
    "sparse": (_sparse, "has 200000000000 bytes; a test file has at most 4096"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refuse_what_is_no_plain_small_file(tmp_path: Path, name: str) -> None:
    make, says = HOSTILE[name]
    file = tmp_path / "f"
    make(file)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError) as refused:
            read_regular(file, SMALL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(refused.value) == f"{file} {says}"
    assert peak < 10_000_000


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/tty", "."])
def test_a_link_that_is_followed_must_lead_to_a_file(tmp_path: Path, target: str) -> None:
    (tmp_path / "f").symlink_to(target)
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_regular(tmp_path / "f", SMALL, follow=True)


def test_read_a_file_through_a_link_only_if_asked_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "f").symlink_to("real")
    assert read_regular(tmp_path / "f", SMALL, follow=True) == b"x"
    with pytest.raises(UnreadableError):
        read_regular(tmp_path / "f", SMALL)


def test_opening_a_fifo_does_not_wake_its_writer(tmp_path: Path) -> None:
    fifo = tmp_path / "f"
    os.mkfifo(fifo)
    woken = threading.Event()

    def write() -> None:
        fd = os.open(fifo, os.O_WRONLY)
        woken.set()
        os.close(fd)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with pytest.raises(UnreadableError):
        open_regular(fifo, SMALL)
    assert not woken.wait(0.2)
    os.close(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK))
    writer.join(100)
    assert not writer.is_alive()


def test_missing_and_forbidden_come_through_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        read_regular(tmp_path / "no", SMALL)
    assert missing.value.filename == str(tmp_path / "no")


def test_what_grows_or_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 10)
    with opened_regular(file, SMALL) as fd:
        assert read_open(fd, file, SMALL) == b"x" * 10
        os.truncate(file, 5000)
        with pytest.raises(UnreadableError, match="at most 4096"):
            read_open(fd, file, SMALL)


def test_no_step_of_a_walk_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "l").symlink_to("a")
    os.mkfifo(tmp_path / "f")
    (tmp_path / "x").touch()
    with opened_directory(tmp_path) as root:
        with opened_directory("a", dir_fd=root) as fd:
            assert os.path.samestat(os.fstat(fd), (tmp_path / "a").stat())
        with pytest.raises(OSError, match=r"Not a directory|Too many levels"), opened_directory("l", dir_fd=root):
            pass
        with pytest.raises(UnreadableError, match="more than 3 entries"):
            entries(root, 3)
