"""The rig proves itself: brokers of every mode start, serve, stop, die and come back with what they had.

The default run takes one broker; every other test takes more. The brokers are their own, as they are stopped and
killed.
"""

from __future__ import annotations

import re
import shutil
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.rig.client import KafkaClient
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode, KraftNode
from tests.broker.rig.process import ServerDied, wait_until
from tests.broker.rig.rig import Rig
from tests.broker.rig.security import Certificates, SecureListener, add_scram_user
from tests.long_form import long_form, versions

BROKERS = versions(("4.4.0", "kraft"), ("3.5.2", "zookeeper"), ("3.9.1", "kraft"), ("4.3.1", "kraft"))


@long_form
@pytest.mark.parametrize(("version", "mode"), BROKERS)
def test_records_survive_stop_and_kill(kafka: Callable[..., KafkaNode], version: str, mode: str) -> None:
    node = kafka(version, log_dirs=2, mode=mode).start()
    node.create_topic("orders", partitions=4)
    written = {p: node.produce("orders", p, n=20) for p in range(4)}
    assert node.dir_names() == [f"orders-{p}" for p in range(4)]
    assert [log_dir for log_dir in node.log_dirs if not any(log_dir.glob("orders-*"))] == []

    node.stop()
    assert node.exit_status == 143
    assert not node.alive
    node.start()
    assert {p: [r.value for r in node.read_all("orders", p)] for p in range(4)} == written

    written[0] += node.produce("orders", 0, n=5, prefix="later")
    node.kill()
    assert node.exit_status == -signal.SIGKILL
    assert (node.log_dirs[0] / ".lock").exists()
    node.start()
    assert {p: [r.value for r in node.read_all("orders", p)] for p in range(4)} == written

    states = node.describe_log_dirs()
    assert sorted(states) == [str(log_dir) for log_dir in node.log_dirs]
    assert sorted(where for state in states.values() for where in state.replicas) == [("orders", p) for p in range(4)]
    assert node.offline_dirs() == []


@long_form
@pytest.mark.parametrize(("version", "mode"), BROKERS)
def test_a_deleted_topic_leaves_marked_directories(kafka: Callable[..., KafkaNode], version: str, mode: str) -> None:
    node = kafka(version, mode=mode).start()
    node.create_topic("orders")
    node.produce("orders")
    node.delete_topic("orders")
    assert node.topics() == []
    # The log leaves the broker's memory a moment before its directory is renamed.
    wait_until(lambda: "orders-0" not in node.dir_names(), 10, "the directory is renamed")
    (name,) = node.dir_names()
    assert name.startswith("orders-0.") and name.endswith("-delete")


@pytest.mark.parametrize("version", versions("4.4.0", "4.3.1", "3.9.1", "3.5.2"))
def test_a_node_is_formatted_as_by_the_tool(rig: Rig, version: str) -> None:
    """The second of a kind, of which the tool was not asked: the same files but for their ids and times."""
    first, second = (rig.kafka(version, node_id=node_id) for node_id in (1, 2))
    made = written_by_format(second)
    for path in [*second.log_dirs, second.root / "meta"]:
        shutil.rmtree(path)
        path.mkdir()
    assert isinstance(second, KraftNode)
    second.format_with_tool()
    assert made == written_by_format(second) and len(made) > 3
    ids = [re.findall(r"directory\.id=(.*)", path.read_text()) for path in first.root.rglob("meta.properties")]
    assert len({id for found in ids for id in found}) == (0 if version == "3.5.2" else 3)
    assert second.start().cluster_id != first.cluster_id


def test_a_failed_start_shows_the_output(kafka: Callable[..., KafkaNode]) -> None:
    node = kafka("3.9.1")
    (node.log_dirs[0] / "lost+found").mkdir()
    with pytest.raises(ServerDied, match=r"lost\+found"):
        node.start()
    assert node.exit_status == 1


@long_form
def test_a_cluster_reassigns_moves_and_loses_a_node(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster("4.3.1", nodes=3).start()
    cluster.create_topic("orders", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    written = {p: cluster.produce("orders", p, n=20) for p in range(3)}
    assert [sorted(node.dir_names()) for node in cluster.nodes] == [
        ["orders-0", "orders-2"],
        ["orders-0", "orders-1"],
        ["orders-1", "orders-2"],
    ]

    cluster.reassign("orders", {0: [2, 3]})
    cluster.wait_reassigned()
    cluster.wait_in_sync("orders")
    here = next(path for path, state in cluster.node(3).describe_log_dirs().items() if ("orders", 0) in state.replicas)
    there = next(str(log_dir) for log_dir in cluster.node(3).log_dirs if str(log_dir) != here)
    cluster.move_replica("orders", 0, 3, there)
    cluster.wait_moved("orders", 0, 3, there)

    cluster.node(2).kill()
    assert {p: [r.value for r in cluster.read_all("orders", p)] for p in range(3)} == written
    cluster.node(2).start()
    cluster.wait_in_sync("orders")
    assert [node.offline_dirs() for node in cluster.nodes] == [[], [], []]


@long_form
@pytest.mark.parametrize(
    ("version", "mode"),
    [("2.5.1", "zookeeper"), ("3.6.0", "kraft"), ("3.7.0", "kraft"), ("4.1.0", "kraft")],
)
def test_other_versions_start(kafka: Callable[..., KafkaNode], version: str, mode: str) -> None:
    node = kafka(version, mode=mode).start()
    node.create_topic("orders")
    written = node.produce("orders", n=5)
    assert [r.value for r in node.read_all("orders")] == written
    assert node.offline_dirs() == []


@long_form
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN", "SCRAM-SHA-256", None])
def test_a_listener_with_sasl_and_tls(kafka: Callable[..., KafkaNode], tmp_path: Path, mechanism: str | None) -> None:
    """In the default run tests/broker/admin uses such listeners."""
    listener = SecureListener(mechanism, {"admin": "s3cret"}, Certificates.make(tmp_path / "tls"))
    node = kafka("4.3.1", listener=listener).start()
    node.create_topic("orders")
    sasl = {}
    if mechanism is not None:
        sasl = {"sasl_mechanism": mechanism, "sasl_plain_username": "admin", "sasl_plain_password": "s3cret"}
        if mechanism.startswith("SCRAM"):
            add_scram_user(node, "admin", "s3cret", mechanism)
    assert listener.certificates is not None and node.secure_bootstrap is not None
    secure = KafkaClient(
        node.secure_bootstrap,
        security_protocol=listener.protocol,
        ssl_cafile=str(listener.certificates.authority),
        **sasl,
    )
    assert secure.topics() == ["orders"]


def written_by_format(node: KafkaNode) -> dict[str, tuple[str, bytes]]:
    """Mode and content of every file, by its path, but for ids that are drawn, checksums and times."""
    found: dict[str, tuple[str, bytes]] = {}
    for path in (p for d in [*node.log_dirs, node.root / "meta"] for p in d.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path.name == "meta.properties":
            content = re.sub(rb"(?m)^(directory\.id=|#).*$", rb"\1", content)
        else:
            content = without_times(content)
        found[str(path.relative_to(node.root))] = (stat.filemode(path.stat().st_mode), content)
    return found


def without_times(batches: bytes) -> bytes:
    masked, at = bytearray(batches), 0
    while at < len(batches):
        masked[at + 17 : at + 21] = bytes(4)  # the checksum
        at += 12 + int.from_bytes(batches[at + 8 : at + 12], "big")
    return re.sub(rb"\x00\x00\x01[\x90-\xff].{4}", b"a time..", bytes(masked), flags=re.DOTALL)
