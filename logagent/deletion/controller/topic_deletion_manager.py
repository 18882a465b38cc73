"""Kafka's `TopicDeletionManager`, as a pure function: from what is seen to the state of every replica and partition.

A replica goes Online → Offline when its deletion is decided → ReplicaDeletionStarted when the cluster has deleted the
topic → ReplicaDeletionSuccessful when something says that its host has no directory of it that a broker loads. It is
ReplicaDeletionIneligible for a reason, with what ends it. When every replica of a topic has succeeded, they are
NonExistentReplica, their partitions NonExistentPartition, and the topic is complete.

Sources of "no directory" are, in this order: the agent's own answer, made after the decision; the live broker's own
DescribeLogDirs; a snapshot taken after the decision. A log that the broker lists now refutes any of them.

The states, and which may follow which, are Kafka's (`ReplicaStateMachine`, `PartitionStateMachine`). Nothing is stored:
each time it begins with everything online, as a controller does after a failover, and goes as far as what is seen
permits.

What is seen (`Sightings`) are plain values. Whoever looks from whatever machine sees the same, so everything that is
computed from this is the same: the states of replicas, and what a request comes to in one word (`request_state`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Literal, NamedTuple, TypeVar

from logagent.base.records import Reason
from logagent.base.units import counted, human_time, instant
from logagent.deletion.store.answers import Answer, DirectoryAnswer, Seen, TopicAnswer
from logagent.deletion.store.requests import (
    Filed,
    Request,
    RequestedDirectory,
    RequestedTopic,
    TopicOutcome,
    moment,
    moment_ms,
)
from logagent.store.contract import CLOCKS_APART

S = TypeVar("S", bound=StrEnum)

State = Literal["open", "deleting", "on-hold", "done", "disabled", "refused", "cancelled", "dropped", "expired"]
RUNNER_LASTS = timedelta(minutes=2)
FAILED = frozenset({"disabled", "refused", "dropped"})
"""States with which a command ends as failed."""


@dataclass(frozen=True, slots=True)
class AgentSeen:
    """A node's seen file. `written`: by the store's clock, which does not depend on the host's."""

    seen: Seen
    written: datetime


@dataclass(frozen=True, slots=True)
class SnapshotSeen:
    """A node's newest snapshot: its directories that a broker loads, by (topic id, partition); `offline`: log dirs that
    it does not show; `unread`: the topic names under which it has directories whose topic id could not be read;
    `owners`: the user ids that it belongs to."""

    taken_at: datetime
    current: frozenset[tuple[str, int]]
    offline: tuple[str, ...] = ()
    unread: frozenset[str] = frozenset()
    owners: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class HostSeen:
    """What hosts say about one node id. `hosts`: those that published for it lately; `heard_at`: when any did last."""

    hosts: tuple[str, ...] = ()
    heard_at: datetime | None = None
    snapshot: SnapshotSeen | None = None


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """A live broker's own DescribeLogDirs: its current logs by (name, partition), and the topic id that its metadata
    gives for each name; `offline`: log dirs with an error."""

    current: frozenset[tuple[str, int]]
    ids: Mapping[str, str]
    offline: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterSeen:
    """The answers of the cluster. `living` and `gone` are by topic id: what it lists now, and what it answers as
    unknown by id. `why_not`: why it could not be asked; then everything else is empty."""

    living: Mapping[str, RequestedTopic] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    moving: frozenset[str] = frozenset()
    live_brokers: frozenset[int] | None = None
    logs: Mapping[int, BrokerLogs] = field(default_factory=dict)
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    """A `topics run`, by the file that it renews. `waits`: why requests do not go on, by id."""

    host: str
    by: str
    at: datetime
    waits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sightings:
    """Everything that one look has seen. `answers`: by (request id, node id), those that count; `disowned`: why a
    node's do not. `unreadable`: seen files that are none, by node id, and why."""

    at: datetime
    filed: Mapping[str, Filed]
    agents: Mapping[int, AgentSeen] = field(default_factory=dict)
    unreadable: Mapping[int, str] = field(default_factory=dict)
    answers: Mapping[tuple[str, int], Answer] = field(default_factory=dict)
    hosts: Mapping[int, HostSeen] = field(default_factory=dict)
    cluster: ClusterSeen = field(default_factory=ClusterSeen)
    runners: tuple[Runner, ...] = ()
    disowned: Mapping[tuple[str, int], str] = field(default_factory=dict)


class ReplicaState(StrEnum):
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    STARTED = "ReplicaDeletionStarted"
    SUCCESSFUL = "ReplicaDeletionSuccessful"
    INELIGIBLE = "ReplicaDeletionIneligible"
    NON_EXISTENT = "NonExistentReplica"


class PartitionState(StrEnum):
    NEW = "NewPartition"
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    NON_EXISTENT = "NonExistentPartition"


_R, _P = ReplicaState, PartitionState
VALID_PREVIOUS_REPLICA_STATES: dict[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.INELIGIBLE}),
    _R.STARTED: frozenset({_R.OFFLINE}),
    _R.SUCCESSFUL: frozenset({_R.STARTED}),
    _R.INELIGIBLE: frozenset({_R.OFFLINE, _R.STARTED}),
    _R.NON_EXISTENT: frozenset({_R.SUCCESSFUL}),
}
VALID_PREVIOUS_PARTITION_STATES: dict[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}


class IllegalTransition(Exception):
    """A state that cannot follow the one before: a fault of ours, never of what was seen."""


def _moved(state: S, targets: tuple[S, ...], valid: Mapping[S, frozenset[S]]) -> S:
    for target in targets:
        if state not in valid[target]:
            raise IllegalTransition(f"{target} cannot follow {state}")
        state = target
    return state


class ReplicaStateMachine:
    @staticmethod
    @cache
    def state_after(state: ReplicaState, *targets: ReplicaState) -> ReplicaState:
        """The state of a replica that goes from `state` through `targets`. Raises IllegalTransition."""
        return _moved(state, targets, VALID_PREVIOUS_REPLICA_STATES)


class PartitionStateMachine:
    @staticmethod
    @cache
    def state_after(state: PartitionState, *targets: PartitionState) -> PartitionState:
        """The state of a partition that goes from `state` through `targets`. Raises IllegalTransition."""
        return _moved(state, targets, VALID_PREVIOUS_PARTITION_STATES)


class ReplicaNotDone(NamedTuple):
    """A replica that is not done, and why: `code` is the claim that is lacking, `until` when it is tried again,
    `as_of_ms` when its host was last heard. `log_dir` and `name` for a directory of a report."""

    partition: int
    node_id: int
    state: ReplicaState
    reason: Reason
    log_dir: str | None = None
    name: str | None = None


_UNREAD = (
    "`logagent scan` on that host shows the directory, which may be a replica of the topic; move it out of log.dirs"
)


@dataclass(slots=True)
class TopicProgress:
    """A topic of a request. `result`: what came of its deletion, if that is settled. `waits`: what the whole topic
    waits for."""

    topic: str
    topic_id: str
    states: Counter[ReplicaState] = field(default_factory=Counter)
    partitions: Counter[PartitionState] = field(default_factory=Counter)
    result: str | None = None
    waits: str | None = None
    missing: list[ReplicaNotDone] = field(default_factory=list)
    bytes_quarantined: int = 0
    bytes_back: int = 0
    strays_left: int = 0

    @property
    def complete(self) -> bool:
        """Kafka's `completeDeleteTopic`: every partition is NonExistentPartition, every replica NonExistentReplica."""
        return not (set(self.partitions) - {_P.NON_EXISTENT}) and not (set(self.states) - {_R.NON_EXISTENT})


class _ReplicaState(NamedTuple):
    """What a node is known to have of one topic: `live` partitions that are still there, or a reason why that is not
    known (None, None: nothing of it is there)."""

    live: frozenset[int] | None = frozenset()
    reason: Reason | None = None


@dataclass(slots=True)
class TopicDeletionManager:
    """The states of everything that is requested, from one look. `silent_after`: hosts not heard that long are
    silent."""

    seen: Sightings
    silent_after: timedelta
    _answers: dict[str, dict[int, Answer]] = field(default_factory=dict)
    _shown: dict[str, dict[int, set[int]]] = field(default_factory=dict)
    """The partitions that snapshots show, by topic id and node."""

    def __post_init__(self) -> None:
        for node, host in self.seen.hosts.items():
            for topic_id, partition in host.snapshot.current if host.snapshot is not None else ():
                self._shown.setdefault(topic_id, {}).setdefault(node, set()).add(partition)
        for (number, node), answer in self.seen.answers.items():
            self._answers.setdefault(number, {})[node] = answer

    def progress(self, filed: Filed) -> list[TopicProgress]:
        """Each topic of a request that can be read."""
        if filed.request is None:
            return []
        if filed.request.kind == "directories":
            return self._directories(filed)
        decision = filed.decision if filed.decision is not None and filed.decision.decision == "delete" else None
        decided = {t.topic_id: t for t in decision.topics} if decision is not None else {}
        results = {o.topic_id: o for o in filed.outcome.topics} if filed.outcome is not None else {}
        by_topic = self._answers_by_topic(filed) if decision is not None else {}
        nobody: dict[int, TopicAnswer] = {}
        return [
            self._topic(t, decided.get(t.topic_id), filed, by_topic.get(t.topic_id, nobody), results.get(t.topic_id))
            for t in filed.request.topics
        ]

    def _answers_by_topic(self, filed: Filed) -> dict[str, dict[int, TopicAnswer]]:
        """What agents answered about each topic after the decision, by topic id and node. Clocks may be apart."""
        assert filed.decision is not None
        first = moment(filed.decision.at) - CLOCKS_APART
        found: dict[str, dict[int, TopicAnswer]] = {}
        for node, answer in self._answers.get(filed.request_id, {}).items():
            if moment(answer.at) > first:
                for topic in answer.topics:
                    found.setdefault(topic.topic_id, {})[node] = topic
        return found

    # Topics

    def _topic(
        self,
        asked: RequestedTopic,
        decided: RequestedTopic | None,
        filed: Filed,
        answers: Mapping[int, TopicAnswer],
        settled: TopicOutcome | None,
    ) -> TopicProgress:
        """One topic: of whom it has replicas, whether the cluster has deleted it, and what each host has."""
        progress = TopicProgress(asked.topic, asked.topic_id)
        for t in answers.values():
            progress.strays_left += t.strays_left
            progress.bytes_quarantined += t.bytes_left
            progress.bytes_back += t.bytes_back
        # Partitions by node: of the request and the decision, and of every directory that was seen since.
        found: dict[int, set[int]] = {}
        for topic in filter(None, (asked, decided)):
            for p in topic.partitions:
                for node in p.replicas:
                    found.setdefault(node, set()).add(p.partition)
        for node, more in self._shown.get(asked.topic_id, {}).items():
            if node not in answers:
                found.setdefault(node, set()).update(more)
        for node, answer in answers.items():
            if answer.live and node not in found:
                found[node] = {p.partition for p in asked.partitions}
        replicas = found
        decision = filed.decision
        begins = decision is not None and decision.decision == "delete" and decided is not None
        if settled is not None and settled.result != "deleted":
            progress.result, progress.waits = settled.result, settled.why or None
            begins = False
        if not begins:
            self._everywhere(progress, replicas, Reason(progress.waits or "nothing is decided"), ())
            return progress
        if settled is None and not self.is_deleted(asked.topic_id):
            progress.waits = self._waits_for_cluster(asked.topic_id)
            self._everywhere(progress, replicas, Reason(progress.waits), (_R.OFFLINE,))
            return progress
        progress.result = "deleted"
        self._hosts(progress, replicas, filed, answers)
        return progress

    def is_deleted(self, topic_id: str) -> bool:
        """Whether the cluster has deleted the topic: it answers so by id, and lists no such topic. What hosts say does
        not count: each has its own proof, for itself."""
        return topic_id in self.seen.cluster.gone and topic_id not in self.seen.cluster.living

    def _waits_for_cluster(self, topic_id: str) -> str:
        cluster = self.seen.cluster
        if cluster.why_not is not None:
            return f"whether the cluster has deleted it is not known: {cluster.why_not}"
        if topic_id in cluster.moving:
            return "a partition of it is being reassigned: it is deleted when that is complete"
        if topic_id in cluster.living:
            down = self._down(cluster.living[topic_id])
            return f"the cluster has not deleted it yet{down}"
        return (
            "the cluster lists no topic that would show that it knows ids, so that it has deleted this one is not"
            " proven: `logagent topics run` asks once more (within 24 hours of the request), or another topic shows it"
        )

    def _down(self, topic: RequestedTopic) -> str:
        live = self.seen.cluster.live_brokers
        down = sorted({n for p in topic.partitions for n in p.replicas} - live) if live is not None else []
        words = ", ".join(map(str, down[:10])) + (", …" if len(down) > 10 else "")
        return f"; down is broker {words}, which the ZooKeeper generation waits for" if down else ""

    def _everywhere(
        self,
        progress: TopicProgress,
        replicas: Mapping[int, set[int]],
        reason: Reason,
        path: tuple[ReplicaState, ...],
    ) -> None:
        """Every replica after the same steps."""
        state = ReplicaStateMachine.state_after(_R.ONLINE, *path)
        count = sum(map(len, replicas.values()))
        progress.states = Counter({state: count} if count else {})
        steps = (_P.OFFLINE,) if path else ()
        numbers = {p for each in replicas.values() for p in each}
        if numbers:
            progress.partitions = Counter({PartitionStateMachine.state_after(_P.ONLINE, *steps): len(numbers)})
        progress.missing = [ReplicaNotDone(p, n, state, reason) for n, each in replicas.items() for p in sorted(each)]

    def _hosts(
        self,
        progress: TopicProgress,
        replicas: Mapping[int, set[int]],
        filed: Filed,
        answers: Mapping[int, TopicAnswer],
    ) -> None:
        """After the cluster has deleted the topic: what each host still has of it."""
        left: Counter[int] = Counter()
        for node, partitions in replicas.items():
            host = self._replica_state(progress, node, filed, answers.get(node))
            for partition in partitions:
                there = host.live is None or partition in host.live
                if not there:
                    progress.states[
                        ReplicaStateMachine.state_after(_R.ONLINE, _R.OFFLINE, _R.STARTED, _R.SUCCESSFUL)
                    ] += 1
                    continue
                end = _R.INELIGIBLE if host.live is None else None
                path = (_R.OFFLINE, _R.STARTED) + ((end,) if end is not None else ())
                state = ReplicaStateMachine.state_after(_R.ONLINE, *path)
                progress.states[state] += 1
                left[partition] += 1
                progress.missing.append(
                    ReplicaNotDone(partition, node, state, host.reason or Reason("it is being deleted"))
                )
        numbers = {p for each in replicas.values() for p in each}
        done = not left
        if done:
            count = progress.states.pop(_R.SUCCESSFUL, 0)
            state = ReplicaStateMachine.state_after(_R.SUCCESSFUL, _R.NON_EXISTENT)
            progress.states[state] += count
        steps = (_P.OFFLINE, _P.NON_EXISTENT) if done else (_P.OFFLINE,)
        progress.partitions[PartitionStateMachine.state_after(_P.ONLINE, *steps)] += len(numbers)

    def _replica_state(
        self, topic: TopicProgress, node: int, filed: Filed, answer: TopicAnswer | None
    ) -> _ReplicaState:
        """What a node has of a deleted topic, by the best source there is."""
        hosts, two = self.seen.hosts.get(node), self._two_hosts(node)
        if two is not None:
            return _ReplicaState(None, two)
        logs = self.seen.cluster.logs.get(node)
        listed = {p for name, p in logs.current if name == topic.topic} if logs is not None else set()
        # It answers by name: what another topic has under that name by now says nothing of the old replica.
        another = logs is not None and logs.ids.get(topic.topic, topic.topic_id) != topic.topic_id
        if listed and not another:
            return _ReplicaState(
                frozenset(listed), Reason(f"broker {node} still has it", "it deletes its own; look again")
            )
        if answer is not None:
            if answer.live == 0:
                return _ReplicaState()
            where = self._offline(node) if answer.live is None else None
            if answer.live is None:
                is_unread = where is None and answer.unread > 0
                reason = Reason(where or answer.words or "not every log dir could be read",
                                _UNREAD if is_unread else "repair the log dir, or take it out of log.dirs",
                                "online")  # fmt: skip
                return _ReplicaState(None, reason)
            words = answer.words or f"it still has {counted(answer.live, 'directory')} there"
            # Its agent answers although its broker is stopped, and then nothing goes on until that is back.
            down = f"broker {node} is down: " if self._is_down(node) else ""
            next_ms = moment_ms(answer.next_try_at) if answer.next_try_at else None
            return _ReplicaState(None, Reason(down + words, until_ms=next_ms))
        if logs is not None and not logs.offline and not listed:
            return _ReplicaState()
        snapshot = hosts.snapshot if hosts is not None else None
        disowned = self._disowned(filed, node, snapshot)
        if disowned is not None:
            return _ReplicaState(None, disowned)
        assert filed.decision is not None
        decided_at = moment(filed.decision.at)
        if snapshot is not None and snapshot.taken_at > decided_at:
            if node in self._shown.get(topic.topic_id, {}):
                hint = "its broker deletes or renames it when it starts"
                return _ReplicaState(None, Reason(f"it was there at {human_time(snapshot.taken_at)}", hint))
            if topic.topic in snapshot.unread:
                fact = f"the topic id of a directory of its name could not be read at {human_time(snapshot.taken_at)}"
                return _ReplicaState(None, Reason(fact, _UNREAD))
            if not snapshot.offline:
                return _ReplicaState()
        return _ReplicaState(None, self._unknown(node, logs))

    def _is_down(self, node: int) -> bool:
        live = self.seen.cluster.live_brokers
        return live is not None and node not in live

    def _two_hosts(self, node: int) -> Reason | None:
        hosts = sorted(self.seen.hosts[node].hosts) if node in self.seen.hosts else []
        if len(hosts) < 2:
            return None
        return Reason(
            f"two hosts claim node id {node}: {' and '.join(hosts[:2])}", "stop the one that is not the broker's"
        )

    def _disowned(self, filed: Filed, node: int, snapshot: SnapshotSeen | None = None) -> Reason | None:
        """Why nothing in the store counts of this node: its answers, or the snapshot, are somebody else's."""
        assert filed.request is not None
        why = self.seen.disowned.get((filed.request_id, node))
        if why is None and snapshot is not None:
            why = filed.request.why_not_from(node, snapshot.owners)
        if why is None:
            return None
        topics = filed.request.kind == "topics"
        hint = (
            f"what broker {node} itself says counts, once it is up"
            if topics
            else "find out whose agent that is, then request it again from a current report"
        )
        return Reason(why, hint, "owner")

    def _offline(self, node: int) -> str | None:
        agent_seen = self.seen.agents.get(node)
        dirs = agent_seen.seen.log_dirs if agent_seen is not None else None
        if dirs is None or dirs.all_online:
            return None
        since = f" since {human_time(moment(dirs.since))}" if dirs.since else ""
        return f"log dir {', '.join(dirs.offline[:5])} is offline{since}"

    def _unknown(self, node: int, logs: BrokerLogs | None) -> Reason:
        """Why it is not known whether a node has a replica, since when, and what ends it."""
        offline = self._offline(node)
        if offline is None and logs is not None and logs.offline:
            offline = f"log dir {', '.join(logs.offline[:5])} is offline"
        if offline is not None:
            return Reason(offline, "repair the log dir and restart its broker, or take it out of log.dirs", "online")
        host = self.seen.hosts.get(node)
        at = host.heard_at if host is not None else None
        silent = at is None or at < self.seen.at - self.silent_after
        heard = "its host was never heard from" if at is None else f"its host has been silent since {human_time(at)}"
        since = None if at is None else moment_ms(instant(at))
        if self._is_down(node):
            down = f"broker {node} is down" + (f", and {heard}" if silent else "")
            return Reason(down, "it is asked again when the broker or its agent is back", as_of_ms=since)
        if silent:
            return Reason(heard, "start its agent, or name its cluster with --bootstrap-server", as_of_ms=since)
        refuses = self.seen.agents[node].seen.refuses if node in self.seen.agents else ""
        if refuses:
            return Reason(f"its agent carries out no requests: {refuses}", "set orders.accept = true there")
        return Reason("no agent has checked it since the decision", "its next cycle or snapshot shows it")

    # Directories

    def _directories(self, filed: Filed) -> list[TopicProgress]:
        """The directories of a report, by topic: what their hosts' agents have answered."""
        assert filed.request is not None
        answers = {
            node: {(d.log_dir, d.name): d for d in answer.directories}
            for node, answer in self._answers.get(filed.request_id, {}).items()
        }
        nowhere: dict[tuple[str, str], DirectoryAnswer] = {}
        settled = {(o.node_id, o.log_dir, o.name): o for o in (filed.outcome.directories if filed.outcome else ())}
        found: dict[str, TopicProgress] = {}
        for d in filed.request.directories:
            progress = found.setdefault(d.topic_id, TopicProgress(d.topic, d.topic_id))
            answer = answers.get(d.node_id, nowhere).get((d.log_dir, d.name))
            closed = settled.get((d.node_id, d.log_dir, d.name))
            if (answer is not None and answer.state == "done") or (closed is not None and closed.result != "refused"):
                progress.states[_R.SUCCESSFUL] += 1
                result = answer.result if answer is not None else closed.result if closed is not None else None
                size = answer.bytes if answer is not None and answer.bytes else d.bytes
                progress.bytes_quarantined += size if result == "quarantined" else 0
                progress.bytes_back += size if result == "removed" else 0
                continue
            state, reason = self._directory(filed, d, answer)
            progress.states[state] += 1
            progress.missing.append(ReplicaNotDone(d.partition, d.node_id, state, reason, d.log_dir, d.name))
        for progress in found.values():
            if not progress.missing:
                state = ReplicaStateMachine.state_after(_R.SUCCESSFUL, _R.NON_EXISTENT)
                progress.states = Counter({state: progress.states[_R.SUCCESSFUL]})
        return list(found.values())

    def _directory(
        self, filed: Filed, d: RequestedDirectory, answer: DirectoryAnswer | None
    ) -> tuple[ReplicaState, Reason]:
        if answer is not None:
            path = (_R.OFFLINE, _R.INELIGIBLE) if answer.state == "refused" else (_R.OFFLINE,)
            why = answer.fact or answer.claim or "its agent does not say why"
            next_ms = moment_ms(answer.next_try_at) if answer.next_try_at else None
            reason = Reason(why, answer.hint or "", answer.claim or "", until_ms=next_ms)
            return ReplicaStateMachine.state_after(_R.ONLINE, *path), reason
        agent_seen = self.seen.agents.get(d.node_id)
        held = self._two_hosts(d.node_id) or self._disowned(filed, d.node_id)
        if held is not None:
            return ReplicaStateMachine.state_after(_R.ONLINE, _R.OFFLINE, _R.INELIGIBLE), held
        if agent_seen is not None and agent_seen.written >= self.seen.at - self.silent_after:
            if agent_seen.seen.refuses:
                reason = Reason(
                    f"its agent carries out no requests: {agent_seen.seen.refuses}", "see [orders] on that host"
                )
                return ReplicaStateMachine.state_after(_R.ONLINE, _R.OFFLINE, _R.INELIGIBLE), reason
            why, hint = "its agent has not read the request yet", "it is done in its next cycle"
            looked = moment(agent_seen.seen.at)
            if filed.request_id in agent_seen.seen.open:
                why = "its agent has accepted the request"
            elif filed.request is not None and looked > moment(filed.request.at):
                why = f"its agent read the store at {human_time(looked)} and did not accept it"
                hint = "see that its orders.keys has the key that signed it; then it accepts it in its next cycle"
            return ReplicaStateMachine.state_after(_R.ONLINE, _R.OFFLINE), Reason(why, hint)
        return ReplicaStateMachine.state_after(_R.ONLINE, _R.OFFLINE, _R.INELIGIBLE), self._unknown(d.node_id, None)


@dataclass(frozen=True, slots=True)
class RequestState:
    """`next`: what has to be done, and by whom; empty once it is over."""

    state: State
    why: str = ""
    next: str = ""
    carried_out_by: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in ("open", "deleting", "on-hold")


def is_running(runner: Runner, now: datetime) -> bool:
    return now - RUNNER_LASTS <= runner.at <= now + RUNNER_LASTS


def request_state(filed: Filed, progress: Sequence[TopicProgress], seen: Sightings) -> RequestState:
    """The state of one request, from what one look has seen."""
    decision, outcome = filed.decision, filed.outcome
    if decision is not None and decision.decision != "delete":
        return RequestState(decision.decision, decision.why)
    if outcome is not None:
        failed = [t for t in outcome.topics if t.result != "deleted"]
        if failed:
            state: State = "disabled" if any(t.result == "disabled" for t in failed) else "refused"
            return RequestState(state, failed[0].why)
        refused = [d for d in outcome.directories if d.result == "refused"]
        return RequestState("refused", refused[0].why) if refused else RequestState("done")
    if filed.hold is not None:
        cancel = f"find out who wrote it; `logagent topics cancel {filed.request_id}` ends the request"
        return RequestState("on-hold", f"nobody acts on it: {filed.hold}", cancel)
    if filed.request is None:
        return RequestState("on-hold", "the request itself is missing", "nobody acts on it")
    request = filed.request
    if request.kind == "directories":
        return _directories(filed.request_id, request, progress, seen)
    runners = [r for r in seen.runners if is_running(r, seen.at)]
    why = next((r.waits[filed.request_id] for r in runners if filed.request_id in r.waits), "")
    who = ", ".join(sorted({f"{r.by} on {r.host}" for r in runners}))
    nobody = "" if who else "nothing is carrying this out: run `logagent topics run`"
    if decision is None:
        if seen.at >= request.ends_at:
            return RequestState("expired", f"nobody has decided it by {human_time(request.ends_at)}")
        if filed.request_id in {number for r in runners for number in r.waits}:
            return RequestState("open", why, "", who)
        if not filed.is_left(seen.at):
            words = (
                f"the command that asked may still decide it, within a minute after {human_time(moment(request.at))}"
            )
            return RequestState("open", words, f"`logagent topics cancel {filed.request_id}` stops it")
        return RequestState("open", "not decided: no topic is deleted, and nobody may decide it any more",
                            f"ask again; `logagent topics cancel {filed.request_id}` closes it")  # fmt: skip
    if progress and all(topic.complete for topic in progress):
        return RequestState("done")
    return RequestState("deleting", why, nobody, who)


def _directories(number: str, request: Request, progress: Sequence[TopicProgress], seen: Sightings) -> RequestState:
    """A request for directories: agents carry it out by themselves, until it is over."""
    if all(topic.complete for topic in progress):
        return RequestState("done")
    if seen.at >= request.ends_at:
        return RequestState("expired", f"not everything was done by {human_time(request.ends_at)}")
    took = sorted(w.seen.node_id for w in seen.agents.values() if number in w.seen.open)
    who = f"the agents of node {', '.join(map(str, took[:10]))}{', …' if len(took) > 10 else ''}" if took else ""
    nobody = "" if who else "no agent has accepted it yet: are orders.accept = true and orders.keys set there?"
    return RequestState("open", "", nobody, who)
