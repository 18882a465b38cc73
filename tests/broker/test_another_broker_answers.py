"""While this host's broker is down, another one of three proves that a topic is gone; a blind principal proves nothing.

`tests/run --full` waits for the whole minute that a broker is given to apply what it fetched, on more releases; CI
takes three seconds of it. The cluster is its own, as one of its brokers is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from logagent.base.clock import SystemClock
from logagent.base.config.settings import AssignmentsSettings, CleanupSettings, KafkaSettings, Settings
from logagent.base.records import DirKey
from logagent.cleanup.commands.cleanup import plan_cleanup
from logagent.cleanup.session.session import Session, open_session
from logagent.kafka import commitment as known_until
from logagent.kafka.processes.target import resolve_target
from tests.broker.evidence.test_orphans_live import RECORDS, logagent, verdicts
from tests.broker.rig.cluster import KafkaCluster
from tests.broker.rig.kafka import KraftNode
from tests.broker.rig.process import wait_until
from tests.broker.rig.security import SecureListener, acl_properties, allow
from tests.long_form import FULL, versions

VERSIONS = versions("4.3.1", "4.4.0", "3.9.1", "3.5.2")
# `one` may describe one topic only, that has no replica on this host; `blind` none at all.
USERS = {"agent": "a", "partly": "p", "one": "o", "blind": "b"}


class Asking:
    """Sessions of logagent on the host of `node`, with the Admin API alone, as this or that principal."""

    def __init__(self, cluster: KafkaCluster, node: KraftNode, listener: SecureListener) -> None:
        self.cluster, self.node, self.listener = cluster, node, listener
        # Before 3.6.1 a broker does not keep what is named -stray: what is set aside goes out of its sight.
        self.aside = node.root / "aside"
        self.aside.mkdir()

    @contextmanager
    def session(self, principal: str) -> Iterator[Session]:
        client = self.node.root / f"{principal}.properties"
        client.write_text(self.listener.client_properties(principal))
        bootstrap = ",".join(n.secure_bootstrap or "" for n in self.cluster.nodes)
        settings = replace(
            Settings(),
            kafka=KafkaSettings(
                config=str(self.node.config),
                bootstrap_servers=bootstrap,
                client=str(client),
                version=self.node.version,
            ),
            assignments=AssignmentsSettings(sources=("admin",)),
            cleanup=CleanupSettings(sightings=1, min_age=0, max_fraction=1.0, quarantine_dirs=(str(self.aside),)),
        )
        target, state = resolve_target(settings), str(self.node.root / "state")
        with open_session(target, settings, SystemClock(), state_dir=state, act=True, actor="test") as session:
            session.read_assignments()
            session.take_inventory()
            yield session

    def verdicts(self, principal: str) -> dict[str, str | None]:
        """By directory: the reason of an orphan, else the verdict."""
        with self.session(principal) as session:
            found = {name: r for (_, name), r in session.facts().rulings.items()}
        return {name: r.reason if r.verdict == "orphan" else r.verdict.value for name, r in found.items()}


@pytest.mark.parametrize("version", VERSIONS)
def test_absence_is_proven_by_another_broker_once_it_knows_enough(
    kafka_cluster: Callable[..., KafkaCluster],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str,
) -> None:
    if not FULL:
        monkeypatch.setattr(known_until, "APPLY_MS", 3_000)
    listener = SecureListener("PLAIN", USERS)
    cluster = kafka_cluster(version, nodes=3, log_dirs=1, listener=listener, props=acl_properties()).start()
    three = cluster.node(3)
    for topic in ("living", "hidden", "gone"):
        cluster.create_topic(topic, assignments={0: [1, 2, 3]})
        cluster.produce(topic, 0, n=RECORDS)
        cluster.wait_in_sync(topic)
    cluster.create_topic("elsewhere", assignments={0: [1]})
    for user in USERS:
        allow(cluster, user, "DESCRIBE", "CLUSTER", "kafka-cluster")
    for topic in ("living", "hidden", "gone", "elsewhere"):
        allow(cluster, "agent", "DESCRIBE", "TOPIC", topic)
    allow(cluster, "partly", "DESCRIBE", "TOPIC", "living")
    allow(cluster, "one", "DESCRIBE", "TOPIC", "elsewhere")
    asking = Asking(cluster, three, listener)
    everything_lives = {"living-0": "assigned", "hidden-0": "assigned", "gone-0": "assigned"}
    wait_until(lambda: asking.verdicts("agent") == everything_lives, 30, "the ACLs are in force", interval=0.5)

    three.stop()
    cluster.delete_topic("gone")
    with asking.session("agent") as session:
        ruling = session.facts().rulings[DirKey(str(three.log_dirs[0]), "living-0")]
        answering = session.assignments.answering
        assert ruling.verdict == "assigned" and answering is not None and not answering.own
    wait_until(lambda: asking.verdicts("agent")["gone-0"] == "topic-absent", 150, "another one proves it", interval=1)
    with asking.session("agent") as session:
        facts = session.facts()
        answering = session.assignments.answering
        assert answering is not None and not answering.own and answering.known_until_ms is not None
        (gone,) = (d for d in session.dirs if d.name == "gone-0")
        assert max(gone.ctime_ns, gone.mtime_ns, gone.newest_mtime_ns) // 1_000_000 <= answering.known_until_ms
        assert {name for (_, name), r in facts.rulings.items() if r.verdict == "orphan"} == {"gone-0"}

    # Who may see less proves less, and never more.
    assert asking.verdicts("partly") == {"living-0": "assigned", "hidden-0": "unknown", "gone-0": "topic-absent"}
    for principal in ("one", "blind"):
        assert set(asking.verdicts(principal).values()) == {"unknown"}, principal

    with asking.session("agent") as session:
        plan = plan_cleanup(session, session.facts())
        assert [(p.dir.name, p.reason) for p in plan.actions] == [("gone-0", "topic-absent")], plan
        results = session.log_manager().execute(plan).results.values()
        assert [r.outcome.value for r in results] == ["done"]

    # Drained while it is down: by a complete image that lists it as a registered broker.
    for topic in ("living", "hidden"):
        cluster.reassign(topic, {0: [1, 2]})
    cluster.wait_reassigned()
    exported = tmp_path / "assignments.json"
    logagent(cluster.node(1), "assignments", "export", str(exported))
    assert verdicts(logagent(three, "scan", "--assignments", str(exported))) == {
        "living-0": ("orphan", "not-a-replica"),
        "hidden-0": ("orphan", "not-a-replica"),
    }
    for topic in ("living", "hidden"):
        assert len(cluster.read_all(topic, 0)) == RECORDS
