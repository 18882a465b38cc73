"""The assignment image: which brokers hold which partition of which topic id, and how sure that is.

An image comes from one of three sources (the KRaft metadata log on this host's own disk, the Admin API, an
exported file) and is never changed after it was built. It is keyed by topic id: a name says nothing about an
incarnation, because deleting and creating a topic gives the same name a new id.

`logagent.model.assignments.verdict` decides from it; `logagent.broker.metadata_log.log` and its neighbours build it.
Topic and directory ids are the 22-character text of Kafka's `Uuid.toString` (base64url without padding).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from logagent.errors import UnreadableError
from logagent.model.naming.topic_ids import ZERO_ID, to_text


class Source(StrEnum):
    """Where an image comes from."""

    KRAFT_LOG = "kraft-log"
    ADMIN = "admin"
    FILE = "file"


# Kafka's `DirectoryId.reserved`: the first hundred ids (MIGRATING, UNASSIGNED, LOST and room for more) name no
# directory. Replicas that live can carry them, so they never tell where a replica is.
RESERVED_DIRECTORY_IDS = frozenset(to_text(n.to_bytes(16, "big")) for n in range(100))

METADATA_TOPIC = "__cluster_metadata"

NEWEST_METADATA_VERSION = 30
"""4.3-IV0, the newest `metadata.version` whose records are known here."""


class PartitionAssignment(NamedTuple):
    """One partition as Kafka's `PartitionRegistration` holds it; a named tuple because there are many.

    `replicas` is old and new replicas together while a reassignment is open, so "is the node in `replicas`" is
    the test for a living replica. `directories` runs parallel to `replicas`, or is empty where the source knows
    none. `leader` is -1 for "none", and None where the source does not say.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    leader: int | None = None

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def directory_of(self, node_id: int) -> str | None:
        """Id of the directory that holds this node's replica; None where that is not known (reserved ids too)."""
        if len(self.directories) != len(self.replicas) or node_id not in self.replicas:
            return None
        directory = self.directories[self.replicas.index(node_id)]
        return None if directory in RESERVED_DIRECTORY_IDS else directory


@dataclass(slots=True)
class Topic:
    """A living topic. `topic_id` is None only for clusters before 2.8, which have no ids."""

    name: str
    topic_id: str | None
    partitions: dict[int, PartitionAssignment] = field(default_factory=dict)


class BrokerRegistration(NamedTuple):
    """A registered broker. `fenced` is None where the source does not say."""

    node_id: int
    directory_ids: tuple[str, ...] = ()
    fenced: bool | None = None


@dataclass(slots=True)
class AssignmentImage:
    """What one source said at one moment. Build it with `make_image`, and treat it as frozen.

    `at_ms` is the age that counts against `assignments.max_age`: the newest batch's time for a metadata log, the
    moment of asking for the Admin API, and what the file says for a file. `known_until_ms` is the last moment
    whose directories this image can judge: a directory made later may belong to a topic that the image does not
    know yet. `complete` says that what is missing here does not exist (the metadata log); the Admin API leaves
    out what the asking principal may not describe. `uncommitted` holds topic ids, and (topic id, partition)
    pairs, whose removal (or loss of a replica) is on disk but not known to be committed. `open_transaction`: the log
    ends within a metadata transaction, so what it is about to say is not in here.
    """

    source: Source
    cluster_id: str | None
    at_ms: int
    known_until_ms: int
    complete: bool
    by_id: dict[str, Topic]
    by_name: dict[str, Topic]
    nodes: frozenset[int]
    offset: int | None = None
    metadata_version: int | None = None
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    uncommitted: frozenset[str | tuple[str, int]] = frozenset()
    origin: str = ""
    exported_from: Source | None = None
    open_transaction: bool = False

    @property
    def incomplete_because(self) -> str | None:
        """Why what this image does not list may still exist although its source is complete; None where it may not."""
        if self.open_transaction:
            return "a metadata transaction is open at its end"
        if self.metadata_version is not None and self.metadata_version > NEWEST_METADATA_VERSION:
            return f"its metadata.version is {self.metadata_version}, the newest known one is {NEWEST_METADATA_VERSION}"
        return None

    @property
    def topic_count(self) -> int:
        return len(self.by_name)

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_name.values())

    def age_ms(self, now_ms: int) -> int:
        return now_ms - self.at_ms

    def partition(self, topic_id: str, partition: int) -> PartitionAssignment | None:
        topic = self.by_id.get(topic_id)
        return topic.partitions.get(partition) if topic is not None else None


def make_image(
    topics: Iterable[Topic],
    *,
    source: Source,
    cluster_id: str | None,
    at_ms: int,
    known_until_ms: int,
    complete: bool,
    offset: int | None = None,
    metadata_version: int | None = None,
    brokers: Mapping[int, BrokerRegistration] | None = None,
    uncommitted: frozenset[str | tuple[str, int]] = frozenset(),
    origin: str = "",
    exported_from: Source | None = None,
    open_transaction: bool = False,
) -> AssignmentImage:
    """Index `topics` by id and by name.

    Raises `UnreadableError` when two topics share an id or a name: such an answer is broken, and a verdict from
    it would be a guess. A zero id counts as "no id" (Kafka's answer for topics of clusters before 2.8).
    """
    by_id: dict[str, Topic] = {}
    by_name: dict[str, Topic] = {}
    replica_lists: set[tuple[int, ...]] = set()
    for topic in topics:
        if topic.topic_id == ZERO_ID:
            topic.topic_id = None
        if by_name.setdefault(topic.name, topic) is not topic:
            raise UnreadableError(f"{origin or source}: topic {topic.name} is there twice")
        if topic.topic_id is not None and by_id.setdefault(topic.topic_id, topic) is not topic:
            raise UnreadableError(f"{origin or source}: topic id {topic.topic_id} is there twice")
        replica_lists.update(p.replicas for p in topic.partitions.values())
    return AssignmentImage(
        source=source,
        cluster_id=cluster_id,
        at_ms=at_ms,
        known_until_ms=known_until_ms,
        complete=complete,
        by_id=by_id,
        by_name=by_name,
        nodes=frozenset(node for replicas in replica_lists for node in replicas),
        offset=offset,
        metadata_version=metadata_version,
        brokers=brokers if brokers is not None else {},
        uncommitted=uncommitted,
        origin=origin,
        exported_from=exported_from,
        open_transaction=open_transaction,
    )
