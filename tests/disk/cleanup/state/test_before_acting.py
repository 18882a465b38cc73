"""What a dry run says of the state dir is what a command that acts then meets."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from logagent.base.errors import JournalError
from logagent.base.linux.state_dir import prepare_state_dir
from logagent.cleanup.state.executor_lock import why_not_to_be_opened
from logagent.cleanup.state.journal import Journal
from logagent.cleanup.state.reserve import keep_reserve, missing_reserve, why_acting_would_fail
from tests.disk.cleanup.execute.test_changeable import fixed
from tests.disk.conftest import LoopFs
from tests.disk.messes import fill_all_but, fill_bytes, fill_inodes
from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host, delete
from tests.real_users import User, reachable_folder

FILL: dict[str, Callable[[Path], Path]] = {"bytes": fill_bytes, "inodes": fill_inodes}
# Where an act fails, and what to do about it.
ROOM, READ_ONLY = "No space left on device", "Read-only file system"
HINTS = {ROOM: "with room: --state-dir, such as /run/logagent", READ_ONLY: "--state-dir, such as /run/logagent"}


def act(state: Path) -> str | None:
    """Why it fails."""
    try:
        prepare_state_dir(str(state), {})
        with Journal.open(str(state)):
            keep_reserve(str(state))
    except JournalError as e:
        return str(e)
    return None


def check(state: Path, wrong: str | None) -> None:
    before = sorted(os.walk(state.parent))
    found = why_acting_would_fail(str(state))
    assert sorted(os.walk(state.parent)) == before
    failed = act(state)
    assert (found is not None, failed is not None) == (wrong is not None, wrong is not None), (found, failed)
    if found is not None and wrong is not None:
        assert wrong in str(found) and HINTS[wrong] in (found.hint or ""), found


@pytest.mark.parametrize("what", FILL)
def test_a_full_disk_would_keep_a_command_from_acting(loop_fs: LoopFs, what: str) -> None:
    point = loop_fs("ext4", options="-N 512")
    used = point / "used"
    check(used, None)
    FILL[what](point)
    check(used, None)
    check(point / "missing", ROOM)
    said = str(why_acting_would_fail(str(point / "missing")))
    assert "free; a new journal needs 512 KiB and 4 inodes, its reserve 8 MiB)" in said


def test_with_little_room_a_journal_still_fits(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    fill_all_but(point, 520 << 10)
    check(point / "state", None)


def test_on_a_disk_that_is_read_only(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    check(point / "used", None)
    subprocess.run(["mount", "-o", "remount,ro", point], check=True)
    check(point / "used", READ_ONLY)
    check(point / "missing", READ_ONLY)


def test_a_reserve_that_is_missing_is_named_until_there_is_room(loop_fs: LoopFs) -> None:
    point = loop_fs("ext4")
    state = point / "state"
    ballast = fill_all_but(point, 5 << 20)
    for _ in range(2):
        assert "no journal.reserve, for which 8 MiB" in (missing_reserve(str(state)) or "")
        check(state, None)
    ballast.unlink()
    assert missing_reserve(str(state)) is None
    check(state, None)
    fill_bytes(point)
    assert missing_reserve(str(state)) is None


NO_FILE: dict[str, Callable[[Path], object]] = {
    "directory": Path.mkdir,
    "FIFO": os.mkfifo,
    "link": lambda path: path.symlink_to("nowhere"),
}
COMMANDS = (
    "cleanup",
    "rescue --need 1G",
    "delete --topic clicks --allow-assigned --even-last-copy",
    "restore {marked}",
)


def promises_nothing(host: Host, name: str, commands: Sequence[str]) -> None:
    """A dry run of what acts refuses all of it, for the reason with which `--execute` ends."""
    (marked,) = host.find("orders-1.", "-delete")
    for command in commands:
        words = [*command.format(marked=marked).split(), "--json"]
        shown, done = host.run(*words), host.run(*words, "--execute")
        assert done.status in (1, 77) and name in done.err, (command, done)
        assert shown.json["actions"] == [] and "acting would fail: " in shown.err, (command, shown)
        assert f"{host.state}/{name}" in shown.err, (command, shown.err)
    dry = host.run("prestart", "--dry-run", "--budget", "60s", "--json")

    assert dry.json["plan"]["actions"] == [], dry.out


@pytest.mark.parametrize("what", NO_FILE)
@pytest.mark.parametrize("name", ["executor.lock", "journal.db"])
def test_a_state_dir_with_something_else_in_place_of_its_files(tmp_path: Path, name: str, what: str) -> None:
    """A dry run promised all of it and `--execute` ended with "executor.lock cannot be locked"."""
    host = Host.from_disk(tmp_path)
    host.configure(**NO_LIMITS, **ALL_DUE)
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    (host.state / name).rename(tmp_path / "aside")
    NO_FILE[what](host.state / name)
    before = (host.state / name).lstat()
    # Every other command with each, so that all meet either file.
    promises_nothing(host, name, COMMANDS[list(NO_FILE).index(what) % 2 :: 2])
    after = (host.state / name).lstat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (host.state / "nowhere").exists()


@pytest.mark.parametrize("how", ["i", "a"])
@pytest.mark.parametrize("name", ["journal.db", "executor.lock"])
def test_a_state_dir_with_a_file_that_root_may_only_read(loop_fs: LoopFs, name: str, how: str) -> None:
    """`chattr +i`: six actions were shown, and `--execute` ended with "attempt to write a readonly database"."""
    host = Host.from_disk(loop_fs("ext4", size=128 << 20))
    host.configure(**NO_LIMITS, **ALL_DUE)
    assert delete(host, "--partition", "orders-1", *FREELY).status == 0
    with fixed(host.state / name, how):
        promises_nothing(host, name, COMMANDS["ia".index(how) :: 2])
        # The hint, as pasted.
        (pasted,) = re.findall(r"as root, (chattr -ia \S+)$", host.run("cleanup", "--json").err, re.MULTILINE)
        subprocess.run(shlex.split(pasted), check=True)
        assert host.run("cleanup", "--json").json["actions"] != []


def test_a_journal_that_is_roots() -> None:
    """As after `cp` by root: everybody may read it, and the broker's user may not write it."""
    user = User(4242, 4242)
    with reachable_folder() as state:
        os.chown(state, user.uid, user.gid)
        with user.acting():
            assert (why_not_to_be_opened(str(state)), act(state)) == (None, None)
            assert why_not_to_be_opened(str(state)) is None
        os.chown(state / "journal.db", 0, 0)
        (state / "journal.db").chmod(0o644)
        with user.acting():
            found, failed = why_not_to_be_opened(str(state)), act(state)
    for said in (str(found), failed or ""):
        assert "journal.db" in said and "Permission denied" in said
