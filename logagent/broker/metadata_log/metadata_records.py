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
        found: dict[int, Reader] = {}
        last = -1
        for _ in range(count):
            tag = self.unsigned_varint()
            if tag <= last or tag not in known:
                raise UnreadableError(f"a metadata record holds an unexpected tagged field {tag}")
            last = tag
            found[tag] = Reader(self.take(self.unsigned_varint()))
        return found

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
