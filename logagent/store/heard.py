"""What the store's newest snapshots say of each host: when it was heard, which directories it has.

Reads manifests and snapshots of the last days in `landing/`; a file that was read is not read again. The times are
those of the store's own files, so no host's clock is asked.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from logagent.errors import ServiceUnreachable, UnreadableError
from logagent.files.dir_walk import entries, opened_below, opened_directory
from logagent.files.limits import KIB, MIB, FileLimit
from logagent.files.safe_open import read_regular
from logagent.store.names import DATA, MANIFEST, as_date, as_node

MANIFEST_FILE = FileLimit("a manifest", 64 * KIB)
SNAPSHOT_FILE = FileLimit("a snapshot", 256 * MIB)
MAX_UNPACKED = 256 << 20
MAX_ENTRIES = 100_000


@dataclass(slots=True)
class HostHeard:
    """A node's snapshots: the newest one's arrival and place, and each host that has published for this node id."""

    node_id: int
    at: datetime
    folder: str
    stem: str
    hosts: dict[str, datetime] = field(default_factory=dict)


@dataclass(slots=True)
class FleetHeard:
    """Who has been heard in one cluster. `look` is cheap while nothing has changed."""

    store: Path
    cluster_id: str
    window: timedelta
    nodes: dict[int, HostHeard] = field(default_factory=dict)
    _folders: dict[str, int] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def look(self, now: datetime) -> None:
        """Take in what arrived within `window` before `now`. Raises ServiceUnreachable for an unreadable store."""
        first = (now - self.window).astimezone(UTC).date().isoformat()
        landing = f"landing/{self.cluster_id}"
        try:
            with opened_directory(self.store, follow=True) as root:
                for date in self._listed(root, landing):
                    if as_date(date) is not None and date >= first:
                        with opened_below(root, f"{landing}/{date}") as fd:
                            for name, found in entries(fd, MAX_ENTRIES):
                                node_id = as_node(name)
                                if node_id is not None:
                                    self._node(root, f"{landing}/{date}/{name}", node_id, found.st_mtime_ns)
        except OSError as error:
            raise ServiceUnreachable(f"{landing} in {self.store} cannot be read: {error.strerror}") from error

    @staticmethod
    def _listed(root: int, folder: str) -> list[str]:
        try:
            with opened_below(root, folder) as fd:
                return [name for name, _ in entries(fd, MAX_ENTRIES)]
        except FileNotFoundError:
            return []

    def _node(self, root: int, folder: str, node_id: int, changed: int) -> None:
        if self._folders.get(folder) == changed:
            return
        try:
            with opened_below(root, folder) as fd:
                for name, found in entries(fd, MAX_ENTRIES):
                    if name.endswith(MANIFEST):
                        at = datetime.fromtimestamp(found.st_mtime, UTC)
                        self._manifest(fd, folder, name, node_id, at)
        except (OSError, UnreadableError):
            return  # this host is not heard by it; the others are
        self._folders[folder] = changed

    def _manifest(self, fd: int, folder: str, name: str, node_id: int, at: datetime) -> None:
        stem = name.removesuffix(MANIFEST)
        known = self.nodes.get(node_id)
        if f"{folder}/{stem}" in self._read:
            return
        self._read.add(f"{folder}/{stem}")
        try:
            read = json.loads(read_regular(name, MANIFEST_FILE, dir_fd=fd))
        except (ValueError, RecursionError):
            return
        if not isinstance(read, dict) or read.get("kind") != "snapshot":
            return
        if (read.get("node_id"), read.get("cluster_id")) != (node_id, self.cluster_id):
            return
        if known is None:
            known = self.nodes[node_id] = HostHeard(node_id, at, folder, stem)
        elif at > known.at:
            known.at, known.folder, known.stem = at, folder, stem
        host = str(read.get("host"))[:255]
        known.hosts[host] = max(at, known.hosts.get(host, at))

    def directories(self, node_id: int, topic_ids: Collection[str]) -> Iterator[dict[str, Any]]:
        """The `log_dir` rows, and the `dir` rows of these topic ids, of a node's newest snapshot.

        Raises UnreadableError for a snapshot that is not whole, ServiceUnreachable for one that cannot be read.
        """
        heard = self.nodes[node_id]
        wanted = {topic_id.encode() for topic_id in topic_ids}
        try:
            with opened_directory(self.store, follow=True) as root, opened_below(root, heard.folder) as fd:
                packed = read_regular(heard.stem + DATA, SNAPSHOT_FILE, dir_fd=fd)
        except OSError as error:
            raise ServiceUnreachable(f"{heard.folder}/{heard.stem}: {error.strerror}") from error
        for line in _lines(packed):
            if b'"log_dir"' not in line and b'"dir"' not in line:
                continue
            try:
                row = from_json(line) if _may_matter(line, wanted) else None
            except ValueError as error:
                raise UnreadableError(f"{heard.folder}/{heard.stem} has a line that is not JSON") from error
            if isinstance(row, dict) and (row.get("row") == "log_dir" or _is_of(row, topic_ids)):
                yield row


def _is_of(row: dict[str, Any], topic_ids: Collection[str]) -> bool:
    """A directory of one of these topics, with a partition: what one host sends must not stop a controller."""
    topic_id, partition = row.get("topic_id"), row.get("partition")
    if not isinstance(topic_id, str) or not isinstance(partition, int) or not isinstance(row.get("name"), str):
        return False
    return isinstance(row.get("log_dir"), str) and partition >= 0 and topic_id in topic_ids


def _may_matter(line: bytes, wanted: Collection[bytes]) -> bool:
    """Whether a line can be one that is asked for, without parsing it: most are not."""
    at = line.find(b'"topic_id"')
    if at < 0:
        return True
    start = line.find(b'"', at + 10) + 1
    return line[start : start + 22] in wanted


def _lines(packed: bytes) -> Iterator[bytes]:
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(MAX_UNPACKED + 1)
    except (OSError, EOFError, ValueError) as error:
        raise UnreadableError(f"a snapshot is not whole: {error}") from error
    if len(content) > MAX_UNPACKED:
        raise UnreadableError("a snapshot unpacks to more than 256 MiB")
    yield from content.split(b"\n")
