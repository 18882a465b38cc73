"""`logagent doctor` on the daemon's side: units, the daemon itself, ports, instances, more than one broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disk.doctor_host import D1, D2, DISK, PROPERTIES, STATE, TOML, UNIT, DoctorHost, doctor_host
from tests.private_host import KAFKA_UID
from tests.waiting import wait_until

UNIT_FILE = "/usr/lib/systemd/system/logagent.service"
OVERRIDE = "/etc/systemd/system/logagent.service.d/override.conf"
PACKAGED = Path(__file__).parents[4] / "packaging" / "systemd"
LISTENER = """
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
s.accept()
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    with doctor_host(tmp_path / "host") as made:
        yield made


# What the unit would block


@pytest.mark.parametrize(
    ("setting", "code", "line"),
    [
        ("ReadWritePaths=", "unit-blocks", "ReadWritePaths=-/srv/kafka/d1"),
        ("ReadOnlyPaths=/srv/kafka", "unit-blocks", "ReadWritePaths=-/srv/kafka/d1"),
        ("InaccessiblePaths=-/srv", "unit-blocks", "InaccessiblePaths="),
        ("ProtectProc=invisible", "unit-blinds", "ProtectProc=default"),
        ("ProcSubset=pid", "unit-blinds", "ProcSubset=all"),
        ("PrivateUsers=yes", "unit-blinds", "PrivateUsers=no"),
    ],
)
def test_what_a_drop_in_would_block(host: DoctorHost, setting: str, code: str, line: str) -> None:
    host.write("/etc/systemd/system/logagent.service.d/hard.conf", f"[Service]\n{setting}\n")
    said = host.diagnose()
    found = [f for f in said.findings if f["code"] == code]
    assert said.status == 1 and said.codes() == {code}
    assert (found[0]["change"]["file"], found[0]["change"]["section"]) == (OVERRIDE, "Service")
    assert found[0]["change"]["line"] == line
    # The line is the cure.
    host.write(OVERRIDE, "[Service]\n" + "".join(f"{f['change']['line']}\n" for f in found))
    cured = host.diagnose()
    # A path that is named for reading below one for writing, and the other way round: the longer one counts.
    assert cured.codes() == set(), cured.findings


def test_the_packaged_unit_works_once_it_is_set_up_and_doctor_says_when_it_no_longer_fits(host: DoctorHost) -> None:
    host.write(UNIT_FILE, (PACKAGED / "logagent.service").read_text())
    host.write("/usr/bin/logagent", "#!/bin/sh\n", 0o755)
    host.run("sh", "-c", "rm -f /etc/fstab; chmod 755 / /etc /etc/systemd /srv /etc/kafka /etc/logagent")
    said = host.diagnose()
    assert said.codes() == {"unit-blocks", "not-set-up"}
    assert {f["path"] for f in said.findings if f["code"] == "unit-blocks"} == {D1, D2}
    assert said.change("not-set-up")["line"] == "logagent setup --execute"
    assert host.logagent("setup", "--execute").status == 0
    said = host.diagnose()
    assert (said.status, said.codes()) == (0, set()), said.findings
    # log.dirs has another one now.
    host.run("cp", "-a", D2, "/srv/third")
    host.run("rm", "-r", D2)
    text = host.path(PROPERTIES).read_text()
    host.write(PROPERTIES, f"{text}\nlog.dirs={D1},/srv/third\n")
    said = host.diagnose()
    assert "setup-outdated" in said.codes()
    assert said.change("setup-outdated")["line"] == "logagent setup --execute"
    assert host.logagent("setup", "--execute").status == 0
    assert not {"setup-outdated", "unit-blocks"} & host.diagnose().codes()
    # Nobody else may write the file that it is made from.
    host.path(PROPERTIES).chmod(0o666)
    assert "can be written by others" in host.diagnose().of("setup-outdated")["says"]


def test_a_disk_of_its_own_is_opened_by_its_mount_point(host: DoctorHost) -> None:
    host.write(UNIT_FILE, UNIT.replace("-/srv/kafka", ""))
    point = f"{DISK}/disk"
    host.path(point).mkdir()
    host.run("mount", "-t", "tmpfs", "-o", f"uid={KAFKA_UID},gid={KAFKA_UID}", "tmpfs", point)
    host.run("cp", "-a", D1, D2, point)
    host.write(PROPERTIES, host.path(PROPERTIES).read_text() + f"\nlog.dirs={point}/d1,{point}/d2\n")
    said = host.diagnose()
    assert {f["change"]["line"] for f in said.findings if f["code"] == "unit-blocks"} == {f"ReadWritePaths=-{point}"}


def test_private_tmp_hides_log_dirs_below_tmp(host: DoctorHost) -> None:
    host.run("cp", "-a", DISK, "/var/tmp/kafka")
    host.write(PROPERTIES, host.path(PROPERTIES).read_text() + "\nlog.dirs=/var/tmp/kafka/d1,/var/tmp/kafka/d2\n")
    host.write(UNIT_FILE, f"{UNIT}ReadWritePaths=-/var/tmp/kafka\nPrivateTmp=yes\n")
    found = [f["change"]["line"] for f in host.diagnose().findings if f["code"] == "unit-blocks"]
    assert found == ["PrivateTmp=no", "PrivateTmp=no"]


# Ports


def test_a_port_that_is_taken_far_away_or_too_low(host: DoctorHost) -> None:
    with host.process(sys.executable, "-c", LISTENER, "127.0.0.1", "9640") as pid:
        said = host.diagnose()
        assert f"process {pid} " in said.of("port-taken")["says"]
        change = said.change("port-taken")
        assert (change["file"], change["section"], change["line"]) == (TOML, "metrics", 'listen = "127.0.0.1:9641"')
    host.configure(metrics__listen="192.0.2.1:9640")
    assert host.diagnose().change("port-not-local")["line"] == 'listen = "127.0.0.1:9641"'
    host.configure(metrics__listen="127.0.0.1:80")
    assert host.diagnose().change("port-not-permitted")["line"] == 'listen = "127.0.0.1:1025"'
    assert "port-not-permitted" not in host.diagnose("--user", "root").codes()
    host.configure(metrics__listen="")
    assert not [f for f in host.diagnose().findings if f["area"] == "metrics"]


# The daemon


def wait_for_daemon(host: DoctorHost) -> None:
    wait_until(lambda: not host.logagent("status", user="kafka").status, "the daemon answers")


def test_a_daemon_that_runs_hangs_and_was_killed(host: DoctorHost, tmp_path: Path) -> None:
    command = host.logagent_command("run")
    with host.process(*command, user="kafka", log=tmp_path / "daemon.log") as pid:
        wait_for_daemon(host)
        said = host.diagnose()
        assert (said.status, said.document["daemon"]) == (0, "running"), (tmp_path / "daemon.log").read_text()
        assert f"process {pid} " in said.of("daemon")["says"]
        assert said.of("metrics")["says"] == "the daemon serves its metrics there"
        # Only its user and root may ask it.
        assert "daemon-closed" in host.diagnose("--state-dir", STATE, user="mallory").codes("info")
        # Asked on behalf of another broker, it is not the daemon that is meant.
        host.write("/srv/other.properties", host.path(PROPERTIES).read_text() + "\nlog.dirs=/srv/kafka/d1\n")
        assert D2 in host.diagnose("--kafka-config", "/srv/other.properties").of("other-daemon")["says"]
        host.run("kill", "-STOP", str(pid))
        assert host.diagnose().of("daemon-silent")["path"] == f"{STATE}/status.sock"
    said = host.diagnose()
    assert (said.document["daemon"], said.codes()) == ("dead", set())


# Several brokers


def second_broker(host: DoctorHost) -> str:
    """Another broker's disk and configuration."""
    host.run("cp", "-a", DISK, "/srv/second")
    text = host.path(PROPERTIES).read_text().replace(DISK, "/srv/second")
    return host.write("/etc/kafka/second.properties", text)


def instance(host: DoctorHost, name: str, properties: str | None, port: int) -> str:
    file = f"/etc/logagent/{name}.toml"
    host.configure(file, kafka__config=properties, metrics__listen=f"127.0.0.1:{port}")
    unit = UNIT.replace("StateDirectory=logagent", "StateDirectory=logagent-%i").replace("-/srv/kafka", "-/srv")
    host.write(
        "/usr/lib/systemd/system/logagent@.service", unit.replace("run\n", "run --config /etc/logagent/%i.toml\n")
    )
    return file


def test_two_instances_on_one_host_keep_apart(host: DoctorHost) -> None:
    first, second = instance(host, "a", PROPERTIES, 9641), instance(host, "b", second_broker(host), 9642)
    for state in ("a", "b"):
        host.path(f"{STATE}-{state}").mkdir()
        host.own(f"{STATE}-{state}")
    host.path(TOML).unlink()
    for file, name, disk in ((first, "a", DISK), (second, "b", "/srv/second")):
        said = host.diagnose("--config", file)
        assert (said.status, said.codes()) == (0, set()), said.findings
        assert said.document["service"]["unit"] == f"logagent@{name}.service"
        assert said.document["state_dir"] == f"{STATE}-{name}"
        assert [d["path"] for d in said.document["log_dirs"]] == [f"{disk}/d1", f"{disk}/d2"]
    # Each acts in its own log dirs, with a journal of its own, and neither waits for the other.
    quarantine = ("--partition", "ledger-1", "--quarantine", "--allow-assigned", "--even-last-copy", "--execute")
    with host.process(sys.executable, "-c", EXECUTOR, f"{STATE}-a", user="kafka"):
        for file in (first, second):
            ran = host.logagent("delete", "--config", file, *quarantine, user="kafka")
            assert (ran.status == 0) is (file == second), ran.err
        assert "another logagent is acting" in ran.err or ran.status == 0
    moved = {d: [p.name for p in host.path(d).glob("d1/ledger-1.*-stray")] for d in (DISK, "/srv/second")}
    assert (len(moved[DISK]), len(moved["/srv/second"])) == (0, 1)
    told = host.logagent("history", "--config", second, "--json", user="kafka").out
    assert '"log_dir": "/srv/second/d1"' in told
    assert '"entries": []' in host.logagent("history", "--config", first, "--json", user="kafka").out


EXECUTOR = f"""
import sys, time
sys.path.insert(0, {str(Path(__file__).parents[4])!r})
from logagent.cleanup.state.executor_lock import ExecutorLock
with ExecutorLock(sys.argv[1], "a test", wait_seconds=0, monotonic=time.monotonic, sleep=time.sleep):
    print("ready", flush=True)
    time.sleep(3600)
"""


def test_two_configurations_of_one_broker_are_reported(host: DoctorHost) -> None:
    host.configure()
    file = instance(host, "twin", PROPERTIES, 9640)
    for config, other in ((file, TOML), (TOML, file)):
        said = host.diagnose("--config", config)
        assert {f["path"] for f in said.findings if f["state"] == "fails" and f["area"] == "instances"} == {other}
        assert {"shared-log-dirs", "shared-port"} <= said.codes()
        assert (said.change("shared-port")["file"], said.change("shared-port")["line"]) == (
            config,
            'listen = "127.0.0.1:9641"',
        )


def test_the_file_of_an_instance_names_its_broker(host: DoctorHost) -> None:
    """Two instances could otherwise find the same one."""
    file = instance(host, "b", None, 9642)
    ran = host.logagent("queue", "--config", file)
    assert ran.status == 78 and "kafka.config: not set" in ran.err
    assert host.logagent("queue", "--config", file, "--kafka-config", PROPERTIES).status == 0
    said = host.diagnose("--config", file)
    assert said.status == 78
    change = said.change("broker-ambiguous")
    assert (change["file"], change["line"]) == (file, f'config = "{PROPERTIES}"')
    assert os.path.basename(change["then"].split(",")[0]) == "systemctl reload logagent@b"


def test_of_several_brokers_none_is_guessed(host: DoctorHost) -> None:
    second = second_broker(host)
    host.write(
        "/etc/systemd/system/second.service",
        f"[Service]\nUser=kafka\nExecStart=/opt/kafka/bin/kafka-server-start.sh {second}\n",
    )
    host.path(TOML).unlink()
    said = host.diagnose()
    assert said.status == 78
    lines = {f["change"]["line"] for f in said.findings if f["code"] == "broker-ambiguous"}
    assert lines == {f'config = "{PROPERTIES}"', f'config = "{second}"'}
    assert "second.service starts with it" in str(said.findings)
    ran = host.logagent("scan")
    assert ran.status == 78 and second in ran.err and PROPERTIES in ran.err
    said = host.diagnose("--kafka-config", second)
    assert said.document["kafka_config"] == second
    assert said.of("other-broker")["path"] == PROPERTIES
