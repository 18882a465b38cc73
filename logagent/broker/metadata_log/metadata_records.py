"""Records of KRaft's metadata log: the frame, and the messages that determine where partitions are.

A record's value is a frame (`MetadataRecordSerde`: frame version, api key, message version, each an unsigned
varint), then the message in Kafka's flexible encoding. Mirrors the schemas in the `kafka-metadata` jars of
3.3.2, 3.5.2, 3.7.0, 3.9.1, 4.1.0 and 4.3.1 (`common/metadata/*Record.json`).

Deviation from Kafka: records with other api keys are skipped, because they do not concern partitions. For the keys read
here, an unknown version or tag or a left-over byte is refused, because a half-understood message makes a wrong image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from logagent.errors import UnreadableError
from logagent.model.assignments.image import Endpoint
from logagent.model.naming.topic_ids import to_text

T = TypeVar("T")
D = TypeVar("D")

FRAME_VERSION = 1


class RegisterBroker(NamedTuple):
    broker_id: int
    epoch: int
    fenced: bool
    log_dirs: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    incarnation_id: str


class UnregisterBroker(NamedTuple):
    broker_id: int


class TopicRecord(NamedTuple):
    name: str
    topic_id: str


class PartitionRecord(NamedTuple):
    partition: int
    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing: tuple[int, ...]
    adding: tuple[int, ...]
    leader: int
    directories: tuple[str, ...]


class ConfigRecord(NamedTuple):
    resource_type: int
    resource_name: str
    name: str
    value: str | None


class PartitionChange(NamedTuple):
    """None = unchanged; `leader` -2 = unchanged, -1 = no leader."""

    partition: int
    topic_id: str
    isr: tuple[int, ...] | None
    leader: int
    replicas: tuple[int, ...] | None
    removing: tuple[int, ...] | None
    adding: tuple[int, ...] | None
    directories: tuple[str, ...] | None


class FenceBroker(NamedTuple):
    broker_id: int
    fenced: bool


class RemoveTopic(NamedTuple):
    topic_id: str


class FeatureLevel(NamedTuple):
    name: str
    level: int


class BrokerRegistrationChange(NamedTuple):
    """`fenced`: None = unchanged. An empty `log_dirs` means unchanged."""

    broker_id: int
    fenced: bool | None
    log_dirs: tuple[str, ...]


class ZkMigrationState(NamedTuple):
    state: int


class BeginTransaction(NamedTuple):
    pass


class EndTransaction(NamedTuple):
    pass


class AbortTransaction(NamedTuple):
    pass


MetadataRecord = (
    RegisterBroker
    | UnregisterBroker
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChange
    | FenceBroker
    | RemoveTopic
    | FeatureLevel
    | BrokerRegistrationChange
    | ZkMigrationState
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)


# Ids are repeated very often (a topic's in each partition, a directory's in each replica).
shared_text = lru_cache(maxsize=16_384)(to_text)


class Reader:
    """Reads one message in flexible encoding; raises UnreadableError if it ends too early."""

    __slots__ = ("data", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.pos = pos

    def take(self, length: int) -> bytes:
        end = self.pos + length
        if length < 0 or end > len(self.data):
            raise UnreadableError(f"a metadata record ends {end - len(self.data)} bytes too early")
        piece = self.data[self.pos : end]
        self.pos = end
        return piece

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Several fixed-length fields in one step."""
        try:
            fields = layout.unpack_from(self.data, self.pos)
        except struct.error:
            raise UnreadableError("a metadata record ends too early") from None
        self.pos += layout.size
        return fields

    def unsigned_varint(self) -> int:
        pos = self.pos
        if pos < len(self.data) and self.data[pos] < 0x80:  # nearly all of them
            self.pos = pos + 1
            return self.data[pos]
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise UnreadableError("a metadata record holds a number of more than five bytes")
        if value > 0xFFFFFFFF:
            raise UnreadableError("a metadata record holds a number of more than 32 bits")
        return value

    def int8(self) -> int:
        return int.from_bytes(self.take(1), "big", signed=True)

    def boolean(self) -> bool:
        return self.take(1) != b"\0"

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def uuid(self) -> str:
        return shared_text(self.take(16))

    def nullable_string(self) -> str | None:
        length = self.unsigned_varint()
        if length == 0:
            return None
        try:
            return self.take(length - 1).decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableError(f"a metadata record has a string that is not UTF-8: {error}") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise UnreadableError("a metadata record has null instead of a string")
        return text

    def length(self) -> int:
        """The number of elements of a non-nullable array."""
        length = self.unsigned_varint()
        if length == 0:
            raise UnreadableError("a metadata record has null instead of an array")
        return length - 1

    def int32s(self) -> tuple[int, ...]:
        count = self.length()
        if count == 0:
            return ()
        return struct.unpack(f">{count}i", self.take(4 * count))

    def nullable_int32s(self) -> tuple[int, ...] | None:
        if self.pos < len(self.data) and self.data[self.pos] == 0:
            self.pos += 1
            return None
        return self.int32s()

    def uuids(self) -> tuple[str, ...]:
        count = self.length()
        raw = self.take(16 * count)
        return tuple([shared_text(raw[start : start + 16]) for start in range(0, 16 * count, 16)])

    def nullable_uuids(self) -> tuple[str, ...] | None:
        if self.pos < len(self.data) and self.data[self.pos] == 0:
            self.pos += 1
            return None
        return self.uuids()

    def tags(self, known: range | frozenset[int] = frozenset()) -> dict[int, Reader]:
        """The tagged fields at the end of every structure, each as a separate reader; they must be ascending, unique
        and `known`."""
        count = self.unsigned_varint()
        if count == 0:
            return {}
        readers: dict[int, Reader] = {}
        last = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= last or tag not in known:
                raise UnreadableError(f"a metadata record holds an unexpected tagged field {tag}")
            last = tag
            readers[tag] = Reader(self.take(self.unsigned_varint()))
        return readers

    def finish(self) -> None:
        if self.pos != len(self.data):
            raise UnreadableError(f"a metadata record has {len(self.data) - self.pos} bytes left over")


def field(tags: dict[int, Reader], tag: int, read: Callable[[Reader], T], default: D) -> T | D:
    """The tagged field `tag`, read completely with `read`, or `default` if it is absent."""
    reader = tags.get(tag)
    if reader is None:
        return default
    value = read(reader)
    reader.finish()
    return value


Decoder = Callable[[Reader, int], MetadataRecord]
_PARTITION_OF_TOPIC = struct.Struct(">i16s")
_LEADER_AND_EPOCHS = struct.Struct(">iii")


def _register_broker(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    if version >= 2:
        reader.boolean()  # IsMigratingZkBroker
    incarnation_id = reader.uuid()
    epoch = reader.int64()
    endpoints = tuple([_endpoint(reader) for _ in range(reader.length())])
    for _ in range(reader.length()):  # Features
        reader.string()
        reader.take(4)
        reader.tags()
    reader.nullable_string()  # Rack
    fenced = reader.boolean()
    if version >= 1:
        reader.boolean()  # InControlledShutdown
    tags = reader.tags(range(max(0, version - 2)))
    log_dirs = field(tags, 0, Reader.uuids, ())
    field(tags, 1, Reader.nullable_uuids, None)  # CordonedLogDirs
    return RegisterBroker(broker_id, epoch, fenced, log_dirs, endpoints, incarnation_id)


# `SecurityProtocol.id`
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def _endpoint(reader: Reader) -> Endpoint:
    name, host = reader.string(), reader.string()
    port, protocol = int.from_bytes(reader.take(2), "big"), reader.int16()
    reader.tags()
    return Endpoint(name, host, port, _PROTOCOLS.get(protocol, str(protocol)))


def _topic(reader: Reader, version: int) -> MetadataRecord:
    name = reader.string()
    topic_id = reader.uuid()
    reader.tags()
    return TopicRecord(name, topic_id)


def _partition(reader: Reader, version: int) -> MetadataRecord:
    partition, topic_id = reader.unpack(_PARTITION_OF_TOPIC)
    replicas = reader.int32s()
    isr = reader.int32s()
    removing = reader.int32s()
    adding = reader.int32s()
    leader, _, _ = reader.unpack(_LEADER_AND_EPOCHS)
    directories = reader.uuids() if version >= 1 else ()
    if tags := reader.tags(range(3) if version >= 2 else range(1)):
        field(tags, 0, Reader.int8, 0)  # LeaderRecoveryState
        field(tags, 1, Reader.nullable_int32s, None)  # EligibleLeaderReplicas
        field(tags, 2, Reader.nullable_int32s, None)  # LastKnownElr
    if directories and len(directories) != len(replicas):
        raise UnreadableError(f"partition {partition} has {len(replicas)} replicas and {len(directories)} dirs")
    return PartitionRecord(partition, shared_text(topic_id), replicas, isr, removing, adding, leader, directories)


def _config(reader: Reader, version: int) -> MetadataRecord:
    resource_type = reader.int8()
    resource_name = reader.string()
    name = reader.string()
    value = reader.nullable_string()
    reader.tags()
    return ConfigRecord(resource_type, resource_name, name, value)


# Tags 6 and 7 are the eligible leader replicas of version 2; 8 came earlier, with version 1.
_PARTITION_CHANGE_TAGS = (frozenset(range(6)), frozenset((*range(6), 8)), frozenset(range(9)))


def _partition_change(reader: Reader, version: int) -> MetadataRecord:
    partition, topic_id = reader.unpack(_PARTITION_OF_TOPIC)
    tags = reader.tags(_PARTITION_CHANGE_TAGS[version])
    change = PartitionChange(
        partition,
        shared_text(topic_id),
        isr=field(tags, 0, Reader.nullable_int32s, None),
        leader=field(tags, 1, Reader.int32, -2),
        replicas=field(tags, 2, Reader.nullable_int32s, None),
        removing=field(tags, 3, Reader.nullable_int32s, None),
        adding=field(tags, 4, Reader.nullable_int32s, None),
        directories=field(tags, 8, Reader.nullable_uuids, None),
    )
    field(tags, 5, Reader.int8, -1)  # LeaderRecoveryState
    field(tags, 6, Reader.nullable_int32s, None)  # EligibleLeaderReplicas
    field(tags, 7, Reader.nullable_int32s, None)  # LastKnownElr
    return change


def _of_broker(make: Callable[[int], MetadataRecord]) -> Decoder:
    """A record of nothing but a broker's id and epoch."""

    def decode(reader: Reader, version: int) -> MetadataRecord:
        broker_id = reader.int32()
        reader.int64()
        reader.tags()
        return make(broker_id)

    return decode


def _remove_topic(reader: Reader, version: int) -> MetadataRecord:
    topic_id = reader.uuid()
    reader.tags()
    return RemoveTopic(topic_id)


def _feature_level(reader: Reader, version: int) -> MetadataRecord:
    name = reader.string()
    level = reader.int16()
    reader.tags()
    return FeatureLevel(name, level)


_FENCED = {-1: False, 0: None, 1: True}


def _registration_change(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    reader.int64()
    tags = reader.tags(range(version + 1))
    fenced = field(tags, 0, Reader.int8, 0)
    field(tags, 1, Reader.int8, 0)  # InControlledShutdown
    log_dirs = field(tags, 2, Reader.uuids, ())
    field(tags, 3, Reader.nullable_uuids, None)  # CordonedLogDirs
    if fenced not in _FENCED:
        raise UnreadableError(f"broker {broker_id} is fenced in an unknown way ({fenced})")
    return BrokerRegistrationChange(broker_id, _FENCED[fenced], log_dirs)


def _zk_migration(reader: Reader, version: int) -> MetadataRecord:
    state = reader.int8()
    reader.tags()
    return ZkMigrationState(state)


def _mark(make: Callable[[], MetadataRecord], tags: int) -> Decoder:
    """A mark of a transaction: `tags` tagged fields, a name or a reason."""

    def decode(reader: Reader, version: int) -> MetadataRecord:
        field(reader.tags(range(tags)), 0, Reader.nullable_string, None)
        return make()

    return decode


# api key -> (name, highest version that Kafka 3.3 to 4.3 writes, decoder)
DECODERS: dict[int, tuple[str, int, Decoder]] = {
    0: ("RegisterBrokerRecord", 4, _register_broker),
    1: ("UnregisterBrokerRecord", 0, _of_broker(UnregisterBroker)),
    2: ("TopicRecord", 0, _topic),
    3: ("PartitionRecord", 2, _partition),
    4: ("ConfigRecord", 0, _config),
    5: ("PartitionChangeRecord", 2, _partition_change),
    7: ("FenceBrokerRecord", 0, _of_broker(lambda broker_id: FenceBroker(broker_id, True))),
    8: ("UnfenceBrokerRecord", 0, _of_broker(lambda broker_id: FenceBroker(broker_id, False))),
    9: ("RemoveTopicRecord", 0, _remove_topic),
    12: ("FeatureLevelRecord", 0, _feature_level),
    17: ("BrokerRegistrationChangeRecord", 3, _registration_change),
    21: ("ZkMigrationStateRecord", 0, _zk_migration),
    23: ("BeginTransactionRecord", 0, _mark(BeginTransaction, 1)),
    24: ("EndTransactionRecord", 0, _mark(EndTransaction, 0)),
    25: ("AbortTransactionRecord", 0, _mark(AbortTransaction, 1)),
}


def decode_record(value: bytes) -> MetadataRecord | None:
    """Decode one record's value; None for an api key that does not concern partitions.

    Raises `UnreadableError` for an unknown frame version, a higher version of a known key than Kafka 4.3 writes,
    unknown tagged fields, and missing or left-over bytes.
    """
    reader = Reader(value)
    frame = reader.unsigned_varint()
    if frame != FRAME_VERSION:
        raise UnreadableError(f"a metadata record has frame version {frame}, known is {FRAME_VERSION}")
    key = reader.unsigned_varint()
    version = reader.unsigned_varint()
    known = DECODERS.get(key)
    if known is None:
        return None
    name, highest, decode = known
    if version > highest:
        raise UnreadableError(
            f"{name} has version {version}, known are 0 to {highest}",
            hint="this Kafka is newer than logagent knows; use the Admin API as the source of assignments",
        )
    record = decode(reader, version)
    reader.finish()
    return record
