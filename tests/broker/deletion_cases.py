"""Deletions across a real cluster with something in their way, the broker's own answer as witness of each.

    python -m tests.broker.deletion_cases --version 3.9.1
    python -m tests.broker.deletion_cases --version 3.5.2 --mode zookeeper --case offline-dir --case reassigned

Three brokers, an agent beside each, one cluster for all cases (`CASES`); after each of them the topic that nobody
deleted is as it was, no log dir is offline, and every broker and agent runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path

from logagent.base.records import id_to_text
from logagent.deletion.store.requests import RequestedPartition, RequestedTopic
from tests.broker.deletion_stage import NODES, PARTITIONS, Stage
from tests.broker.rig.ordered_cluster import OrderedCluster, approving, current
from tests.broker.rig.process import wait_until
from tests.broker.rig.rig import Mode, Rig

# What a checkpoint is written to first; a directory of that name fails it, and the broker gives the log dir up.
OBSTACLE = "recovery-point-offset-checkpoint.tmp"


def broker_down(s: Stage) -> None:
    """The others finish before it. What the Admin API does not list proves nothing to its agent: it acts when its own
    broker has read the deletion (KRaft), or Kafka waits for it (ZooKeeper)."""
    topic = s.create("down")
    s.cluster.node(3).kill()
    request = s.delete(topic)
    if s.mode == "zookeeper":
        s.stays_open(request)
        assert len(current(s.cluster.node(3), topic)) == PARTITIONS
    else:
        s.only_missing(request, 3, "broker 3 is down")
        assert len(current(s.cluster.node(3), topic)) == PARTITIONS
    s.cluster.node(3).start(timeout=240)
    s.completes(request)
    s.is_gone(topic)
    if s.mode == "kraft":
        s.gives_back(request, 3, topic)


def offline_dir(s: Stage) -> None:
    topic, two = s.create("offline"), s.cluster.node(2)
    bad = next(path for path in two.log_dirs if (path / f"{topic}-0").is_dir())
    (bad / OBSTACLE).mkdir()
    try:
        wait_until(lambda: two.offline_dirs() == [str(bad)], 60, f"the broker calls {bad} offline", interval=0.5)
        request = s.delete(topic)
        if s.mode == "kraft":
            s.only_missing(request, 2, str(bad))
        else:
            s.stays_open(request)
        assert (bad / f"{topic}-0").is_dir()
    finally:
        (bad / OBSTACLE).rmdir()
    two.stop()
    two.start(timeout=240)
    s.completes(request)
    s.is_gone(topic)


def reassigned(s: Stage) -> None:
    """To a broker that is down, so that it stays in progress. Kafka in KRaft mode deletes it all the same; the
    ZooKeeper generation would not, so nothing is asked before."""
    topic = s.create("reassigned", assignments={0: [1, 2]})
    s.cluster.node(3).kill()
    s.cluster.reassign(topic, {0: [1, 3]})
    assert (topic, 0) in s.cluster.reassignments()
    request = s.delete(topic)
    if s.mode == "zookeeper":
        s.stays_open(request)
        assert topic in s.cluster.topics() and (topic, 0) in s.cluster.reassignments()
    s.cluster.node(3).start(timeout=240)
    s.completes(request)
    s.is_gone(topic)


def dead_agent(s: Stage) -> None:
    """Its broker runs, and answers for it where no agent does."""
    topic = s.create("dead-agent")
    s.agent_is(2, signal.SIGSTOP)
    s.completes(s.delete(topic))
    s.is_gone(topic)
    s.agent_is(2, signal.SIGCONT)


def without_agents(s: Stage) -> None:
    """No agent is heard: each broker's own answer counts."""
    topic, three = s.create("without-agents"), s.cluster.node(3)
    for node_id in NODES:
        s.ordered.stop_agent(node_id)

    if s.mode == "kraft":
        three.kill()
    request = s.delete(topic)
    if s.mode == "kraft":
        s.only_missing(request, 3, "broker 3 is down")
        three.start(timeout=240)
    s.completes(request)
    s.is_gone(topic)


def host_gone(s: Stage) -> None:
    """A host that never returns: said since when, and cancelled. What it has when it comes after all stays Kafka's."""
    topic = s.create("host-gone")
    s.ordered.stop_agent(3)
    s.cluster.node(3).kill()
    request = s.delete(topic)
    if s.mode == "kraft":
        s.only_missing(request, 3, "broker 3 is down")
    status, _, said = s.ordered.topics("cancel", request["request_id"])
    assert status == 0, said
    s.everything_runs()
    s.ordered.topics("run", "--once")
    assert s.request(request["request_id"])["state"] == "cancelled"


def recreated(s: Stage) -> None:
    """The name belongs to a new topic before the old one's last replica is found, and a request comes too late: its
    process did not decide it, so nobody does."""
    topic, three = s.create("recreated"), s.cluster.node(3)
    s.agent_is(3, signal.SIGSTOP)
    if s.mode == "kraft":
        three.kill()
    request = s.delete(topic)
    if s.mode == "kraft":
        s.only_missing(request, 3, "")
    else:
        s.completes(request)  # its broker runs, and answers for it where no agent does
    again = s.create("recreated", assignments={p: [1, 2] for p in range(PARTITIONS)})
    new_id = s.cluster.topic_id(again)
    if not three.alive:
        three.start(timeout=240)
    s.cluster.reassign(topic, {p: [1, 2, 3] for p in range(PARTITIONS)})
    s.cluster.wait_reassigned()
    s.cluster.wait_in_sync(topic)
    s.agent_is(3, signal.SIGCONT)
    s.completes(request)
    s.is_untouched(topic, new_id)
    # A request that comes after another topic got the name.
    assert new_id is not None
    old_id = new_id.bytes
    old = RequestedTopic(topic, id_to_text(old_id), tuple(RequestedPartition(p, (1, 2, 3)) for p in range(PARTITIONS)))
    s.cluster.delete_topic(topic)
    s.create("recreated")
    new_id = s.cluster.topic_id(topic)
    late = s.signed_request(old)
    s.stays_undecided(late)
    s.is_untouched(topic, new_id)
    assert s.ordered.topics("cancel", late["request_id"])[0] == 0


def orphans(s: Stage) -> None:
    """A `not-a-replica` orphan is purged, the controller and the agent killed in the middle: its topic lives on.

    Beside a ZooKeeper-mode broker, which loads it, the order waits for `prestart`."""
    topic, three = s.create("moved"), s.cluster.node(3)
    three.stop()
    topic_id = s.moved_away(topic)
    waits = s.mode == "zookeeper"
    if waits:
        three.start(timeout=240)  # this generation loads what it finds, and keeps it: nothing may be renamed beside it
    s.age(3, topic)
    s.report(topic, "orphans")
    request = s.purge_all(topic, "orphan")
    s.killed_in_the_middle(3)
    if waits:
        s.rounds_until(request, lambda r: "next stop" in str(r["topics"]), "the agent waits for the broker's next stop")
        assert len(current(three, topic)) == PARTITIONS
        s.ordered.stop_agent(3)
        three.stop()
        s.age(3, topic)
        ran = s.ordered.prestart(3)
        assert not current(three, topic), (ran.out, ran.err)
        s.ordered.agent(3)
    s.completes(request)
    assert not current(three, topic)
    assert s.request(request["request_id"])["bytes_quarantined"] > 0
    s.everything_runs()
    assert topic not in [name for state in three.describe_log_dirs().values() for name, _ in state.replicas]
    s.is_untouched(topic, topic_id, replicas=(1, 2))


def strays(s: Stage) -> None:
    """What the broker itself has set aside is removed, retention or not, as its plan was approved."""
    topic, three = s.create("strayed"), s.cluster.node(3)
    three.stop()
    topic_id = s.moved_away(topic)
    three.start(timeout=240)
    names = [name for name in three.dir_names() if name.startswith(f"{topic}-")]
    assert len(names) == PARTITIONS and all(name.endswith("-stray") for name in names), names
    s.report(topic, "leftovers")
    request = s.purge_all(topic, "stray", "--no-retention")
    s.killed_in_the_middle(3)
    s.completes(request)
    assert not [name for name in three.dir_names() if name.startswith(f"{topic}-")]
    s.is_untouched(topic, topic_id, replicas=(1, 2))


def without_id(s: Stage) -> None:
    """A replica whose partition.metadata is gone is refused for good, and says so; the other one goes."""
    topic, three = s.create("nameless"), s.cluster.node(3)
    three.stop()
    topic_id = s.moved_away(topic)
    s.age(3, topic)
    s.report(topic, "orphans")
    (path,) = [path / f"{topic}-0" for path in three.log_dirs if (path / f"{topic}-0").is_dir()]
    metadata = (path / "partition.metadata").read_bytes()
    (path / "partition.metadata").unlink()
    request = s.purge_all(topic, "orphan")
    s.rounds_until(request, lambda r: "its topic id is None" in str(r["topics"]), "the agent says that there is no id")
    s.rounds_until(request, lambda r: current(three, topic) == [f"{topic}-0"], "the other one is set aside")
    (known,) = s.request(request["request_id"])["topics"]
    (left,) = known["missing"]
    assert (left["state"], left["claim"]) == ("ReplicaDeletionIneligible", "identity"), known
    assert left["hint"] == "request it again from a current report", left
    (path / "partition.metadata").write_bytes(metadata)
    assert s.ordered.topics("cancel", request["request_id"])[0] == 0
    s.everything_runs()
    s.is_untouched(topic, topic_id, replicas=(1, 2))


def old_protocol(s: Stage) -> None:
    """A cluster that gives its topics no ids: they are left out and it is said why."""
    node = s.rig.kafka("3.5.2", mode="zookeeper", props={"inter.broker.protocol.version": "2.7"}, name="old").start()
    try:
        node.create_topic("nameless")
        folder = s.root / "old-store"
        folder.mkdir()
        status, plan, said = OrderedCluster(folder, {1: node}).topics("delete", "--topic", "nameless", "--execute")
        assert plan["request_id"] is None and plan["topics"] == [], plan
        assert "nameless is left out: it has no topic id" in said, said
        assert node.topics() == ["nameless"] and node.topic_id("nameless") in (None, uuid.UUID(int=0)), status
    finally:
        node.stop()


def names(s: Stage) -> None:
    """Internal, unknown and underscored names are left out and said; `--timeout 0` decides and answers."""
    s.commit_an_offset()
    hidden, topic = s.create("_hidden"), s.create("at-once")
    before = s.cluster.topics()
    _, plan, said = s.ordered.topics("delete", "--topic", "__consumer_offsets,_hidden,nobody,at-once")
    assert [t["topic"] for t in plan["topics"]] == [topic], plan
    assert {d["what"] for d in plan["dropped"]} >= {"__consumer_offsets", hidden}, plan
    _, plan, said = s.ordered.topics("delete", "--topic", "nobody", "--execute")
    assert plan["request_id"] is None and "no topic of the cluster has a matching name" in said, (plan, said)
    assert s.cluster.topics() == before
    request = s.delete(topic)
    assert request["state"] in ("deleting", "done"), request
    s.completes(request)
    s.is_gone(topic)
    assert {"__consumer_offsets", hidden} <= set(s.cluster.topics())


def disabled(s: Stage) -> None:
    """delete.topic.enable=false: the command fails, the topic is dropped for good. Then deletion is enabled, snapshots
    show the topic and controllers look again: it lives, with every record."""
    topic = s.create("disabled")
    topic_id = s.cluster.topic_id(topic)
    s.configure({"delete.topic.enable": "false"})
    try:
        plan = s.ordered.topics("delete", "--topic", topic)[1]
        words = ["--execute", *approving(plan), "--timeout", "40s"]
        status, done, said = s.ordered.topics("delete", "--topic", topic, *words)
        assert "is disabled: " in said and "deletion" in said.lower(), said
        print(f"topics delete: status {status}, {s.request(done['request_id'])['state']}", flush=True)
    finally:
        s.configure({"delete.topic.enable": None})
    with s.ordered.controller():
        time.sleep(20)
    assert s.ordered.topics("run", "--once")[0] == 0
    print(f"then enabled: the cluster lists it: {topic in s.cluster.topics()}", flush=True)
    s.is_untouched(topic, topic_id)
    assert status == 1 and s.request(done["request_id"])["state"] == "disabled", (status, said)


def dead_leader(s: Stage) -> None:
    """The only other copy is behind a leader that is down, its host's agent up: what is purged is an only copy."""
    topic, two, three = s.create("alone"), s.cluster.node(2), s.cluster.node(3)
    three.stop()
    s.cluster.reassign(topic, {p: [2] for p in range(PARTITIONS)})
    s.cluster.wait_reassigned()
    topic_id = s.cluster.topic_id(topic)
    s.age(3, topic)
    s.report(topic, "orphans")
    words = ["--report", str(s.root / "report"), "--topic", topic]
    assert not any(d["only_copy"] for d in s.ordered.topics("purge", *words)[1]["directories"]), "the leader is live"
    two.kill()
    admin = s.cluster.via(1)

    def leaderless() -> bool:
        (described,) = admin.ask(lambda asked: asked.describe_topics([topic]))
        # Its last in-sync replica stays in the ISR, but becomes an eligible one where KIP-966 is on (4.x).
        return all(p["leader_id"] == -1 and p["isr_nodes"] in ([2], []) for p in described["partitions"])

    wait_until(leaderless, 120, "its partitions have no leader", interval=0.5)
    _, plan, said = s.ordered.topics("purge", *words)
    status, _, _ = s.ordered.topics("purge", *words, "--no-retention", "--execute")
    print(f"purge: {[d['only_copy'] for d in plan['directories']]}, {plan['approval']['needed']}", flush=True)
    assert [d["only_copy"] for d in plan["directories"]] == [True] * PARTITIONS, plan
    assert status == 3 and len(current(three, topic)) == PARTITIONS, said
    two.start(timeout=240)
    s.everything_runs()
    s.is_untouched(topic, topic_id, replicas=(2,))


CASES: dict[str, Callable[[Stage], None]] = {
    "names": names, "broker-down": broker_down, "dead-agent": dead_agent, "without-agents": without_agents,
    "recreated": recreated, "orphans": orphans,
    "strays": strays, "offline-dir": offline_dir, "reassigned": reassigned, "host-gone": host_gone,
    "disabled": disabled, "dead-leader": dead_leader, "without-id": without_id, "old-protocol": old_protocol,
}  # fmt: skip
# A broker sets aside what it finds from KRaft's 3.7 on; topics without ids are of the ZooKeeper generation.
ONLY: dict[str, Mode] = {"strays": "kraft", "old-protocol": "zookeeper"}


def cases_of(mode: Mode) -> list[str]:
    return [name for name in CASES if ONLY.get(name, mode) == mode]


def troubles_of(version: str, mode: Mode, cases: list[str], root: Path) -> list[str]:
    """What went wrong; a line for each case on stdout."""
    rig, troubles = Rig(root), list[str]()
    try:
        with Stage(rig, root, version, mode) as stage:
            for name in cases:
                began = time.monotonic()
                try:
                    CASES[name](stage)
                    stage.everything_runs()
                    stage.is_untouched(stage.kept, stage.kept_id)
                    said = "as it should be"
                except Exception:
                    said = f"TROUBLE\n{traceback.format_exc()}"
                    troubles.append(name)
                print(f"{version} {name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
                if troubles[-1:] == [name]:
                    stage.everything_runs()
    finally:
        rig.close()
    return troubles


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.deletion_cases", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--version", default="3.9.1")
    parser.add_argument("--mode", default="kraft", choices=("kraft", "zookeeper"))
    parser.add_argument("--case", action="append", choices=CASES)
    asked = parser.parse_args()
    cases = asked.case or cases_of(asked.mode)
    with tempfile.TemporaryDirectory(prefix="logagent-deletion-cases-") as root:
        troubles = troubles_of(asked.version, asked.mode, cases, Path(root))
    print(f"{asked.version}: {len(cases)} cases, {len(troubles)} with troubles {' '.join(troubles)}")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
