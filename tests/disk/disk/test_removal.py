"""What a removal removes, in which order, in how large steps, and that it can be resumed from anywhere."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import BrokerHoldsLogDir, ItemFailed, KafkaStorageError, NotAsPlanned, RemovalStopped
from logagent.base.records import Identity
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.disk.remove import Removed, remove_dir
from logagent.disk.scan import is_started, scan_log_dir
from logagent.disk.unlink import MAX_CHUNK, ByteBudget, WorkControl
from logagent.kafka.processes.lock import HolderWatch, Interlock
from tests.long_form import one_in
from tests.needs import need_command

MARKED = "orders-0.0123456789abcdef0123456789abcdef-delete"
STRAY = "orders-0.0123456789abcdef0123456789abcdef-stray"
SUFFIXES = (".log", ".index", ".timeindex")
LOCK = (
    "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
    "print('ready', flush=True)\nsys.stdin.read()"
)

Open = Callable[[Path], OpenLogDir]
IdentityOf = Callable[[Path], Identity]


def partition(log_dir: Path, name: str = MARKED, segments: int = 3, size: int = 1000) -> Path:
    path = log_dir / name
    path.mkdir()
    for number in range(segments):
        for suffix in SUFFIXES:
            (path / f"{number * 100:020d}{suffix}").write_bytes(b"x" * size)
    (path / "00000000000000000200.snapshot").write_bytes(b"s")
    (path / "leader-epoch-checkpoint").write_bytes(b"0\n0\n")
    (path / "partition.metadata").write_bytes(b"version: 0\ntopic_id: 4wW2OVqLT8mWpbVbHZVjbA\n")
    return path


def interlock_of(log_dir: OpenLogDir) -> Interlock:
    return Interlock(log_dir.fd, log_dir.path)


def test_everything_goes_and_is_counted(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    path = partition(log_dir_path)
    allocated = sum(entry.stat().st_blocks * 512 for entry in (path, *path.iterdir()))
    keep = partition(log_dir_path, "orders-1")
    log_dir = open_log_dir(log_dir_path)
    progress: list[tuple[int, int]] = []
    removed = remove_dir(
        log_dir,
        MARKED,
        identity_of(path),
        interlock_of(log_dir),
        control=WorkControl(on_progress=lambda files, size: progress.append((files, size))),
    )
    assert removed == Removed(12, 9000 + 1 + 4 + 44, allocated)
    assert (sum(f for f, _ in progress), sum(b for _, b in progress)) == (removed.files, removed.freed_bytes)
    assert os.listdir(log_dir_path) == ["orders-1"]
    assert len(list(keep.iterdir())) == 12


def test_the_order_leaves_no_half_segment(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    path = partition(log_dir_path)
    (path / "00000000000000000000.log.deleted").touch()
    (path / "zzz").mkdir()
    (path / "zzz" / "inner").touch()
    seen: list[set[str]] = []

    def record(_: int) -> None:
        seen.append(set(os.listdir(path)))

    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(record))
    order = [next(iter(before - after)) for before, after in pairwise(seen) if before - after]
    assert order == [
        "00000000000000000000.log",
        "00000000000000000000.log.deleted",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000100.log",
        "00000000000000000100.index",
        "00000000000000000100.timeindex",
        "00000000000000000200.log",
        "00000000000000000200.index",
        "00000000000000000200.snapshot",
        "00000000000000000200.timeindex",
        "zzz",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def test_killed_anywhere_it_resumes(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    log_dir = open_log_dir(log_dir_path)
    step = 0
    while True:
        path = partition(log_dir_path)
        (path / "sub" / "sub").mkdir(parents=True)
        (path / "sub" / "sub" / "file").touch()
        expect = identity_of(path)

        def kill(n: int, at: int = step) -> None:
            if n == at:
                raise Killed

        try:
            remove_dir(log_dir, MARKED, expect, calls(kill))
        except Killed:
            left = set(os.listdir(path))
            # A `.log` never loses its index files: a broker that takes over would rebuild them.
            for name in left:
                if name.endswith(".log"):
                    assert {name[:20] + suffix for suffix in SUFFIXES} <= left
            # What says which topic it was stays to the end.
            assert "partition.metadata" in left or not left
            remove_dir(log_dir, MARKED, expect, interlock_of(log_dir))
            assert os.listdir(log_dir_path) == []
            step += 1
        else:
            break
    assert step == 1 + 9 + 3 + 1 + 2 + 1  # the mark, each file, each directory


def test_gone_is_success_and_another_is_not(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    path = partition(log_dir_path)
    expect = identity_of(path)
    log_dir = open_log_dir(log_dir_path)
    path.rename(log_dir_path / "aside-0")
    assert remove_dir(log_dir, MARKED, expect, interlock_of(log_dir)) == Removed(0, 0, 0)
    other = partition(log_dir_path)
    with pytest.raises(NotAsPlanned):
        remove_dir(log_dir, MARKED, expect, interlock_of(log_dir))
    assert len(list(other.iterdir())) == 12


@pytest.mark.parametrize("name", ["orders-0", "orders-0.0123-future", "-delete/../orders-0", "x-stray/", "."])
def test_only_marked_names_are_removed(log_dir_path: Path, open_log_dir: Open, name: str) -> None:
    path = partition(log_dir_path, "orders-0")
    log_dir = open_log_dir(log_dir_path)
    with pytest.raises(NotAsPlanned):
        remove_dir(log_dir, name, log_dir.identity, interlock_of(log_dir))
    assert len(list(path.iterdir())) == 12


def test_an_interlock_is_not_optional(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    path = partition(log_dir_path)
    with pytest.raises(ValueError, match="interlock"):
        remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), None)
    assert path.is_dir()


def test_a_child_that_vanishes_is_skipped(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    path = partition(log_dir_path)
    victims = iter(sorted(path.iterdir(), key=lambda entry: entry.name.endswith(".log"), reverse=True))

    def vanish(_: int) -> None:
        victim = next(victims, None)
        if victim is not None:
            victim.unlink(missing_ok=True)

    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(vanish))
    assert os.listdir(log_dir_path) == []


def test_a_child_that_appears_is_removed_too(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    """A loading broker creates files in an empty `-delete` directory; so may anybody before rmdir."""
    path = partition(log_dir_path)

    def appear(n: int) -> None:
        if n == 12:
            (path / "late").mkdir()
            (path / "late" / "file").touch()

    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(appear))
    assert os.listdir(log_dir_path) == []


def test_what_took_its_name_meanwhile_stays(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    """Even where it is empty, and the name is all that rmdir goes by."""
    path = partition(log_dir_path)
    aside = log_dir_path / "aside"

    def swap(_: int) -> None:
        if not aside.exists():
            path.rename(aside)
            path.mkdir()

    with pytest.raises(NotAsPlanned):
        remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(swap))
    assert path.is_dir()


def test_what_is_moved_away_during_its_removal_does_not_lead_to_where_it_went(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    """Emptied, a directory is left by its "..": in a live partition, whose files have names of those still to go."""
    path, live = partition(log_dir_path), partition(log_dir_path, "orders-1")
    below = path / "below"
    below.mkdir()
    for number in range(3):
        (below / f"{number}").touch()

    def move(_: int) -> None:
        if below.is_dir() and len(os.listdir(below)) == 2:
            below.rename(live / "below")

    with pytest.raises(NotAsPlanned, match="moved away"):
        remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(move))
    assert len(list(live.iterdir())) == 12 + 1


def test_one_that_never_gets_empty_is_given_up(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any, failures: LogDirFailures
) -> None:
    path = partition(log_dir_path, segments=1)
    with pytest.raises(ItemFailed, match="keeps changing"):
        remove_dir(
            open_log_dir(log_dir_path),
            MARKED,
            identity_of(path),
            calls(lambda n: (path / f"late-{n}").touch()),
        )
    assert failures.reason(str(log_dir_path)) is None


def test_a_broker_that_takes_the_lock_stops_it_at_once(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, spawn: Callable[..., Any]
) -> None:
    path = partition(log_dir_path, segments=2000, size=0)
    log_dir = open_log_dir(log_dir_path)
    done = 0

    def progress(files: int, _: int) -> None:
        nonlocal done
        done += files
        if done == 500:
            spawn(LOCK, log_dir_path / ".lock")

    with pytest.raises(BrokerHoldsLogDir):
        remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir), control=WorkControl(on_progress=progress))
    # Waiting for the other process took longer than a look is good for, so not one more call was made.
    assert done == 500
    assert len(os.listdir(path)) == 2000 * 3 + 3 - 500


def test_asked_to_stop_it_stops_between_two_files(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    path = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    asked = iter([False] * 5)
    with pytest.raises(RemovalStopped):
        remove_dir(
            log_dir,
            MARKED,
            identity_of(path),
            interlock_of(log_dir),
            control=WorkControl(stop=lambda: next(asked, True)),
        )
    assert len(os.listdir(path)) == 12 - 5


def big_file(path: Path, size: int) -> None:
    with path.open("wb") as file:
        chunk = b"x" * (1 << 20)
        for _ in range(size >> 20):
            file.write(chunk)


def test_big_files_go_in_steps(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any) -> None:
    """No single call frees more than 64 MB: neither a truncate nor the unlink at the end."""
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big_file(big, 150 << 20)
    sizes: list[int] = []

    def record(_: int) -> None:
        sizes.append(big.stat().st_size if big.exists() else 0)

    removed = remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(record))
    # The first call is the mark.
    assert sizes[1:5] == [150 << 20, (150 - 64) << 20, 64 << 20, 0]
    assert removed.bytes == (150 << 20) + 1 + 4 + 44
    assert removed.freed_bytes >= 150 << 20


def test_a_sparse_giant_does_not_take_forever(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big_file(big, 80 << 20)
    with big.open("r+b") as file:
        file.seek(1 << 40)
        file.write(b"end")
    count = calls()
    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), count)
    assert count.count < 40
    assert os.listdir(log_dir_path) == []


def test_a_hard_linked_file_is_only_unlinked(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big_file(big, 80 << 20)
    other = log_dir_path / "other-link"
    os.link(big, other)
    log_dir = open_log_dir(log_dir_path)
    removed = remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir))
    assert other.stat().st_size == 80 << 20
    assert other.stat().st_nlink == 1
    assert removed.freed_bytes < 1 << 20
    other.unlink()


@pytest.mark.parametrize(("size", "kept"), [(60 << 20, 60 << 20), (200 << 20, 136 << 20)])
def test_a_link_made_while_it_is_removed_loses_no_more_than_the_steps_before_it(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any, size: int, kept: int
) -> None:
    """`cp -al` of a backup beside us: it keeps what was there when its link was made."""
    path = partition(log_dir_path, segments=0)
    big, backup = path / f"{0:020d}.log", log_dir_path / "backup"
    big_file(big, size)

    def link(_: int) -> None:
        # As late as can be: in the last look before the second step (of the small file: before it is unlinked).
        if big.exists() and not backup.exists() and big.stat().st_size == kept:
            os.link(big, backup)

    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), calls(link))
    assert (backup.stat().st_size, backup.stat().st_nlink) == (kept, 1)
    backup.unlink()


def test_a_stray_is_removed_under_its_holder(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, spawn: Callable[..., Any]
) -> None:
    """`.log` gives its space back at once, however small; no mapped index is truncated, and no linked `.log`."""
    path = partition(log_dir_path, STRAY, segments=3, size=8192)
    big_file(path / f"{0:020d}.log", 150 << 20)
    linked = log_dir_path / "linked"
    os.link(path / f"{100:020d}.log", linked)
    holder = spawn(LOCK, log_dir_path / ".lock")
    log_dir = open_log_dir(log_dir_path)
    with (
        (path / f"{0:020d}.log").open("rb") as log,
        (path / f"{200:020d}.log").open("rb") as small,
        (path / f"{0:020d}.index").open("r+b") as index,
        mmap.mmap(index.fileno(), 0) as mapped,
    ):
        removed = remove_dir(
            log_dir,
            STRAY,
            identity_of(path),
            HolderWatch(log_dir.fd, log_dir.path, holder.pid),
            control=WorkControl(held=True),
        )
        assert os.fstat(log.fileno()).st_size == 0
        assert os.fstat(small.fileno()).st_size == 0
        assert os.fstat(index.fileno()).st_size == 8192
        assert mapped[:4] == b"xxxx"
    assert linked.stat().st_size == 8192
    assert removed.files == 12
    assert 0 <= removed.freed_bytes - (150 << 20) - 8192 < 1 << 20  # the two .log without another link
    linked.unlink()
    assert os.listdir(log_dir_path) == [".lock"]


def test_a_stray_can_be_unlinked_only(log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf) -> None:
    path = partition(log_dir_path, STRAY, segments=1, size=8192)
    own = path.stat().st_blocks * 512
    with (path / f"{0:020d}.log").open("rb") as log:
        removed = remove_dir(
            open_log_dir(log_dir_path),
            STRAY,
            identity_of(path),
            None,
            control=WorkControl(held=True, truncate_held=False),
        )
        assert os.fstat(log.fileno()).st_size == 8192
    assert removed.freed_bytes == own


def test_the_holder_of_a_stray_that_leaves_stops_it(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, spawn: Callable[..., Any]
) -> None:
    """The next broker may be loading the stray by then."""
    path = partition(log_dir_path, STRAY, segments=1000, size=0)
    holder = spawn(LOCK, log_dir_path / ".lock")
    log_dir = open_log_dir(log_dir_path)
    done: list[int] = []

    def progress(files: int, _: int) -> None:
        done.append(files)
        if sum(done) == 3:
            holder.close()

    with pytest.raises(BrokerHoldsLogDir, match="no longer"):
        remove_dir(
            log_dir,
            STRAY,
            identity_of(path),
            HolderWatch(log_dir.fd, log_dir.path, holder.pid),
            control=WorkControl(held=True, on_progress=progress),
        )
    # At most what two milliseconds are good for went after it.
    assert len(os.listdir(path)) > 1000


@pytest.mark.parametrize("kind", one_in(2, ["ext4", "xfs"]))
def test_space_that_was_only_allocated_goes_step_by_step_too(
    kind: str, loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    """`fallocate`: SEEK_DATA calls it a hole, and all of it went in one truncate."""
    log_dir_path = loop_fs(kind)
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    with big.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 100 << 20)
        os.ftruncate(file.fileno(), 1 << 40)
    blocks: list[int] = []
    watch = calls(lambda _: blocks.append(big.stat().st_blocks * 512 if big.exists() else 0))
    time = Time()
    control = WorkControl(budget=ByteBudget(80 << 20, monotonic=time.monotonic, sleep=time.sleep))
    remove_dir(open_log_dir(log_dir_path), MARKED, identity_of(path), watch, control=control)
    assert max(before - after for before, after in pairwise(blocks) if after >= 64 << 20) <= control.chunk + 8192
    # Above, there is nothing but a hole.
    assert len(blocks) < 200


def test_space_allocated_beyond_the_end_counts_for_the_budget(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf
) -> None:
    need_command("fallocate")
    log_dir_path = loop_fs("ext4")
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big.touch()
    subprocess.run(["fallocate", "--keep-size", "--length", "50MiB", big], check=True)
    time = Time()
    control = WorkControl(budget=ByteBudget(1 << 20, monotonic=time.monotonic, sleep=time.sleep))
    log_dir = open_log_dir(log_dir_path)
    remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir), control=control)
    assert time.now == pytest.approx(50, abs=1)


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_budget_spreads_the_bytes_evenly(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, calls: Any
) -> None:
    path = partition(log_dir_path, segments=0)
    big = path / f"{0:020d}.log"
    big_file(big, 80 << 20)
    time = Time()
    budget = ByteBudget(10 << 20, monotonic=time.monotonic, sleep=time.sleep)
    assert budget.chunk == 1 << 20
    freed_at: list[tuple[float, int]] = []
    remove_dir(
        open_log_dir(log_dir_path),
        MARKED,
        identity_of(path),
        calls(lambda n: freed_at.append((time.now, big.stat().st_size if big.exists() else 0))),
        control=WorkControl(budget=budget),
    )
    # 80 MiB at 10 MiB/s: the rest of it after 7.9 s. The last 64 MiB go in one step, as in any smaller file.
    assert 7.8 < time.now < 8.2
    for now, left in freed_at:
        assert (80 << 20) - left <= now * (10 << 20) + MAX_CHUNK + 1
    assert [nap for nap in time.slept if nap > 0.1] == []


def test_a_budget_stops_in_the_middle_of_a_wait() -> None:
    time = Time()
    budget = ByteBudget(1 << 20, monotonic=time.monotonic, sleep=time.sleep)
    assert budget.take(100 << 20, lambda: False)
    assert not budget.take(1, lambda: time.now > 1)
    assert time.now < 1.2
    with pytest.raises(ValueError, match="at least"):
        ByteBudget(0)


@pytest.mark.parametrize("files", ["big", "small", "seen"])
def test_a_broker_that_starts_ends_a_wait_of_minutes(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf, spawn: Callable[..., Any], files: str
) -> None:
    """At 1 KiB/s the second step of 1 MiB waits for 1,024 seconds."""
    path = partition(log_dir_path, segments=0 if files == "big" else 3)
    if files == "big":
        big_file(path / f"{0:020d}.log", 66 << 20)
    fake = Time()
    log_dir = open_log_dir(log_dir_path)

    def sleep(seconds: float) -> None:
        if not fake.slept:
            spawn(LOCK, log_dir_path / ".lock")
        fake.sleep(seconds)

    budget = ByteBudget(1024, monotonic=fake.monotonic, sleep=sleep)
    assert budget.take(1 << 20, lambda: False)
    os.utime(path, (1, 1))
    (seen,) = scan_log_dir(log_dir).dirs
    with pytest.raises(BrokerHoldsLogDir):
        remove_dir(
            log_dir,
            MARKED,
            identity_of(path),
            interlock_of(log_dir),
            control=WorkControl(budget=budget),
            seen=seen if files == "seen" else None,
        )
    assert fake.now < 1
    # What was not freed is not paid for: the next one waits for the first step only.
    assert budget.take(1, lambda: False)
    assert fake.now == pytest.approx(1024, abs=1)


def test_chunks_follow_the_rate() -> None:
    assert ByteBudget(1).chunk == 1 << 20
    assert ByteBudget(100 << 20).chunk == 10 << 20
    assert ByteBudget(1 << 40).chunk == MAX_CHUNK


def test_a_full_disk_can_be_emptied(loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf) -> None:
    for kind in ("ext4", "xfs"):
        root = loop_fs(kind)
        path = partition(root)
        with (path / f"{300:020d}.log").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * (1 << 20))
        log_dir = open_log_dir(root)
        remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir))
        assert not path.exists()
        log_dir.close()


def test_a_failing_disk_is_offline_and_stays_so(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    need_command("xfs_io")
    root = loop_fs("xfs")
    path = partition(root, segments=300, size=0)
    log_dir = open_log_dir(root)
    done = 0

    def progress(files: int, _: int) -> None:
        nonlocal done
        done += files
        if done == 100:
            subprocess.run(["xfs_io", "-x", "-c", "shutdown", str(root)], check=True)

    expect = identity_of(path)
    with pytest.raises(KafkaStorageError):
        remove_dir(log_dir, MARKED, expect, interlock_of(log_dir), control=WorkControl(on_progress=progress))
    assert failures.reason(str(root))
    with pytest.raises(KafkaStorageError):
        remove_dir(log_dir, MARKED, expect, interlock_of(log_dir))
    assert done == 100


def test_an_immutable_file_fails_this_item_only(
    loop_fs: Callable[..., Path], open_log_dir: Open, identity_of: IdentityOf, failures: LogDirFailures
) -> None:
    need_command("chattr")
    root = loop_fs("ext4", 32 << 20)
    path = partition(root)
    stuck = path / f"{100:020d}.log"
    subprocess.run(["chattr", "+i", str(stuck)], check=True)
    log_dir = open_log_dir(root)
    with pytest.raises(ItemFailed, match=f"{stuck.name}$"):
        remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir))
    assert failures.reason(str(root)) is None
    assert (path / f"{100:020d}.index").exists()
    subprocess.run(["chattr", "-i", str(stuck)], check=True)
    remove_dir(log_dir, MARKED, identity_of(path), interlock_of(log_dir))
    assert not path.exists()


def started(path: Path) -> bool:
    return is_started(path.stat().st_mode)


def test_that_it_has_begun_stands_on_disk_before_the_first_file_goes(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    path = partition(log_dir_path)
    path.chmod(0o750)
    seen: list[tuple[bool, int]] = []
    log_dir = open_log_dir(log_dir_path)

    class Seen(Interlock):
        def before(self) -> None:
            super().before()
            seen.append((started(path), len(list(path.iterdir()))))

    remove_dir(log_dir, MARKED, identity_of(path), Seen(log_dir.fd, log_dir.path))
    files = 3 * len(SUFFIXES) + 3
    assert seen[0] == (False, files)
    assert seen[1:] == [(True, left) for left in range(files, -1, -1)]


def test_what_was_stopped_stays_marked_and_the_inventory_tells(
    log_dir_path: Path, open_log_dir: Open, identity_of: IdentityOf
) -> None:
    path = partition(log_dir_path, STRAY)
    other = partition(log_dir_path)
    log_dir = open_log_dir(log_dir_path)
    before = scan_log_dir(log_dir)
    assert [d.removal_started for d in before.dirs] == [False, False]
    with pytest.raises(RemovalStopped):
        remove_dir(log_dir, STRAY, identity_of(path), interlock_of(log_dir), control=WorkControl(stop=lambda: True))
    subprocess.run(["chmod", "700", path], check=True)
    assert started(path)
    after = scan_log_dir(log_dir, before)
    assert {d.name: d.removal_started for d in after.dirs} == {STRAY: True, MARKED: False}
    assert not started(other)
