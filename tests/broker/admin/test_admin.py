"""The Admin API reader against real brokers: what it says when all is well, and that it refuses when it is not."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from logagent.base.errors import ServiceUnreachable, UnreadableError
from logagent.base.records import TopicPartition, id_to_text
from logagent.kafka.admin.client_properties import client_properties
from logagent.kafka.admin.reader import AdminReader, IdAnswer
from logagent.kafka.admin.responses import TOPIC_AUTHORIZATION_FAILED
from logagent.kafka.image import Source
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.security import (
    Certificates,
    SecureListener,
    acl_properties,
    add_scram_user,
    allow,
)
from tests.long_form import FULL
from tests.waiting import within

AT_MS = 1_800_000_000_000


def id_text(node: KafkaNode, topic: str) -> str:
    topic_id = node.topic_id(topic)
    assert topic_id is not None
    return id_to_text(topic_id.bytes)


# 2.5.1 knows no topic ids.
KINDS = [("4.4.0", "kraft"), ("2.5.1", "zookeeper"), *([("3.5.2", "zookeeper"), ("3.9.1", "kraft")] if FULL else [])]


@pytest.mark.parametrize(("version", "mode"), KINDS)
def test_one_broker_of_each_kind(request: pytest.FixtureRequest, version: str, mode: str) -> None:
    """2.5.1 is a broker of its own, as nobody else asks it: with its ZooKeeper it costs more idle than its start."""
    node: KafkaNode
    if mode == "kraft":
        node = request.getfixturevalue("shared_node")(version)
    else:
        node = request.getfixturevalue("kafka")(version, mode=mode).start()
    node.create_topic("orders", partitions=3)
    node.create_topic("gone")
    has_ids = version != "2.5.1"
    gone = id_text(node, "gone") if has_ids else id_to_text(uuid.uuid4().bytes)
    node.delete_topic("gone")
    before = {thread.ident for thread in threading.enumerate()}
    with AdminReader(node.bootstrap) as admin:
        assert admin.cluster_id() == node.cluster_id
        assert admin.nodes() == (1,)
        image = admin.image(AT_MS, node_id=1)
        assert (image.source, image.cluster_id, image.at_ms) == (Source.ADMIN, node.cluster_id, AT_MS)
        assert image.known_until_ms == AT_MS - 60_000
        assert not image.complete
        assert set(image.by_name) == {"orders"}
        assert [p.replicas for p in image.by_name["orders"].partitions.values()] == [(1,)] * 3
        assert [p.isr for p in image.by_name["orders"].partitions.values()] == [(1,)] * 3
        assert [p for p in image.by_name["orders"].partitions.values() if p.reassigning] == []
        assert image.by_name["orders"].topic_id == (id_text(node, "orders") if has_ids else None)

        living = id_text(node, "orders") if has_ids else id_to_text(uuid.uuid4().bytes)
        answers = admin.topic_ids_known(1, [living, gone])
        told = {living: IdAnswer.KNOWN, gone: IdAnswer.UNKNOWN}
        assert answers == (told if has_ids else dict.fromkeys(told, IdAnswer.CANNOT_TELL))

        described = admin.log_dirs(1)
        assert sorted(described) == [str(log_dir) for log_dir in node.log_dirs]

        def replicas() -> list[tuple[str, int]]:
            return sorted(p for d in admin.log_dirs(1).values() for p in d.partitions or ())

        # In ZooKeeper mode the broker learns of the deletion later than whoever asked for it.
        wait_until(lambda: replicas() == [("orders", p) for p in range(3)], 60, "the broker forgets the topic")
        assert [admin.log_dir_served(1, f"{log_dir}//") for log_dir in node.log_dirs] == [True, True]
        assert admin.log_dir_served(1, str(node.root / "elsewhere")) is None
        assert admin.log_dir_served(2, str(node.log_dirs[0])) is None
        with pytest.raises(ServiceUnreachable, match=r"node 2 is not among the live brokers .* \(1\)"):
            admin.log_dirs(2)
    assert {thread.ident for thread in threading.enumerate()} <= before
    node.delete_topic("orders")


def test_no_topics_is_no_answer(shared_node: Callable[..., KafkaNode]) -> None:
    node = shared_node("4.4.0")
    with AdminReader(node.bootstrap) as admin, pytest.raises(UnreadableError, match="lists no topics"):
        admin.image(AT_MS)
    with AdminReader(node.bootstrap) as admin:
        unknown = id_to_text(uuid.uuid4().bytes)
        assert admin.topic_ids_known(1, [unknown]) == {unknown: IdAnswer.CANNOT_TELL}


def test_a_log_dir_that_failed_is_not_served(kafka: Callable[..., KafkaNode]) -> None:
    """By a broker of its own, as it gives a log dir up."""
    node = kafka("3.9.1", props={"log.segment.delete.delay.ms": "1000"}).start()
    node.create_topic("orders", partitions=4)
    spoilt = next(node.log_dirs[0].glob("orders-*"))
    spoilt.rename(spoilt.with_name("moved-0"))
    node.delete_topic("orders")
    with AdminReader(node.bootstrap) as admin:
        wait_until(lambda: not admin.log_dir_served(1, str(node.log_dirs[0])), 15, "the broker gives the log dir up")
        assert admin.log_dir_served(1, str(node.log_dirs[0])) is False
        assert admin.log_dir_served(1, str(node.log_dirs[1])) is True
        assert admin.log_dirs(1)[str(node.log_dirs[0])].error_code == 56


def test_three_nodes_one_of_them_dead(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    """Of a cluster of its own, as one is killed."""
    cluster = kafka_cluster("3.9.1", nodes=3).start()
    cluster.create_topic("orders", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    for partition in range(3):
        cluster.produce("orders", partition, n=5)
    everyone = ",".join(node.bootstrap for node in cluster.nodes)
    with AdminReader(everyone) as admin:
        image = admin.image(AT_MS, node_id=3)
        assert admin.nodes() == (1, 2, 3)
        assert {p: a.replicas for p, a in image.by_name["orders"].partitions.items()} == {
            0: (1, 2),
            1: (2, 3),
            2: (3, 1),
        }
        assert {node: len(admin.log_dirs(node)) for node in admin.nodes()} == {1: 2, 2: 2, 3: 2}

    cluster.node(3).kill()
    cluster.reassign("orders", {0: [3, 1]})
    with AdminReader(everyone, timeout=5) as admin:
        # Node 3 cannot catch up, so this reassignment stays open.
        moved = admin.image(AT_MS).by_name["orders"].partitions[0]
        assert set(moved.replicas) == {1, 2, 3}
        assert (moved.adding, moved.removing) == ((3,), (2,))
        with within(50, "each has five seconds"):
            with pytest.raises(ServiceUnreachable, match="node 3"):
                admin.log_dirs(3)
            with pytest.raises(ServiceUnreachable, match="node 3"):
                admin.topic_ids_known(3, [id_to_text(uuid.uuid4().bytes)])
            assert admin.log_dir_served(3, str(cluster.node(3).log_dirs[0])) is None
        # The others are none the worse for it.
        assert len(admin.log_dirs(1)) == len(admin.log_dirs(2)) == 2
    wait_until(lambda: 3 not in cluster.live_nodes(), 60, "the controller gives node 3 up")
    with AdminReader(everyone, timeout=5) as admin:
        assert admin.nodes() == (1, 2)
        image = admin.image(AT_MS)
        assert set(image.brokers) == {1, 2}
        assert set(image.nodes) == {1, 2, 3}


@pytest.fixture
def tls(tmp_path: Path) -> Certificates:
    return Certificates.make(tmp_path / "tls")


ORDERS, HIDDEN = TopicPartition("orders", 0), TopicPartition("hidden", 0)
USERS = {"agent": 's"3\\cret', "other": "x"}


@pytest.mark.parametrize(
    ("version", "mode", "mechanism"),
    [
        ("4.3.1", "kraft", "PLAIN"),
        ("3.9.1", "kraft", "SCRAM-SHA-512"),
        *([("3.5.2", "zookeeper", "SCRAM-SHA-256")] if FULL else []),
    ],
)
def test_sasl_and_tls_with_acls(
    kafka: Callable[..., KafkaNode], tls: Certificates, version: str, mode: str, mechanism: str
) -> None:
    """A broker of its own, as nothing may be allowed there but what the test allows."""
    listener = SecureListener(mechanism, USERS, tls)
    node = kafka(version, mode=mode, listener=listener, props=acl_properties(mode)).start()
    if mechanism.startswith("SCRAM"):
        add_scram_user(node, "agent", USERS["agent"], mechanism)
    for topic in ("orders", "hidden", "gone"):
        node.create_topic(topic)
    ids = {topic: id_text(node, topic) for topic in ("orders", "hidden", "gone")}
    node.delete_topic("gone")
    assert node.secure_bootstrap is not None
    config = client_properties(listener.client_properties("agent"))
    log_dir = str(node.log_dirs[0])

    with AdminReader(node.secure_bootstrap, config) as admin:
        assert admin.cluster_id() == node.cluster_id
        with pytest.raises(UnreadableError, match="lacks Describe on Cluster"):
            admin.image(AT_MS)
        with pytest.raises(UnreadableError, match="lacks Describe on Cluster"):
            admin.log_dirs(1)
        with pytest.raises(UnreadableError, match="lacks Describe on Cluster"):
            admin.held_log_dirs(1)
        assert admin.transactions(1, [ORDERS]) == ({}, {TOPIC_AUTHORIZATION_FAILED: [ORDERS]})
        assert admin.log_dir_served(1, log_dir) is None
        assert admin.topic_ids_known(1, ids.values()) == {
            ids["orders"]: IdAnswer.NOT_AUTHORISED,
            ids["hidden"]: IdAnswer.NOT_AUTHORISED,
            ids["gone"]: IdAnswer.CANNOT_TELL,
        }

    allow(node, "agent", "DESCRIBE", "CLUSTER", "kafka-cluster")
    with AdminReader(node.secure_bootstrap, config) as admin:
        wait_until(lambda: admin.log_dir_served(1, log_dir) is True, 30, "the broker applies the first ACL")
        with pytest.raises(UnreadableError, match="lists no topics"):
            admin.image(AT_MS)

    allow(node, "agent", "DESCRIBE", "TOPIC", "orders")
    with AdminReader(node.secure_bootstrap, config) as admin:
        known = {ids["orders"]: IdAnswer.KNOWN}
        wait_until(lambda: admin.topic_ids_known(1, known) == known, 30, "the broker applies the second ACL")
        # The hidden topic is missing from the list, and that proves nothing.
        assert set(admin.image(AT_MS, node_id=1).by_name) == {"orders"}
        assert admin.topic_ids_known(1, ids.values()) == {
            ids["orders"]: IdAnswer.KNOWN,
            ids["hidden"]: IdAnswer.NOT_AUTHORISED,
            ids["gone"]: IdAnswer.UNKNOWN,
        }
        assert ORDERS in admin.held_log_dirs(1)[log_dir].current
        assert admin.transactions(1, [ORDERS]) == ({}, {TOPIC_AUTHORIZATION_FAILED: [ORDERS]}), "DESCRIBE is not READ"

    allow(node, "agent", "READ", "TOPIC", "orders")
    with AdminReader(node.secure_bootstrap, config) as admin:
        answer = {ORDERS: None}, {TOPIC_AUTHORIZATION_FAILED: [HIDDEN]}
        wait_until(lambda: admin.transactions(1, [ORDERS, HIDDEN]) == answer, 30, "the broker applies the third ACL")


def test_mutual_tls(kafka: Callable[..., KafkaNode], tls: Certificates) -> None:
    """A broker of its own, as it has to ask for certificates."""
    listener = SecureListener(None, {}, tls, client_auth=True)
    node = kafka("4.3.1", listener=listener).start()
    node.create_topic("orders")
    assert node.secure_bootstrap is not None
    by_file = listener.client_properties()
    key, certificate = tls.client.read_text().split("-----BEGIN CERTIFICATE-----")
    inline = {
        "ssl.truststore.certificates": tls.authority.read_text(),
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": f"-----BEGIN CERTIFICATE-----{certificate}",
    }
    types = "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
    by_text = types + "".join(f"{name}={text.replace(chr(10), chr(92) + 'n')}\n" for name, text in inline.items())
    for properties in (by_file, by_text):
        with AdminReader(node.secure_bootstrap, client_properties(properties)) as admin:
            assert set(admin.image(AT_MS).by_name) == {"orders"}
    anonymous = by_file.partition("ssl.keystore")[0]
    with AdminReader(node.secure_bootstrap, client_properties(anonymous)) as admin:
        assert_names_the_cause(admin, "our client certificate|closed without an answer")


def assert_names_the_cause(admin: AdminReader, cause: str) -> None:
    """One clear error, in time, with nothing left behind."""
    before = threading.active_count()
    with within(30, "it has some seconds"), pytest.raises(ServiceUnreachable, match=cause) as caught:
        admin.cluster_id()
    assert caught.value.hint is not None
    assert threading.active_count() == before


def test_what_looks_unreachable(
    kafka: Callable[..., KafkaNode], tls: Certificates, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A broker of its own, as it is paused."""
    listener = SecureListener("PLAIN", USERS, tls)
    node = kafka("4.3.1", listener=listener).start()
    assert node.secure_bootstrap is not None
    right = listener.client_properties("agent")
    with AdminReader(node.secure_bootstrap, client_properties(right)) as admin:
        assert admin.cluster_id() == node.cluster_id
    strangers = Certificates.make(tmp_path / "strangers")
    wrong = {
        "authentication failed: .*invalid credentials|authentication failed: Authentication failed": (
            listener.client_properties("agent", password="wrong")
        ),
        "certificate is not accepted: unable to get local issuer": right.replace(
            str(tls.authority), str(strangers.authority)
        ),
        "certificate is not accepted: ": "".join(line for line in right.splitlines(True) if "truststore" not in line),
        "another protocol than SASL_PLAINTEXT|speak security.protocol=SASL_PLAINTEXT": right.replace(
            "SASL_SSL", "SASL_PLAINTEXT"
        ),
        "another protocol than SSL": right.replace("SASL_SSL", "SSL"),
        "does not take this sasl.mechanism": right.replace("=PLAIN\n", "=SCRAM-SHA-256\n").replace(
            "plain.Plain", "scram.Scram"
        ),
    }
    for cause, properties in wrong.items():
        with AdminReader(node.secure_bootstrap, client_properties(properties)) as admin:
            assert_names_the_cause(admin, cause)
    with AdminReader(node.bootstrap, client_properties(right)) as admin:
        assert_names_the_cause(admin, "does not speak TLS as security.protocol=SASL_SSL")
    with AdminReader("127.0.0.1:1", {}, timeout=1) as admin:
        assert_names_the_cause(admin, "connection refused")
    node.pause()
    for config in ({}, client_properties(right)):
        with AdminReader(node.secure_bootstrap, config, timeout=1) as admin:
            assert_names_the_cause(admin, "cannot talk to Kafka at ")
    assert capfd.readouterr().err == ""
