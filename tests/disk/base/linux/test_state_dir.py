"""The state dir: where it is, and the lock that lets one of us act at a time."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from logagent.base.errors import Exit, JournalError, LogAgentError
from logagent.base.linux.state_dir import default_state_dir, prepare_state_dir, stat_directory
from logagent.cleanup.state.executor_lock import LOCK_NAME, ExecutorLock
from tests.disk.conftest import run, unmount
from tests.disk.failing import hanging_fs
from tests.waiting import wait_until

HERE = Path(__file__).parents[4]
Spawn = Callable[..., Any]


class FakeTime:
    """A clock that only sleeping moves; `on_sleep` may change the world meanwhile."""

    def __init__(self, on_sleep: Callable[[int], None] = lambda n: None) -> None:
        self.now = 100.0
        self.naps = 0
        self._on_sleep = on_sleep

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.naps += 1
        self._on_sleep(self.naps)


def lock(state: Path, clock: FakeTime, wait_seconds: float = 10.0) -> ExecutorLock:
    return ExecutorLock(str(state), "cli:me", wait_seconds=wait_seconds, monotonic=clock.monotonic, sleep=clock.sleep)


HOLD = """
import sys, time
from logagent.cleanup.state.executor_lock import ExecutorLock
with ExecutorLock(sys.argv[1], "daemon", wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep):
    print("ready", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""


# The executor lock


def test_the_second_waits_ten_seconds_and_then_names_the_holder(tmp_path: Path, spawn: Spawn) -> None:
    holder = spawn(HOLD, tmp_path)
    clock = FakeTime()
    with pytest.raises(LogAgentError) as caught, lock(tmp_path, clock):
        pass
    assert caught.value.exit_status is Exit.TEMPORARY
    assert f"daemon (process {holder.pid})" in str(caught.value) and str(tmp_path / LOCK_NAME) in str(caught.value)
    assert 10.0 <= clock.now - 100.0 < 10.2


def test_no_wait_is_no_sleep(tmp_path: Path, spawn: Spawn) -> None:
    spawn(HOLD, tmp_path)
    clock = FakeTime()
    with pytest.raises(LogAgentError), lock(tmp_path, clock, wait_seconds=0):
        pass
    assert clock.naps == 0


def test_the_second_goes_on_as_soon_as_the_first_is_done(tmp_path: Path, spawn: Spawn) -> None:
    holder = spawn(HOLD, tmp_path)

    def release(nap: int) -> None:
        if nap == 3:
            holder.tell("release")
            assert holder.line() == "released"

    clock = FakeTime(release)
    with lock(tmp_path, clock):
        assert clock.naps == 3
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()} cli:me\n"


def test_a_killed_holder_is_no_holder(tmp_path: Path, spawn: Spawn) -> None:
    holder = spawn(HOLD, tmp_path)
    holder.process.kill()
    holder.process.wait(timeout=20)
    with lock(tmp_path, FakeTime(), wait_seconds=0):
        pass
    with lock(tmp_path, FakeTime(), wait_seconds=0):
        pass


def test_a_long_word_of_the_last_holder_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_text("99999999 somebody with a long name\n")
    with lock(tmp_path, FakeTime()):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()} cli:me\n"


@pytest.mark.parametrize("there", ["symlink", "directory", "fifo"])
def test_nothing_but_a_plain_file_is_locked(tmp_path: Path, there: str) -> None:
    state = tmp_path / "state"
    state.mkdir()
    if there == "symlink":
        (state / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    elif there == "directory":
        (state / LOCK_NAME).mkdir()
    else:
        os.mkfifo(state / LOCK_NAME)
    with pytest.raises(JournalError, match="cannot be locked"), lock(state, FakeTime()):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_the_lock_is_gone_after_an_error_inside(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock(tmp_path, FakeTime()):
        raise ZeroDivisionError
    with (tmp_path / LOCK_NAME).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_two_commands_never_act_at_once(tmp_path: Path, spawn: Spawn) -> None:
    """The real command waits for the holder; it is done soon after the holder is."""
    for name in ("state", "d1"):
        (tmp_path / name).mkdir()
    holder = spawn(HOLD, tmp_path / "state")
    arguments = ["cleanup", "--execute", "--json", "--log-dir", str(tmp_path / "d1")]
    command = subprocess.Popen(
        [sys.executable, "-m", "logagent", *arguments, "--state-dir", str(tmp_path / "state")],
        cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lock = tmp_path / "state" / LOCK_NAME
    wait_until(lambda: _waits_for(command.pid, lock) or command.poll() is not None, "it waits for the lock")
    assert command.poll() is None
    assert not (tmp_path / "state" / "journal.db").exists()
    holder.tell("release")
    out, err = command.communicate(timeout=60)
    assert command.returncode == 0, err
    assert json.loads(out)["actions"] == []


def _waits_for(pid: int, path: Path) -> bool:
    try:
        return str(path) in [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False


def test_a_disk_that_hangs_after_it_was_read_holds_up_nobody(tmp_path: Path) -> None:
    with hanging_fs(tmp_path / "fuse") as hanging:
        seen = {str(hanging.point): stat_directory(str(hanging.point))}
        hanging.hang()
        work = threading.Thread(target=prepare_state_dir, args=(str(tmp_path / "state"), seen))
        work.start()
        work.join(20)
        in_time = not work.is_alive()
        hanging.wake()
        work.join()
    assert in_time and (tmp_path / "state").is_dir()


def test_what_cannot_be_used_is_reported_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(JournalError, match="cannot be used") as caught:
            prepare_state_dir(str(path), {})
        assert "--state-dir" in (caught.value.hint or "")


# Where it is


def test_the_default_is_the_systems_where_that_can_be_written(tmp_path: Path) -> None:
    assert default_state_dir({}, str(tmp_path / "lib" / "logagent")) != str(tmp_path / "lib" / "logagent")
    assert default_state_dir({}, str(tmp_path / "logagent")) == str(tmp_path / "logagent")
    (tmp_path / "logagent").mkdir()
    assert default_state_dir({}, str(tmp_path / "logagent")) == str(tmp_path / "logagent")


def test_nor_does_one_that_became_read_only_lead_to_another_journal(tmp_path: Path) -> None:
    """Whoever may not enter it has his own, as before."""
    (state := tmp_path / "logagent").mkdir()
    with ExitStack() as stack:
        run("mount", "--bind", state, state)
        stack.callback(unmount, state)
        run("mount", "-o", "remount,ro,bind", state)
        assert default_state_dir({}, str(state)) == str(state)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/logagent"),
        ({"XDG_STATE_HOME": "", "HOME": "/h"}, "/h/.local/state/logagent"),
        ({"HOME": "/h"}, "/h/.local/state/logagent"),
    ],
)
def test_else_it_is_the_users(environ: dict[str, str], wanted: str) -> None:
    assert default_state_dir(environ, "/nowhere/at/all") == wanted
