"""`logagent setup` on a host with other users: what it believes, what it writes, and what it leaves alone."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from logagent.base.errors import Exit
from tests.command_line import Ran
from tests.disk.doctor_host import D1, D2, DISK, PROPERTIES, TOML, DoctorHost, doctor_host
from tests.needs import need_command
from tests.private_host import KAFKA_UID, OTHER_UID
from tests.waiting import within

PACKAGED = Path(__file__).parents[4] / "packaging" / "systemd"
PLACE = "/etc/systemd/system/logagent.service.d/50-logagent-setup.conf"
BROKER_UNIT = "/etc/systemd/system/kafka.service"
UNIT = "[Service]\nUser={}\nExecStart=/opt/kafka/bin/kafka-server-start.sh {}\n"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    need_command("systemd-analyze")
    with doctor_host(tmp_path / "host") as made:
        for unit in PACKAGED.glob("*.service"):
            text = unit.read_text().replace("/usr/bin/logagent", "/bin/true")
            made.write(f"/usr/lib/systemd/system/{unit.name}", text)
        made.write(BROKER_UNIT, UNIT.format("kafka", PROPERTIES))
        made.path(TOML).unlink()
        made.run("sh", "-c", "rm -f /etc/fstab; chmod 755 / /etc /etc/systemd /srv /etc/kafka")
        yield made


def opened(ran: Ran) -> list[str]:
    return [line for line in ran.out.splitlines() if line.startswith(("ReadWritePaths", "After", "User", "Group"))]


def refused(host: DoctorHost, *arguments: str) -> str:
    """What it says where it writes nothing."""
    ran = host.logagent("setup", *arguments, "--execute")
    assert ran.status in (1, 78), ran.out + ran.err
    assert not host.path(PLACE).exists() and "Traceback" not in ran.err
    return ran.err


def test_it_shows_writes_and_keeps(host: DoctorHost) -> None:
    shown = host.logagent("setup")
    assert shown.status == 0, shown.err
    assert shown.out.splitlines()[0] == f"# {PLACE}"
    named = f'# {TOML}: kafka.config\nconfig = "{PROPERTIES}"\n'
    assert shown.out.endswith(named) and not host.path(TOML).exists()
    assert opened(shown) == [
        "User=kafka", f"Group={KAFKA_UID}", f'ReadWritePaths="-{D1}"', f'ReadWritePaths="-{D2}"',
    ]  # fmt: skip
    assert "--execute writes it" in shown.err and "systemd-analyze verify has no complaints" in shown.err
    assert not host.path(PLACE).parent.exists()
    written = host.logagent("setup", "--execute")
    assert (written.status, written.out) == (0, shown.out)
    assert "once it does: systemctl daemon-reload && systemctl enable --now logagent.service" in written.err
    assert f"# {PLACE}\n{host.path(PLACE).read_text()}{named}" == shown.out
    assert host.path(TOML).read_text() == f'[kafka]\nconfig = "{PROPERTIES}"\n'
    assert host.logagent("cleanup").status != 78, "every command has it now"
    found = host.path(PLACE).stat()
    assert (found.st_uid, found.st_mode & 0o777) == (0, 0o644)
    assert "already in place" in host.logagent("setup", "--execute").err
    assert [p.name for p in host.path(PLACE).parent.iterdir()] == [os.path.basename(PLACE)]
    assert host.logagent("setup", user="kafka").status == Exit.PERMISSION


def test_it_is_written_whoever_reads_the_plan(host: DoctorHost) -> None:
    """`setup --execute | head -1` ended with 0, and nothing was written."""
    words = shlex.join(host.logagent_command("setup", "--execute"))
    for redirected in ("| head -c 0", ">/dev/full", "<&- >&-"):
        ran = host.run("bash", "-c", f"{words} {redirected}; exit ${{PIPESTATUS[0]}}", check=False)
        assert ran.returncode == 0 and "\nwritten\n" in ran.stderr and "Traceback" not in ran.stderr, ran.stderr
        assert host.path(TOML).exists()
        host.path(PLACE).unlink()


def test_what_it_writes_is_sound_and_leaves_the_service_exposed_by_2_0_at_most(host: DoctorHost) -> None:
    """systemd's own two judges, of the packaged unit with the drop-in. (`nobody` would be refused as a user.)"""
    assert host.logagent("setup", "--execute").status == 0
    verified = host.run("systemd-analyze", "verify", "--man=no", "logagent.service", check=False)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    for unit in ("logagent.service", "logagent@one.service"):
        judged = host.run(
            "systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", unit, check=False
        )
        assert judged.returncode == 0, judged.stdout + judged.stderr
    # A looser unit would be seen: without its sandbox it is not let through.
    host.write("/etc/systemd/system/logagent.service.d/99-loose.conf", "[Service]\nProtectSystem=no\nPrivateTmp=no\n")
    loose = host.run("systemd-analyze", "security", "--offline=true", "--threshold=20", "logagent.service", check=False)
    assert loose.returncode != 0


def test_odd_names_are_verified_by_systemd_too(host: DoctorHost) -> None:
    place = '/srv/with space/100% "q" \\x'
    host.run("mkdir", "-p", place)
    host.run("cp", "-a", D1, f"{place}/d1")
    host.run("mount", "-t", "tmpfs", "tmpfs", D2)
    os.chown(host.path(D2), KAFKA_UID, KAFKA_UID)
    escaped = place.replace("\\", "\\\\")
    host.write(PROPERTIES, f"process.roles=broker\nnode.id=3\nlog.dirs={escaped}/d1,{D2}/below\n")
    ran = host.logagent("setup", "--execute")
    assert ran.status == 0, ran.err
    assert opened(ran)[0] == "After=srv-kafka-d2.mount"
    assert opened(ran)[3:] == [
        'ReadWritePaths="-/srv/with space/100%% \\"q\\" \\\\x/d1"', f'ReadWritePaths="-{D2}"',
    ]  # fmt: skip


@pytest.mark.parametrize(
    "evil",
    [
        "/srv/x\\rExecStartPre=/tmp/evil",
        "/srv/x\\u000aUser=root",
        "/etc",
        "/srv/x\\u2028y",
        "/root/data",
        "/srv/../etc",
    ],
)
def test_no_path_adds_a_line_or_opens_the_system(host: DoctorHost, evil: str) -> None:
    host.write(PROPERTIES, f"process.roles=broker\nnode.id=3\nlog.dirs={D1},{evil}\n")
    ran = host.logagent("setup", "--execute")
    if evil.endswith("/etc"):
        assert ran.status == 1 and "belongs to user 0" in ran.err
        return
    assert ran.status == 0 and "not a path that may be opened" in ran.err
    assert [x for x in opened(ran) if "ReadWrite" in x] == [f'ReadWritePaths="-{D1}"']
    assert "ExecStartPre" not in "".join(x for x in ran.out.splitlines() if not x.startswith("#"))
    assert len(ran.out.splitlines()) == 12
    assert "\r" not in host.path(PLACE).read_bytes().decode()


def test_a_process_is_not_believed(host: DoctorHost) -> None:
    """Any local user can put these words on a command line."""
    host.path("/home/mallory").mkdir(parents=True)
    host.write("/home/mallory/server.properties", "process.roles=broker\nnode.id=3\nlog.dirs=/home/mallory/d\n")
    host.path("/home/mallory/d").mkdir()
    host.own("/home/mallory", OTHER_UID)
    program = "import time; print('ready', flush=True); time.sleep(600)"
    words = [sys.executable, "-c", program, "kafka.Kafka", "/home/mallory/server.properties"]
    with host.process(*words, user="mallory"):
        assert opened(host.logagent("setup", "--execute"))[0] == "User=kafka"
        host.path(PLACE).unlink()
        host.path(TOML).unlink()
        host.path(BROKER_UNIT).unlink()
        host.path(PROPERTIES).unlink()
        assert "no root-owned unit starts a broker" in refused(host)


def test_files_that_another_user_could_write_are_not_believed(host: DoctorHost) -> None:
    config = host.path(PROPERTIES)
    os.chown(config, OTHER_UID, OTHER_UID)
    assert f"user {OTHER_UID} can change {PROPERTIES}" in refused(host)
    os.chown(config, KAFKA_UID, KAFKA_UID)
    config.chmod(0o664)
    assert "can be written by others" in refused(host)
    config.chmod(0o644)
    config.parent.chmod(0o777)
    assert "/etc/kafka can be written by others" in refused(host)
    config.parent.chmod(0o755)
    os.chown(config.parent, OTHER_UID, OTHER_UID)
    assert f"users {KAFKA_UID}, {OTHER_UID} can all change it" in refused(host)
    os.chown(config.parent, KAFKA_UID, KAFKA_UID)
    # A unit that is not root's says nothing: the user is then the owner of the log dirs.
    os.chown(host.path(BROKER_UNIT), OTHER_UID, OTHER_UID)
    host.write(BROKER_UNIT, UNIT.format("mallory", PROPERTIES))
    assert opened(host.logagent("setup", "--execute"))[0] == "User=kafka"
    # Nor does a configuration of logagent's.
    host.path(PLACE).unlink()
    host.write(TOML, '[publish]\nstore = "/srv/store"\n')
    os.chown(host.path(TOML), KAFKA_UID, KAFKA_UID)
    assert f"{TOML} belongs to user {KAFKA_UID}" in refused(host)


def test_the_user_is_never_root_nor_another_one_than_the_log_dirs(host: DoctorHost) -> None:
    host.write(BROKER_UNIT, UNIT.format("root", PROPERTIES))
    assert "never runs as root" in refused(host)
    host.write(BROKER_UNIT, UNIT.format("mallory", PROPERTIES))
    assert f"{D1} belongs to user {KAFKA_UID}" in refused(host)
    host.write(BROKER_UNIT, UNIT.format("nobody-here", PROPERTIES))
    assert "does not exist on this host" in refused(host)
    host.path(BROKER_UNIT).unlink()
    host.own(DISK, 0)
    assert "never runs as root" in refused(host)
    host.own(D1, KAFKA_UID)
    assert "cannot determine who owns the log dirs" in refused(host)
    host.run("rm", "-r", D1, D2)
    assert "mount their disks first" in refused(host)


def test_a_log_dir_that_anybody_can_have_made_names_no_user(host: DoctorHost) -> None:
    """Kafka's own default is /tmp/kafka-logs: whoever makes it first was written as `User=`."""
    host.path(BROKER_UNIT).unlink()
    host.path("/srv/shared").mkdir()
    host.path("/srv/shared").chmod(0o1777)
    host.run("install", "-d", "-o", "mallory", "-g", "mallory", "/srv/shared/kafka-logs")
    host.write(PROPERTIES, "process.roles=broker\nnode.id=3\nlog.dirs=/srv/shared/kafka-logs\n")
    os.chown(host.path(PROPERTIES), 0, 0)
    os.chown(host.path(PROPERTIES).parent, 0, 0)
    said = refused(host)
    assert "user mallory, names nobody: /srv/shared can be written by others" in said
    # A unit of root's names one, as long as that user owns them.
    host.write(BROKER_UNIT, UNIT.format("mallory", PROPERTIES))
    assert opened(host.logagent("setup", "--execute"))[0] == "User=mallory"


def test_no_symlink_of_another_user_chooses_what_is_opened(host: DoctorHost) -> None:
    """The broker's user leads its log dir to another user's directory, and to the system's."""
    for folder, owner in (("/home/mallory", OTHER_UID), ("/usr/share", 0)):
        host.path(f"{folder}/d2").mkdir(parents=True)
        os.chown(host.path(folder), owner, owner)
        os.chown(host.path(f"{folder}/d2"), KAFKA_UID, KAFKA_UID)
        host.run("sh", "-c", f"rm -rf {D2}; ln -sfn {folder}/d2 {D2}; chown -h kafka {D2}")
        said = f"{folder} belongs to user {owner}" if owner else "not a path that may be opened"
        assert said in refused(host)


@pytest.mark.parametrize("what", ["mkfifo {0}", "truncate -s 200G {0}", "mkdir {0}", "ln -s /dev/zero {0}"])
def test_a_trap_in_place_of_server_properties_is_one_sentence(host: DoctorHost, what: str) -> None:
    host.path(PROPERTIES).unlink()
    host.run("sh", "-c", what.format(PROPERTIES))
    with within(100, "200 GB are not read"):
        assert PROPERTIES in refused(host)


def test_the_drop_in_of_an_instance_names_its_own_files(host: DoctorHost) -> None:
    for name in ("../x", "a b", "logagent", "-x;", "a\nb", ".."):
        assert host.logagent("setup", "--execute", "--", name).status == Exit.USAGE
    assert host.logagent("setup", "one").status == Exit.CONFIG
    host.write("/etc/logagent/one.toml", "")
    assert "kafka.config" in host.logagent("setup", "one").err
    host.write("/etc/logagent/one.toml", f'[kafka]\nconfig = "{PROPERTIES}"\n[publish]\nstore = "/srv/fleet"\n')
    ran = host.logagent("setup", "one", "--execute")
    assert ran.status == 0, ran.err
    assert 'ReadWritePaths="-/srv/fleet"' in opened(ran)
    assert host.path("/etc/systemd/system/logagent@one.service.d/50-logagent-setup.conf").exists()
    assert not host.path(PLACE).exists()


def test_several_brokers_are_not_guessed_between(host: DoctorHost) -> None:
    host.write("/etc/kafka/second.properties", host.path(PROPERTIES).read_text())
    host.write("/etc/systemd/system/second.service", UNIT.format("kafka", "/etc/kafka/second.properties"))
    assert "one of several" in refused(host)
    host.write(TOML, '[kafka]\nconfig = "/etc/kafka/second.properties"\n')
    assert host.logagent("setup", "--execute").status == 0


def test_nothing_is_written_through_a_symlink_or_without_the_unit(host: DoctorHost) -> None:
    host.path("/srv/elsewhere").mkdir()
    host.path(PLACE).parent.symlink_to("/srv/elsewhere")
    assert "symlink" in host.logagent("setup", "--execute").err
    assert list(host.path("/srv/elsewhere").iterdir()) == []
    host.path("/usr/lib/systemd/system/logagent.service").unlink()
    assert "is not installed" in host.logagent("setup", "--execute").err


PRESTART = "/etc/systemd/system/kafka.service.d/50-logagent-prestart.conf"
SYSTEMCTL = """#!/bin/sh
# Stands for the systemd that no test host boots: keeps what it is asked for, and answers as it was told to.
[ "$1" != show ] || { echo "ActiveState=$(cat /run/state)"; exit 0; }
shift
echo "$*" >>/run/asked
case "$*" in *"$(cat /run/refused)"*) echo "Job for $2 failed." >&2; exit 1 ;; esac
"""


@pytest.fixture
def booted(host: DoctorHost) -> DoctorHost:
    """A host on which systemd seems to run."""
    host.path("/run/systemd/system").mkdir(parents=True)
    host.path("/usr/bin/systemctl").unlink()
    host.write("/usr/bin/systemctl", SYSTEMCTL, mode=0o755)
    host.write("/run/state", "active")
    host.write("/run/refused", "nothing")
    host.write("/run/asked", "")
    return host


def asked(host: DoctorHost) -> list[str]:
    """What systemd was asked for since the last time."""
    lines = host.path("/run/asked").read_text().splitlines()
    host.path("/run/asked").write_text("")
    return lines


def test_the_service_runs_when_setup_has_ended(booted: DoctorHost) -> None:
    booted.logagent("setup")
    assert asked(booted) == [], "a dry run starts nothing"
    first = booted.logagent("setup", "--execute")
    assert first.status == 0 and "logagent.service is enabled and running" in first.err, first.err
    assert asked(booted) == ["daemon-reload", "enable logagent.service", "restart logagent.service"]
    again = booted.logagent("setup", "--execute", "--yes")
    assert again.status == 0 and "already in place" in again.err
    # A daemon in the middle of a removal is not disturbed for nothing.
    assert asked(booted) == ["daemon-reload", "enable logagent.service", "start logagent.service"]
    booted.write(PROPERTIES, f"process.roles=broker\nnode.id=3\nlog.dirs={D1}\n")
    assert booted.logagent("setup", "--execute").status == 0
    assert asked(booted)[-1] == "restart logagent.service"


def test_a_service_that_does_not_start_fails_setup(booted: DoctorHost) -> None:
    booted.write("/run/refused", "restart")
    ran = booted.logagent("setup", "--execute")
    assert ran.status == Exit.FAILED and "restart logagent.service: Job for" in ran.err, ran.err
    assert "journalctl -u logagent.service" in ran.err and booted.path(PLACE).exists()
    booted.write("/run/refused", "nothing")
    booted.write("/run/state", "failed")
    ran = booted.logagent("setup", "--execute")
    assert ran.status == Exit.FAILED and "logagent.service is enabled, but failed" in ran.err


def test_prestart_is_added_to_the_unit_of_the_broker_which_is_left_alone(booted: DoctorHost) -> None:
    shown = booted.logagent("setup", "--prestart")
    assert f"# {PRESTART}\n" in shown.out and not booted.path(PRESTART).exists()
    ran = booted.logagent("setup", "--prestart", "--execute")
    assert ran.status == 0 and "kafka.service runs logagent prestart from its next start on" in ran.err, ran.err
    assert [line for line in asked(booted) if "kafka" in line] == []
    found = booted.path(PRESTART)
    assert (found.stat().st_uid, found.stat().st_mode & 0o777) == (0, 0o644) and found.read_text() in shown.out
    assert found.read_text().splitlines()[2:] == [
        "[Service]", f'ExecStartPre=-/bin/true prestart --kafka-config "{PROPERTIES}"',
    ]  # fmt: skip
    verified = booted.run("systemd-analyze", "verify", "--man=no", "kafka.service", check=False)
    assert "prestart" not in verified.stdout + verified.stderr
    assert "already in place" in booted.logagent("setup", "--prestart").err
    assert "already in place" in booted.logagent("setup").err, "nor is it taken away"


def test_prestart_of_an_instance_in_a_unit_that_may_write_nowhere(host: DoctorHost) -> None:
    host.write(BROKER_UNIT, UNIT.format("kafka", PROPERTIES) + "ProtectSystem=strict\n")
    host.write("/etc/logagent/one.toml", f'[kafka]\nconfig = "{PROPERTIES}"\n')
    ran = host.logagent("setup", "one", "--prestart", "--execute")
    assert ran.status == 0, ran.err
    assert host.path(PRESTART).read_text().splitlines() == [
        f'# Written by `logagent setup one --prestart --execute`, from "{PROPERTIES}".',
        "# logagent prestart renames what is due, within its budget; the broker starts afterwards, whatever it finds.",
        "[Service]",
        'ExecStartPre=-/bin/true prestart --config "/etc/logagent/one.toml" --state-dir "/var/lib/logagent-one" '
        f'--kafka-config "{PROPERTIES}"',
        'ReadWritePaths="-/var/lib/logagent-one"',
    ]


def test_prestart_only_goes_into_a_unit_of_root_that_starts_this_broker(host: DoctorHost) -> None:
    os.chown(host.path(BROKER_UNIT), OTHER_UID, OTHER_UID)
    assert "no unit that belongs to root starts the broker" in refused(host, "--prestart")
    assert not host.path(PRESTART).exists()
    os.chown(host.path(BROKER_UNIT), 0, 0)
    host.path(PRESTART).parent.symlink_to("/srv")
    ran = host.logagent("setup", "--prestart", "--execute")
    assert ran.status == Exit.FAILED and "symlink" in ran.err
    assert not host.path("/srv/50-logagent-prestart.conf").exists()


@pytest.mark.parametrize(
    ("options", "keys", "written"), [((), b"n\n", False), ((), b"y\n", True), (("--yes",), b"", True)]
)
def test_on_a_terminal_it_asks(host: DoctorHost, options: tuple[str, ...], keys: bytes, written: bool) -> None:
    ours, theirs = pty.openpty()
    command = host.command(*host.logagent_command("setup", "--execute", *options))
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/root"}
    with subprocess.Popen(
        command, env=environment, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        os.close(theirs)
        os.write(ours, keys)
        _, said = running.communicate(timeout=600)
    os.close(ours)
    assert running.returncode == 0, said
    assert ("Write this and start logagent.service? [y/N]" in said) is bool(keys)
    assert host.path(PLACE).exists() is written
    assert ("nothing was written" in said) is not written
