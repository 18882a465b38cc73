"""What runs is remembered in the state dir: what ran last forbids what it would not survive, also after its stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import Settings
from logagent.base.kafka_version import KafkaVersion, Version
from logagent.cleanup.session.session import open_session
from logagent.disk.holders import process_start_time_ms
from logagent.kafka.files.properties import parse_meta_properties, parse_server_properties
from logagent.kafka.processes.target import Target
from logagent.verdict.evidence.version_seen import (
    CONFIG_FILE_NAME,
    FILE_NAME,
    is_noted,
    note_config,
    read_version_seen,
    write_version_seen,
)
from logagent.verdict.facts import SeenHolder
from tests.host import FREELY, NO_LIMITS, Host
from tests.host_files import CLUSTER_ID, format_log_dir

NODE_ID = 3
# A process that holds the lock of a log dir and has jars of Kafka open, as a broker does.
_BROKER = """
import fcntl, os, sys
held = [os.open(name, os.O_RDONLY) for name in sys.argv[2:]]
lock = open(sys.argv[1] + "/.lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(log_dir: Path, version: str) -> Iterator[int]:
    libs = log_dir.parent / f"kafka-{version}"
    libs.mkdir(exist_ok=True)
    jars = [libs / f"kafka_2.13-{version}.jar", libs / f"kafka-clients-{version}.jar"]
    for jar in jars:
        jar.touch()
    command = [sys.executable, "-c", _BROKER, str(log_dir), *map(str, jars)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None and broker.stdout.readline() == b"ready\n"
        yield broker.pid
        assert broker.stdin is not None
        broker.stdin.close()
        broker.wait(30)


def look(tmp_path: Path, *, act: bool, configured: Version | None = None, serving: int | None = None) -> KafkaVersion:
    """`serving`: the process that has said that it serves the log dir."""
    target = Target(None, parse_server_properties(b"", "(none)"), (str(tmp_path / "log-dir"),), configured)
    settings = replace(Settings(), guard=replace(Settings().guard, settle=0))
    state = str(tmp_path / "state")
    with open_session(target, settings, SystemClock(), state_dir=state, act=act, actor="test") as session:
        if serving is not None:
            seen = SeenHolder(serving, process_start_time_ms(serving), 0)
            session.journal.note_serving({str(tmp_path / "log-dir"): seen})
        session.take_inventory()
        facts = session.facts()
        session.remember(facts)
        return facts.known_version


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return format_log_dir(tmp_path / "log-dir")


def test_what_was_seen_running_beats_a_newer_kafka_version_once_it_is_stopped(tmp_path: Path, log_dir: Path) -> None:
    with running(log_dir, "3.5.2"):
        assert look(tmp_path, act=False).version == (3, 5, 2)
        assert not (tmp_path / "state").exists(), "whoever only looks remembers nothing"
        look(tmp_path, act=True)
    for act in (False, True):  # the dry run is the preview
        found = look(tmp_path, act=act, configured=(3, 9, 1))
        assert found.version == (3, 5, 2) and found.doubt() is not None
    assert look(tmp_path, act=False).version is None, "alone it permits nothing"


def test_an_upgrade_is_remembered_once_it_serves_and_a_rollback_at_once(tmp_path: Path, log_dir: Path) -> None:
    state = str(tmp_path / "state")

    def remembered() -> Version | None:
        return read_version_seen(state, CLUSTER_ID, NODE_ID).version

    with running(log_dir, "3.5.2"):
        look(tmp_path, act=True)
    with running(log_dir, "3.9.1") as broker:
        assert look(tmp_path, act=True).version == (3, 9, 1), "it runs"
        assert remembered() == (3, 5, 2), "but it may still fail to start"
        look(tmp_path, act=True, serving=broker)
        assert remembered() == (3, 9, 1)
    with running(log_dir, "3.5.2"):
        look(tmp_path, act=True)
        assert remembered() == (3, 5, 2)


@pytest.mark.parametrize("content", [b"", b'{"version": "3.9.1"', b"[]", b'{"cluster_id": 1}', b"\0" * 80, b"{}"])
def test_a_damaged_memory_is_an_unknown_version(tmp_path: Path, log_dir: Path, content: bytes) -> None:
    look(tmp_path, act=True)
    (tmp_path / "state" / FILE_NAME).write_bytes(content)
    for act in (False, True):
        found = look(tmp_path, act=act, configured=(3, 9, 1))
        doubt = found.doubt()
        assert found.version is None and doubt is not None and "is damaged" in doubt.fact
    with running(log_dir, "3.9.1") as broker:
        look(tmp_path, act=True, serving=broker)
    assert look(tmp_path, act=True, configured=(3, 9, 1)).version == (3, 9, 1), "it ends once a broker has served"


def test_a_memory_that_cannot_be_opened_is_an_unknown_version(tmp_path: Path, log_dir: Path) -> None:
    look(tmp_path, act=True)
    os.mkfifo(tmp_path / "state" / FILE_NAME)
    assert look(tmp_path, act=True, configured=(3, 9, 1)).version is None


@pytest.mark.parametrize(("cluster", "node"), [("AnotherAnotherAnother_", NODE_ID), (CLUSTER_ID, NODE_ID + 1)])
def test_the_memory_of_another_broker_counts_as_none(tmp_path: Path, log_dir: Path, cluster: str, node: int) -> None:
    look(tmp_path, act=True)
    write_version_seen(str(tmp_path / "state"), cluster, node, (3, 5, 2))
    assert look(tmp_path, act=False, configured=(3, 9, 1)).version == (3, 9, 1)
    with running(log_dir, "3.5.2"):
        look(tmp_path, act=True)
    assert look(tmp_path, act=False, configured=(3, 9, 1)).version == (3, 5, 2)


def test_without_room_for_another_file_the_old_one_is_overwritten(tmp_path: Path) -> None:
    write_version_seen(str(tmp_path), CLUSTER_ID, 1, (3, 10, 10))
    (tmp_path / f"{FILE_NAME}.tmp").mkdir()  # as if no file could be made
    write_version_seen(str(tmp_path), CLUSTER_ID, 1, (3, 5, 2))
    assert read_version_seen(str(tmp_path), CLUSTER_ID, 1).version == (3, 5, 2)


def test_what_ran_last_may_delete_at_its_start_whatever_kafka_version_says(tmp_path: Path) -> None:
    """3.5.2 marks and removes what is not assigned to it, also what was restored a moment before."""
    host = Host.from_disk(tmp_path / "cli")
    host.run("delete", "--partition", "shipments-0", *FREELY, "--execute")
    (name,) = host.find("shipments-0.", "-delete")
    host.with_assignments(topics_gone=True, **NO_LIMITS, **{"kafka.version": "3.9.1"})
    assert host.run("restore", "--json", name).json["refusals"] == []
    meta = parse_meta_properties((host.d1 / "meta.properties").read_bytes())
    assert meta.cluster_id is not None and meta.node_id is not None
    write_version_seen(str(host.state), meta.cluster_id, meta.node_id, (3, 5, 2))
    refused = host.run("restore", "--json", name, "--execute")
    assert refused.guards() == {name: "assigned"}
    (refusal,) = refused.json["refusals"]
    assert "the broker last ran as 3.5.2, but kafka.version is 3.9.1" in refusal["fact"]
    assert "--broker-will-delete" in refusal["hint"]
    assert host.run("restore", "--json", name, "--broker-will-delete", "--execute").outcomes() == {name: "done"}


def test_what_ran_before_there_was_a_cluster_id_still_counts_after_the_upgrade(tmp_path: Path) -> None:
    write_version_seen(str(tmp_path), "", 1, (2, 1, 0))
    assert read_version_seen(str(tmp_path), None, 1).version == (2, 1, 0)
    assert read_version_seen(str(tmp_path), CLUSTER_ID, 1).version == (2, 1, 0)
    assert read_version_seen(str(tmp_path), CLUSTER_ID, 2).version is None


def test_the_file_that_a_process_runs_with_is_noted_once_and_a_damaged_note_is_none(tmp_path: Path) -> None:
    config, state, later = tmp_path / "server.properties", str(tmp_path), int(time.time() * 1000) + 60_000
    config.write_text("node.id=1\n")
    broker = str(config), 5, later
    assert not is_noted(state, *broker) and not is_noted(None, *broker)
    note_config(state, *broker)
    assert is_noted(state, *broker) and not is_noted(state, str(config), 6, later)
    for content in (b"", b"[]", b'{"config": 1}', b"\0" * 80):
        (tmp_path / CONFIG_FILE_NAME).write_bytes(content)
        assert not is_noted(state, *broker)
        note_config(state, *broker)
        assert is_noted(state, *broker)
    config.write_text("node.id=2\n")
    note_config(state, *broker)
    assert not is_noted(state, *broker), "what it began with stays noted"
    config.unlink()
    assert not is_noted(state, *broker)
