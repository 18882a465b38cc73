"""The state dir: whose it is, who we become, and the lock that lets one of us act at a time."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.errors import Exit, JournalError, LogAgentError
from logagent.host.state.executor_lock import LOCK_NAME, ExecutorLock
from logagent.host.state.state_dir import default_state_dir, prepare_state_dir, stat_directory
from tests.disk.failing import hanging_fs
from tests.needs import need_command, need_root

HERE = Path(__file__).parents[4]
KAFKA, KAFKAS = 12345, 23456
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
from logagent.host.state.executor_lock import ExecutorLock
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
    deadline = time.monotonic() + 30
    while not _waits_for(command.pid, tmp_path / "state" / LOCK_NAME):
        assert time.monotonic() < deadline and command.poll() is None
        time.sleep(0.02)
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


# Whose it is

BECOME = """
import os, sys, pwd
sys.path.insert(0, ".")
from logagent.host.state.state_dir import stat_directory, prepare_state_dir
prepare_state_dir(sys.argv[1], {path: stat_directory(path) for path in sys.argv[2].split(":") if path})
open(sys.argv[1] + "/made", "w").close()
print(os.getresuid(), os.getresgid(), sorted(os.getgroups()))
try:
    os.setuid(0)
    print("root again")
except PermissionError:
    print("for good")
"""


def become(state: Path, owner_like: Path | str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BECOME, str(state), str(owner_like)],
        cwd=HERE, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A log dir of the broker's user, in places that everybody may pass."""
    need_root()
    for path in (tmp_path, *tmp_path.parents):
        if str(path).startswith("/tmp/"):
            path.chmod(path.stat().st_mode | 0o055)
    log_dir = tmp_path / "d1"
    log_dir.mkdir()
    os.chown(log_dir, KAFKA, KAFKAS)
    return log_dir


def test_a_first_log_dir_whose_disk_is_dead_stops_nobody(owned: Path, tmp_path: Path) -> None:
    done = become(tmp_path / "var" / "state", f"{tmp_path}/dead:{owned}")
    assert done.returncode == 0 and str(KAFKA) in done.stdout, done.stderr
    # Whose a new one is would be a guess; one that is there says it itself.
    other = tmp_path / "var" / "other"
    done = become(other, f"{tmp_path}/dead")
    assert done.returncode != 0 and "none of the log dirs answers" in done.stderr and not other.exists()
    done = become(tmp_path / "var" / "state", f"{tmp_path}/dead")
    assert done.returncode == 0 and str(KAFKA) in done.stdout, done.stderr


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


def test_root_becomes_the_owner_of_the_log_dir_when_it_makes_the_state_dir(owned: Path, tmp_path: Path) -> None:
    state = tmp_path / "var" / "state"
    done = become(state, owned)
    assert done.stdout.splitlines() == [f"{(KAFKA,) * 3} {(KAFKAS,) * 3} [{KAFKAS}]", "for good"], done.stderr
    for path in (state, state / "made"):
        assert (path.stat().st_uid, path.stat().st_gid) == (KAFKA, KAFKAS)
    assert state.stat().st_mode & 0o777 == 0o750
    assert state.parent.stat().st_uid == 0


def test_root_becomes_the_owner_of_a_state_dir_that_is_there(owned: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, KAFKA + 1, KAFKAS + 1)
    assert f"({KAFKA + 1}, " in become(state, owned).stdout


@pytest.mark.parametrize("content", [(), ("journal.db",)])
def test_a_state_dir_of_roots_is_never_given_away(owned: Path, tmp_path: Path, content: tuple[str, ...]) -> None:
    """Nor is anything done as root in a log dir of the broker's user: it is refused, with the command."""
    state = tmp_path / "state"
    state.mkdir(mode=0o750)
    for name in content:
        (state / name).touch()
    done = become(state, owned)
    assert f"is root's, but the log dir {owned} belongs to user {KAFKA}" in done.stderr and done.stdout == ""
    assert [p.stat().st_uid for p in (state, *state.iterdir())] == [0] * (1 + len(content))


def test_root_follows_no_symlink_that_the_brokers_user_made(owned: Path, tmp_path: Path) -> None:
    """`--state-dir HOME/state`, where the broker's user has put a symlink to an empty directory of root's."""
    victim, home = tmp_path / "victim", tmp_path / "home"
    for path in (victim, home):
        path.mkdir(mode=0o755)
    os.chown(home, KAFKA, KAFKAS)
    (home / "state").symlink_to(victim)
    (home / "way").symlink_to(tmp_path)
    for state in (home / "state", home / "way" / "victim", home / "way" / "new", home / "below" / "state"):
        done = become(state, owned)
        assert f"below {home}, which user {KAFKA}" in done.stderr and done.stdout == ""
    (tmp_path / "link").symlink_to(victim)
    assert "root follows no symlink" in become(tmp_path / "link", owned).stderr
    assert "root follows no symlink" in become(tmp_path / "link" / "state", owned).stderr
    assert (victim.stat().st_uid, list(victim.iterdir()), sorted(p.name for p in home.iterdir())) == (
        0, [], ["state", "way"],
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "used"), [(0o755, True), (0o1777, True), (0o775, False), (0o757, False)])
def test_root_makes_no_state_dir_where_others_could_swap_it(owned: Path, tmp_path: Path, mode: int, used: bool) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    done = become(above / "state", owned)
    assert (above / "state").exists() is used, done.stderr
    assert used or f"below {above}, which" in done.stderr


def test_without_a_log_dir_nothing_is_given_away(tmp_path: Path) -> None:
    need_root()
    assert "(0, 0, 0)" in become(tmp_path / "state", "").stdout


def test_a_command_run_as_root_leaves_nothing_of_roots(owned: Path, tmp_path: Path) -> None:
    """The whole command: journal, lock and the renamed directory belong to the broker's user."""
    (owned / "meta.properties").write_text("version=1\ncluster.id=abcdefghijklmnopqrstuv\nnode.id=1\n")
    for name in ("orders-0", "kept-0"):
        (owned / name).mkdir()
        (owned / name / f"{0:020d}.log").write_bytes(b"x")
    (owned / "log-start-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    for path in owned.rglob("*"):
        os.chown(path, KAFKA, KAFKAS)
    # Everything is imported first: the broker's user may not read the interpreter that the tests run with.
    source = (
        "import sys, pydantic\n"
        "from logagent.cli import render\n"
        "from logagent.cli.commands import delete\n"
        "from logagent.cli.main import main\n"
        "import ctypes, pwd, struct, urllib.parse, json, uuid, encodings.idna\n"
        "main()\n"
    )
    arguments = ["delete", "--partition", "orders-0", "--allow-assigned", "--even-last-copy", "--execute", "--json"]
    # Among processes of its own: a Java process of root, which the broker's user cannot look into, would be a doubt.
    need_command("unshare")
    alone = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", source]
    done = subprocess.run(
        [*alone, *arguments, "--log-dir", str(owned), "--state-dir", str(tmp_path / "state")],
        cwd=HERE, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "LOGAGENT_CLEANUP__MAX_FRACTION": "1.0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["actions"][0]["outcome"] == "done"
    made = [*owned.rglob("*"), tmp_path / "state", *(tmp_path / "state").iterdir()]
    assert {(p.stat().st_uid, p.stat().st_gid) for p in made} == {(KAFKA, KAFKAS)}
    assert (owned / "log-start-offset-checkpoint").read_text() == "0\n0\n"


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
