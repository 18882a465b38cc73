"""Looks at everything that says how deletions stand: control folder, answers of agents, snapshots, the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from logagent.base.dir_names import current_name
from logagent.base.errors import LogAgentError
from logagent.base.files.safe_open import parse_json
from logagent.base.sizes import LARGEST_COUNT
from logagent.deletion.controller.topic_deletion_manager import (
    AgentSeen,
    BrokerLogs,
    ClusterSeen,
    HostSeen,
    Runner,
    Sightings,
    SnapshotSeen,
)
from logagent.deletion.store.answers import SEEN, Answer, Answers, Seen
from logagent.deletion.store.requests import (
    LONGEST_WORDS,
    SEND_WITHIN,
    UNREADABLE,
    Control,
    Filed,
    NodeOwner,
    RequestedTopic,
    RequestFolder,
    moment,
)
from logagent.store.publications import FleetPublications
from logagent.store.signing import NotSigned, PrivateKey, PublicKey
from logagent.store.tree import StoredFile

RUNNERS = "runners"
REFUTED_BY_BROKERS = 20
"""Brokers are asked where no agent answers; up to so many also where one does, and can refute it."""
COPIES_HEARD = timedelta(hours=1)
MOST_OWNERS = 10_000
"""So many nodes' owners a request lists: no cluster has more."""
_MOST_RUNNERS = 100


@dataclass(frozen=True, slots=True)
class TopicAnswerOfCluster:
    """The cluster's answer to DeleteTopics for one topic: `deleted` is acknowledged, `again` means ask later, by id;
    `disabled` and `refused` with the reason."""

    outcome: str
    why: str = ""


class ClusterAdmin(Protocol):
    """The cluster's Admin API, as far as deletions need it. Each raises ServiceUnreachable, UnreadableError, and
    ConfigError if it is not known where to ask."""

    def topics_now(self, topics: Mapping[str, str]) -> Mapping[str, RequestedTopic]:
        """Those of these topic ids that exist, with their current name and replicas (during a reassignment both the old
        and the new ones)."""

    def unknown_ids(self, topics: Mapping[str, str]) -> Collection[str]:
        """Which of these topic ids the cluster, asked by id, does not know, though it knows others: as they existed
        once, they are deleted. Those that it may only hide are left out."""

    def delete_topics(self, topics: Mapping[str, str]) -> Mapping[str, TopicAnswerOfCluster]:
        """DeleteTopics by id (topic id → name). Topics that cannot be asked for now are left out."""

    def in_sync(self, topics: Mapping[str, str]) -> Mapping[tuple[str, int], frozenset[int]]:
        """For each (topic id, partition) of these topics that exists: the live brokers in its ISR; none if its leader
        is not live."""

    def reassigning(self, topics: Mapping[str, str]) -> Collection[str]:
        """Which of these topic ids have a reassignment that holds up their deletion (ZooKeeper generation only)."""

    def live_brokers(self) -> Collection[int]:
        """The brokers that are up."""

    def logs(self, node_id: int, names: Collection[str]) -> BrokerLogs | None:
        """What a live broker itself says that it has; None if it does not answer."""

    def clock(self) -> datetime | None:
        """The time by the cluster's clock, where it says one."""


@dataclass(slots=True)
class Setting:
    """The identity and dependencies of whoever looks, and acts with a `key`. `host`: this machine. `wrote`: the
    requests that this process made."""

    control: Control
    keys: tuple[PublicKey, ...]
    admin: ClusterAdmin
    clock: Callable[[], datetime]
    by: str
    host: str
    key: PrivateKey | None = None
    silent_after: timedelta = timedelta(hours=2)
    warn: Callable[[str], None] = lambda line: None
    wrote: set[str] = field(default_factory=set)


_Read = Seen | tuple[Answer, frozenset[int]] | str | None
"""A file of a node: what it has seen, an answer and whose it is, or why it is neither."""


@dataclass(slots=True)
class FleetReader:
    """Looks again and again; what cannot have changed is not read twice."""

    setting: Setting
    folder: RequestFolder = field(init=False)
    heard: FleetPublications = field(init=False)
    answers: Answers = field(init=False)
    _files: dict[tuple[int, str], tuple[tuple[float, int], _Read]] = field(default_factory=dict)
    _snapshots: dict[int, tuple[str, frozenset[str], SnapshotSeen]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        control = self.setting.control
        self.folder = RequestFolder(control, self.setting.keys)
        self.answers = Answers(control.store, control.cluster_id)
        self.heard = FleetPublications(control.store, control.cluster_id, self.setting.silent_after, self.setting.warn)

    def read(self) -> Sightings:
        """Everything that is seen now. Raises ServiceUnreachable: an unreadable store is never an empty one."""
        now = self.setting.clock()
        filed = self.folder.read()
        agents, answers, disowned, unreadable = self._of_agents(filed)
        self.heard.read(now)
        open_topics = [f for f in filed.values() if _is_open(f, now)]
        return Sightings(
            now,
            filed,
            agents,
            unreadable,
            answers,
            self._hosts(open_topics, answers, agents, now),
            self._cluster(open_topics, answers),
            self._runners(),
            disowned,
        )

    def _of_agents(
        self, filed: Mapping[str, Filed]
    ) -> tuple[dict[int, AgentSeen], dict[tuple[str, int], Answer], dict[tuple[str, int], str], dict[int, str]]:
        """The seen files and the answers to these requests that count, and why others do not; what is none hides no
        other. Unchanged files are not read again."""
        agents: dict[int, AgentSeen] = {}
        answers: dict[tuple[str, int], Answer] = {}
        disowned: dict[tuple[str, int], str] = {}
        unreadable: dict[int, str] = {}
        requests = {number: f.request for number, f in filed.items() if f.request is not None}
        for node in self.answers.nodes():
            try:
                files, owner = self.answers.files(str(node)), self.answers.owner(node)
            except UNREADABLE as error:
                unreadable[node] = str(error)
                continue
            whose = dict.fromkeys(requests, frozenset() if owner is None else frozenset((owner,)))
            for file in files:
                number = file.name.removesuffix(".json")
                if file.name != SEEN and number not in requests:
                    continue
                read = self._read(node, file, number)
                if isinstance(read, Seen):
                    agents[node] = AgentSeen(read, datetime.fromtimestamp(file.modified, UTC))
                elif isinstance(read, tuple):
                    answers[number, node] = read[0]
                    whose[number] |= read[1]
                elif file.name == SEEN:
                    unreadable[node] = read or "it is gone"
            for number, request in requests.items():
                why = request.why_not_from(node, whose[number])
                if why is not None:
                    disowned[number, node] = why
                    answers.pop((number, node), None)
        return agents, answers, disowned, unreadable

    def _read(self, node: int, file: StoredFile, number: str) -> _Read:
        key, stamp = (node, file.name), (file.modified, file.bytes)
        before = self._files.get(key)
        if before is not None and before[0] == stamp:
            return before[1]
        read: _Read
        try:
            if file.name == SEEN:
                read = self.answers.seen(node)
            else:
                answer, owners = self.answers.answer_by(node, number)
                read = None if answer is None else (answer, owners)
        except (NotSigned, ValueError, *UNREADABLE) as error:
            read = str(error)
        self._files[key] = stamp, read
        return read

    def _hosts(
        self,
        filed: Collection[Filed],
        answers: Mapping[tuple[str, int], Answer],
        agents: Mapping[int, AgentSeen],
        now: datetime,
    ) -> dict[int, HostSeen]:
        since = now - self.setting.silent_after
        wanted = {t.topic_id: t.topic for f in filed for t in _topics(f)}
        numbers = {f.request_id for f in filed}
        nodes = {n for f in filed for n in _nodes(f)}
        self.heard.read_back(nodes, now)
        found = {}
        for node in set(self.heard.nodes) | nodes | agents.keys():
            publications, agent_seen = self.heard.nodes.get(node), agents.get(node)
            hosts = {h for h, at in publications.hosts.items() if at >= since} if publications is not None else set()
            times = [publications.at] if publications is not None else []
            if agent_seen is not None:
                times.append(agent_seen.written)
                if agent_seen.written >= since:
                    hosts.add(agent_seen.seen.host)
            answered = any((number, node) in answers for number in numbers)
            snapshot = None if answered or not wanted else self._snapshot(node, wanted)
            found[node] = HostSeen(tuple(sorted(hosts)), max(times, default=None), snapshot)
        return found

    def _snapshot(self, node: int, topics: Mapping[str, str]) -> SnapshotSeen | None:
        """The newest snapshot of a node, as to these topics. One that cannot be read shows nothing and proves
        nothing."""
        publications = self.heard.nodes.get(node)
        if publications is None or node in self.heard.unsure:
            return None
        wanted = frozenset(topics)
        before = self._snapshots.get(node)
        if before is not None and before[0] == publications.stem and wanted <= before[1]:
            return before[2]
        try:
            rows = list(self.heard.directories(node, wanted, frozenset(topics.values())))
        except LogAgentError as error:
            self.setting.warn(f"the newest snapshot of node {node} cannot be read: {error}")
            return None
        log_dirs = [row for row in rows if row["row"] == "log_dir"]
        offline = tuple(row["path"] for row in log_dirs if row["health"] != "online")
        live = [row for row in rows if row["row"] == "dir" and row["kind"] in ("current", "future")]
        current = frozenset((row["topic_id"], row["partition"]) for row in live if row["topic_id"] is not None)
        unread = frozenset(row["topic"] for row in live if row["topic_id"] is None)
        shown = SnapshotSeen(publications.taken_at, current, offline or (() if log_dirs else ("all",)), unread,
                             frozenset(publications.owners))  # fmt: skip
        self._snapshots[node] = publications.stem, wanted, shown
        return shown

    def copies(self, topics: Mapping[str, str]) -> dict[tuple[str, int], set[int]]:
        """By (topic id, partition), the nodes heard within the hour that show a current copy in their snapshot and are
        live and in sync by what the cluster says. Of what cannot be told there is none. Raises as `admin.in_sync`."""
        in_sync = self.setting.admin.in_sync(topics)
        now = self.setting.clock()
        self.heard.read(now)
        found: dict[tuple[str, int], set[int]] = {}
        for node, publications in self.heard.nodes.items():
            if now - publications.taken_at > COPIES_HEARD or not any(node in each for each in in_sync.values()):
                continue
            try:
                rows = list(self.heard.directories(node, topics))
            except LogAgentError as error:
                self.setting.warn(f"the newest snapshot of node {node} cannot be read: {error}")
                continue
            for row in rows:
                key = (row.get("topic_id", ""), row.get("partition", -1))
                named = row["row"] == "dir" and row["name"] == current_name(topics[key[0]], key[1])
                if named and node in in_sync.get(key, ()):
                    found.setdefault(key, set()).add(node)
        return found

    def owners(self, nodes: Collection[int]) -> tuple[NodeOwner, ...] | None:
        """Who writes for each node now, the answers and the newest snapshot; these nodes first, as far as a request can
        list them. Left out is a node for which two do. None where the store has no owners. Raises
        ServiceUnreachable."""
        if not self.answers.has_owners():
            return None
        now = self.setting.clock()
        self.heard.read(now)
        self.heard.read_back(nodes, now)  # a host may be down for days
        whose = {node: {*p.owners} for node, p in self.heard.nodes.items()}
        for node, owner in self.answers.owners().items():
            whose.setdefault(node, set()).add(owner)
        found = {node: owners.pop() for node, owners in whose.items() if len(owners) == 1}
        listed = sorted(found, key=lambda node: (node not in nodes, node))[:MOST_OWNERS]
        return tuple(NodeOwner(node, found[node]) for node in listed)

    def sizes(self, topic_ids: Collection[str]) -> dict[str, int]:
        """What is allocated by each of these topics in the newest snapshots, where each row says so: no more than a
        request can say, whatever hosts publish."""
        self.heard.read(self.setting.clock())
        found: dict[str, int] = {}
        unknown: set[str] = set()
        for node in self.heard.nodes:
            with suppress(LogAgentError):
                for row in self.heard.directories(node, topic_ids):
                    if row["row"] != "dir":
                        continue
                    topic_id, size = row["topic_id"], row.get("allocated")
                    if type(size) is int and 0 <= size <= LARGEST_COUNT:
                        found[topic_id] = min(LARGEST_COUNT, found.get(topic_id, 0) + size)
                    else:
                        unknown.add(topic_id)
        return {topic_id: size for topic_id, size in found.items() if topic_id not in unknown}

    def _cluster(self, filed: Collection[Filed], answers: Mapping[tuple[str, int], Answer]) -> ClusterSeen:
        """What the cluster says about the topics that are being deleted; nothing is asked where none is."""
        topics = {t.topic_id: t.topic for f in filed for t in _topics(f)}
        if not topics:
            return ClusterSeen()
        admin = self.setting.admin
        try:
            living = admin.topics_now(topics)
            gone = frozenset(admin.unknown_ids({i: n for i, n in topics.items() if i not in living}))
            moving = frozenset(admin.reassigning({i: n for i, n in topics.items() if i in living}))
            live = frozenset(admin.live_brokers())
        except LogAgentError as error:
            return ClusterSeen(why_not=str(error))
        unanswered = live & {n for f in filed for n in _nodes(f) if (f.request_id, n) not in answers}
        answering = sorted(live & {n for f in filed for n in _nodes(f)} - unanswered)
        asked = [*sorted(unanswered), *answering[: max(0, REFUTED_BY_BROKERS - len(unanswered))]] if gone else []
        logs = {n: log for n in asked if (log := admin.logs(n, topics.values())) is not None}
        return ClusterSeen(living, gone, moving, live, logs)

    def _runners(self) -> tuple[Runner, ...]:
        found = []
        files = sorted(self.setting.control.files(RUNNERS), key=lambda f: f.modified, reverse=True)
        for file in files[:_MOST_RUNNERS]:
            with suppress(ValueError, TypeError, KeyError, AttributeError, *UNREADABLE):
                read = parse_json(self.setting.control.read(RUNNERS, file.name) or b"")
                waits = {str(number): str(why)[:LONGEST_WORDS] for number, why in read["waits"].items()}
                at = datetime.fromtimestamp(file.modified, UTC)
                found.append(Runner(str(read["host"])[:255], str(read["by"])[:255], at, waits))
        return tuple(sorted(found, key=lambda r: (r.host, r.by, r.at)))


def _is_open(filed: Filed, now: datetime) -> bool:
    """Whether what the cluster and hosts say about a topics request still matters."""
    request, decision = filed.request, filed.decision
    if request is None or request.kind != "topics" or (decision is not None and decision.decision != "delete"):
        return False
    if filed.outcome is not None:
        return now - moment(filed.outcome.at) < SEND_WITHIN
    return decision is not None or now < request.ends_at


def _topics(filed: Filed) -> list[RequestedTopic]:
    request = filed.request.topics if filed.request is not None else ()
    return [*request, *(filed.decision.topics if filed.decision is not None else ())]


def _nodes(filed: Filed) -> set[int]:
    return {node for t in _topics(filed) for p in t.partitions for node in p.replicas}
