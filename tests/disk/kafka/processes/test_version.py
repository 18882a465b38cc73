"""Attacks on the version: a newer Kafka lies on the host, but the broker that starts on the disk is an old one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from logagent.kafka.processes.broker_process import _CALLED, version_beside
from tests.host import FREELY, NO_LIMITS, Host
from tests.waiting import within_cpu


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host.from_disk(tmp_path)
    # The metadata.version of the cluster does not say it either.
    host.configure(**NO_LIMITS, **{"assignments.sources": ["file"], "assignments.file": str(host.root / "absent")})
    # As `configure` writes it, but for the version, which has to be found out.
    text = "".join(line for line in host.toml.read_text().splitlines(True) if not line.startswith("version"))
    host.toml.write_text(text)
    return host


def jars(where: Path, version: str) -> Path:
    where.mkdir(parents=True)
    for name in (f"kafka_2.13-{version}.jar", f"kafka-clients-{version}.jar"):
        (where / name).touch()
    return where


def test_a_newer_kafka_elsewhere_on_the_host_proves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked for the next upgrade, or another broker's: the one of this disk would not start with a -stray dir."""
    newer = jars(host.root / "opt" / "kafka" / "libs", "3.9.1")
    listdir = os.listdir
    usual = "/opt/kafka/libs"
    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(newer if path == usual else path))
    ran = host.run("delete", "--json", "--partition", "orders-1", "--quarantine", *FREELY, "--execute")
    assert ran.guards() == {"orders-1": "version"}
    assert host.find("orders-1") == ["orders-1"]


def test_the_jars_beside_the_configuration_count(host: Host) -> None:
    jars(host.root / "libs", "3.9.1")
    assert version_beside(str(host.properties)) == (3, 9, 1)
    ran = host.run("delete", "--json", "--partition", "orders-1", "--quarantine", *FREELY, "--execute")
    assert ran.outcomes() == {"orders-1": "done"}


def test_a_client_library_is_no_broker(host: Host) -> None:
    libs = host.root / "libs"
    libs.mkdir()
    (libs / "kafka-clients-3.9.1.jar").touch()
    assert version_beside(str(host.properties)) is None


def test_a_start_script_that_is_one_long_path_is_read_at_once() -> None:
    with within_cpu(5, "any local user can have such a script"):
        found = _CALLED.findall(b"/a" * 100_000 + b" exec /opt/kafka/bin/kafka-server-start.sh")
    assert found == [b"/opt/kafka/bin/kafka-server-start.sh"]
