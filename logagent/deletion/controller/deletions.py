"""Carries out what is irreversible, once: decides on requests, sends DeleteTopics, writes outcomes.

Any number of these may run. Who asks decides: `delete` is written only by the process that wrote the request, within a
minute of it. So nothing that happens to the store afterwards can turn a request into a deletion. DeleteTopics is sent
only for what is decided so, by topic id, to the cluster that listed the topic right before; again by anybody. All else
is done by the hosts' own agents, which read the same files.

`FleetReader` looks at everything that says how deletions stand: control folder, answers of agents, snapshots, the
cluster (`ClusterAdmin`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from logagent.base.dir_names import current_name
from logagent.base.errors import ConfigError, LogAgentError, ServiceUnreachable, UnreadableError
from logagent.base.files.safe_open import parse_json
from logagent.base.units import LARGEST_COUNT, human_time, instant
from logagent.deletion.controller.topic_deletion_manager import (
    AgentSeen,
    BrokerLogs,
    ClusterSeen,
    HostSeen,
    Runner,
    Sightings,
    SnapshotSeen,
    TopicDeletionManager,
    TopicProgress,
    request_state,
)
from logagent.deletion.store.answers import SEEN, Answer, Answers, Seen
from logagent.deletion.store.requests import (
    LONGEST_WORDS,
    SEND_WITHIN,
    UNREADABLE,
    ControlFolder,
    Decided,
    Decision,
    DirectoryOutcome,
    Filed,
    NodeOwner,
    RequestedTopic,
    RequestFolder,
    RequestOutcome,
    TopicOutcome,
    cancel_beside,
    decide,
    moment,
    write_outcome,
)
from logagent.store.contract import CLOCKS_APART
from logagent.store.landing_files import FleetPublications
from logagent.store.signing import NotSigned, PrivateKey, PublicKey
from logagent.store.tree import StoredFile

RUNNERS = "runners"
REFUTED_BY_BROKERS = 20
"""Brokers are asked where no agent answers; up to so many also where one does, and can refute it."""
COPIES_HEARD = timedelta(hours=1)
MOST_OWNERS = 10_000
"""So many nodes' owners a request lists: no cluster has more."""
_MOST_RUNNERS = 100
LEFT_BEHIND = timedelta(days=1)
RENAMED = "its id belongs to another name now: not the topic that was requested"


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
class ControllerSetup:
    """The identity and dependencies of whoever looks, and acts with a `key`. `host`: this machine. `wrote`: the
    requests that this process made."""

    control: ControlFolder
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

    setting: ControllerSetup
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


@dataclass(slots=True)
class Deletions:
    """One process that carries out requests. `waits`: why a request does not go on yet, by its id, as of the last
    round."""

    setting: ControllerSetup
    reader: FleetReader = field(init=False)
    waits: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    """The requests that the last round has ended."""
    _waited: dict[str, str] = field(default_factory=dict)
    _published: str = ""
    _acknowledged: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)
    """The requests that this process has seen end: a store that falls back brings none of them back."""
    _runner: str = field(default_factory=lambda: f"{secrets.token_hex(16)}.json")

    def __post_init__(self) -> None:
        self.reader = FleetReader(self.setting)

    @property
    def _key(self) -> PrivateKey:
        if self.setting.key is None:
            raise ConfigError("no private key is named", hint="add --key FILE")
        return self.setting.key

    def round(self) -> Sightings:
        """Look, do what may be done, and look at what came of it. Raises ServiceUnreachable, ConfigError; ConfigError
        also for a wrong clock, and then nothing is written or sent."""
        self._check_clock("store", self.setting.control.prepare())
        self._say_that_we_run()
        requests = self.reader.folder.read()
        if any(f.request is not None and f.request.kind == "topics" and not f.is_over for f in requests.values()):
            with suppress(ServiceUnreachable, UnreadableError):  # whoever does not answer is asked nothing else
                self._check_clock("cluster", self.setting.admin.clock())
        self._waited, self.waits, self.closed = {**self._waited, **self.waits}, {}, set()
        # First what has only a minute: to read what a large fleet has published takes longer.
        first = sorted(self.setting.wrote & requests.keys())
        for number in first:
            self._carry_out(number, requests[number], Sightings(self.setting.clock(), requests))
        seen = self.reader.read()
        for number in sorted(seen.filed.keys() - set(first)):
            self._carry_out(number, seen.filed[number], seen)
        self._say_that_we_run()
        seen = self._with_acknowledged(self.reader.read())
        return self._with_acknowledged(self.reader.read()) if self._close(seen) else seen

    def _with_acknowledged(self, seen: Sightings) -> Sightings:
        """What the cluster has acknowledged to this process is deleted, also where it no longer lists any topic that
        would show that it knows ids."""
        gone = seen.cluster.gone | (self._acknowledged - seen.cluster.living.keys())
        return replace(seen, cluster=replace(seen.cluster, gone=gone))

    def _check_clock(self, whose: str, at: datetime | None) -> None:
        """Raises ConfigError if our clock is not that of the store, or of the cluster: then no time in a request means
        anything."""
        now = self.setting.clock()
        if at is not None and abs(now - at) > CLOCKS_APART:
            raise ConfigError(
                f"this machine's clock says {human_time(now)}, the {whose}'s {human_time(at)}: nothing is decided or"
                " sent",
                hint="set the clock that is wrong",
            )

    def _say_that_we_run(self) -> None:
        """Renew the file that says so, with what requests wait for: whoever looks is told; and drop what killed runs
        left."""
        runner = {"host": self.setting.host, "by": self.setting.by, "waits": dict(list(self.waits.items())[:100])}
        control, content = self.setting.control, json.dumps({"schema": "logagent.runner/1", **runner})
        if content != self._published:
            old = (self.setting.clock() - LEFT_BEHIND).timestamp()
            for name in [file.name for file in control.files(RUNNERS) if file.modified < old]:
                control.remove(RUNNERS, name)
        control.replace(RUNNERS, self._runner, content.encode())
        self._published = content

    def stop(self) -> None:
        """No longer say that this process runs."""
        self.setting.control.remove(RUNNERS, self._runner)

    # Before the topic is deleted

    def _carry_out(self, number: str, filed: Filed, seen: Sightings) -> None:
        """One request, as far as it can be carried out now."""
        request, decision = filed.request, filed.decision
        if decision is not None or filed.outcome is not None or filed.hold is not None:
            self.setting.wrote.discard(number)  # what was decided once is never decided again, whatever the store loses
        if filed.is_over:
            self._ended.add(number)
        if request is None or filed.hold is not None or number in self._ended:
            return
        if moment(request.at) > seen.at + CLOCKS_APART:
            self.waits[number] = f"it was made at {human_time(moment(request.at))}, which is in the future here"
            return
        over = seen.at >= request.ends_at
        if decision is None and over:
            self._decide(filed, "expired", f"it was not decided by {human_time(request.ends_at)}")
            return
        if request.kind != "topics":
            return
        if decision is None and not self._may_decide(filed, self.setting.clock()):
            return
        names = {t.topic_id: t.topic for t in (decision.topics if decision is not None else request.topics)}
        if decision is not None:
            gone = {i for i in names if i in seen.cluster.gone and i not in seen.cluster.living}
            names = {i: n for i, n in names.items() if i not in gone | self._acknowledged}
            if not names or over:
                return
        now = self.reader.folder.again(number)
        if now.is_over:
            self._ended.add(number)
        if now.is_over or now.hold is not None:
            self.waits[number] = now.hold or "another decision was made first"
            return
        try:
            self._delete(filed, names)
        except (ServiceUnreachable, UnreadableError, NotSigned) as error:
            self.waits[number] = f"the cluster could not be asked: {error}"

    def _may_decide(self, filed: Filed, now: datetime) -> bool:
        """Whether this process may write `delete`: it wrote the request, just now, and no decision was seen since. Else
        nobody ever does. Its own request is closed when the time is over."""
        assert filed.request is not None
        number = filed.request_id
        if number not in self.setting.wrote:
            return False
        why = filed.request.why_not_deleted(now)
        if why is not None and now > moment(filed.request.at):
            self._give_up(filed)
        elif why is not None:
            self.waits[number] = f"it was made at {human_time(moment(filed.request.at))}, which is in the future here"
        return why is None

    def _give_up(self, filed: Filed) -> None:
        why = self.waits.get(filed.request_id) or self._waited.get(filed.request_id)
        self._decide(filed, "dropped", f"it was not decided within a minute{': ' if why else ''}{why or ''}; ask again")

    def give_up(self, number: str) -> None:
        """Close a request of this process that it has not decided, before it ends. Raises ServiceUnreachable,
        ConfigError: then it stays undecided, and nobody else decides it."""
        if number not in self.setting.wrote:
            return
        filed = self.reader.folder.again(number)
        if filed.decision is None and filed.hold is None and filed.outcome is None:
            self._give_up(filed)
        self.setting.wrote.discard(number)

    def _delete(self, filed: Filed, names: Mapping[str, str]) -> None:
        """Own the decision to delete these topics, then have the cluster delete them."""
        assert filed.request is not None
        admin, number, decided_before = self.setting.admin, filed.request_id, filed.decision is not None
        moving = admin.reassigning(names)
        if moving:
            which = ", ".join(sorted(names[i] for i in moving)[:5])
            self.waits[number] = f"a partition of {which} is being reassigned; it continues when that is complete"
            return
        living = admin.topics_now(names)
        other = {i for i, t in living.items() if t.topic != names[i]}
        if filed.decision is None:
            asked = {t.topic_id: t for t in filed.request.topics if t.topic_id not in other}
            if not asked:
                self._decide(filed, "dropped", RENAMED)
                return
            # The assignments that were read right before; of what is no longer listed, those of the request.
            now_there = tuple(living.get(topic_id, topic) for topic_id, topic in asked.items())
            now = self.setting.clock()  # the cluster may have taken its time
            if not self._may_decide(filed, now):
                return
            decision = self._decide(filed, "delete", topics=now_there, at=now)
            self.setting.wrote.discard(number)
            if decision is None or decision.decision != "delete":
                return  # who loses obeys the winner
            if filed.request.why_not_deleted(self.setting.clock()) is not None:
                self.cancel(filed, "the store took more than a minute to write the decision; ask again")
                return
            names = {t.topic_id: t.topic for t in decision.topics}
        # What it does not list is asked again by whoever did not see its answer: a cluster that lists no topic at all
        # does not show otherwise that it knows ids. Right after the decision it is what was listed just now.
        sent = {i: n for i, n in names.items() if i not in other and (i in living or decided_before)}
        answers = admin.delete_topics(sent) if sent else {}
        self._take(filed, sent, answers)

    def _take(self, filed: Filed, sent: Mapping[str, str], answers: Mapping[str, TopicAnswerOfCluster]) -> None:
        number = filed.request_id
        self._acknowledged |= {i for i, answer in answers.items() if answer.outcome == "deleted"}
        disabled = {i: answer.why for i, answer in answers.items() if answer.outcome == "disabled"}
        if disabled:
            self._close_disabled(number, disabled)
        waiting = [f"{sent[i]}: {a.why}" for i, a in answers.items() if a.outcome in ("again", "refused")]
        if waiting:
            self.waits[number] = "; ".join(waiting[:5])

    def _close_disabled(self, number: str, disabled: Mapping[str, str]) -> None:
        """Deletion is disabled: for good, whatever is enabled later. All that is not deleted yet ends with it."""
        filed = self.reader.folder.read()[number]
        topics = filed.decision.topics if filed.decision is not None else ()
        why = next(iter(disabled.values())) or "topic deletion is disabled"
        results = tuple(
            TopicOutcome(t.topic_id, "deleted")
            if t.topic_id in self._acknowledged
            else TopicOutcome(t.topic_id, "disabled", why[:LONGEST_WORDS])
            for t in topics
        )
        self._write(number, topics=results)

    def _decide(
        self, filed: Filed, what: Decided, why: str = "", topics: tuple[RequestedTopic, ...] = (),
        at: datetime | None = None,
    ) -> Decision | None:  # fmt: skip
        """The decision that counts, which may be another's; None if something else has its place."""
        control = self.setting.control
        ours = Decision(filed.request_id, control.cluster_id, what, self.setting.by,
                        instant(at or self.setting.clock()), why[:LONGEST_WORDS], topics)  # fmt: skip
        try:
            counts = decide(control, ours, self._key, self.setting.keys)
            late = filed.request and counts.decision == "delete" and filed.request.why_not_deleted(moment(counts.at))
            if late:
                raise NotSigned(late)
        except NotSigned as error:
            self.setting.warn(f"request {filed.request_id} is on hold: decision.json: {error}")
            return None
        if counts.decision != "delete":
            self.closed.add(filed.request_id)
            self._ended.add(filed.request_id)
        return counts

    # Afterwards

    def _close(self, seen: Sightings) -> bool:
        """Write the outcome of each request that has one; whether any was written."""
        manager, wrote = TopicDeletionManager(seen, self.setting.silent_after), False
        for number, filed in seen.filed.items():
            if filed.request is None or filed.outcome is not None or filed.hold is not None or number in self._ended:
                continue
            if filed.decision is not None and filed.decision.decision != "delete":
                continue
            progress = manager.progress(filed)
            if filed.request.kind == "topics" and filed.decision is not None:
                results = self._results(filed, progress, seen)
                wrote = (results is not None and self._write(number, topics=results)) or wrote
            elif filed.request.kind == "directories" and request_state(filed, progress, seen).state == "done":
                done = tuple(_outcome_of(filed, seen))
                wrote = self._write(number, directories=done) or wrote
        return wrote

    def _results(
        self, filed: Filed, progress: Collection[TopicProgress], seen: Sightings
    ) -> tuple[TopicOutcome, ...] | None:
        """The results of a topics request, once each topic has one: it is complete, or was not deleted in time."""
        assert filed.request is not None and filed.decision is not None
        decided = {t.topic_id for t in filed.decision.topics}
        late = seen.at >= filed.request.ends_at
        results = []
        for topic in progress:
            if topic.topic_id not in decided:
                results.append(TopicOutcome(topic.topic_id, "refused", RENAMED))
            elif topic.complete:
                results.append(TopicOutcome(topic.topic_id, "deleted"))
            elif late and topic.result != "deleted" and topic.topic_id in seen.cluster.living:
                results.append(TopicOutcome(topic.topic_id, "refused", "the cluster did not delete it within 24 hours"))
            else:
                return None
        return tuple(results)

    def _write(
        self,
        number: str,
        topics: tuple[TopicOutcome, ...] = (),
        directories: tuple[DirectoryOutcome, ...] = (),
    ) -> bool:
        control, at = self.setting.control, instant(self.setting.clock())
        outcome = RequestOutcome(number, control.cluster_id, self.setting.by, at, topics, directories)
        self.closed.add(number)
        wrote = write_outcome(control, outcome, self._key)
        self._ended.add(number)
        return wrote

    def cancel(self, filed: Filed, why: str = "") -> Decision:
        """Cancel a request; returns the decision that counts. One that is decided already, or held, gets the
        cancellation beside it: it stops whoever has not acted yet. Raises ServiceUnreachable, ConfigError."""
        control = self.setting.control
        control.prepare()
        ours = Decision(filed.request_id, control.cluster_id, "cancelled", self.setting.by,
                        instant(self.setting.clock()), why)  # fmt: skip
        first = None
        if filed.hold is None:
            first = self._decide(filed, "cancelled", why)
        if first is None or first.decision == "delete":
            cancel_beside(control, ours, self._key, secrets.token_hex(16))
        return first or ours


def _outcome_of(filed: Filed, seen: Sightings) -> list[DirectoryOutcome]:
    assert filed.request is not None
    answers = {
        (node, d.log_dir, d.name): d
        for (number, node), answer in seen.answers.items()
        if number == filed.request_id
        for d in answer.directories
    }
    return [
        DirectoryOutcome(d.node_id, d.log_dir, d.name, answers[d.node_id, d.log_dir, d.name].result or "absent")
        for d in filed.request.directories
    ]
