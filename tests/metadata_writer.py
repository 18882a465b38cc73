"""Writes KRaft metadata records, batches, segments and snapshots byte by byte, for tests and benchmarks.

Written from the schemas of the `kafka-metadata` jars and apart from the reader under test: it shares no code with
it. What real brokers wrote is in `tests/fixtures/disks`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

LEADER_CHANGE, SNAPSHOT_HEADER, SNAPSHOT_FOOTER, KRAFT_VOTERS = 2, 3, 4, 6


def raw_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def id_of(number: int) -> str:
    """A topic id that is no reserved one."""
    return base64.urlsafe_b64encode(b"\x17" * 8 + number.to_bytes(8, "big"))[:22].decode()


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def string(text: str | None) -> bytes:
    if text is None:
        return uvarint(0)
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def int32s(numbers: Sequence[int] | None) -> bytes:
    if numbers is None:
        return uvarint(0)
    return uvarint(len(numbers) + 1) + struct.pack(f">{len(numbers)}i", *numbers)


def ids(texts: Sequence[str] | None) -> bytes:
    if texts is None:
        return uvarint(0)
    return uvarint(len(texts) + 1) + b"".join(map(raw_id, texts))


def tags(fields: dict[int, bytes]) -> bytes:
    parts = [uvarint(tag) + uvarint(len(raw)) + raw for tag, raw in sorted(fields.items())]
    return uvarint(len(parts)) + b"".join(parts)


def frame(key: int, version: int, body: bytes) -> bytes:
    return uvarint(1) + uvarint(key) + uvarint(version) + body


def topic(name: str, topic_id: str) -> bytes:
    return frame(2, 0, string(name) + raw_id(topic_id) + tags({}))


def remove_topic(topic_id: str) -> bytes:
    return frame(9, 0, raw_id(topic_id) + tags({}))


def partition(
    topic_id: str,
    number: int,
    replicas: Sequence[int],
    *,
    isr: Sequence[int] | None = None,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    leader: int = -1,
    directories: Sequence[str] = (),
    elr: Sequence[int] = (),
    version: int = 1,
    extra_tags: dict[int, bytes] | None = None,
) -> bytes:
    extra_tags = {**({1: int32s(elr)} if elr else {}), **(extra_tags or {})}
    body = struct.pack(">i", number) + raw_id(topic_id) + int32s(replicas)
    body += int32s(replicas if isr is None else isr) + int32s(removing) + int32s(adding)
    body += struct.pack(">iii", leader, 0, 0)
    if version >= 1:
        body += ids(directories)
    return frame(3, version, body + tags(extra_tags))


def partition_change(
    topic_id: str,
    number: int,
    *,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    replicas: Sequence[int] | None = None,
    removing: Sequence[int] | None = None,
    adding: Sequence[int] | None = None,
    directories: Sequence[str] | None = None,
    elr: Sequence[int] | None = None,
    version: int = 1,
    extra_tags: dict[int, bytes] | None = None,
) -> bytes:
    fields = dict(extra_tags or {})
    for tag, numbers in ((0, isr), (2, replicas), (3, removing), (4, adding), (6, elr)):
        if numbers is not None:
            fields[tag] = int32s(numbers)
    if leader is not None:
        fields[1] = struct.pack(">i", leader)
    if directories is not None:
        fields[8] = ids(directories)
    return frame(5, version, struct.pack(">i", number) + raw_id(topic_id) + tags(fields))


def register_broker(
    broker_id: int,
    log_dirs: Sequence[str] = (),
    *,
    fenced: bool = True,
    version: int = 3,
    incarnation: bytes = bytes(16),
    address: tuple[str, int] = ("host", 9092),
    nested_tags: dict[str, dict[int, bytes]] | None = None,
) -> bytes:
    nested = nested_tags or {}
    body = struct.pack(">i", broker_id)
    if version >= 2:
        body += b"\0"
    body += incarnation + struct.pack(">q", 7)
    body += uvarint(2) + string("PLAINTEXT") + string(address[0]) + struct.pack(">Hh", address[1], 0)
    body += tags(nested.get("endpoint", {}))
    body += uvarint(2) + string("metadata.version") + struct.pack(">hh", 1, 21) + tags(nested.get("feature", {}))
    body += string(None) + (b"\1" if fenced else b"\0")
    if version >= 1:
        body += b"\0"
    return frame(0, version, body + tags({0: ids(log_dirs)} if version >= 3 and log_dirs else {}))


def registration_change(broker_id: int, fields: dict[int, bytes], version: int = 2, epoch: int = 7) -> bytes:
    return frame(17, version, struct.pack(">iq", broker_id, epoch) + tags(fields))


def unregister_broker(broker_id: int, epoch: int = 7) -> bytes:
    return frame(1, 0, struct.pack(">iq", broker_id, epoch) + tags({}))


def fence(broker_id: int, fenced: bool = True, epoch: int = 7) -> bytes:
    return frame(7 if fenced else 8, 0, struct.pack(">iq", broker_id, epoch) + tags({}))


def feature_level(name: str, level: int) -> bytes:
    return frame(12, 0, string(name) + struct.pack(">h", level) + tags({}))


def clear_elr(topic: str) -> bytes:
    return frame(28, 0, string(topic) + tags({}))


def config(resource_type: int, resource: str, name: str, value: str | None) -> bytes:
    return frame(4, 0, struct.pack(">b", resource_type) + string(resource) + string(name) + string(value) + tags({}))


def zk_migration(state: int) -> bytes:
    return frame(21, 0, struct.pack(">b", state) + tags({}))


NO_OP = frame(20, 0, tags({}))
PRODUCER_IDS = frame(15, 0, struct.pack(">iqq", 1, 7, 1000) + tags({}))
BEGIN = frame(23, 0, tags({0: string("what for")}))
END = frame(24, 0, tags({}))
ABORT = frame(25, 0, tags({}))


def record(offset_delta: int, key: bytes | None, value: bytes) -> bytes:
    body = b"\0" + varint(0) + varint(offset_delta)
    body += varint(-1) if key is None else varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    base_offset: int,
    values: Iterable[bytes | tuple[int, bytes]],
    time_ms: int,
    *,
    epoch: int = 1,
    control: bool = False,
) -> bytes:
    """One batch; the values of control batches are (type, value)."""
    records = []
    for delta, value in enumerate(values):
        if isinstance(value, tuple):
            records.append(record(delta, struct.pack(">hh", 0, value[0]), value[1]))
        else:
            records.append(record(delta, None, value))
    checked = struct.pack(
        ">hiqqqhii", 0x20 if control else 0, len(records) - 1, time_ms, time_ms, -1, -1, -1, len(records)
    ) + b"".join(records)
    rest = struct.pack(">ibI", epoch, 2, crc32c(checked)) + checked
    return struct.pack(">qi", base_offset, len(rest)) + rest


def leader_change(voters: Sequence[int]) -> tuple[int, bytes]:
    listed = uvarint(len(voters) + 1) + b"".join(struct.pack(">i", v) + tags({}) for v in voters)
    return LEADER_CHANGE, struct.pack(">hi", 0, voters[0]) + listed + listed + tags({})


def kraft_voters(voters: Sequence[int]) -> tuple[int, bytes]:
    listed = b"".join(
        struct.pack(">i", v) + bytes(16) + uvarint(1) + struct.pack(">hh", 0, 1) + tags({}) + tags({}) for v in voters
    )
    return KRAFT_VOTERS, struct.pack(">h", 0) + uvarint(len(voters) + 1) + listed + tags({})


def snapshot(
    values: Sequence[bytes],
    time_ms: int,
    *,
    epoch: int = 1,
    voters: Sequence[int] = (),
    batch_size: int = 1000,
    footer: bool = True,
) -> bytes:
    """A whole snapshot: header (with `time_ms` of the newest record covered), records, footer."""
    head: list[tuple[int, bytes]] = [(SNAPSHOT_HEADER, struct.pack(">hq", 0, time_ms) + tags({}))]
    if voters:
        head.append(kraft_voters(voters))
    out = [batch(0, head, time_ms + 5, epoch=epoch, control=True)]
    offset = len(head)
    for start in range(0, len(values), batch_size):
        piece = values[start : start + batch_size]
        out.append(batch(offset, piece, time_ms + 6, epoch=epoch))
        offset += len(piece)
    if footer:
        foot = (SNAPSHOT_FOOTER, struct.pack(">h", 0) + tags({}))
        out.append(batch(offset, [foot], time_ms + 7, epoch=epoch, control=True))
    return b"".join(out)


def write_segment(directory: Path, base_offset: int, data: bytes) -> None:
    (directory / f"{base_offset:020}.log").write_bytes(data)


def write_snapshot(directory: Path, end_offset: int, data: bytes, epoch: int = 1) -> None:
    (directory / f"{end_offset:020}-{epoch:010}.checkpoint").write_bytes(data)


def write_quorum_state(directory: Path, leader_id: int, voters: Sequence[int]) -> None:
    listed = ",".join(f'{{"voterId":{v}}}' for v in voters)
    (directory / "quorum-state").write_text(
        f'{{"clusterId":"","leaderId":{leader_id},"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        f'"currentVoters":[{listed}],"data_version":0}}'
    )
