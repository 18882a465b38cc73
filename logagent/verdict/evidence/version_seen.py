"""What the state dir remembers of the broker, in files of their own: its version when it was last seen running, the
addresses of its cluster's brokers when that was last confirmed to be this host's cluster, how far its metadata log
reached (`kafka.commitment`), which log dirs its configuration named, and with which `server.properties` its process
runs.

A stopped broker shows no version, and `kafka.version` may be left over from an upgrade that was rolled back. No file
means that nothing was seen. A file of another cluster or node (a state dir of another host, a broker set up from
scratch) counts as none. A version that cannot be read, or is damaged, counts as an unknown one: never as a newer one.
While this host's broker is down, only the remembered brokers may answer for it; a damaged file counts as none seen.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import KIB, MIB, PROPERTIES, FileLimit, bounded, parse_json, read_regular, whole_file
from logagent.base.kafka_version import LastRun, Version
from logagent.kafka.commitment import NOTHING_REMEMBERED, LogPoint, Remembered
from logagent.kafka.config_in_force import ROUNDED_MS, InForceBy, in_force
from logagent.kafka.identity import BrokerPlace, LogDirsSeen
from logagent.kafka.processes.discovery import newest_change_ms

BROKERS_FILE_NAME = "brokers-seen.json"
CONFIG_FILE_NAME = "config-seen.json"
LINEAGE_FILE_NAME = "metadata-seen.json"
LOG_DIRS_FILE_NAME = "log-dirs-seen.json"
FILE_NAME = "version-seen.json"
_NAMES = (BROKERS_FILE_NAME, LINEAGE_FILE_NAME, LOG_DIRS_FILE_NAME, FILE_NAME, CONFIG_FILE_NAME)
_LIMITS = dict(zip(_NAMES, map(FileLimit, _NAMES, (MIB, 64 * MIB, MIB, 64 * KIB, 64 * KIB)), strict=True))
T = TypeVar("T")


def _read(path: str, parse: Callable[[Any], T]) -> tuple[T | None, str | None]:
    """What `parse` makes of the file's document; None, with the reason, if it is there and counts for nothing."""
    name = os.path.basename(path)
    try:
        return parse(parse_json(read_regular(path, _LIMITS[name]), integers=bounded)), None
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as e:
        return None, f"cannot be read: {e.strerror or e}"
    except (UnreadableError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None, "is damaged"


def _write(state_dir: str, name: str, document: Mapping[str, Any]) -> None:
    """Replace the whole file. If it cannot be written, what was known before counts; nothing else follows."""
    with suppress(OSError), whole_file(os.path.join(state_dir, name), mode=0o640) as file:
        file.write(json.dumps(document).encode())


def read_brokers_seen(state_dir: str, cluster_id: str | None) -> frozenset[BrokerPlace]:
    """The brokers of `cluster_id`; empty if the file has none for it."""

    def parse(document: Any) -> frozenset[BrokerPlace]:
        if cluster_id is None or document["cluster_id"] != cluster_id:
            return frozenset()
        return frozenset(BrokerPlace(int(id_), str(host), int(port)) for id_, host, port in document["brokers"])

    return _read(os.path.join(state_dir, BROKERS_FILE_NAME), parse)[0] or frozenset()


def write_brokers_seen(state_dir: str, cluster_id: str, places: frozenset[BrokerPlace]) -> None:
    _write(state_dir, BROKERS_FILE_NAME, {"cluster_id": cluster_id, "brokers": sorted(places)})


def read_lineage(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> Remembered:
    """What is remembered of this host's metadata log; nothing if the file is of another cluster or node."""
    if state_dir is None:
        return NOTHING_REMEMBERED
    path = os.path.join(state_dir, LINEAGE_FILE_NAME)

    def parse(document: Any) -> Remembered:
        if (document["cluster_id"], document["node_id"]) != (cluster_id, node_id):
            return Remembered(file=path)
        crc = None if document["crc"] is None else int(document["crc"])
        point = LogPoint(int(document["offset"]), int(document["epoch"]), crc)
        other = document.get("other_history")
        ids = frozenset(map(str, document["topic_ids"]))
        return Remembered(point, ids, file=path, other_history=None if other is None else str(other))

    known, why = _read(path, parse)
    unread = None if why is None else f"{path}, which says what it was like, {why}"
    return known or Remembered(unread=unread, file=path)


def write_lineage(state_dir: str, cluster_id: str, node_id: int, known: Remembered) -> None:
    if known.point is not None:
        point = known.point
        document = {"cluster_id": cluster_id, "node_id": node_id, "offset": point.offset, "epoch": point.epoch}
        seen = {"crc": point.crc, "topic_ids": sorted(known.topic_ids), "other_history": known.other_history}
        _write(state_dir, LINEAGE_FILE_NAME, document | seen)


def read_log_dirs_seen(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> LogDirsSeen:
    """Which log dirs this broker had. While its cluster or node is unknown, the memory counts all the same: it can only
    forbid."""
    if state_dir is None:
        return LogDirsSeen()
    path = os.path.join(state_dir, LOG_DIRS_FILE_NAME)

    def parse(document: Any) -> LogDirsSeen:
        dirs = {str(name): None if id_ is None else str(id_) for name, id_ in document["log_dirs"].items()}
        return LogDirsSeen(dirs if _may_be_of(document, cluster_id, node_id) else {}, path)

    known, why = _read(path, parse)
    return known or LogDirsSeen(file=path, unread=why)


def _may_be_of(document: Any, cluster_id: str | None, node_id: int | None) -> bool:
    """Before 2.4 there was no cluster id to remember."""
    remembered, node = str(document["cluster_id"]), int(document["node_id"])
    return (not remembered or cluster_id in (None, remembered)) and node_id in (None, node)


def write_log_dirs_seen(state_dir: str, cluster_id: str, node_id: int, dirs: Mapping[str, str | None]) -> None:
    _write(state_dir, LOG_DIRS_FILE_NAME, {"cluster_id": cluster_id, "node_id": node_id, "log_dirs": dict(dirs)})


def forget_other_log_dirs(state_dir: str, named: Collection[str]) -> list[str]:
    """Forget the log dirs that are not `named`, at an operator's restart, and return them; none of them if not a single
    one is named: that is no configuration of this broker."""
    seen = read_log_dirs_seen(state_dir, None, None)
    gone = sorted(seen.dirs.keys() - set(named))
    if not gone or len(gone) == len(seen.dirs):
        return []
    path = os.path.join(state_dir, LOG_DIRS_FILE_NAME)
    try:
        document = parse_json(read_regular(path, _LIMITS[LOG_DIRS_FILE_NAME]), integers=bounded)
        kept = {name: id_ for name, id_ in seen.dirs.items() if name not in gone}
        with whole_file(path, mode=0o640) as file:
            file.write(json.dumps(document | {"log_dirs": kept}).encode())
    except (OSError, UnreadableError):
        return []
    return gone


def note_config(state_dir: str, config: str | None, pid: int | None, started_ms: int | None) -> None:
    """Once for each process of the broker: the hash of the file that it runs with. Only of a file that is older than
    the process, its links too: another one is not what it read."""
    if config is None or pid is None or started_ms is None or _noted_for(state_dir, config, pid, started_ms):
        return
    changed_ms = newest_change_ms(config)
    if in_force(config, running=True, started_ms=started_ms, changed_ms=changed_ms).by is not InForceBy.FILE:
        return
    digest = _digest(config)
    if digest is not None and newest_change_ms(config) == changed_ms:
        document = {"config": config, "pid": pid, "started_ms": started_ms, "sha256": digest}
        _write(state_dir, CONFIG_FILE_NAME, document)


def is_noted(state_dir: str | None, config: str | None, pid: int | None, started_ms: int | None) -> bool:
    """Whether that file is what was noted for this very process, whatever changed about it since."""
    if state_dir is None or config is None or pid is None or started_ms is None:
        return False
    noted = _noted_for(state_dir, config, pid, started_ms)
    return noted is not None and noted == _digest(config)


def _noted_for(state_dir: str, config: str, pid: int, started_ms: int) -> str | None:
    def parse(document: Any) -> str | None:
        same = (document["config"], int(document["pid"])) == (config, pid)
        near = abs(int(document["started_ms"]) - started_ms) <= ROUNDED_MS
        return str(document["sha256"]) if same and near else None

    return _read(os.path.join(state_dir, CONFIG_FILE_NAME), parse)[0]


def _digest(config: str) -> str | None:
    try:
        return hashlib.sha256(read_regular(config, PROPERTIES, follow=True)).hexdigest()
    except (OSError, UnreadableError):
        return None


def read_version_seen(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> LastRun:
    """What this broker last ran as. While its cluster or node is unknown, the memory counts all the same: it can only
    forbid."""
    if state_dir is None:
        return LastRun()
    path = os.path.join(state_dir, FILE_NAME)

    def parse(document: Any) -> LastRun:
        version = tuple(map(int, document["version"]))
        if not _may_be_of(document, cluster_id, node_id):
            return LastRun(file=path)
        if len(version) != 3 or min(version) < 0:
            raise ValueError(version)
        seen_ms = document.get("seen_ms")
        return LastRun(version, file=path, seen_ms=None if seen_ms is None else int(seen_ms))

    known, why = _read(path, parse)
    return known or LastRun(unread=None if why is None else f"{path}, which says what ran last, {why}", file=path)


def write_version_seen(
    state_dir: str, cluster_id: str, node_id: int, version: Version, seen_ms: int | None = None, *, again: bool = False
) -> None:
    """Replace the whole file, durably. Where there is no room for another one (a full disk), it is overwritten: torn it
    is an unknown version; but not if the same version was only seen `again`."""
    path = os.path.join(state_dir, FILE_NAME)
    document = {"cluster_id": cluster_id, "node_id": node_id, "version": version, "seen_ms": seen_ms}
    content = json.dumps(document).encode()
    try:
        with whole_file(path, mode=0o640) as file:
            file.write(content)
    except OSError:
        if again:
            return
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        # If this fails too, what was seen before stays, or is torn and counts as unknown.
        with suppress(OSError), open(os.open(path, flags), "wb") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
