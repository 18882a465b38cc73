"""`meta.properties`: which cluster, node and directory a log dir belongs to (Kafka's `MetaProperties`, KIP-858)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from logagent.broker.files.java_properties import parse_properties
from logagent.errors import UnreadableError
from logagent.files import safe_open as limits
from logagent.files.safe_open import read_regular
from logagent.model.assignments.identity import MetaLook
from logagent.model.naming.dir_names import parse_int
from logagent.model.naming.topic_ids import canonical

META_PROPERTIES: Final = "meta.properties"

# String.trim: everything up to U+0020.
_TRIMMED: Final = "".join(map(chr, range(0x21)))


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


def look_at_meta(dir_fd: int) -> MetaLook:
    """The `meta.properties` of an open log dir. Raises OSError only if the disk fails."""
    try:
        meta = read_meta_properties(dir_fd)
    except UnreadableError as error:
        return MetaLook(error=str(error))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            return MetaLook(error=error.strerror)
        raise
    if meta is None:
        return MetaLook(missing=True)
    return MetaLook(cluster_id=meta.cluster_id, node_id=meta.node_id, directory_id=meta.directory_id)


def _version(text: str) -> int:
    try:
        version = parse_int(text.strip(_TRIMMED))
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
