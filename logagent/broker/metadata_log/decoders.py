"""Decoders for metadata records by api key; see `metadata_records` for the frame and the rules."""

from __future__ import annotations

import struct
from collections.abc import Callable

from logagent.broker.metadata_log.metadata_records import (
    FRAME_VERSION,
    AbortTransaction,
    BeginTransaction,
    BrokerRegistrationChange,
    ConfigRecord,
    EndTransaction,
    FeatureLevel,
    FenceBroker,
    MetadataRecord,
    PartitionChange,
    PartitionRecord,
    Reader,
    RegisterBroker,
    RemoveTopic,
    TopicRecord,
    UnregisterBroker,
    ZkMigrationState,
    field,
    shared_text,
)
from logagent.errors import UnreadableError
from logagent.model.assignments.image import Endpoint

_PARTITION_OF_TOPIC = struct.Struct(">i16s")
_LEADER_AND_EPOCHS = struct.Struct(">iii")


def _register_broker(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    if version >= 2:
        reader.boolean()  # IsMigratingZkBroker
    reader.take(16)  # IncarnationId
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
    return RegisterBroker(broker_id, epoch, fenced, log_dirs, endpoints)


# `SecurityProtocol.id`
_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


def _endpoint(reader: Reader) -> Endpoint:
    name, host = reader.string(), reader.string()
    port, protocol = int.from_bytes(reader.take(2), "big"), reader.int16()
    reader.tags()
    return Endpoint(name, host, port, _PROTOCOLS.get(protocol, str(protocol)))


def _unregister_broker(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    reader.int64()
    reader.tags()
    return UnregisterBroker(broker_id)


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


def _fence(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    reader.int64()
    reader.tags()
    return FenceBroker(broker_id, True)


def _unfence(reader: Reader, version: int) -> MetadataRecord:
    broker_id = reader.int32()
    reader.int64()
    reader.tags()
    return FenceBroker(broker_id, False)


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


def _begin(reader: Reader, version: int) -> MetadataRecord:
    field(reader.tags(range(1)), 0, Reader.nullable_string, None)
    return BeginTransaction()


def _end(reader: Reader, version: int) -> MetadataRecord:
    reader.tags()
    return EndTransaction()


def _abort(reader: Reader, version: int) -> MetadataRecord:
    field(reader.tags(range(1)), 0, Reader.nullable_string, None)
    return AbortTransaction()


# api key -> (name, highest version that Kafka 3.3 to 4.3 writes, decoder)
DECODERS: dict[int, tuple[str, int, Callable[[Reader, int], MetadataRecord]]] = {
    0: ("RegisterBrokerRecord", 4, _register_broker),
    1: ("UnregisterBrokerRecord", 0, _unregister_broker),
    2: ("TopicRecord", 0, _topic),
    3: ("PartitionRecord", 2, _partition),
    4: ("ConfigRecord", 0, _config),
    5: ("PartitionChangeRecord", 2, _partition_change),
    7: ("FenceBrokerRecord", 0, _fence),
    8: ("UnfenceBrokerRecord", 0, _unfence),
    9: ("RemoveTopicRecord", 0, _remove_topic),
    12: ("FeatureLevelRecord", 0, _feature_level),
    17: ("BrokerRegistrationChangeRecord", 3, _registration_change),
    21: ("ZkMigrationStateRecord", 0, _zk_migration),
    23: ("BeginTransactionRecord", 0, _begin),
    24: ("EndTransactionRecord", 0, _end),
    25: ("AbortTransactionRecord", 0, _abort),
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
