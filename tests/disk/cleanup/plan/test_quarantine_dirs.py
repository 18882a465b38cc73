"""Attacks through a quarantine directory (brokers before 3.6.1): it holds what is not ours, or the very log dirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.host import ALL_DUE, FREELY, NO_LIMITS, Host

QUARANTINE: dict[str, object] = {**NO_LIMITS, **ALL_DUE, "kafka.version": "3.5.2"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.from_disk(tmp_path)


def with_quarantine(host: Host, where: Path) -> None:
    where.mkdir(exist_ok=True)
    host.configure(**QUARANTINE, **{"cleanup.quarantine_dirs": [str(where)]})


def test_the_directory_above_the_log_dirs_is_no_quarantine(host: Host) -> None:
    """A log dir `kafka-1` in it reads like partition 1 of a topic `kafka`: it would be marked, and removed, as one."""
    text = host.properties.read_text(encoding="latin-1").replace(str(host.d2), str(host.disk / "kafka-1"))
    host.properties.write_text(text, encoding="latin-1")
    host.d2.rename(host.disk / "kafka-1")
    with_quarantine(host, host.disk)
    ran = host.run("delete", "--json", "--partition", "kafka-1", *FREELY, "--execute")
    assert (host.disk / "kafka-1").is_dir()
    assert ran.json["actions"] == []


def test_a_log_dir_of_another_broker_is_no_quarantine(host: Host) -> None:
    other = host.root / "other-broker"
    other.mkdir()
    shutil.copy(host.d1 / "meta.properties", other)
    with_quarantine(host, other)
    ran = host.run("delete", "--json", "--partition", "orders-1", "--quarantine", *FREELY, "--execute")
    assert ran.guards() == {"orders-1": "version"}
    assert [p.name for p in other.iterdir()] == ["meta.properties"]


@pytest.mark.parametrize("suffix", ["", ".0123456789abcdef0123456789abcdef-delete", ".feedfeed-stray"])
def test_what_somebody_else_keeps_in_a_quarantine_is_left_alone(host: Host, suffix: str) -> None:
    """Two brokers of a host can share one: what this journal did not put there is not ours to remove."""
    quarantine = host.root / "quarantine"
    with_quarantine(host, quarantine)
    shutil.copytree(host.d2 / "orders-1", quarantine / f"backup-1{suffix}")
    before = sorted(quarantine.rglob("*"))
    host.run("cleanup", "--execute")
    host.run("delete", "--partition", "backup-1", *FREELY, "--execute")
    host.run("cleanup", "--execute")
    assert sorted(quarantine.rglob("*")) == before


def test_what_was_set_aside_there_is_removed_when_it_is_due(host: Host) -> None:
    quarantine = host.root / "quarantine"
    with_quarantine(host, quarantine)
    host.run("delete", "--partition", "orders-1", "--quarantine", *FREELY, "--execute")
    assert len(list(quarantine.iterdir())) == 1
    host.run("cleanup", "--execute")
    assert len(list(quarantine.iterdir())) == 1, "nobody says that its topic is gone"
    host.with_assignments(topics_gone=True, **QUARANTINE, **{"cleanup.quarantine_dirs": [str(quarantine)]})
    host.run("cleanup", "--execute")
    assert list(quarantine.iterdir()) == []
