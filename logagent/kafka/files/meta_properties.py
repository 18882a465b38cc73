"""`meta.properties`: which cluster, node and directory a log dir belongs to (Kafka's `MetaProperties`, KIP-858).

`partition.metadata` in a partition dir: the topic id of its records (Kafka's `PartitionMetadataFile`).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logagent.base.dir_names import PARTITION_METADATA, parse_int
from logagent.base.errors import NotAsPlanned, UnreadableError, cited
from logagent.base.files import safe_open as limits
from logagent.base.files.safe_open import read_regular
from logagent.base.records import PartitionDir
from logagent.base.topic_ids import ZERO_ID, canonical
from logagent.kafka.files.java_properties import parse_properties, trim
from logagent.kafka.identity import MetaRead

META_PROPERTIES: Final = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file. Version 1 always has cluster and node id; in version 0 either may be missing (None).

    `node_id` is `broker.id` in version 0 and `node.id` in version 1; it may be -1, which means that none was given.
    `directory_id` is canonical text, None before 3.7. An empty file is read as version 0 without entries: Kafka accepts
    that, so callers that need a cluster id must check that there is one.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Parse the file's bytes; raises UnreadableError, with Kafka's message, exactly if a 3.9.1 broker refuses them."""
    try:
        props = parse_properties(data)
        version = _version(props.get("version", "0"))
        if version == 0:
            node_id = _number(props, "broker.id") if "broker.id" in props else None
        elif "node.id" in props:
            node_id = _number(props, "node.id")
        else:
            raise UnreadableError("Failed to find node.id")
        directory_id = props.get("directory.id")
        if directory_id is not None:
            directory_id = _directory_id(directory_id)
    except UnreadableError as error:
        raise UnreadableError(f"{META_PROPERTIES}: {error}") from None
    cluster_id = props.get("cluster.id")
    if version == 1 and cluster_id is None:
        raise UnreadableError(f"{META_PROPERTIES}: cluster.id was not found.")
    return MetaProperties(version, cluster_id, node_id, directory_id)


def read_meta_properties(dir_fd: int, *, follow: bool = False) -> MetaProperties | None:
    """The `meta.properties` of an open log dir; None if there is none. All reads of this file go through here.

    `follow`: follow a symlink, as the broker does; never set when we act on the content.
    Raises UnreadableError if a broker would refuse the file, OSError from the disk.
    """
    try:
        data = read_regular(META_PROPERTIES, limits.META_PROPERTIES, dir_fd=dir_fd, follow=follow)
    except FileNotFoundError:
        return None
    return parse_meta_properties(data)


def read_meta_file(dir_fd: int) -> MetaRead:
    """The `meta.properties` of an open log dir. Raises OSError only if the disk fails."""
    try:
        meta = read_meta_properties(dir_fd)
    except UnreadableError as error:
        return MetaRead(error=str(error))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return MetaRead(error=error.strerror)
        raise
    if meta is None:
        return MetaRead(missing=True)
    return MetaRead(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=meta.directory_id)


def _version(text: str) -> int:
    try:
        version = parse_int(trim(text))
    except ValueError:
        raise UnreadableError(f"Invalid meta.properties version string '{text}'") from None
    if version not in (0, 1):
        raise UnreadableError(f"Unknown meta.properties version number {version}")
    return version


def _number(props: Mapping[str, str], key: str) -> int:
    try:
        return parse_int(props[key])
    except ValueError as error:
        raise UnreadableError(f"Unable to read {key} as a base-10 number. {error}") from None


def _directory_id(text: str) -> str:
    try:
        return canonical(text)
    except ValueError as error:
        raise UnreadableError(f"Unable to read directory.id as a Uuid: {error}") from None


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
        raise ValueError(f"malformed line {cited(line.decode())}")
    return parts[1]
