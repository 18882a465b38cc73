"""Whom root becomes before it acts: the owner of the log dirs, if nobody else can have made what says so.

On a host of the test's own: its users reach Python and the program, and its `/tmp` and `/run` are its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from tests.disk.doctor_host import D1, D2, DISK, STATE, DoctorHost, doctor_host
from tests.private_host import KAFKA_UID, OTHER_UID, REPOSITORY

GROUP = 23456
BECOME = """
import os, sys
sys.path.insert(0, sys.argv[3])
from logagent.base.linux.state_dir import stat_directory, prepare_state_dir
prepare_state_dir(sys.argv[1], {path: stat_directory(path) for path in sys.argv[2].split(":") if path})
open(sys.argv[1] + "/made", "w").close()
print(os.getresuid(), os.getresgid(), sorted(os.getgroups()))
try:
    os.setuid(0)
    print("root again")
except PermissionError:
    print("for good")
"""


# A checkout below /tmp is still to be seen there.
OWN_TMP = """
mkdir /run/checkout && mount --bind "$1" /run/checkout
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p "$1" && mount --bind /run/checkout "$1"
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    with doctor_host(tmp_path / "host") as one:
        one.run("sh", "-ec", OWN_TMP, "sh", str(REPOSITORY))
        one.run("sh", "-c", "rm -rf /var/lib/logagent; mkdir -m 1777 /srv/anybodys; mkdir /srv/state")
        yield one


def become(host: DoctorHost, state: str, *log_dirs: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
    words = (sys.executable, "-c", BECOME, state, ":".join(log_dirs), str(REPOSITORY))
    return host.run(*words, user=user, check=False)


def is_kafka(done: subprocess.CompletedProcess[str]) -> bool:
    return done.stdout.startswith(f"{(KAFKA_UID,) * 3} ") and done.stdout.endswith("for good\n")


def make(host: DoctorHost, path: str, uid: int, mode: int = 0o755) -> str:
    host.path(path).mkdir(parents=True, exist_ok=True)
    host.path(path).chmod(mode)
    os.chown(host.path(path), uid, uid)
    return path


def test_a_new_state_dir_is_for_the_owner_of_the_log_dirs(host: DoctorHost) -> None:
    os.chown(host.path(D1), KAFKA_UID, GROUP)
    done = become(host, "/srv/new/state", D1)
    assert done.stdout.splitlines() == [
        f"{(KAFKA_UID,) * 3} {(GROUP,) * 3} [{GROUP}]", "for good",
    ], done.stderr  # fmt: skip
    made = host.path("/srv/new/state")
    for path in (made, made / "made"):
        assert (path.stat().st_uid, path.stat().st_gid) == (KAFKA_UID, GROUP)
    assert made.stat().st_mode & 0o777 == 0o750 and made.parent.stat().st_uid == 0


def test_a_first_log_dir_whose_disk_is_dead_stops_nobody(host: DoctorHost) -> None:
    assert is_kafka(become(host, "/srv/state/one", "/srv/dead", D1))
    # Whose a new one is would be a guess; one that only root can have made says it itself.
    done = become(host, "/srv/state/other", "/srv/dead")
    assert "none of the log dirs answers" in done.stderr and not host.path("/srv/state/other").exists()
    assert is_kafka(become(host, "/srv/state/one", "/srv/dead"))
    make(host, "/srv/anybodys/state", OTHER_UID)
    done = become(host, "/srv/anybodys/state", "/srv/dead")
    assert "none of the log dirs answers" in done.stderr and done.stdout == ""


def test_a_mount_point_of_roots_beside_the_log_dirs_stops_nobody(host: DoctorHost) -> None:
    make(host, D1, 0)
    assert is_kafka(become(host, "/srv/state/one", D1, D2))


def test_the_owner_of_the_state_dir_is_that_of_the_log_dirs(host: DoctorHost) -> None:
    """A local user makes the directory first to which `rescue` is sent on a full disk."""
    for folder in ("/srv/anybodys", "/srv/state"):
        state = make(host, f"{folder}/logagent", OTHER_UID, 0o777)
        done = become(host, state, D1, D2)
        said = f"the state dir {state} belongs to user mallory, but the log dir {D1} to user kafka"
        assert said in done.stderr and done.stdout == "" and not list(host.path(state).iterdir())
        assert said in become(host, state, D1, user="kafka").stderr, "who may write there changes the journal"
        # Nor where the log dirs are root's.
        host.own(DISK, 0)
        assert f"belongs to user mallory, but the log dir {D1} to user root" in become(host, state, D1).stderr
        host.own(DISK)
    assert is_kafka(become(host, make(host, "/srv/anybodys/own", KAFKA_UID), D1))


def test_log_dirs_of_several_users_name_none_of_them(host: DoctorHost) -> None:
    os.chown(host.path(D2), OTHER_UID, OTHER_UID)
    done = become(host, "/srv/state/one", D1, D2)
    assert f"{D1} to user kafka, {D2} to user mallory" in done.stderr and not host.path("/srv/state/one").exists()


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o775])
def test_a_log_dir_that_anybody_can_have_made_names_nobody(host: DoctorHost, mode: int) -> None:
    """Kafka's own default is /tmp/kafka-logs."""
    host.path("/tmp").chmod(mode)
    make(host, "/tmp/kafka-logs", OTHER_UID)
    for state in ("/srv/state/new", make(host, "/srv/anybodys/logagent", OTHER_UID)):
        done = become(host, state, "/tmp/kafka-logs")
        assert "root does not become user mallory, because anybody can have made the log dir" in done.stderr
        assert "/tmp can be written by others" in done.stderr and done.stdout == ""
    assert not host.path("/srv/state/new").exists()
    # A symlink of root's to it changes nothing; a state dir that root made does, and so does a folder of root's.
    host.path("/srv/link").symlink_to("/tmp/kafka-logs")
    assert "root does not become" in become(host, "/srv/state/new", "/srv/link").stderr
    os.chown(host.path("/tmp/kafka-logs"), KAFKA_UID, KAFKA_UID)
    assert is_kafka(become(host, make(host, "/srv/state/kafkas", KAFKA_UID), "/tmp/kafka-logs"))
    host.path("/tmp").chmod(0o1777)
    make(host, "/tmp/roots", 0)
    assert is_kafka(become(host, "/srv/state/new", make(host, "/tmp/roots/d1", KAFKA_UID, 0o775)))


@pytest.mark.parametrize("content", [(), ("journal.db",)])
def test_a_state_dir_of_roots_is_never_given_away(host: DoctorHost, content: tuple[str, ...]) -> None:
    """Nor is anything done as root in a log dir of the broker's user: it is refused, with the command."""
    state = host.path("/srv/state")
    for name in content:
        (state / name).touch()
    done = become(host, "/srv/state", D1)
    assert f"belongs to user root, but the log dir {D1} to user kafka" in done.stderr and done.stdout == ""
    assert [p.stat().st_uid for p in (state, *state.iterdir())] == [0] * (1 + len(content))


def test_root_follows_no_symlink_that_the_brokers_user_made(host: DoctorHost) -> None:
    """`--state-dir HOME/state`, where the broker's user has put a symlink to an empty directory of root's."""
    home, victim = host.path("/srv/home"), host.path("/srv/victim")
    victim.mkdir()
    make(host, "/srv/home", KAFKA_UID)
    (home / "state").symlink_to("/srv/victim")
    (home / "way").symlink_to("/srv")
    for state in ("state", "way/victim", "way/new", "below/state"):
        done = become(host, f"/srv/home/{state}", D1)
        assert f"below /srv/home, which user {KAFKA_UID}" in done.stderr and done.stdout == ""
    host.path("/srv/link").symlink_to("/srv/victim")
    assert "root follows no symlink" in become(host, "/srv/link", D1).stderr
    assert "root follows no symlink" in become(host, "/srv/link/state", D1).stderr
    assert (victim.stat().st_uid, list(victim.iterdir()), sorted(p.name for p in home.iterdir())) == (
        0, [], ["state", "way"],
    )  # fmt: skip


@pytest.mark.parametrize(("mode", "used"), [(0o755, True), (0o1777, True), (0o775, False), (0o757, False)])
def test_root_makes_no_state_dir_where_others_could_swap_it(host: DoctorHost, mode: int, used: bool) -> None:
    make(host, "/srv/above", 0, mode)
    done = become(host, "/srv/above/state", D1)
    assert host.path("/srv/above/state").exists() is used, done.stderr
    assert used or "below /srv/above, which" in done.stderr


def test_without_a_log_dir_nothing_is_given_away(host: DoctorHost) -> None:
    assert "(0, 0, 0)" in become(host, "/srv/state/new").stdout


# The commands

ACTING = ("cleanup", "rescue", "delete --topic orders", "restore orders-0.0123456789abcdef0123456789abcdef-stray")


def apart(host: DoctorHost, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which has everything to load that it needs."""
    return host.run(*host.logagent_command(*words), check=False)


def test_what_execute_refuses_its_dry_run_refuses(host: DoctorHost) -> None:
    """Of every command that acts."""
    host.configure(assignments__sources=["admin"])
    state = make(host, "/srv/anybodys/logagent", OTHER_UID)
    said = f"the state dir {state} belongs to user mallory, but the log dir {D1} to user kafka"
    for command in ACTING:
        words = [*command.split(), "--json", "--state-dir", state]
        shown, done = host.logagent(*words), host.logagent(*words, "--execute")
        assert f"acting would fail: {said}" in shown.err and done.status == 1 and said in done.err, command
        assert not shown.out or shown.json["actions"] == [], command
    for words in (["prestart"], ["prestart", "--dry-run"]):
        ran = apart(host, *words, "--budget", "60s", "--state-dir", state)
        assert ran.returncode == 0 and said in ran.stderr, ran
    ran = apart(host, "run", "--once", "--state-dir", state)
    assert ran.returncode == 1 and said in ran.stderr
    assert not list(host.path(state).iterdir())


def test_roots_dry_run_sees_what_the_user_sees_who_would_act(host: DoctorHost) -> None:
    """What that user may not read was there in the preview only."""
    host.configure(assignments__sources=["admin"])
    make(host, D2, 0, 0o700)
    shown, done = (host.logagent("cleanup", "--json", *execute) for execute in ((), ("--execute",)))
    for ran in (shown, done):
        assert ran.status == 5 and f"log dir {D2} is offline" in ran.err, ran.err
    assert shown.json["plan_id"] == done.json["plan_id"] and "acting would fail" not in shown.err
    # Nor in a directory in which another user could swap it for a trap.
    state = f"{DISK}/state"
    assert "acting would fail: root uses no state dir below" in host.logagent("cleanup", "--state-dir", state).err
    assert "root uses no state dir below" in host.logagent("cleanup", "--execute", "--state-dir", state).err


def test_a_user_who_cannot_read_the_program_is_one_sentence(host: DoctorHost) -> None:
    """It was a traceback, and `prestart` spent its budget."""
    host.configure(assignments__sources=["admin"])
    python = Path(sys.executable).resolve().parents[1]
    for closed in (python, REPOSITORY / "logagent"):
        mode = host.path(str(closed)).stat().st_mode
        host.path(str(closed)).chmod(0o700)
        for words in ("cleanup --execute", "cleanup", "run --once", "prestart --budget 10m"):
            ran = apart(host, *words.split())
            said = [line for line in ran.stderr.splitlines() if "may not read" in line]
            assert len(said) == 1 and f"user kafka, who owns the log dirs and may not read {closed}" in said[0], ran
            assert "Traceback" not in ran.stderr and "was spent" not in ran.stderr
            assert ran.returncode == (0 if words in ("cleanup", "prestart --budget 10m") else 1)
        host.path(str(closed)).chmod(mode)


def test_a_command_run_as_root_leaves_nothing_of_roots(host: DoctorHost) -> None:
    """The whole command: journal, lock and the renamed directory belong to the broker's user."""
    host.configure(cleanup__max_fraction=1.0, cleanup__max_dirs=1000, assignments__sources=["admin"])
    words = ("delete", "--topic", "orders", "--allow-assigned", "--even-last-copy", "--json", "--execute")
    ran = host.logagent(*words, "--state-dir", "/run/logagent")
    assert ran.status == 0 and {a["outcome"] for a in ran.json["actions"]} == {"done"}, ran.err
    made = [*host.path(DISK).rglob("*"), host.path("/run/logagent"), *host.path("/run/logagent").iterdir()]
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in made} == {(KAFKA_UID, KAFKA_UID)}


def test_a_stranger_is_not_told_that_no_daemon_runs(host: DoctorHost) -> None:
    """`status` as a user who has a state dir of his own by default, and may not look into the service's."""
    hidden = make(host, STATE, KAFKA_UID, 0o750)
    for words in ((), ("--state-dir", hidden)):
        ran = host.logagent("status", *words, user="nobody")
        assert ran.status == Exit.PERMISSION, ran
        assert f"whether a daemon runs in {hidden} cannot be seen as this user" in ran.err
        assert "sudo -u USER" in ran.err and "start one" not in ran.err
    ran = host.logagent("status")
    assert ran.status == Exit.UNREACHABLE and "start one" in ran.err, "root sees that there is none"
