"""`partition.metadata` in a partition dir: the topic id of its records (Kafka's `PartitionMetadataFile`)."""

from __future__ import annotations

import re
from typing import Final

from logagent.errors import NotAsPlanned, UnreadableError
from logagent.files import safe_open as limits
from logagent.files.safe_open import read_regular
from logagent.model.naming.dir_names import parse_int
from logagent.model.naming.topic_ids import ZERO_ID, canonical
from logagent.model.records import PartitionDir

PARTITION_METADATA: Final = "partition.metadata"

# The form that every broker since 2.8 writes; anything else goes through the full parser.
_AS_WRITTEN: Final = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{21}[AQgw])\n?")
_COLON: Final = re.compile(r":[ \t\n\v\f\r]+")


def read_topic_id(dir_fd: int) -> str | None:
    """Read the topic id in the open partition dir `dir_fd`; None if the file is missing.

    Raises `UnreadableError` if it cannot be trusted, `OSError` if it cannot be read.
    """
    try:
        return parse_partition_metadata(read_regular(PARTITION_METADATA, limits.PARTITION_METADATA, dir_fd=dir_fd))
    except FileNotFoundError:
        return None


def same_topic_id(d: PartitionDir, fd: int) -> None:
    """Raises NotAsPlanned unless the directory `fd` has the topic id that was judged.

    The inventory's id may be out of date: editing `partition.metadata` in place does not change the directory's mtime.
    """
    try:
        topic_id = read_topic_id(fd)
    except UnreadableError as e:
        raise NotAsPlanned(f"{d.log_dir}/{d.name}: {e}") from e
    if topic_id != d.topic_id:
        raise NotAsPlanned(
            f"{d.log_dir}/{d.name} has the topic id {topic_id} now, but it was judged with {d.topic_id}",
            hint="something edits partition.metadata there; look again and make a new plan",
        )


def parse_partition_metadata(data: bytes) -> str:
    """The topic id as canonical text.

    Raises UnreadableError if a 3.9.1 broker would refuse the file, including for the zero id; for most of these a
    broker takes the log dir offline. As in Kafka, only the first two lines count, whatever their keys are.
    Deviation: bytes that are not UTF-8 are refused anywhere; Kafka notices them only in the first 8192 bytes.
    """
    match = _AS_WRITTEN.fullmatch(data)
    topic_id = match[1].decode("ascii") if match is not None else _read(data)
    if topic_id == ZERO_ID:
        raise UnreadableError(f"{PARTITION_METADATA}: the topic id is the zero id")
    return topic_id


def _read(data: bytes) -> str:
    # bytes.splitlines splits only at \n, \r and \r\n, like Java's readLine; str.splitlines splits at more characters.
    lines = data.splitlines()
    try:
        data.decode()
        if len(lines) < 2:
            raise UnreadableError(f"{PARTITION_METADATA}: {len(lines)} of its two lines found")
        version = parse_int(_value(lines[0]))
        if version < 0:
            raise UnreadableError(f"{PARTITION_METADATA}: unrecognized version {version}")
        return canonical(_value(lines[1]))
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{PARTITION_METADATA}: byte {error.start} is not UTF-8") from None
    except ValueError as error:
        raise UnreadableError(f"{PARTITION_METADATA}: {error}") from None


def _value(line: bytes) -> str:
    """The second of exactly two parts; like Java's `split`, empty parts at the end are dropped."""
    parts = _COLON.split(line.decode())
    while parts and not parts[-1]:
        parts.pop()
    if len(parts) != 2:
        raise ValueError(f"malformed line {line.decode()!r}")
    return parts[1]
