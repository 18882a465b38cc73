"""The assignment image: which brokers hold which partition of which topic id, and how certain that is.

An image comes from one of three sources (the KRaft metadata log on this host's own disk, the Admin API, an
exported file) and never changes once it is built. It is keyed by topic id: a name does not identify an incarnation,
because deleting and recreating a topic gives the same name a new id.

`logagent.verdict.rules` decides from it; `kafka.metadata_log`, `kafka.admin` and `kafka.files.exported` build it.
Topic and directory ids are the 22-character text of Kafka's `Uuid.toString` (base64url without padding).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from logagent.base.errors import UnreadableError
from logagent.base.topic_ids import ZERO_ID, to_text
from logagent.kafka.levels import NEWEST_METADATA_VERSION


class Source(StrEnum):
    """Where an image comes from."""

    KRAFT_LOG = "kraft-log"
    ADMIN = "admin"
    FILE = "file"


# Kafka's `DirectoryId.reserved`: the first hundred ids (MIGRATING, UNASSIGNED, LOST and room for more) identify no
# directory. Living replicas can have them, so they never show where a replica is.
RESERVED_DIRECTORY_IDS = frozenset(to_text(n.to_bytes(16, "big")) for n in range(100))

# Of these, the ones that a Kafka that we know writes: MIGRATING, UNASSIGNED and LOST.
_KNOWN_RESERVED_IDS = frozenset(to_text(n.to_bytes(16, "big")) for n in range(3))
UNKNOWN_RESERVED_IDS = RESERVED_DIRECTORY_IDS - _KNOWN_RESERVED_IDS


NO_LEADER = -1


class PartitionAssignment(NamedTuple):
    """One partition, like Kafka's `PartitionRegistration`; a named tuple because there are many.

    During a reassignment, `replicas` contains old and new replicas, so a replica is living if its node is in
    `replicas`. `directories` is parallel to `replicas`, or empty if the source knows none. `leader` is -1 for "none",
    and None if the source does not say. `elr`: the eligible leader replicas (KIP-966), which have all that is committed
    although they left the ISR; empty also if the source does not say.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    leader: int | None = None
    elr: tuple[int, ...] = ()

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    def only_in_sync(self, node_id: int) -> bool | None:
        """Whether no other replica is known to have all that is committed; None if the source has no ISR.

        A partition without a leader waits for a member of its ELR: whoever is one may be the next leader, whatever the
        ISR was."""
        if self.leader == NO_LEADER and node_id in self.elr:
            return True
        return set(self.isr) <= {node_id} if self.isr else None

    def directory_of(self, node_id: int) -> str | None:
        """The id of the directory that holds this node's replica; None if unknown or a reserved id."""
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


class Endpoint(NamedTuple):
    """Where a broker advertises one of its listeners. `protocol`: Kafka's `SecurityProtocol` by name ("SASL_SSL")."""

    listener: str
    host: str
    port: int
    protocol: str


class BrokerRegistration(NamedTuple):
    """A registered broker. `fenced` is None if the source does not say. From the metadata log: `endpoints`;
    `incarnation`, a random id that a broker has from its start to its end; `registered_ms`, `unfenced_ms`: when it
    registered and when it was unfenced since, by this host's clock, None if only a snapshot has it; `epoch`: of the
    registration."""

    node_id: int
    directory_ids: tuple[str, ...] = ()
    fenced: bool | None = None
    endpoints: tuple[Endpoint, ...] = ()
    incarnation: str | None = None
    registered_ms: int | None = None
    unfenced_ms: int | None = None
    epoch: int | None = None


@dataclass(slots=True)
class AssignmentImage:
    """The assignments from one source at one moment. Build it with `make_image`, and treat it as frozen.

    `at_ms` is the time whose age counts against `assignments.max_age`: that of the newest batch of a metadata log, of
    the request to the Admin API, or the one in an exported file. `known_until_ms`: a directory created later than this
    may belong to a topic that the image does not know yet, so it cannot be judged. `complete`: what is missing here
    does not exist (the metadata log); the Admin API leaves out what the requesting principal may not describe.
    `uncommitted`: topic ids, and (topic id, partition) pairs, whose removal (or loss of a replica) is on disk but not
    known to be committed. `open_transaction`: the log ends within a metadata transaction, whose records are not in
    here. `gone_ids`: topic ids that are known to have lived in this cluster and were removed; None if nothing is
    remembered of that. `leader_epoch`: that of the log's newest batch. `earlier_metadata_version`: the highest
    that the log had before its present one, since its snapshot. `untested`: its features whose name or level was never
    tested (`levels.untested_features`).
    """

    source: Source
    cluster_id: str | None
    at_ms: int
    known_until_ms: int
    complete: bool
    by_id: dict[str, Topic] = field(default_factory=dict)
    by_name: dict[str, Topic] = field(default_factory=dict)
    nodes: frozenset[int] = frozenset()
    offset: int | None = None
    metadata_version: int | None = None
    earlier_metadata_version: int | None = None
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    uncommitted: frozenset[str | tuple[str, int]] = frozenset()
    origin: str = ""
    exported_from: Source | None = None
    open_transaction: bool = False
    gone_ids: frozenset[str] | None = None
    leader_epoch: int | None = None
    untested: tuple[str, ...] = ()

    def never_showed(self, topic_id: str | None) -> bool:
        """Whether the metadata log never had this topic id, as far as it reaches back and as is remembered: it may be
        of another cluster, or of a past of this one that was taken back (a quorum restored from a backup)."""
        remembers = self.source is Source.KRAFT_LOG and self.gone_ids is not None
        return remembers and topic_id not in self.by_id and topic_id not in (self.gone_ids or ())

    @property
    def incomplete_because(self) -> str | None:
        """Why something that this image lacks may exist even though its source is complete; None if it cannot."""
        return "a metadata transaction is open at its end" if self.open_transaction else None

    @property
    def untested_because(self) -> str | None:
        """Why only the removals in it prove anything (`levels`); None if all of it does."""
        highest = self.highest_metadata_version
        if highest is None:
            of_log = Source.KRAFT_LOG in (self.source, self.exported_from)
            return "it does not say which metadata.version it has" if of_log else None
        if highest <= NEWEST_METADATA_VERSION:
            return None
        number = f"is {highest}" if highest == self.metadata_version else f"was {highest} for some of its records"
        return f"its metadata.version {number}, the newest tested one is {NEWEST_METADATA_VERSION}"

    @property
    def highest_metadata_version(self) -> int | None:
        """The highest level at which something in it was written; None if none is known."""
        levels = (self.metadata_version, self.earlier_metadata_version)
        return max((level for level in levels if level is not None), default=None)

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


def make_image(topics: Iterable[Topic], of: AssignmentImage) -> AssignmentImage:
    """The image `of` a source with its `topics`, by id and by name.

    Raises `UnreadableError` if two topics share an id or a name: such an answer is broken, and a verdict based on it
    would be a guess. A zero id counts as "no id" (Kafka's answer for topics of clusters before 2.8).
    """
    by_id: dict[str, Topic] = {}
    by_name: dict[str, Topic] = {}
    replica_lists: set[tuple[int, ...]] = set()
    for topic in topics:
        if topic.topic_id == ZERO_ID:
            topic.topic_id = None
        if by_name.setdefault(topic.name, topic) is not topic:
            raise UnreadableError(f"{of.origin or of.source}: topic {topic.name} is listed twice")
        if topic.topic_id is not None and by_id.setdefault(topic.topic_id, topic) is not topic:
            raise UnreadableError(f"{of.origin or of.source}: topic id {topic.topic_id} is listed twice")
        replica_lists.update(p.replicas for p in topic.partitions.values())
    nodes = frozenset(node for replicas in replica_lists for node in replicas)
    return replace(of, by_id=by_id, by_name=by_name, nodes=nodes)
