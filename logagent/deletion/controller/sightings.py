"""What is seen of a cluster's deletions in one look: by its hosts, by its brokers, and in the store.

Plain values. Whoever looks from whatever machine sees the same, so everything that is computed from this is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from logagent.deletion.store.answers import Answer, Seen
from logagent.deletion.store.requests import Filed, RequestedTopic


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
