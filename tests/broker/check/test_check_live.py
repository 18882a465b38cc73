"""What `check` warns of and no start shows: what real brokers do to such directories while they run.

Whoever does harm to a log dir has a broker of its own, as that broker gives the log dir up or is stopped.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from logagent.advice.check.run_check import CheckReport, run_check
from logagent.base.config.settings import KafkaSettings, Settings
from logagent.base.records import Health
from logagent.cleanup.session.session import open_session
from logagent.cli import run as logagent
from logagent.kafka.processes.target import resolve_target
from tests.broker.restores import logagent as run_command
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.damages.disk import UUID
from tests.disk.conftest import run, unmount
from tests.fake_time import SetClock
from tests.hosts import OF_PLACES
from tests.long_form import versions
from tests.needs import need_root

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")
LONGEST = "t" * 249


# Of a broker that has just started, `check` does not say that it gave a log dir up.
AHEAD_MS = 31_000


def checked(node: KafkaNode, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Exit status and (severity, code, path) of every finding."""
    capsys.readouterr()
    (node.root / "logagent.toml").write_text('[health]\nprobe_timeout = "5m"\n')
    options = ["--json", "--kafka-config", str(node.config), "--state-dir", str(node.root / "state")]
    options += ["--config", str(node.root / "logagent.toml")]
    status = logagent(["check", *options, "--kafka-version", node.version])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    findings = [(f["severity"], f["code"], f["path"]) for f in document["findings"]]
    return status, [f for f in findings if f[1] not in OF_PLACES]


def report(node: KafkaNode) -> CheckReport:
    settings = Settings(kafka=KafkaSettings(config=str(node.config), version=node.version))
    target = resolve_target(settings)
    state = str(node.root / "state")
    with open_session(target, settings, SetClock(AHEAD_MS), state_dir=state, act=False, actor="test") as session:
        return run_check(session, timeout=300)


@pytest.mark.parametrize("version", VERSIONS)
def test_segments_behind_a_delete_link_are_deleted(
    kafka: Callable[..., KafkaNode], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    node = kafka(version, props={"log.segment.delete.delay.ms": "1", "log.initial.task.delay.ms": "100"}).start()
    node.create_topic("orders")
    node.produce("orders")
    node.stop()
    (partition,) = [d / "orders-0" for d in node.log_dirs if (d / "orders-0").exists()]
    precious = shutil.copytree(partition, node.root / "precious")
    (precious / "note.txt").write_text("x")
    link = node.log_dirs[0] / f"zzz-0.{UUID}-delete"
    link.symlink_to(precious)
    assert checked(node, capsys) == (6, [("fatal", "delete-through-link", str(link))])
    node.start()
    wait_until(lambda: not link.is_symlink(), 60, "the broker deletes the link")
    left = {entry.name for entry in precious.iterdir()}
    assert "note.txt" in left
    assert [name for name in left if name.endswith((".log", ".index"))] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mounted_partition_costs_the_log_dir_when_its_topic_goes(
    kafka: Callable[..., KafkaNode], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    need_root()
    node = kafka(version).start()
    node.create_topic("orders")
    node.stop()
    (partition,) = [d / "orders-0" for d in node.log_dirs if (d / "orders-0").exists()]
    with contextlib.ExitStack() as undo:
        run("mount", "--bind", partition, partition)
        undo.callback(unmount, partition)
        undo.callback(node.close)
        assert checked(node, capsys) == (0, [("warning", "mounted-partition", str(partition))])
        node.start()
        assert node.offline_dirs() == []
        with node.admin() as admin:
            admin.delete_topics(["orders"])
        wait_until(lambda: node.offline_dirs() == [str(partition.parent)], 60, "the log dir goes offline")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_name_too_long_to_move_is_not_moved_and_harms_nothing(
    shared_node: Callable[..., KafkaNode], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    node = shared_node(version)
    node.create_topic(LONGEST)
    (here,) = [d for d in node.log_dirs if (d / f"{LONGEST}-0").exists()]
    there = next(d for d in node.log_dirs if d != here)
    status, findings = checked(node, capsys)
    assert status == 0
    assert ("info", "future-name-too-long", f"{here}/{LONGEST}-0") in findings
    with pytest.raises(AssertionError, match="InvalidTopicError"):
        node.move_replica(LONGEST, 0, node.node_id, str(there))
    node.delete_topic(LONGEST)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_broker_and_the_log_dir_that_it_gave_up(
    kafka: Callable[..., KafkaNode], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    node = kafka(version).start()
    node.create_topic("orders")
    (partition,) = [d / "orders-0" for d in node.log_dirs if (d / "orders-0").exists()]
    assert checked(node, capsys) == (0, [("info", "broker-running", str(node.log_dirs[0]))])
    # What runs is what the broker says; the file is what the next start takes.
    text = node.config.read_text()
    node.config.write_text(f"{text}\nlog.retention.hours=7\n")
    doubts = [f for f in report(node).findings if f.why.code == "config-changed"]
    assert len(doubts) == 1, doubts
    assert "log.retention.hours, without which the broker was started" in doubts[0].why.fact
    node.config.write_text(text.replace("num.io.threads=4", "num.io.threads=5"))
    (doubt,) = [f for f in report(node).findings if f.why.code == "config-changed"]
    differs = "it has num.io.threads=5, and the broker runs with 4"
    assert differs in doubt.why.fact and [differs in says for says in doubts_of_doctor(node)] == [True]
    node.config.write_text(text)
    assert doubts_of_doctor(node) == [], "the broker was asked, and runs with the same"
    # A directory that vanishes under it: the broker notices when it is to rename it.
    partition.rename(node.root / "aside")
    with node.admin() as admin:
        admin.delete_topics(["orders"])
    wait_until(lambda: node.offline_dirs() == [str(partition.parent)], 60, "the broker gives the log dir up")
    found = report(node)
    assert {d.path: d.health for d in found.log_dirs} == {
        str(d): Health.OFFLINE if d == partition.parent else Health.ONLINE for d in node.log_dirs
    }
    assert [f.why.code for f in found.findings if f.why.code not in OF_PLACES] == ["given-up", "broker-running"]
    explained = run_command(node, "explain", "--log-dirs-only", allow=(5,), settings={})["log_dirs"]
    waits = {d["path"]: d["waits_for"] for d in explained}
    assert waits.pop(str(partition.parent)) == "the broker starts again: it took this log dir offline (error 56)"
    assert set(waits.values()) == {None}


def doubts_of_doctor(node: KafkaNode) -> list[str]:
    found = run_command(node, "doctor", allow=(0, 1, 78), settings={})["findings"]
    return [f["says"] for f in found if f["code"] == "config-changed"]
