"""Whether the cluster that answers is the one that this host's disks belong to. Decides without I/O.

Cluster id and node id prove nothing: a cluster cloned with its disks has both. Our own broker's answer to
DescribeLogDirs must match our disks. While it is down, only brokers count that a cluster proven this way has named.

Whether all log dirs of a host belong to the configured node (Kafka's `MetaPropertiesEnsemble.verify`).

Which log dirs the cluster has for a node, by their `directory.id` (brokers from 3.7 on). Decides without I/O.

Whether a journal belongs to this host: state dirs can be swapped, copied or restored from another's backup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from logagent.base.kafka_version import CLUSTER_ID_SINCE, KafkaVersion
from logagent.base.records import Kind, PartitionDir
from logagent.kafka.image import RESERVED_DIRECTORY_IDS, AssignmentImage

DEFAULT_RESERVED_MAX_ID = 1000
"""`reserved.broker.max.id`: the ids above it are generated."""


@dataclass(frozen=True, slots=True)
class MetaRead:
    """`meta.properties` of one log dir. `missing`: there is none. `error`: why it cannot be read."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None
    missing: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The ids that all log dirs agree on, and by log dir why nothing may be done there. `copied`: log dirs with the
    same directory.id as another one, so that one is a copy, and nobody can tell which. `by_node`: log dirs whose only
    problem is that they have no cluster.id, where no log dir has one and all name the same node: what a broker before
    2.4 leaves. `directory_ids`: those of all log dirs."""

    cluster_id: str | None
    node_id: int | None
    problems: Mapping[str, str] = field(default_factory=dict)
    copied: Collection[str] = ()
    by_node: AbstractSet[str] = frozenset()
    directory_ids: AbstractSet[str] = frozenset()

    def problems_for(self, version: KafkaVersion, *, zookeeper: bool) -> Mapping[str, str]:
        """`problems`, without those that brokers of `version` leave: before 2.4 the node id alone identifies the host.

        Every source of the version has to agree, and the configuration must not be one of KRaft. That no log dir has a
        cluster.id says the same: a broker from 2.4 on writes it everywhere at each start, and an older one leaves it
        there.
        """
        if not self.by_node or not zookeeper or not version.surely_before(CLUSTER_ID_SINCE):
            return self.problems
        return {path: problem for path, problem in self.problems.items() if path not in self.by_node}

    @property
    def memory_id(self) -> str | None:
        """The cluster id under which the state dir remembers this host; empty for brokers before 2.4."""
        return "" if self.by_node else self.cluster_id


def agree(metas: Mapping[str, MetaRead], configured_node_id: int | None) -> ClusterFacts:
    """Compare the `meta.properties` of the online log dirs.

    An unformatted log dir is a problem only of that log dir. Ids that differ, or that are not the configured node's,
    are a problem of every log dir, because any of them may be the wrong one.
    """
    problems = {path: "it is unformatted (no meta.properties)" for path, m in metas.items() if m.missing}
    problems |= {path: f"its meta.properties cannot be read: {m.error}" for path, m in metas.items() if m.error}
    readable = {path: m for path, m in metas.items() if not m.missing and not m.error}
    clusters = {m.cluster_id for m in readable.values() if m.cluster_id is not None}
    nodes = {m.node_id for m in readable.values() if m.node_id is not None and m.node_id >= 0}
    doubt: str | None = None
    if len(clusters) > 1:
        doubt = f"the log dirs belong to different clusters: {_each(readable, 'cluster_id')}"
    elif len(nodes) > 1:
        doubt = f"the log dirs belong to different nodes: {_each(readable, 'node_id')}"
    elif configured_node_id is not None and nodes and nodes != {configured_node_id}:
        doubt = f"meta.properties says node {next(iter(nodes))}, the broker's configuration {configured_node_id}"
    elif any(m.error for m in metas.values()) and readable:
        doubt = "another log dir's meta.properties cannot be read"
    if doubt is not None:
        problems |= dict.fromkeys(readable, doubt)
    named = all(m.node_id is not None and m.node_id >= 0 for m in readable.values())
    by_node = doubt is None and not clusters and named and not any(m.directory_id for m in readable.values())
    without = "its meta.properties has no cluster.id"
    if by_node:
        without += " (brokers write it from 2.4 on, and nothing shows surely that this one is older: see kafka.version)"
    problems |= {p: without for p, m in readable.items() if m.cluster_id is None}
    return ClusterFacts(
        next(iter(clusters)) if len(clusters) == 1 else None,
        next(iter(nodes)) if len(nodes) == 1 else configured_node_id,
        problems,
        _copied(readable),
        frozenset(readable) if by_node else frozenset(),
        frozenset(m.directory_id for m in readable.values() if m.directory_id is not None),
    )


def _copied(readable: Mapping[str, MetaRead]) -> frozenset[str]:
    by_id: dict[str, list[str]] = {}
    for path, m in readable.items():
        if m.directory_id is not None:
            by_id.setdefault(m.directory_id, []).append(path)
    return frozenset(path for paths in by_id.values() if len(paths) > 1 for path in paths)


def _each(readable: Mapping[str, MetaRead], attribute: str) -> str:
    return ", ".join(f"{path} {getattr(m, attribute)}" for path, m in sorted(readable.items()))


def directory_ids(images: Iterable[AssignmentImage], cluster_id: str | None, node_id: int | None) -> frozenset[str]:
    """What the newest of `images` that is of this cluster and has any for the node says, however old it is; empty if
    none does.

    Those that the node registered, and those that its replicas are assigned to: when a running broker loses a log dir,
    the controller takes it out of the registration, and the replicas in it keep its id.
    """
    if cluster_id is None or node_id is None:
        return frozenset()
    ours = sorted((i for i in images if i.cluster_id == cluster_id), key=lambda i: i.at_ms, reverse=True)
    return next(filter(None, (_of_node(image, node_id) for image in ours)), frozenset())


def _of_node(image: AssignmentImage, node_id: int) -> frozenset[str]:
    registration = image.brokers.get(node_id)
    registered = () if registration is None else registration.directory_ids
    partitions = (p for topic in image.by_id.values() for p in topic.partitions.values() if p.directories)
    assigned = (directory for p in partitions if (directory := p.directory_of(node_id)) is not None)
    return frozenset(registered).union(assigned) - RESERVED_DIRECTORY_IDS


Partition = tuple[str, int]

SETTLED_MS = 60_000
"""A directory younger than this may have been created between our look and the broker's answer."""


class BrokerPlace(NamedTuple):
    """A broker and where it listens, from the cluster's metadata."""

    node_id: int
    host: str
    port: int


def partitions_on_disk(
    dirs: Iterable[PartitionDir],
    log_dirs: Iterable[str],
    now_ms: int,
    name_of: Callable[[str], str | None] = lambda topic_id: None,
) -> dict[str, frozenset[Partition]]:
    """What a broker that has loaded the log dirs must list: by log dir, the partitions of its current directories.

    `name_of`: the name under which a topic id lives. What has it under another name was copied by hand: the broker
    that runs meanwhile never made it.

    Only settled directories count; if there are none (a broker touches each when it starts), all of them do, as a host
    could not be recognised otherwise.
    """
    found: dict[str, set[Partition]] = {path: set() for path in log_dirs}
    young: dict[str, set[Partition]] = {path: set() for path in found}
    for d in dirs:
        if d.kind is not Kind.CURRENT or d.error is not None or d.log_dir not in found:
            continue
        if d.topic_id is not None and name_of(d.topic_id) not in (None, d.topic):
            continue
        settled = max(d.ctime_ns, d.mtime_ns) // 1_000_000 <= now_ms - SETTLED_MS
        if d.topic is not None and d.partition is not None:
            (found if settled else young)[d.log_dir].add((d.topic, d.partition))
    if not any(found.values()):
        found = young
    return {path: frozenset(partitions) for path, partitions in found.items()}


def why_not_ours(
    described: Mapping[str, AbstractSet[Partition] | None],
    on_disk: Mapping[str, AbstractSet[Partition]],
    *,
    is_its_own: bool = False,
) -> str | None:
    """Why the broker that answered `described` is not the one that uses our disks; None if it is.

    `described` are its partitions by log dir, None for a log dir that it reports as offline. It must contain each of
    our log dirs with every partition that we see there, and at least one partition in all: an empty disk could be
    anyone's. (Not if it was asked at an address where the process listens that has our disks locked: `is_its_own`.)
    """
    in_common = 0
    for path, partitions in on_disk.items():
        if path not in described:
            return f"it has no log dir {path}"
        shown = described[path]
        if shown is None:
            continue
        missing = partitions - shown
        if missing:
            topic, number = min(missing)
            return f"it does not show {topic}-{number} in {path} (and {len(missing) - 1} more of {len(partitions)})"
        in_common += len(partitions)
    if in_common or (is_its_own and not any(on_disk.values())):
        return None
    return "it shows none of the partitions on this disk" if any(on_disk.values()) else "no partition here was compared"


class JournalHost(NamedTuple):
    """The broker that a journal is about. cluster_id: empty for brokers before 2.4. directory_ids: those of its log
    dirs (`directory.id`, from 3.7 on)."""

    cluster_id: str
    node_id: int
    directory_ids: frozenset[str] = frozenset()

    def with_dirs_of(self, other: JournalHost) -> JournalHost:
        return JournalHost(self.cluster_id, self.node_id, self.directory_ids | other.directory_ids)


@dataclass(frozen=True, slots=True)
class LogDirsSeen:
    """The log dirs that the broker's configuration named when it was last read whole, with their `directory.id` (None
    before 3.7). `file`: where that is remembered; `unread`: why it cannot be told."""

    dirs: Mapping[str, str | None] = field(default_factory=dict)
    file: str | None = None
    unread: str | None = None

    def left_out(self, named: Collection[str], ids_here: Collection[str]) -> list[str]:
        """Those that are not `named` any more, and are not among the log dirs here under another path."""
        return sorted(path for path, id_ in self.dirs.items() if path not in named and (not id_ or id_ not in ids_here))


def foreign_journal(known: JournalHost | None, here: JournalHost) -> str | None:
    """Why the journal is of another host; None if it is of this one, or does not say yet.

    Disks may be replaced one by one; but if not a single directory id is known, all disks are different (a clone has
    the same cluster and node id). A journal from before 2.4 takes the cluster id that an upgrade brings; one that has a
    cluster id is never of log dirs without.
    """
    if known is None:
        return None
    if known.node_id != here.node_id or known.cluster_id not in ("", here.cluster_id):
        return f"it is of {_in_words(known)}, and this host is {_in_words(here)}"
    if known.directory_ids and here.directory_ids and not known.directory_ids & here.directory_ids:
        return f"it is of node {known.node_id} with other log dirs: it knows none of their directory ids"
    return None


def _in_words(host: JournalHost) -> str:
    return f"node {host.node_id} of {f'cluster {host.cluster_id}' if host.cluster_id else 'a cluster without an id'}"


def why_no_broker(controllers: Sequence[str]) -> tuple[str, str]:
    """Why this host has nothing to work on, and what to do; `controllers`: the configurations of controllers on it."""
    if controllers:
        return (
            f"this host has a controller ({controllers[0]}) and no broker, so there are no partitions here",
            "logagent is not needed on it: install it on the hosts of brokers",
        )
    return (
        "no Kafka broker on this host: none is running, no unit starts one, and no usual place has a server.properties",
        "name it with --kafka-config FILE, or the log dirs with --log-dir DIR",
    )
