"""Whoever may list a log dir may `flock` it: that keeps nobody from acting, and is no other logagent."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from logagent.base.linux.kernel import only_strangers
from tests.disk.doctor_host import D1, D2, STATE, DoctorHost, doctor_host
from tests.waiting import wait_until

LOCKS = """
import fcntl, os, sys, time
for path in sys.argv[2:]:
    fcntl.flock(os.open(path, os.O_RDONLY), int(sys.argv[1]))
print("ready", flush=True)
time.sleep(600)
"""
# What has the lock then is a child; the process that /proc/locks names is no more.
LOCKS_AND_ENDS = LOCKS.replace('print("ready"', 'os.fork() and os._exit(0)\nprint("ready", os.getpid()')
EXCLUSIVE, SHARED = "2", "1"
# One of us, for as long as it acts.
ACTS = """
import sys, time
from logagent.disk.log_dir import LogDirFailures, OpenLogDir
from logagent.cleanup.state.executor_lock import hold_log_dirs
with OpenLogDir(sys.argv[1], LogDirFailures()) as log_dir:
    hold_log_dirs([log_dir], wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep)
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoctorHost]:
    with doctor_host(tmp_path_factory.mktemp("flocks") / "host") as made:
        made.configure(assignments__sources=["kraft-log"])
        yield made


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED], ids=["exclusive", "shared"])
def test_a_strangers_lock_on_a_log_dir_stops_nobody(host: DoctorHost, kind: str) -> None:
    assert host.path(D1).stat().st_mode & 0o005 == 0o005, "she can list it"
    with host.process(sys.executable, "-c", LOCKS, kind, D1, D2, user="mallory"):
        ran = host.logagent("cleanup", "--execute", user="kafka")
    assert ran.status == 0, ran.err
    assert "another logagent" not in ran.err


def test_who_has_ended_and_who_is_another_user_is_a_stranger() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ours = {os.geteuid()}
    assert only_strangers([ended.pid], ours)
    assert not only_strangers([ended.pid, os.getpid()], ours)
    assert only_strangers([os.getpid()], {os.geteuid() + 1})
    assert not only_strangers([], ours)


def test_her_lock_on_the_brokers_own_lock_file_makes_her_no_broker(host: DoctorHost) -> None:
    """A shared one, for which reading is enough; she was taken for the running broker, which gave the other dir up."""
    host.path(f"{D1}/.lock").touch()
    locks = LOCKS.replace("fcntl.flock(os.open(path, os.O_RDONLY), int(sys.argv[1]))",
                          "fcntl.lockf(os.open(path, os.O_RDONLY), int(sys.argv[1]))")  # fmt: skip
    with host.process(sys.executable, "-c", locks, SHARED, f"{D1}/.lock", user="mallory") as pid:
        ran = host.logagent("cleanup", "--execute", user="kafka")
        assert ran.status == 0, ran.err
        scan = host.logagent("scan", "--json", user="kafka")
        assert {d["holder"]["state"] for d in scan.json["log_dirs"]} == {"free"} and scan.status == 0
        checked = host.logagent("check", user="kafka")
        assert f"process {pid} has a shared lock on it" in checked.out, checked.out


def test_the_brokers_users_lock_counts(host: DoctorHost) -> None:
    with host.process(sys.executable, "-c", LOCKS, EXCLUSIVE, D1, user="kafka") as pid:
        ran = host.logagent("prestart", "--budget=20s", user="kafka")
        assert f"another logagent is acting on {D1}" in ran.err and f"process {pid})" in ran.err, ran.err


def test_two_of_us_with_two_state_dirs_never_act_at_once_beside_hers(host: DoctorHost) -> None:
    """The first goes on beside her shared lock, and is seen by the second."""
    with (
        host.process(sys.executable, "-c", LOCKS, SHARED, D1, user="mallory"),
        host.process(sys.executable, "-c", ACTS, D1, user="kafka"),
    ):
        ran = host.logagent("prestart", "--budget=20s", "--state-dir", f"{STATE}-2", user="root")
        assert f"another logagent is acting on {D1}" in ran.err


def test_one_that_cannot_be_seen_is_not_called_a_logagent(host: DoctorHost) -> None:
    """In a PID namespace the kernel names no process that has ended; on a host it does, and that is a stranger."""
    held = host.write("/tmp/held", "", 0o666)
    become = "setpriv --reuid=mallory --regid=mallory --clear-groups"
    # Whoever took it has ended, and was waited for: else it is a name that the kernel still has.
    run = f'{become} "$@" >{held} 2>&1 & wait $!; while ! grep -q ready {held}; do sleep 0.05; done'
    host.run("sh", "-c", run, "sh", sys.executable, "-c", LOCKS_AND_ENDS, EXCLUSIVE, D1)
    try:
        ran = host.logagent("prestart", "--budget=20s", user="kafka")
        assert f"{D1} is locked (flock) by a process that cannot be seen from here" in ran.err, ran.err
    finally:
        host.run("kill", "-KILL", host.path("/tmp/held").read_text().split()[1])
        wait_until(lambda: not host.run("flock", "-n", D1, "true", check=False).returncode, "the log dir is free")
