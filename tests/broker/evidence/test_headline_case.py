"""A topic is deleted, created again or reassigned while one broker of three is down: on its host logagent, freshly
installed and with nothing but the `kafka.config` that `setup` writes, finds what is left over.

The clusters are their own, as brokers are stopped.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from logagent.kafka import commitment
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KafkaNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.security import Certificates, SecureListener
from tests.command_line import Ran
from tests.forked import run_forked
from tests.long_form import FULL, long_form, versions

VERSIONS = versions("4.4.0", "4.3.1", "3.9.1")
RECORDS = 30
MADE = {
    "gone-0": ("orphan", "topic-absent"),
    "again-0": ("orphan", "topic-recreated"),
    "moved-0": ("orphan", "not-a-replica"),
    "kept-0": ("assigned", None),
}


class FreshInstall:
    """logagent on the host of a node, whose files may be a copy at `root`: an empty state dir and one setting."""

    def __init__(self, node: KafkaNode, root: Path | None = None, **kafka: str) -> None:
        self.root = root or node.root
        config = self.root / node.config.name
        if root is not None:
            config.write_text(config.read_text().replace(str(node.root), str(root)))
        self.toml = self.root / "logagent.toml"
        keys = {"config": str(config), **kafka}
        self.toml.write_text("[kafka]\n" + "".join(f'{key} = "{value}"\n' for key, value in keys.items()))

    def run(self, *arguments: str, allow: tuple[int, ...] = (0,), **environment: str) -> Ran:
        where = ("--config", str(self.toml), "--state-dir", str(self.root / "state"))
        ran = run_forked(*arguments, *where, environment=environment)
        assert ran.status in allow, f"{arguments} came to {ran.status}\n{ran.err}\n{ran.out[-2000:]}"
        return ran

    def json(self, *arguments: str, allow: tuple[int, ...] = (0,)) -> Any:
        return self.run(*arguments, "--json", allow=allow).json

    def verdicts(self) -> dict[str, tuple[str, str | None]]:
        found = self.json("scan")["dirs"]
        return {d["name"]: (d["verdict"], d["reason"]) for d in found if d["verdict"] is not None}


def with_topics(cluster: KafkaCluster) -> KafkaCluster:
    cluster.start()
    for topic in ("kept", "gone", "again", "moved"):
        cluster.create_topic(topic, assignments={0: [1, 2, 3]})
        cluster.produce(topic, 0, n=RECORDS)
        cluster.wait_in_sync(topic)
    return cluster


def change_topics(cluster: KafkaCluster) -> None:
    cluster.delete_topic("gone")
    cluster.delete_topic("again")
    cluster.create_topic("again", assignments={0: [1, 2, 3]})
    cluster.reassign("moved", {0: [1, 2]})
    cluster.wait_reassigned()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_deleted_recreated_or_moved_while_it_was_down_is_found_on_a_fresh_install(
    kafka_cluster: Callable[..., KafkaCluster], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The long form gives the others the whole minute in which a broker applies what it fetched."""
    cluster = with_topics(kafka_cluster(version, nodes=3, log_dirs=1))
    three = cluster.node(3)
    three.stop()
    change_topics(cluster)
    host = FreshInstall(three)

    # At once, nothing younger than the stop is proven: the others are given a minute to have learnt everything.
    assert "orphan" not in {verdict for verdict, _ in host.verdicts().values()}
    if not FULL:
        monkeypatch.setattr(commitment, "APPLY_MS", 3_000)
    wait_until(lambda: host.verdicts() == MADE, 180, "the others prove it", interval=1)
    scanned = host.json("scan")
    assert scanned["assignments"]["source"] == "admin" and "ends_at_stop" not in scanned["assignments"]
    planned = host.json("cleanup")
    orphans = {name for name, (verdict, _) in MADE.items() if verdict == "orphan"}
    assert {w["name"] for w in planned["waiting"]} == orphans and planned["actions"] == [], planned
    assert "assignments-stopped" not in codes(host.json("doctor", allow=(0, 1)))

    # What is planned on their word is done on it, although what is acted on alone shows no topic that lives.
    host.toml.write_text(host.toml.read_text() + f'version = "{version}"\n[cleanup]\nmax_fraction = 1.0\n')
    for name in ("gone-0", "again-0"):
        done = host.json("delete", "--partition", name, "--quarantine", "--execute")
        assert [a["outcome"] for a in done["actions"] if a["action"] == "quarantine"] == ["done"], done["refusals"]

    # By itself `rescue` reads this disk only. Where that says nothing any more, it asks the others.
    max_age = "90s" if FULL else "10s"
    host.toml.write_text(host.toml.read_text() + f'[assignments]\nmax_age = "{max_age}"\n')

    def offered() -> set[str]:
        return {a["topic"] for a in host.json("rescue", allow=(0, 4))["actions"]}

    wait_until(lambda: offered() == {"gone", "again", "moved"}, 150, "rescue offers what they prove", interval=1)
    host.toml.write_text(host.toml.read_text().replace(max_age, "15m"))

    # Nobody is left: said as what it is, by scan, plan and doctor alike.
    for node in (cluster.node(2), cluster.node(1)):
        node.stop()
    for command in ("scan", "cleanup"):
        said = host.run(command)
        says = said.out + said.err
        assert "assigned, as of" in says and "no living broker could be asked" in says, says
        assert "assignments export" in says
    assert host.verdicts()["moved-0"] == ("assigned", None)
    assert codes(host.json("doctor", allow=(0, 1)))["assignments-stopped"].startswith("assigned, as of")


@long_form
def test_a_stopped_clone_does_not_believe_the_brokers_of_its_original(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    cluster = with_topics(kafka_cluster("4.4.0", nodes=3, log_dirs=1))
    three = cluster.node(3)
    three.stop()
    clone = FreshInstall(three, shutil.copytree(three.root, tmp_path / "clone"))
    stopped = time.time()
    three.start()
    cluster.wait_ready()
    change_topics(cluster)

    def asked() -> str:
        ran = clone.run("scan")
        assert "orphan" not in ran.out, ran.out
        return ran.out + ran.err

    wait_until(lambda: time.time() > stopped + 20, 30, "the session of the clone's node would have ended", interval=1)
    assert "it calls node 3 live" in asked()
    clone.toml.write_text(clone.toml.read_text() + 'version = "4.4.0"\n')
    for command in (("delete", "--partition", "gone-0", "--quarantine"), ("rescue",), ("cleanup",)):
        acted = clone.json(*command, "--execute", allow=(0, 3))
        assert [a for a in acted["actions"] if a["outcome"] == "done"] == [], acted
    assert (clone.root / "d1/gone-0").is_dir()
    three.stop()
    assert "a node 3 followed its quorum" in asked()


def test_a_password_goes_to_a_discovered_address_through_verified_tls_only(
    kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    listener = SecureListener("PLAIN", {"agent": "secret"}, Certificates.make(tmp_path / "certificates"))
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    among_brokers = {
        "inter.broker.listener.name": listener.name,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config":
            f'{login} username="broker" password="b" user_broker="b" user_agent="secret";',
    }  # fmt: skip
    cluster = kafka_cluster("4.4.0", nodes=2, log_dirs=1, listener=listener, props=among_brokers).start()
    cluster.create_topic("kept", assignments={0: [1, 2]})
    cluster.wait_in_sync("kept")
    two = cluster.node(2)
    two.stop()
    client = tmp_path / "client.properties"
    client.write_text(listener.client_properties("agent"))
    host = FreshInstall(two, client=str(client))
    secure = (cluster.node(1).secure_bootstrap or "").rpartition(":")[2]

    def asked() -> str:
        ran = host.run("assignments", "show", LOGAGENT_ASSIGNMENTS__SOURCES="admin")
        return next(line for line in ran.out.splitlines() if "Admin API at" in line)

    assert f":{secure}" in asked(), asked()
    # Not one whose name is not verified: then the plain listener is asked, without a password.
    client.write_text(client.read_text() + "ssl.endpoint.identification.algorithm=\n")
    assert f":{secure}" not in asked(), asked()


def codes(document: Any) -> dict[str, str]:
    return {f["code"]: f["says"] for f in document["findings"]}
