"""The journal on a disk without a free block or inode: it is written into what was kept for that, again and again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.errors import JournalError
from logagent.base.records import ActionKind, Identity, Outcome
from logagent.cleanup.state.journal import Intent, Journal
from logagent.cleanup.state.reserve import ENOUGH_BYTES, RESERVE_BYTES, RESERVE_NAME, keep_reserve
from tests.disk.conftest import LoopFs
from tests.disk.messes import fill_all_but, fill_bytes, fill_inodes
from tests.waiting import wait_until

FILL: dict[str, Callable[[Path], Path]] = {"bytes": fill_bytes, "inodes": fill_inodes}
# Few inodes, so that they are used up soon.
FEW = "-N 1024"


def intent(number: int) -> Intent:
    return Intent(
        action=ActionKind.REMOVE,
        log_dir="/d1",
        name=f"t{number}-0.{number:032x}-stray",
        new_name=None,
        topic=f"t{number}",
        partition=0,
        topic_id="AAAAAAAAAAAAAAAAAAAAAA",
        identity=Identity(1, number),
        bytes=1,
        plan_id="p",
        actor="test",
        approved=False,
    )


def write(state: Path, count: int = 1) -> None:
    with Journal.open(str(state)) as journal:
        ids = journal.begin([intent(n) for n in range(count)], 1)
        journal.finish([(number, Outcome.DONE, None) for number in ids], 2)


def rows(state: Path) -> int:
    with Journal.open_read_only(str(state)) as journal:
        return len(journal.history())


def kept(state: Path) -> bool:
    found = (state / RESERVE_NAME).stat()
    return found.st_nlink == 1 and found.st_blocks * 512 >= RESERVE_BYTES


@pytest.fixture(params=[("ext4", "bytes"), ("ext4", "inodes"), ("xfs", "bytes")], ids="-".join)
def full(request: pytest.FixtureRequest, loop_fs: LoopFs) -> tuple[Path, Path]:
    """A state dir that was used once, on a disk that is full now, and what fills it. (400 MB of xfs have 200,000
    inodes: those are used up in the long form of the broker's tests.)"""
    kind, what = request.param
    point = loop_fs(kind, options=FEW if kind == "ext4" else "")
    state = point / "state"
    state.mkdir()
    write(state)
    keep_reserve(str(state))
    assert kept(state)
    return state, FILL[what](point)


def test_it_is_written_on_a_full_disk_and_keeps_its_reserve(full: tuple[Path, Path]) -> None:
    state, _ = full
    names = sorted(os.listdir(state))
    for round in range(20):
        write(state)
        assert rows(state) == round + 2
    write(state, 300)
    assert rows(state) == 321
    assert kept(state)
    assert sorted({*os.listdir(state)} - {"journal.db-wal", "journal.db-shm"}) == names


def test_what_was_written_before_a_kill_counts(full: tuple[Path, Path]) -> None:
    state, _ = full
    source = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom logagent.cleanup.state.journal import Journal\n"
        "from tests.disk.cleanup.state.test_reserve import intent\n"
        "journal = Journal.open(sys.argv[1])\njournal.begin([intent(7)], 3)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for round in range(3):
        killed = subprocess.run([sys.executable, "-c", source, str(state)], check=False, cwd=Path(__file__).parents[4])
        assert killed.returncode == -signal.SIGKILL
        assert rows(state) == 2 * round + 2
        write(state)
        assert rows(state) == 2 * round + 3
    assert kept(state)


def test_it_is_put_back_when_there_is_room_again(full: tuple[Path, Path]) -> None:
    state, filling = full
    (state / RESERVE_NAME).unlink()
    keep_reserve(str(state))
    assert not (state / RESERVE_NAME).exists()
    subprocess.run(["rm", "-rf", filling], check=True)
    # xfs frees the blocks of removed files in the background.
    wait_until(lambda: os.statvfs(state).f_bavail * os.statvfs(state).f_frsize >= ENOUGH_BYTES, "the blocks are free")
    keep_reserve(str(state))
    assert kept(state)


def test_without_a_reserve_it_says_where_to_go(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    state = point / "state"
    state.mkdir()
    fill_bytes(point)
    with pytest.raises(JournalError) as raised:
        write(state)
    assert "--state-dir, such as /run/logagent" in (raised.value.hint or "")


def test_an_old_log_in_the_reserve_is_never_read_again(full: tuple[Path, Path]) -> None:
    """A journal that was written elsewhere meanwhile, with room: what the reserve held then must not come back."""
    state, filling = full
    write(state, 50)
    subprocess.run(["rm", "-rf", filling], check=True)
    with Journal.open(str(state)) as journal:
        journal.forget([entry.id for entry in journal.history()])
    assert rows(state) == 0
    FILL["bytes"](state.parent)
    assert rows(state) == 0
    write(state)
    assert rows(state) == 1


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_it_is_made_wherever_it_leaves_room_for_a_journal(loop_fs: LoopFs, kind: str) -> None:
    state = loop_fs(kind) / "state"
    state.mkdir()
    ballast = fill_all_but(state.parent, 7 << 20)
    keep_reserve(str(state))
    assert os.listdir(state) == []
    write(state)
    ballast.unlink()
    ballast = fill_all_but(state.parent, 9 << 20)
    keep_reserve(str(state))
    assert kept(state)
    write(state)
    fill_bytes(state.parent)
    write(state)
    assert rows(state) == 3


def test_a_part_of_it_takes_no_room(tmp_path: Path) -> None:
    """The space was taken by another process meanwhile: as far as fallocate tells, a file too large."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE_BYTES // 2, limit[1]))
    try:
        keep_reserve(str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(tmp_path) == []


def test_it_carries_thousands_of_removals_from_which_its_disk_gets_nothing(loop_fs: LoopFs) -> None:
    """The log dirs are elsewhere. Large directories have a transaction each, which is what takes most space."""
    state = loop_fs("ext4") / "state"
    state.mkdir()
    write(state)
    keep_reserve(str(state))
    fill_bytes(state.parent)
    with Journal.open(str(state)) as journal:
        last: list[int] = []
        for number in range(2000):
            with journal.together():
                journal.finish([(action, Outcome.DONE, None) for action in last], 2)
                last = journal.begin([intent(number)], 1)
    assert rows(state) == 2001
    write(state)
