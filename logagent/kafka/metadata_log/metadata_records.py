"""Records of KRaft's metadata log: the frame, and the messages that determine where partitions are.

A record's value is a frame (`MetadataRecordSerde`: frame version, api key, message version, each an unsigned
varint), then the message in Kafka's flexible encoding. Mirrors the schemas in the `kafka-metadata` jars of
3.3.2, 3.5.2, 3.7.0, 3.9.1, 4.1.0, 4.3.1 and 4.4.0 (`common/metadata/*Record.json`).

An unknown type, version or tag and a left-over byte are refused, because a half-understood message makes a wrong image:
a type that came later may move a partition, and a field that came later may say that it was not moved. That also holds
for records that do not concern partitions (ACLs, quotas): they are read to their end, and nothing is kept of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from logagent.base.errors import NotUnderstood, UnreadableError
from logagent.base.records import id_to_text
from logagent.kafka.image import Endpoint

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
    epoch: int


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
    elr: tuple[int, ...] = ()


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
    elr: tuple[int, ...] | None = None


class ClearElr(NamedTuple):
    """An empty `topic`: of all topics."""

    topic: str


class FenceBroker(NamedTuple):
    broker_id: int
    epoch: int
    fenced: bool


class RemoveTopic(NamedTuple):
    topic_id: str


class FeatureLevel(NamedTuple):
    name: str
    level: int


class BrokerRegistrationChange(NamedTuple):
    """`fenced`: None = unchanged. An empty `log_dirs` means unchanged."""

    broker_id: int
    epoch: int
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
    | ClearElr
    | FenceBroker
    | RemoveTopic
    | FeatureLevel
    | BrokerRegistrationChange
    | ZkMigrationState
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)


# Ids are repeated very often (a topic's in each partition, a directory's in each replica), and so are lists of nodes
# (each partition's replicas are its ISR, too). What is equal is read once, and is one object in memory.
shared_text = lru_cache(maxsize=16_384)(id_to_text)


@lru_cache(maxsize=32_768)
def _shared_int32s(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(raw) // 4}i", raw)


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
        byte = self.data[self.pos] if self.pos < len(self.data) else 0x80
        if byte < 0x80:  # nearly all of them
            self.pos += 1
            return byte
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
        return _shared_int32s(self.take(4 * count)) if count else ()

    def nullable_int32s(self) -> tuple[int, ...] | None:
        if self.pos < len(self.data) and self.data[self.pos] == 0:
            self.pos += 1
            return None
        return self.int32s()

    def uuids(self) -> tuple[str, ...]:
        count = self.length()
        raw = self.take(16 * count)
        return tuple(map(shared_text, struct.unpack("16s" * count, raw)))

    def nullable_uuids(self) -> tuple[str, ...] | None:
        if self.pos < len(self.data) and self.data[self.pos] == 0:
            self.pos += 1
            return None
        return self.uuids()

    def tags(self, known: Tags | None = None) -> dict[int, Any]:
        """The tagged fields at the end of every structure, each read completely by what `known` has for its tag; they
        must be ascending, unique and known."""
        count = self.unsigned_varint()
        if count == 0:
            return {}
        values: dict[int, Any] = {}
        last = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            read = known.get(tag) if known is not None and tag > last else None
            if read is None:
                raise NotUnderstood(f"a metadata record holds an unexpected tagged field {tag}")
            last = tag
            content = Reader(self.take(self.unsigned_varint()))
            values[tag] = read(content)
            content.finish()
        return values

    def frame(self) -> tuple[int, int]:
        """Api key and version of the message that follows."""
        data = self.data
        if len(data) > 3 and data[0] == FRAME_VERSION and data[1] < 0x80 and data[2] < 0x80:  # all that are read here
            self.pos = 3
            return data[1], data[2]
        frame = self.unsigned_varint()
        if frame != FRAME_VERSION:
            raise NotUnderstood(f"a metadata record has frame version {frame}, known is {FRAME_VERSION}")
        return self.unsigned_varint(), self.unsigned_varint()

    def finish(self) -> None:
        if self.pos != len(self.data):
            raise NotUnderstood(f"a metadata record has {len(self.data) - self.pos} bytes left over")


Tags = Mapping[int, Callable[[Reader], Any]]
Decoder = Callable[[Reader, int], MetadataRecord | None]
_PARTITION_OF_TOPIC = struct.Struct(">i16s")
_LEADER_AND_EPOCHS = struct.Struct(">iii")


_NO_TAGS: Tags = {}
_LOG_DIRS: Tags = {0: Reader.uuids}
_CORDONED: Tags = {1: Reader.nullable_uuids}
# By version, here and below.
_REGISTRATION_TAGS = (_NO_TAGS, _NO_TAGS, _NO_TAGS, _LOG_DIRS, {**_LOG_DIRS, **_CORDONED})


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
    log_dirs = reader.tags(_REGISTRATION_TAGS[version]).get(0, ())
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


_RECOVERY_STATE: Tags = {0: Reader.int8}
_ELIGIBLE_AND_LAST_KNOWN: Tags = {1: Reader.nullable_int32s, 2: Reader.nullable_int32s}
_PARTITION_TAGS = (_RECOVERY_STATE, _RECOVERY_STATE, {**_RECOVERY_STATE, **_ELIGIBLE_AND_LAST_KNOWN})


class _Layout(NamedTuple):
    """What nearly every partition's record looks like: a directory for each replica, no reassignment, no tagged field,
    every length in one byte. `lengths` are those bytes' values."""

    fields: struct.Struct
    lengths: tuple[int, ...]


@lru_cache(maxsize=1024)
def _layout(size: int, replicas: int) -> _Layout | None:
    """The only such layout of a message of `size` bytes with so many replicas; None if there is none."""
    rest = size - struct.calcsize(f">i16sB{4 * replicas}sBBBi8xB{16 * replicas}sB")
    if rest < 0 or rest % 4 or max(replicas, rest // 4) > 126:
        return None
    fields = struct.Struct(f">i16sB{4 * replicas}sB{rest}sBBi8xB" + "16s" * replicas + "B")
    return _Layout(fields, (replicas + 1, rest // 4 + 1, 1, 1, replicas + 1, 0))


def _partition_at_once(reader: Reader) -> PartitionRecord | None:
    """What `_partition_in_steps` reads, in half of the time; None, with nothing read, if it is laid out otherwise."""
    data, start = reader.data, reader.pos
    size = len(data) - start
    layout = _layout(size, data[start + 20] - 1) if size > 20 and data[start + 20] else None
    if layout is None:
        return None
    fields = layout.fields.unpack_from(data, start)
    number, topic_id, n_replicas, replicas, n_isr, isr, n_removing, n_adding, leader, n_directories = fields[:10]
    if (n_replicas, n_isr, n_removing, n_adding, n_directories, fields[-1]) != layout.lengths:
        return None
    reader.pos = len(data)
    directories = tuple(map(shared_text, fields[10:-1]))
    nodes = _shared_int32s
    return PartitionRecord(number, shared_text(topic_id), nodes(replicas), nodes(isr), (), (), leader, directories)


def _partition(reader: Reader, version: int) -> MetadataRecord:
    return (_partition_at_once(reader) if version >= 1 else None) or _partition_in_steps(reader, version)


def _partition_in_steps(reader: Reader, version: int) -> PartitionRecord:
    partition, topic_id = reader.unpack(_PARTITION_OF_TOPIC)
    replicas = reader.int32s()
    isr = reader.int32s()
    removing = reader.int32s()
    adding = reader.int32s()
    leader, _, _ = reader.unpack(_LEADER_AND_EPOCHS)
    directories = reader.uuids() if version >= 1 else ()
    elr = reader.tags(_PARTITION_TAGS[version]).get(1) or ()
    if directories and len(directories) != len(replicas):
        raise UnreadableError(f"partition {partition} has {len(replicas)} replicas and {len(directories)} dirs")
    return PartitionRecord(partition, shared_text(topic_id), replicas, isr, removing, adding, leader, directories, elr)


def _config(reader: Reader, version: int) -> MetadataRecord:
    resource_type = reader.int8()
    resource_name = reader.string()
    name = reader.string()
    value = reader.nullable_string()
    reader.tags()
    return ConfigRecord(resource_type, resource_name, name, value)


_CHANGES: Tags = {
    0: Reader.nullable_int32s,  # Isr
    1: Reader.int32,  # Leader
    2: Reader.nullable_int32s,  # Replicas
    3: Reader.nullable_int32s,  # RemovingReplicas
    4: Reader.nullable_int32s,  # AddingReplicas
    5: Reader.int8,  # LeaderRecoveryState
}
_CHANGED_ELIGIBLE: Tags = {6: Reader.nullable_int32s, 7: Reader.nullable_int32s}
_CHANGED_DIRECTORIES: Tags = {8: Reader.nullable_uuids}
# The eligible leader replicas came with version 2, later than the directories.
_PARTITION_CHANGE_TAGS = (
    _CHANGES,
    {**_CHANGES, **_CHANGED_DIRECTORIES},
    {**_CHANGES, **_CHANGED_ELIGIBLE, **_CHANGED_DIRECTORIES},
)


def _partition_change(reader: Reader, version: int) -> MetadataRecord:
    partition, topic_id = reader.unpack(_PARTITION_OF_TOPIC)
    changed = reader.tags(_PARTITION_CHANGE_TAGS[version]).get
    return PartitionChange(
        partition,
        shared_text(topic_id),
        isr=changed(0),
        leader=changed(1, -2),
        replicas=changed(2),
        removing=changed(3),
        adding=changed(4),
        directories=changed(8),
        elr=changed(6),
    )


def _of_broker(make: Callable[[int, int], MetadataRecord]) -> Decoder:
    """A record of nothing but a broker's id and epoch."""

    def decode(reader: Reader, version: int) -> MetadataRecord:
        broker_id, epoch = reader.int32(), reader.int64()
        reader.tags()
        return make(broker_id, epoch)

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


_FENCING_AND_SHUTDOWN: Tags = {0: Reader.int8, 1: Reader.int8}
_CHANGED_LOG_DIRS: Tags = {**_FENCING_AND_SHUTDOWN, 2: Reader.uuids}
_REGISTRATION_CHANGE_TAGS = (
    {0: Reader.int8},
    _FENCING_AND_SHUTDOWN,
    _CHANGED_LOG_DIRS,
    {**_CHANGED_LOG_DIRS, 3: Reader.nullable_uuids},  # CordonedLogDirs
)


def _registration_change(reader: Reader, version: int) -> MetadataRecord:
    broker_id, epoch = reader.int32(), reader.int64()
    tags = reader.tags(_REGISTRATION_CHANGE_TAGS[version])
    fenced, log_dirs = tags.get(0, 0), tags.get(2, ())
    if fenced not in _FENCED:
        raise UnreadableError(f"broker {broker_id} is fenced in an unknown way ({fenced})")
    return BrokerRegistrationChange(broker_id, epoch, _FENCED[fenced], log_dirs)


def _zk_migration(reader: Reader, version: int) -> MetadataRecord:
    state = reader.int8()
    reader.tags()
    return ZkMigrationState(state)


def _mark(make: Callable[[], MetadataRecord], tags: Tags = _NO_TAGS) -> Decoder:
    """A mark of a transaction: one tagged field at most, a name or a reason."""

    def decode(reader: Reader, version: int) -> MetadataRecord:
        reader.tags(tags)
        return make()

    return decode


def _clear_elr(reader: Reader, version: int) -> MetadataRecord:
    topic = reader.string()
    reader.tags()
    return ClearElr(topic)


Field = Callable[[Reader], Any]


def _fixed(size: int) -> Field:
    return lambda reader: reader.take(size)


def _array_of(*fields: Field, structures: bool = True) -> Field:
    def read(reader: Reader) -> None:
        for _ in range(reader.length()):
            for field in fields:
                field(reader)
            if structures:
                reader.tags()

    return read


def _unused(*fields: Field) -> Decoder:
    """A record that does not concern partitions."""

    def decode(reader: Reader, version: int) -> None:
        for field in fields:
            field(reader)
        reader.tags()

    return decode


_BYTES: Field = lambda reader: reader.take(reader.length())  # noqa: E731
_SUPPORTED = _array_of(Reader.string, _fixed(4))

# api key -> (name, highest version that Kafka 3.3 to 4.4 writes, decoder)
DECODERS: dict[int, tuple[str, int, Decoder]] = {
    0: ("RegisterBrokerRecord", 4, _register_broker),
    1: ("UnregisterBrokerRecord", 0, _of_broker(UnregisterBroker)),
    2: ("TopicRecord", 0, _topic),
    3: ("PartitionRecord", 2, _partition),
    4: ("ConfigRecord", 0, _config),
    5: ("PartitionChangeRecord", 2, _partition_change),
    7: ("FenceBrokerRecord", 0, _of_broker(lambda broker_id, epoch: FenceBroker(broker_id, epoch, True))),
    8: ("UnfenceBrokerRecord", 0, _of_broker(lambda broker_id, epoch: FenceBroker(broker_id, epoch, False))),
    9: ("RemoveTopicRecord", 0, _remove_topic),
    10: (
        "DelegationTokenRecord",
        0,
        _unused(Reader.string, Reader.string, _array_of(Reader.string, structures=False), _fixed(24), Reader.string),
    ),
    11: ("UserScramCredentialRecord", 0, _unused(Reader.string, _fixed(1), _BYTES, _BYTES, _BYTES, _fixed(4))),
    12: ("FeatureLevelRecord", 0, _feature_level),
    14: (
        "ClientQuotaRecord",
        0,
        _unused(_array_of(Reader.string, Reader.nullable_string), Reader.string, _fixed(9)),
    ),
    15: ("ProducerIdsRecord", 0, _unused(_fixed(20))),
    17: ("BrokerRegistrationChangeRecord", 3, _registration_change),
    18: (
        "AccessControlEntryRecord",
        0,
        _unused(_fixed(17), Reader.string, _fixed(1), Reader.string, Reader.string, _fixed(2)),
    ),
    19: ("RemoveAccessControlEntryRecord", 0, _unused(_fixed(16))),
    20: ("NoOpRecord", 0, _unused()),
    21: ("ZkMigrationStateRecord", 0, _zk_migration),
    22: ("RemoveUserScramCredentialRecord", 0, _unused(Reader.string, _fixed(1))),
    23: ("BeginTransactionRecord", 0, _mark(BeginTransaction, {0: Reader.nullable_string})),
    24: ("EndTransactionRecord", 0, _mark(EndTransaction)),
    25: ("AbortTransactionRecord", 0, _mark(AbortTransaction, {0: Reader.nullable_string})),
    26: ("RemoveDelegationTokenRecord", 0, _unused(Reader.string)),
    27: (
        "RegisterControllerRecord",
        0,
        _unused(_fixed(21), _array_of(Reader.string, Reader.string, _fixed(4)), _SUPPORTED),
    ),
    28: ("ClearElrRecord", 0, _clear_elr),
    29: ("UnregisterControllerRecord", 0, _unused(_fixed(4))),
}

_NO_OP = bytes((FRAME_VERSION, 20, 0, 0))  # twice a second, so nearly all of an idle cluster's records


def decode_record(value: bytes) -> MetadataRecord | None:
    """Decode one record's value; None for a record that does not concern partitions.

    Raises `NotUnderstood` for an unknown frame version, type, version or tagged field and left-over bytes (what a newer
    Kafka could write), and `UnreadableError` for missing bytes.
    """
    if value == _NO_OP:
        return None
    reader = Reader(value)
    key, version = reader.frame()
    known = DECODERS.get(key)
    if known is None:
        raise NotUnderstood(f"a metadata record is of the unknown type {key}")
    name, highest, decode = known
    if version > highest:
        raise NotUnderstood(f"{name} has version {version}, known are 0 to {highest}")
    record = decode(reader, version)
    reader.finish()
    return record
