"""Several workers in one directory: the same end, each looking for itself, one failure stops all."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import BrokerHoldsLogDir, ItemFailed, RemovalStopped
from logagent.base.records import Identity
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.remove import remove_dir
from logagent.disk.unlink import SEGMENTS_PER_WORKER, WorkControl
from logagent.kafka.processes.lock import LOCK_VALID_SECONDS, Interlock
from tests.waiting import holds

MARKED = "orders-0.0123456789abcdef0123456789abcdef-delete"
SUFFIXES = (".log", ".index", ".timeindex")
SEGMENTS = SEGMENTS_PER_WORKER * 6

Open = Callable[[Path], OpenLogDir]
IdentityOf = Callable[[Path], Identity]


@pytest.fixture
def partition(log_dir_path: Path) -> Path:
    path = log_dir_path / MARKED
    path.mkdir()
    for number in range(SEGMENTS):
        for suffix in SUFFIXES:
            (path / f"{number * 100:020d}{suffix}").write_bytes(b"x" * 10)
    (path / "sub").mkdir()
    (path / "sub" / "file").touch()
    (path / "partition.metadata").write_bytes(b"metadata")
    return path


def interlocks(log_dir: OpenLogDir, count: int) -> tuple[Interlock, ...]:
    return tuple(Interlock(log_dir.fd, log_dir.path) for _ in range(count))


def test_they_remove_everything_once(
    log_dir_path: Path, partition: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    log_dir = open_log_dir(log_dir_path)
    progress: list[tuple[int, int]] = []
    threads = set()

    def note(files: int, size: int) -> None:
        threads.add(threading.current_thread().name)
        progress.append((files, size))

    removed = remove_dir(
        log_dir,
        MARKED,
        identity_of(partition),
        *interlocks(log_dir, 3),
        control=WorkControl(on_progress=note),
    )
    assert os.listdir(log_dir_path) == []
    assert (removed.files, removed.bytes) == (SEGMENTS * 3 + 2, SEGMENTS * 30 + 8)
    assert sum(files for files, _ in progress) == removed.files
    assert len(threads) == 2  # the caller's, and the name that all helpers have
    assert not [t for t in threading.enumerate() if t.name == "logagent-removal"]


@pytest.mark.parametrize("step", [1, 2, 50, 151, 290])
def test_killed_anywhere_each_has_kept_log_before_index(
    log_dir_path: Path, partition: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any, step: int
) -> None:
    log_dir = open_log_dir(log_dir_path)
    expect = identity_of(partition)

    def kill(n: int) -> None:
        if n == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        remove_dir(
            log_dir,
            MARKED,
            expect,
            interlocks(log_dir, 1)[0],
            calls(kill),
            *interlocks(log_dir, 1),
        )
    names = set(os.listdir(partition))
    for name in names:
        if name.endswith(".log"):
            assert {name[:20] + suffix for suffix in SUFFIXES} <= names
    # What says which topic it was outlives all segments, whoever removes them.
    assert "partition.metadata" in names
    remove_dir(log_dir, MARKED, expect, *interlocks(log_dir, 3))
    assert os.listdir(log_dir_path) == []


def test_a_broker_stops_all_of_them(
    log_dir_path: Path,
    partition: Path,
    open_log_dir: Open,
    identity_of: IdentityOf,
    spawn: Callable[..., Any],
) -> None:
    log_dir = open_log_dir(log_dir_path)
    done = 0
    # Each look has expired by the next call, whatever the machine does meanwhile.
    first, *others = (
        Interlock(log_dir.fd, log_dir.path, itertools.count(step=0.75 * LOCK_VALID_SECONDS).__next__) for _ in range(4)
    )

    def progress(files: int, _: int) -> None:
        nonlocal done
        done += files
        if done == 100:
            spawn(
                "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
                "print('ready', flush=True)\nsys.stdin.read()",
                log_dir_path / ".lock",
            )

    with pytest.raises(BrokerHoldsLogDir):
        remove_dir(
            log_dir,
            MARKED,
            identity_of(partition),
            first,
            *others,
            control=WorkControl(on_progress=progress),
        )
    # The callback holds the others up while the lock is taken: at most one file each is under way.
    assert 100 <= done <= 103
    assert "partition.metadata" in os.listdir(partition)
    before = sorted(os.listdir(partition))
    holds(lambda: sorted(os.listdir(partition)) == before, 0.2, "no worker goes on")


def test_one_failure_stops_all_and_is_the_one_that_is_raised(
    log_dir_path: Path, partition: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    log_dir = open_log_dir(log_dir_path)

    def fail(n: int) -> None:
        if n == 20:
            raise PermissionError(1, "Operation not permitted", "file")

    with pytest.raises(ItemFailed, match=r"file$"):
        remove_dir(
            log_dir,
            MARKED,
            identity_of(partition),
            interlocks(log_dir, 1)[0],
            calls(fail),
            *interlocks(log_dir, 1),
        )
    assert "partition.metadata" in os.listdir(partition)


def test_asked_to_stop_all_of_them_do(
    log_dir_path: Path, partition: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    log_dir = open_log_dir(log_dir_path)
    done: list[int] = []
    with pytest.raises(RemovalStopped):
        remove_dir(
            log_dir,
            MARKED,
            identity_of(partition),
            *interlocks(log_dir, 3),
            control=WorkControl(stop=lambda: len(done) >= 50, on_progress=lambda files, _: done.append(files)),
        )
    assert 50 <= len(done) <= 55
