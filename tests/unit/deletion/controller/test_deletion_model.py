"""The pure functions against a fleet that does anything: brokers and agents die and return, log dirs fail, names are
recreated, and the store loses what was written.

The long form: `python -m tests.unit.deletion.controller.test_deletion_model --steps 100000 [--seed N]`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from logagent.deletion.controller.topic_deletion_manager import (
    PartitionState,
    ReplicaState,
    TopicDeletionManager,
    request_state,
)
from tests.unit.deletion.controller.fleet_model import NODES, SILENT_AFTER, Fleet

STEPS = Counter[str]()
nodes = st.sampled_from(NODES)


class DeletionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.fleet = Fleet()
        self.fleet.create((1, 2, 3))
        self.in_force: dict[str, int] = {}
        """Requests that must not be sent any more, and how many were sent before."""

    def open_numbers(self) -> list[str]:
        return sorted(self.fleet.store)

    @rule(minutes=st.sampled_from((1, 2, 20, 600)))
    def time_passes(self, minutes: int) -> None:
        STEPS["time"] += 1
        self.fleet.now += timedelta(minutes=minutes)

    @rule()
    def a_topic_is_requested(self) -> None:
        STEPS["request"] += 1
        if self.fleet.living and len(self.fleet.store) < 4:
            self.fleet.request(next(iter(self.fleet.living)))

    @rule(where=st.sets(nodes, min_size=1, max_size=3))
    def the_name_is_created_again(self, where: set[int]) -> None:
        STEPS["created"] += 1
        if not self.fleet.living:
            self.fleet.create(tuple(sorted(where)))

    @rule(n=nodes)
    def a_broker_stops_or_starts(self, n: int) -> None:
        STEPS["broker"] += 1
        self.fleet.nodes[n].broker_up = not self.fleet.nodes[n].broker_up
        self.fleet.broker_deletes()

    @rule(n=nodes)
    def an_agent_stops_or_starts(self, n: int) -> None:
        STEPS["agent"] += 1
        self.fleet.nodes[n].agent_up = not self.fleet.nodes[n].agent_up

    @rule(n=nodes)
    def a_log_dir_fails_or_returns(self, n: int) -> None:
        STEPS["log dir"] += 1
        self.fleet.nodes[n].log_dir_offline = not self.fleet.nodes[n].log_dir_offline
        self.fleet.broker_deletes()

    @rule()
    def agents_look(self) -> None:
        STEPS["agents look"] += 1
        self.fleet.now += timedelta(minutes=1)
        for n in NODES:
            self.fleet.agent_looks(n)

    def ends(self, number: str) -> None:
        """Nobody may decide it any more: whatever the store loses, nothing is sent for it."""
        self.in_force.setdefault(number, sum(sent[0] == number for sent in self.fleet.sent))

    @rule()
    def the_processes_that_ask_end(self) -> None:
        STEPS["ended"] += 1
        for number in sorted(self.fleet.wrote):
            if self.fleet.store[number].decision is None:
                self.ends(number)
        self.fleet.wrote.clear()

    @rule(n=nodes)
    def a_host_publishes(self, n: int) -> None:
        STEPS["snapshot"] += 1
        self.fleet.publishes(n)

    @rule(which=st.integers(0, 3), minutes=st.sampled_from((0, 1, 1, 1)))
    def a_process_carries_out(self, which: int, minutes: int) -> None:
        """It begins now, and agents look meanwhile or do not."""
        if not self.fleet.store:
            self.a_topic_is_requested()
        numbers = self.open_numbers()
        if not numbers:
            return
        number = numbers[which % len(numbers)]
        if minutes:
            self.agents_look()
        why = self.fleet.sender(number)
        STEPS["sent" if why is None else "waits"] += 1

    @rule(which=st.integers(0, 3))
    def a_request_is_cancelled(self, which: int) -> None:
        STEPS["cancelled"] += 1
        numbers = self.open_numbers()
        if numbers:
            number = numbers[which % len(numbers)]
            decided = self.fleet.decide(number, "cancelled")
            if decided.decision != "delete" and not self.fleet.may_decide(number):
                self.ends(number)

    @rule(which=st.integers(0, 3))
    def the_store_loses_what_was_decided(self, which: int) -> None:
        STEPS["lost"] += 1
        numbers = self.open_numbers()
        if numbers:
            filed = self.fleet.store[numbers[which % len(numbers)]]
            self.fleet.store[filed.request_id] = replace(filed, decision=None, outcome=None)

    @rule()
    def deletion_is_disabled_or_enabled(self) -> None:
        STEPS["enabled"] += 1
        self.fleet.enabled = not self.fleet.enabled

    @rule()
    def what_is_complete_is_closed(self) -> None:
        manager = self.fleet.manager()
        for number, filed in manager.seen.filed.items():
            stored = self.fleet.store[number]
            if filed.is_over or stored.decision is None or stored.decision.decision != "delete":
                continue
            if all(topic.complete for topic in manager.progress(filed)):
                STEPS["closed"] += 1
                self.fleet.close(number)

    @invariant()
    def nothing_is_sent_once_nobody_may_decide(self) -> None:
        for number, before in self.in_force.items():
            assert sum(sent[0] == number for sent in self.fleet.sent) == before, number

    @invariant()
    def complete_means_that_no_broker_would_load_it(self) -> None:
        """No illegal transition either: the state machines raise."""
        manager = self.fleet.manager()
        for filed in manager.seen.filed.values():
            progress = manager.progress(filed)
            state = request_state(filed, progress, manager.seen)
            for topic in progress:
                complete = set(topic.states) <= {ReplicaState.NON_EXISTENT} and set(topic.partitions) <= {
                    PartitionState.NON_EXISTENT
                }
                assert topic.complete == complete
                assert topic.complete or topic.missing, "what is missing is said"
                assert [m for m in topic.missing if not m.reason.fact] == []
                if topic.result == "deleted" and topic.complete:
                    assert topic.topic_id in self.fleet.deleted
                    held = [n for n, node in self.fleet.nodes.items() if (topic.topic_id, 0) in node.disk]
                    assert not held, f"{topic.topic_id} is complete, and node {held} has it"
            assert state.state != "done" or all(t.complete for t in progress) or filed.outcome is not None

    @invariant()
    def whoever_looks_sees_the_same(self) -> None:
        seen = self.fleet.read()
        other = replace(
            seen,
            hosts=dict(reversed(list(seen.hosts.items()))),
            answers=dict(reversed(list(seen.answers.items()))),
            agents=dict(reversed(list(seen.agents.items()))),
        )
        for filed in seen.filed.values():
            one, two = (TopicDeletionManager(s, SILENT_AFTER).progress(filed) for s in (seen, other))
            assert [(t.states, t.partitions, sorted(t.missing, key=str)) for t in one] == [
                (t.states, t.partitions, sorted(t.missing, key=str)) for t in two
            ]

    def teardown(self) -> None:
        """Everything comes back: what is decided and sent completes."""
        if not hasattr(self, "fleet"):
            return
        for node in self.fleet.nodes.values():
            node.broker_up = node.agent_up = True
            node.log_dir_offline = False
        self.fleet.broker_deletes()
        self.agents_look()
        for n in NODES:
            self.fleet.publishes(n)
        manager = self.fleet.manager()
        for filed in manager.seen.filed.values():
            if filed.decision is not None and filed.decision.decision == "delete" and filed.outcome is None:
                for topic in manager.progress(filed):
                    assert topic.complete or topic.topic_id in self.fleet.living, topic


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


def test_a_request_is_sent_once_decided_and_done_only_when_it_is() -> None:
    STEPS.clear()
    run(5_000, 3)
    assert STEPS["sent"] and STEPS["closed"] and STEPS["lost"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    while sum(STEPS.values()) < asked.steps:
        run(asked.steps - sum(STEPS.values()), asked.seed + sum(STEPS.values()))
    print(f"{sum(STEPS.values())} steps: {dict(STEPS)}")
    sys.exit(0)
