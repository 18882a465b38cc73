"""The assignment image: which brokers hold which partition of which topic id, and how certain that is. No I/O.

An image comes from one of three sources (the KRaft metadata log on this host's own disk, the Admin API, an
exported file) and never changes once it is built. It is keyed by topic id: a name does not identify an incarnation,
because deleting and recreating a topic gives the same name a new id.

`logagent.verdict.rules` decides from it; `kafka.metadata_log`, `kafka.admin` and `kafka.files.exported` build it.
Topic and directory ids are the 22-character text of Kafka's `Uuid.toString` (base64url without padding).

How certain it is hangs on the levels of cluster features that were tested. The number is a sign: `metadata.version` 12
(3.6-IV0) changed what a shrunken ISR means without changing a record (KAFKA-15021). So a level counts as known only
once its release was tested: one log was replayed through Kafka's own `MetadataDelta`, and the image was ours. Above
that, and however well every record was understood, only what a record says once and for all is proven: that a topic id
was removed. Who is a replica, where, since when and in sync with whom is then asked of a broker by id. So it is if only
some of the records are of such a level (it was lowered since), and if the level is not known.

And what a start reads in a metadata log dir: the levels in its files, and which of these Kafka cannot read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from logagent.base.dir_names import PARTITION_METADATA
from logagent.base.errors import UnreadableError
from logagent.base.kafka_version import Version
from logagent.base.records import ZERO_ID, Reason, id_to_text

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
BOOTSTRAP: Final = "bootstrap.checkpoint"
NEWEST_METADATA_VERSION: Final = 34
"""4.5-IV0, the newest `metadata.version` that Kafka 4.4.0 knows (it formats with 33, 4.4-IV2)."""

# `org.apache.kafka.server.common.Feature` of 4.4.0; those before it are a part of it.
_NEWEST_LEVELS: Final[Mapping[str, int]] = {
    METADATA_VERSION: NEWEST_METADATA_VERSION,
    KRAFT_VERSION: 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
}


def unread(why: str, *, newer: bool, asks_brokers: bool) -> Reason:
    """`newer`: it holds what no tested release writes. `asks_brokers`: `kafka.bootstrap_servers` is set."""
    says = f"the metadata log on this host proves nothing: {why}"
    return Reason(says, _what_helps(newer=newer, asks_brokers=asks_brokers), "nothing")


def doubt_of(untested_because: str | None, untested: Sequence[str], *, asks_brokers: bool) -> Reason | None:
    """Of a log that was read, by `AssignmentImage.untested_because` and `AssignmentImage.untested`. The code is what it
    proves all the same: "all" (what was not tested says nothing of partitions, as far as is known) or "removals"."""
    hint = _what_helps(newer=True, asks_brokers=asks_brokers)
    if untested_because is not None:
        what = "the metadata log on this host proves only that topics were deleted or created anew"
        others = (feature for feature in untested if not feature.startswith(f"its {METADATA_VERSION} "))
        return Reason(f"{what}: {'; '.join((untested_because, *others))}", hint, "removals")
    if untested:
        what = "the metadata log on this host is of a cluster with features that were not tested"
        return Reason(f"{what}: {'; '.join(untested)}", "install a newer logagent, if there is one", "all")
    return None


def _what_helps(*, newer: bool, asks_brokers: bool) -> str:
    instead = "install a newer logagent" if newer else "logagent check says which file is damaged, and what helps"
    if asks_brokers:
        return instead
    return (
        "set kafka.bootstrap_servers (and kafka.client for TLS or a password), so that the brokers say what is theirs;"
        f" or {instead}"
    )


def untested_features(levels: Mapping[str, int]) -> tuple[str, ...]:
    """The finalised features whose name or level was not tested, each in words; `metadata.version` first."""
    ordered = sorted(levels.items(), key=lambda feature: (feature[0] != METADATA_VERSION, feature[0]))
    return tuple(_in_words(name, level) for name, level in ordered if not 0 <= level <= _NEWEST_LEVELS.get(name, -1))


def _in_words(name: str, level: int) -> str:
    newest = _NEWEST_LEVELS.get(name)
    if newest is None:
        return f"the feature {name} is not known"
    return f"its {name} is {level}, the newest tested one is {newest}"


class MetadataFile(StrEnum):
    """A file in a metadata log dir that a KRaft node reads when it starts."""

    QUORUM_STATE = "quorum-state"
    EPOCHS = "leader-epoch-checkpoint"
    TOPIC_ID = PARTITION_METADATA
    SNAPSHOT = "snapshot"
    FIRST_SNAPSHOT = "first-snapshot"
    LOST_SNAPSHOT = "lost-snapshot"
    BOOTSTRAP = "bootstrap.checkpoint"
    SNAPSHOT_END = "end-of-snapshot"
    ODD_NAME = "odd-name"
    VOTERS = "voters"
    DYNAMIC = "dynamic-quorum"
    DIRECTORY_ID = "directory-id"


class MetadataFault(NamedTuple):
    """One of these that Kafka cannot read. `name`: its path below the metadata log dir. `refused`: Kafka waits,
    or raises something else than an `IOException`. `spare`: a start does without the file, if it is not there."""

    file: MetadataFile
    name: str
    error: str
    refused: bool = False
    spare: bool = True


FeatureLevels = Mapping[str, tuple[int, ...]]
"""By feature, each level that records give it, the one that is finalised now last."""


class StartLevels(NamedTuple):
    """The features in the files that a KRaft node reads when it starts.

    log: of the newest metadata snapshot and the log after it. bootstrap: of `bootstrap.checkpoint`. formatted: of the
    snapshot that `kafka-storage format` of 4.4 and later writes instead, while that is all there is. unread: why not
    all of it could be read. empty: no metadata record has been written yet.
    """

    log: FeatureLevels = MappingProxyType({})
    bootstrap: FeatureLevels = MappingProxyType({})
    formatted: FeatureLevels = MappingProxyType({})
    unread: str | None = None
    empty: bool = False


def level_name(level: int) -> str:
    from logagent.kafka.release_table import METADATA_VERSIONS

    return METADATA_VERSIONS[level].name


def oldest_release(metadata_version: int) -> Version | None:
    """The oldest release that a node with this `metadata.version` may be of, by the name of the level; None for a level
    of no release (0)."""
    from logagent.kafka.release_table import METADATA_VERSIONS

    level = max((known for known in METADATA_VERSIONS if known <= metadata_version), default=None)
    if level is None:
        return None
    major, minor = level_name(level).partition("-")[0].split(".")
    return int(major), int(minor), 0


class Source(StrEnum):
    """Where an image comes from."""

    KRAFT_LOG = "kraft-log"
    ADMIN = "admin"
    FILE = "file"


# Kafka's `DirectoryId.reserved`: the first hundred ids (MIGRATING, UNASSIGNED, LOST and room for more) identify no
# directory. Living replicas can have them, so they never show where a replica is.
RESERVED_DIRECTORY_IDS = frozenset(id_to_text(n.to_bytes(16, "big")) for n in range(100))

# Of these, the ones that a Kafka that we know writes: MIGRATING, UNASSIGNED and LOST.
_KNOWN_RESERVED_IDS = frozenset(id_to_text(n.to_bytes(16, "big")) for n in range(3))
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
