"""Whom discovery takes for a broker on a host where any user can start a process with any command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from logagent.kafka.processes import discovery
from tests.disk.doctor_host import D1, D2, DISK, PROPERTIES, TOML, DoctorHost, doctor_host
from tests.needs import need_command
from tests.private_host import OTHER_UID

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
HERS = "/home/mallory/server.properties"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[DoctorHost]:
    with doctor_host(tmp_path / "host") as made:
        made.path(TOML).unlink()
        made.write("/home/mallory/d/meta.properties", "version=1\n")
        made.write(HERS, "process.roles=broker\nnode.id=3\nlog.dirs=/home/mallory/d\n")
        made.own("/home/mallory", OTHER_UID)
        yield made


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What users name is read for two seconds in all, which a busy machine may need for the first file."""
    for name in ("_SECONDS", "_STRANGERS_SECONDS"):
        monkeypatch.setattr(discovery, name, 600.0)


def pretend(config: str, *more: str) -> list[str]:
    return [sys.executable, "-c", SLEEP, "kafka.Kafka", config, *more]


def config_of(host: DoctorHost) -> str:
    ran = host.logagent("config", "check")
    assert ran.status == 0, ran.err
    return ran.err


@pytest.mark.usefixtures("unhurried")
def test_a_local_user_neither_picks_nor_blocks_the_broker(host: DoctorHost) -> None:
    """Her own log dirs, the broker's, the broker's configuration, a sample's, and traps."""
    host.write("/home/mallory/theirs.properties", f"process.roles=broker\nnode.id=3\nlog.dirs={D1},{D2}\n")
    host.write("/opt/kafka/config/server.properties", "broker.id=0\nlog.dirs=/tmp/kafka-logs\n")
    host.run("sh", "-c", "cd /home/mallory; mkfifo fifo; truncate -s 200G sparse; ln -s /dev/zero zero")
    files = [HERS, "/home/mallory/theirs.properties", PROPERTIES, "/opt/kafka/config/server.properties"]
    files += [f"/home/mallory/{trap}" for trap in ("fifo", "sparse", "zero")]
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(host.process(*pretend(file), user="mallory"))
        stack.enter_context(host.process(*pretend(HERS, "--override", f"log.dirs={D1}"), user="mallory"))
        assert PROPERTIES in config_of(host)
        said = host.diagnose()
        assert said.document["kafka_config"] == PROPERTIES

        how = {b["config"]: b["how"] for b in said.document["brokers"] if "ignored" in b["how"]}
        assert "does not run the broker" in how[HERS] or "does not own" in how[HERS]
        assert f"does not own {D1}" in how["/home/mallory/theirs.properties"]
        assert f"does not own {D1}" in how[PROPERTIES]
        assert "ignored-process" in said.codes("info")


def test_her_path_to_the_brokers_file_is_not_followed(host: DoctorHost) -> None:
    """The same file by her symlink: a moment later it would lead elsewhere."""
    link = "/home/mallory/link.properties"
    host.path(link).symlink_to(PROPERTIES)
    for user in ("mallory", "kafka"):
        with host.process(*pretend(link), user=user):
            said = config_of(host)
            assert PROPERTIES in said and link not in said
            assert host.diagnose().document["kafka_config"] == PROPERTIES


def test_what_she_says_of_the_brokers_file_is_not_believed_of_the_broker(host: DoctorHost) -> None:
    """Its log dirs, on her command line, are hers: they make her no owner of the broker's."""
    with (
        host.process(*pretend(PROPERTIES, "--override", "log.dirs=/home/mallory/d"), user="mallory"),
        host.process(*pretend(HERS), user="mallory"),
    ):
        assert PROPERTIES in config_of(host)


def test_a_file_system_of_hers_that_never_answers_keeps_nobody_waiting(host: DoctorHost) -> None:
    """Her configuration on it, and a holder of a log dir that says it has it there."""
    need_command("bindfs")
    host.path("/home/mallory/fuse").mkdir()
    host.run("bindfs", "-o", "allow_other", "/home/mallory/d", "/home/mallory/fuse")
    (server,) = host.run("pgrep", "bindfs").stdout.split()
    host.run("cp", HERS, "/home/mallory/d")
    hung = "/home/mallory/fuse/server.properties"
    holder = f"import fcntl; fcntl.lockf(open('{D1}/.lock', 'rb'), fcntl.LOCK_SH); {SLEEP}"
    host.path(f"{D1}/.lock").touch()
    try:
        with (
            host.process(*pretend(hung), user="mallory"),
            host.process(*pretend(hung), user="mallory"),
            host.process(sys.executable, "-c", holder, "kafka.Kafka", hung, user="mallory"),
        ):
            host.run("kill", "-STOP", server)
            assert PROPERTIES in config_of(host)
            said = host.diagnose()
            assert said.document["kafka_config"] == PROPERTIES
            how = {b["config"]: b["how"] for b in said.document["brokers"]}
            assert "does not answer" in how[hung]
    finally:
        host.run("kill", "-CONT", server)


@pytest.mark.usefixtures("unhurried")
def test_the_owner_of_the_log_dirs_is_believed(host: DoctorHost) -> None:
    """A broker that was started by hand, with a configuration where nobody would look."""
    elsewhere = host.write("/srv/by-hand.properties", host.path(PROPERTIES).read_text())
    host.path(PROPERTIES).unlink()
    with host.process(*pretend(elsewhere), user="kafka"):
        assert elsewhere in config_of(host)
    with host.process(*pretend(elsewhere), user="mallory"):
        ran = host.logagent("config", "check")
        assert ran.status == 78 and f"ignored: its user {OTHER_UID} does not own {D1}" in ran.err


def test_two_brokers_of_one_user_are_still_not_guessed_between(host: DoctorHost) -> None:
    host.run("cp", "-a", DISK, "/srv/second")
    second = host.write("/srv/second.properties", host.path(PROPERTIES).read_text().replace(DISK, "/srv/second"))
    with host.process(*pretend(second), user="kafka"):
        ran = host.logagent("config", "check")
    assert ran.status == 78 and second in ran.err and PROPERTIES in ran.err
