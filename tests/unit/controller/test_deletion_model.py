"""`TopicDeletionManager` against a plain fleet: hosts die, return, refuse, answer late, twice or never.

The long form: `python -m tests.unit.controller.test_deletion_model --steps 100000 [--seed N]`.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from logagent.controller.controller_context import ControllerContext, Replica, ReplicaState, Topic
from logagent.controller.replica_deletions import Pauses
from logagent.controller.topic_deletion_manager import TopicDeletionManager
from logagent.store.deletion import (
    Identity,
    Request,
    RequestedDirectory,
    RequestedPartition,
    RequestedTopic,
)
from tests.unit.controller.fleet_model import ClusterClient, Host, Said

NODES = (1, 2, 3, 4)
AT = "2026-11-21T00:00:00.000Z"
PAUSES = Pauses(timedelta(minutes=15), timedelta(minutes=5), timedelta(hours=1))
STEPS = Counter[str]()
nodes = st.sampled_from(NODES)


class DeletionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        self.client = ClusterClient()
        self.hosts = {node: Host(node) for node in NODES}
        self.requests: dict[str, Request] = {}
        self.answers: list[Said] = []
        self.under_way: list[Said] = []
        self.illegal: list[str] = []
        self.ids = 0
        self.inodes = 100
        self.take_over()

    def take_over(self) -> None:
        """A new controller: it knows the open requests, who is heard, and the answers in the store."""
        self.context = ControllerContext()
        self.manager = TopicDeletionManager(self.context, self.client, warn=self.illegal.append, pauses=PAUSES)
        for node, host in self.hosts.items():
            host.mailbox = []
            self.hear(node, host)
        for request in self.requests.values():
            self.manager.enqueue_topics_for_deletion(request, self.now)
        for said in self.answers:
            self.receive(said)

    def hear(self, node: int, host: Host) -> None:
        if host.silent:
            self.manager.on_broker_failure(node, "nothing heard", self.now)
        else:
            self.manager.on_broker_startup(node, self.now)

    def receive(self, said: Said) -> None:
        self.manager.receive_answer(*said, self.now)

    def new_id(self) -> str:
        self.ids += 1
        return f"{self.ids:022d}"

    def place(self, node: int, key: tuple[str, int]) -> Identity:
        self.inodes += 1
        directory = Identity("/d1", f"t-{key[1]}", self.inodes, 1, bytes=10, end_offset=5)
        self.hosts[node].disk[key] = directory
        return directory

    @rule(sets=st.lists(st.sets(nodes, min_size=1, max_size=3), min_size=1, max_size=3), gone=st.sets(nodes))
    def delete_topics(self, sets: list[set[int]], gone: set[int]) -> None:
        STEPS["delete_topics"] += 1
        if len(self.requests) >= 4:
            return
        topic_id = self.new_id()
        self.client.living.add(topic_id)
        partitions = []
        for number, replicas in enumerate(sets):
            partitions.append(RequestedPartition(number, tuple(sorted(replicas))))
            for node in replicas - gone:
                self.place(node, (topic_id, number))
        self.ask(Request(f"request-{topic_id}", "c", "topics", "0" * 8, "me", AT, AT, 1,
                         topics=(RequestedTopic("t", topic_id, tuple(partitions)),)))  # fmt: skip

    @rule(replicas=st.sets(st.tuples(nodes, st.integers(0, 2)), min_size=1, max_size=4))
    def purge_directories(self, replicas: set[tuple[int, int]]) -> None:
        STEPS["purge_directories"] += 1
        if len(self.requests) >= 4:
            return
        topic_id, found = self.new_id(), []
        self.client.living.add(topic_id)  # a not-a-replica orphan belongs to a living topic
        for node, partition in sorted(replicas):
            directory = self.place(node, (topic_id, partition))
            found.append(RequestedDirectory(node, "/d1", directory.name, "t", topic_id, partition, "orphan"))
        self.ask(Request(f"request-{topic_id}", "c", "directories", "0" * 8, "me", AT, AT, 1, directories=tuple(found)))

    def ask(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.manager.enqueue_topics_for_deletion(request, self.now)

    @rule(node=nodes)
    def dies(self, node: int) -> None:
        STEPS["dies"] += 1
        self.hosts[node].silent = True
        self.hear(node, self.hosts[node])

    @rule(node=nodes)
    def returns(self, node: int) -> None:
        STEPS["returns"] += 1
        self.hosts[node].silent = False
        self.hear(node, self.hosts[node])

    @rule(node=nodes, what=st.sampled_from(["dumb", "broker_live", "refuses", "disk_offline"]), told=st.booleans())
    def changes(self, node: int, what: str, told: bool) -> None:
        STEPS["changes"] += 1
        host = self.hosts[node]
        setattr(host, what, not getattr(host, what))
        if told:
            self.manager.resume_deletion_for_node(node, self.now)

    @precondition(lambda self: any(h.disk for h in self.hosts.values()))
    @rule(data=st.data(), restored=st.booleans())
    def directory_is_touched(self, data: st.DataObject, restored: bool) -> None:
        """A broker start renames or stretches it; or an operator restores it."""
        STEPS["directory_is_touched"] += 1
        keys = [(node, key) for node, host in self.hosts.items() for key in host.disk]
        node, key = data.draw(st.sampled_from(keys))
        if restored:
            self.hosts[node].restored.add(key)
        else:
            self.place(node, key)

    @rule(node=nodes)
    def agent_polls(self, node: int) -> None:
        STEPS["agent_polls"] += 1
        self.under_way += self.hosts[node].obey()

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), fate=st.sampled_from(["once", "once", "once", "twice", "lost", "kept"]))
    def answer_arrives(self, data: st.DataObject, fate: str) -> None:
        STEPS["answer_arrives"] += 1
        at = data.draw(st.integers(0, len(self.under_way) - 1))
        said = self.under_way[at] if fate == "kept" else self.under_way.pop(at)
        if fate != "lost" or said[2][0].result in ("renamed", "removed"):
            self.answers.append(said)  # an answer that says what was done lies in the journal and is repeated
            for _ in range(2 if fate == "twice" else 1):
                self.receive(said)

    @rule(node=nodes)
    def reassignment(self, node: int) -> None:
        STEPS["reassignment"] += 1
        topics = list(self.context.topics_to_be_deleted)[: node - 1]
        self.manager.mark_topics_ineligible_for_deletion(topics, "reassignment", "it is being reassigned")

    @rule()
    def reassignment_ends(self) -> None:
        STEPS["reassignment_ends"] += 1
        topics = list(self.context.topics_to_be_deleted)
        self.manager.resume_deletion_for_topics(topics, "reassignment", self.now)

    @rule()
    def quota(self) -> None:
        STEPS["quota"] += 1
        self.client.quota = not self.client.quota

    @rule(minutes=st.sampled_from([1, 5, 20, 200]))
    def time_passes(self, minutes: int) -> None:
        STEPS["time_passes"] += 1
        self.now += timedelta(minutes=minutes)

    @rule(node=nodes)
    def a_copy_shows_up(self, node: int) -> None:
        STEPS["a_copy_shows_up"] += 1
        topics = [t for t, k in self.context.topics_to_be_deleted.items() if k.kind == "topics" and k.started]
        for topic in topics[:1]:
            key = (topic.topic_id, 0)
            if key not in self.hosts[node].disk and Replica(topic, 0, node) not in self.context.replicas:
                self.place(node, key)
                self.manager.add_replica(topic, 0, node, self.now)

    @rule(polled=st.sets(nodes), arrives=st.booleans())
    def work(self, polled: set[int], arrives: bool) -> None:
        """What a minute brings where nothing goes wrong: a round, some agents' answers, and perhaps their arrival."""
        STEPS["work"] += 1
        self.one_round()
        for node in sorted(polled):
            self.under_way += self.hosts[node].obey()
        if arrives:
            self.answers += self.under_way
            for said in self.under_way:
                self.receive(said)
            self.under_way = []
        self.now += timedelta(minutes=1)

    @rule()
    def controller_restarts(self) -> None:
        STEPS["controller_restarts"] += 1
        self.take_over()

    @rule()
    def round(self) -> None:
        STEPS["round"] += 1
        self.one_round()

    def one_round(self) -> None:
        self.manager.resume_deletions(self.now)
        batch = self.manager.replica_state_machine.take_batch()
        for delete, told in ((False, batch.stop), (True, batch.delete)):
            for node, replicas in told.items():
                for replica in replicas:
                    self.order(node, replica, delete)
        for request_id in [r for r in self.requests if not self.is_open(r)]:
            assert {t for t in self.client.done if t.request_id == request_id}, "closed without a done entry"
            del self.requests[request_id]

    def is_open(self, request_id: str) -> bool:
        return any(topic.request_id == request_id for topic in self.context.topics_to_be_deleted)

    def order(self, node: int, replica: Replica, delete: bool) -> None:
        known, host = self.context.replicas[replica], self.hosts[node]
        assert not host.silent, "a silent host was sent an order"
        assert known.state is (ReplicaState.STARTED if delete else ReplicaState.OFFLINE), known
        progress = self.context.topics_to_be_deleted[replica.topic]
        if progress.kind == "topics":
            assert replica.topic.topic_id not in self.client.living, "told before the cluster acknowledged"
        if delete:
            assert known.held, "an order to delete without the identity of what goes"
        host.mailbox.append((replica, "delete" if delete else "stop", known.held or ()))

    @invariant()
    def it_is_all_legal(self) -> None:
        assert self.illegal == []

    @invariant()
    def what_is_counted_is_there(self) -> None:
        for topic, known in self.context.topics_to_be_deleted.items():
            states = Counter(self.context.replicas[r].state for r in known.replicas)
            assert {s: n for s, n in known.counts.items() if n} == dict(states), topic

    @invariant()
    def a_success_is_true(self) -> None:
        for replica, known in self.context.replicas.items():
            if known.state is ReplicaState.SUCCESSFUL:
                key = (replica.topic.topic_id, replica.partition)
                host = self.hosts[replica.node_id]
                assert known.result in ("renamed", "removed", "absent")
                assert key not in host.disk, f"{replica} is called {known.result} and stands there"

    @invariant()
    def a_purge_never_deletes_a_topic(self) -> None:
        purged = {t.topic_id for t, k in self.context.topics_to_be_deleted.items() if k.kind == "directories"}
        assert not purged & set(self.client.asked)

    def teardown(self) -> None:
        """The cluster and the store heal; hosts stay as they are. Everything completes or says truly why not."""
        if not hasattr(self, "client"):
            return
        self.client.quota = False
        topics = list(self.context.topics_to_be_deleted)
        self.manager.resume_deletion_for_topics(topics, "reassignment", self.now)
        for _ in range(60):
            self.one_round()
            for host in self.hosts.values():
                self.under_way += host.obey()
            self.answers += self.under_way
            for said in self.under_way:
                self.receive(said)
            self.under_way = []
            self.now += timedelta(minutes=20)
        for topic, progress in self.context.topics_to_be_deleted.items():
            self.judge_the_end(topic, list(progress.replicas))
        self.it_is_all_legal()

    def judge_the_end(self, topic: Topic, replicas: list[Replica]) -> None:
        states = {r: self.context.replicas[r] for r in replicas}
        assert any(p.state is not ReplicaState.SUCCESSFUL for p in states.values()), f"{topic} should be complete"
        for replica, progress in states.items():
            if progress.state is ReplicaState.SUCCESSFUL:
                continue
            host, why = self.hosts[replica.node_id], progress.reason
            key = (topic.topic_id, replica.partition)
            if why is None:
                # In the middle of another try: it must be one that cannot end well.
                assert host.dumb or host.refuses or host.broker_live or host.disk_offline or key in host.restored
                continue
            if why.guard == "answer":
                assert host.dumb
            elif why.guard == "assigned":
                assert host.refuses
            elif why.guard == "restored":
                assert key in host.restored
            elif "offline" in why.why:
                assert host.disk_offline or host.dumb, progress
            elif "next stop" in why.why:
                assert host.broker_live or host.dumb
            else:
                assert "heard" in why.why and host.silent, progress


def run(steps: int, number: int) -> None:
    per_example = 50
    machine = seed(number)(DeletionMachine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // per_example),
            stateful_step_count=per_example,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_request_ends_complete_or_says_truly_why_not() -> None:
    STEPS.clear()
    # What 40 examples come to is chance: one run in a few draws no answer at all. Go on until all was met.
    for _ in range(8):
        number = random.SystemRandom().randrange(1 << 32)
        print(f"seed {number}")
        run(2_000, number)
        if STEPS["round"] and STEPS["controller_restarts"] and STEPS["answer_arrives"]:
            break
    assert STEPS["round"] and STEPS["controller_restarts"] and STEPS["answer_arrives"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    began = time.monotonic()
    while sum(STEPS.values()) < asked.steps:
        run(asked.steps - sum(STEPS.values()), asked.seed + sum(STEPS.values()))
    print(f"{sum(STEPS.values())} steps in {time.monotonic() - began:.0f} s: {dict(STEPS)}")
    sys.exit(0)
