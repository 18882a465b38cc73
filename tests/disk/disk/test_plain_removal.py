"""Small plain files that an inventory has looked at: what spares the second look, and what it must not spare."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import BrokerHoldsLogDir, RemovalStopped
from logagent.base.records import PartitionDir
from logagent.disk.log_dir import OpenLogDir
from logagent.disk.remove import Removed, remove_dir
from logagent.disk.scan import scan_log_dir
from logagent.disk.unlink import ByteBudget, WorkControl
from logagent.kafka.processes.lock import HolderWatch, Interlock
from tests.disk.disk.test_removal import LOCK, MARKED, STRAY, Open, big_file, interlock_of, partition

ODD = ("symlink", "link", "directory", "fifo")
REPLACED = "00000000000000000200.snapshot"


def seen_by_an_inventory(log_dir: OpenLogDir, path: Path) -> PartitionDir:
    """As the inventory saw it, long enough after its last change."""
    os.utime(path, (1, 1))
    (seen,) = (d for d in scan_log_dir(log_dir).dirs if d.name == path.name)
    return seen


def put(odd: str, path: Path, outside: Path) -> None:
    if odd == "symlink":
        path.symlink_to(outside)
    elif odd == "link":
        path.hardlink_to(outside)
    elif odd == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
        (path / "inner").write_bytes(b"inner")


@pytest.fixture
def call_each(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are looked at, one by one, from when it is emptied on."""
    looked: list[str] = []
    real = os.lstat

    def lstat(name: Any, **options: Any) -> os.stat_result:
        looked.append(str(name))
        return real(name, **options)

    monkeypatch.setattr(os, "lstat", lstat)
    return looked


def test_they_are_not_looked_at_twice(log_dir_path: Path, open_log_dir: Open, call_each: list[str]) -> None:
    path = partition(log_dir_path)
    allocated = sum(entry.stat().st_blocks * 512 for entry in (path, *path.iterdir()))
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    assert seen.plain
    progress: list[tuple[int, int]] = []
    control = WorkControl(on_progress=lambda files, size: progress.append((files, size)))
    call_each.clear()
    removed = remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), control=control, seen=seen)
    assert call_each == []
    assert removed == Removed(12, 9000 + 1 + 4 + 44, allocated)
    assert (sum(f for f, _ in progress), sum(b for _, b in progress)) == (removed.files, removed.freed_bytes)
    assert not path.exists()


@pytest.mark.parametrize("odd", ODD)
def test_one_that_is_not_plain_and_all_are_looked_at(odd: str, log_dir_path: Path, open_log_dir: Open) -> None:
    path = partition(log_dir_path)
    outside = log_dir_path / "precious"
    outside.write_bytes(b"precious")
    put(odd, path / "odd", outside)
    assert not seen_by_an_inventory(open_log_dir(log_dir_path), path).plain


def test_a_directory_that_changed_a_moment_ago_is_looked_at(log_dir_path: Path, open_log_dir: Open) -> None:
    """Its mtime may not show a change within the same tick."""
    path = partition(log_dir_path)
    (seen,) = scan_log_dir(open_log_dir(log_dir_path)).dirs
    assert not seen.plain
    assert path.exists()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("noticed", [True, False])
def test_what_came_after_the_inventory_costs_nothing_outside(
    odd: str, noticed: bool, log_dir_path: Path, open_log_dir: Open, call_each: list[str]
) -> None:
    """Even where its mtime was set back, so that the directory looks as it did."""
    path = partition(log_dir_path)
    outside = log_dir_path / "precious"
    outside.write_bytes(b"precious")
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    (path / REPLACED).unlink()
    put(odd, path / REPLACED, outside)
    if not noticed:
        os.utime(path, ns=(seen.mtime_ns, seen.mtime_ns))
    call_each.clear()
    remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), seen=seen)
    assert len(call_each) >= 12 or not noticed
    assert not path.exists()
    assert outside.read_bytes() == b"precious"
    assert outside.stat().st_nlink == 1


def test_one_that_came_and_set_the_time_back_is_looked_at(
    log_dir_path: Path, open_log_dir: Open, call_each: list[str]
) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    (path / "more").write_bytes(b"more")
    os.utime(path, ns=(seen.mtime_ns, seen.mtime_ns))
    call_each.clear()
    assert remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), seen=seen).files == 13
    assert len(call_each) == 13


def test_a_link_made_elsewhere_after_the_inventory_keeps_every_byte(log_dir_path: Path, open_log_dir: Open) -> None:
    """It does not show in the directory: so nothing here may shorten a file, only unlink it."""
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    kept = log_dir_path / "kept"
    kept.hardlink_to(path / f"{0:020d}.log")
    remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), seen=seen)
    assert kept.read_bytes() == b"x" * 1000


def test_large_ones_go_in_steps(log_dir_path: Path, open_log_dir: Open, calls: Callable[..., Interlock]) -> None:
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big_file(big, 70 << 20)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    assert seen.plain
    sizes: list[int] = []
    watch = calls(lambda _: sizes.append(big.stat().st_size if big.exists() else 0))
    remove_dir(log_dir, MARKED, seen.identity, watch, seen=seen)
    assert 64 << 20 in sizes


def test_the_budget_is_waited_for(log_dir_path: Path, open_log_dir: Open) -> None:
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now, slept = now + seconds, slept + seconds

    log_dir = open_log_dir(log_dir_path)
    control = WorkControl(budget=ByteBudget(10_000, monotonic=lambda: now, sleep=sleep))
    allocated = 0
    for number in (0, 1):
        path = partition(log_dir_path, MARKED.replace("-0.", f"-{number}."))
        seen = seen_by_an_inventory(log_dir, path)
        allocated = seen.allocated
        remove_dir(log_dir, path.name, seen.identity, interlock_of(log_dir), control=control, seen=seen)
    assert slept == pytest.approx(allocated / 10_000)


def test_several_workers_share_them(log_dir_path: Path, open_log_dir: Open, call_each: list[str]) -> None:
    """They are there for disks on which an unlink waits, whatever is in the files."""
    path = partition(log_dir_path, segments=100, size=1)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    call_each.clear()
    one, two = interlock_of(log_dir), interlock_of(log_dir)
    control = WorkControl(workers=2)
    remove_dir(log_dir, MARKED, seen.identity, one, two, control=control, seen=seen)
    assert len(call_each) == 303


def test_under_its_holder_a_stray_is_shortened_all_the_same(
    log_dir_path: Path, open_log_dir: Open, spawn: Callable[..., Any]
) -> None:
    """The holder keeps it open: unlinked alone, its space would not come back."""
    path = partition(log_dir_path, STRAY)
    holder = spawn(LOCK, log_dir_path / ".lock")
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    watch = HolderWatch(log_dir.fd, log_dir.path, holder.pid)
    with (path / f"{0:020d}.log").open("rb") as log:
        remove_dir(log_dir, STRAY, seen.identity, watch, control=WorkControl(held=True), seen=seen)
        assert os.fstat(log.fileno()).st_size == 0


def test_a_broker_that_takes_the_lock_stops_it_at_once(
    log_dir_path: Path, open_log_dir: Open, spawn: Callable[..., Any]
) -> None:
    path = partition(log_dir_path, segments=100, size=0)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    done = 0

    def progress(files: int, _: int) -> None:
        nonlocal done
        done += files
        if done == 50:
            spawn(LOCK, log_dir_path / ".lock")

    control = WorkControl(on_progress=progress)
    with pytest.raises(BrokerHoldsLogDir):
        remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), control=control, seen=seen)
    # Waiting for the other process took longer than a look is good for, so not one more call was made.
    assert done == 50
    assert len(os.listdir(path)) == 303 - 50


def test_asked_to_stop_it_stops_between_two_files(log_dir_path: Path, open_log_dir: Open) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    asked = iter([False] * 5)
    control = WorkControl(stop=lambda: next(asked, True))
    with pytest.raises(RemovalStopped):
        remove_dir(log_dir, MARKED, seen.identity, interlock_of(log_dir), control=control, seen=seen)
    assert len(os.listdir(path)) == 12 - 5


def test_that_it_has_begun_stands_on_disk_before_the_first_file_goes(log_dir_path: Path, open_log_dir: Open) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    seen = seen_by_an_inventory(log_dir, path)
    before: list[tuple[bool, int]] = []

    class Seen(Interlock):
        def before(self) -> None:
            super().before()
            before.append((scan_log_dir(log_dir).dirs[0].removal_started, len(os.listdir(path))))

    remove_dir(log_dir, MARKED, seen.identity, Seen(log_dir.fd, log_dir.path), seen=seen)
    assert before == [(False, 12), *((True, left) for left in range(12, -1, -1))]
