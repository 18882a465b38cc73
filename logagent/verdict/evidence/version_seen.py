"""What the state dir remembers of the broker, in files of their own: its version when it was last seen running, the
addresses of its cluster's brokers when that was last confirmed to be this host's cluster, how far its metadata log
reached (`kafka.lineage`), and which log dirs its configuration named.

A stopped broker shows no version, and `kafka.version` may be left over from an upgrade that was rolled back. No file
means that nothing was seen. A file of another cluster or node (a state dir of another host, a broker set up from
scratch) counts as none. A version that cannot be read, or is damaged, counts as an unknown one: never as a newer one.
While this host's broker is down, only the remembered brokers may answer for it; a damaged file counts as none seen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress

from logagent.base.errors import UnreadableError
from logagent.base.files.safe_open import FileLimit, bounded, parse_json, read_regular
from logagent.base.files.whole_file import whole_file
from logagent.base.kafka_version import LastRun, Version
from logagent.kafka.identity import BrokerPlace, LogDirsSeen
from logagent.kafka.lineage import NOTHING_REMEMBERED, LogPoint, Remembered

BROKERS_FILE_NAME = "brokers-seen.json"
_BROKERS_LIMIT = FileLimit(BROKERS_FILE_NAME, 1 << 20)


def read_brokers_seen(state_dir: str, cluster_id: str | None) -> frozenset[BrokerPlace]:
    """The brokers of `cluster_id`; empty if the file has none for it."""
    try:
        document = parse_json(read_regular(os.path.join(state_dir, BROKERS_FILE_NAME), _BROKERS_LIMIT))
        if cluster_id is None or document["cluster_id"] != cluster_id:
            return frozenset()
        places = [(int(node_id), str(host), int(port)) for node_id, host, port in document["brokers"]]
    except (OSError, UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return frozenset()
    return frozenset(BrokerPlace(*place) for place in places)


def write_brokers_seen(state_dir: str, cluster_id: str, places: frozenset[BrokerPlace]) -> None:
    """Replace the whole file. If it cannot be written, less can be proved later; nothing else follows."""
    with suppress(OSError), whole_file(os.path.join(state_dir, BROKERS_FILE_NAME), mode=0o640) as file:
        file.write(json.dumps({"cluster_id": cluster_id, "brokers": sorted(places)}).encode())


LINEAGE_FILE_NAME = "metadata-seen.json"
_LINEAGE_LIMIT = FileLimit(LINEAGE_FILE_NAME, 64 << 20)


def read_lineage(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> Remembered:
    """What is remembered of this host's metadata log; nothing if the file is of another cluster or node."""
    if state_dir is None:
        return NOTHING_REMEMBERED
    path = os.path.join(state_dir, LINEAGE_FILE_NAME)
    try:
        found = parse_json(read_regular(path, _LINEAGE_LIMIT), integers=bounded)
        if (found["cluster_id"], found["node_id"]) != (cluster_id, node_id):
            return Remembered(file=path)
        crc = None if found["crc"] is None else int(found["crc"])
        point = LogPoint(int(found["offset"]), int(found["epoch"]), crc)
        other = found.get("other_history")
        ids = frozenset(map(str, found["topic_ids"]))
        return Remembered(point, ids, file=path, other_history=None if other is None else str(other))
    except (FileNotFoundError, NotADirectoryError):
        return Remembered(file=path)
    except OSError as e:
        return Remembered(unread=f"{path}, which says what it was like, cannot be read: {e.strerror or e}", file=path)
    except (UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return Remembered(unread=f"{path}, which says what it was like, is damaged", file=path)


def write_lineage(state_dir: str, cluster_id: str, node_id: int, known: Remembered) -> None:
    """Replace the whole file. If it cannot be written, an older record is compared with later; nothing else follows."""
    if known.point is None:
        return
    point = known.point
    document = {"cluster_id": cluster_id, "node_id": node_id, "offset": point.offset, "epoch": point.epoch}
    document |= {"crc": point.crc, "topic_ids": sorted(known.topic_ids), "other_history": known.other_history}
    with suppress(OSError), whole_file(os.path.join(state_dir, LINEAGE_FILE_NAME), mode=0o640) as file:
        file.write(json.dumps(document).encode())


LOG_DIRS_FILE_NAME = "log-dirs-seen.json"
_LOG_DIRS_LIMIT = FileLimit(LOG_DIRS_FILE_NAME, 1 << 20)


def read_log_dirs_seen(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> LogDirsSeen:
    """Which log dirs this broker had. While its cluster or node is unknown, the memory counts all the same: it can only
    forbid."""
    if state_dir is None:
        return LogDirsSeen()
    path = os.path.join(state_dir, LOG_DIRS_FILE_NAME)
    try:
        document = parse_json(read_regular(path, _LOG_DIRS_LIMIT), integers=bounded)
        remembered, node = str(document["cluster_id"]), int(document["node_id"])
        dirs = {str(name): None if id_ is None else str(id_) for name, id_ in document["log_dirs"].items()}
    except (FileNotFoundError, NotADirectoryError):
        return LogDirsSeen(file=path)
    except OSError as e:
        return LogDirsSeen(file=path, unread=f"cannot be read: {e.strerror or e}")
    except (UnreadableError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return LogDirsSeen(file=path, unread="is damaged")
    if (remembered and cluster_id not in (None, remembered)) or node_id not in (None, node):
        return LogDirsSeen(file=path)
    return LogDirsSeen(dirs, path)


def write_log_dirs_seen(state_dir: str, cluster_id: str, node_id: int, dirs: Mapping[str, str | None]) -> None:
    """Replace the whole file. If it cannot be written, what was known before counts; nothing else follows."""
    document = {"cluster_id": cluster_id, "node_id": node_id, "log_dirs": dict(dirs)}
    with suppress(OSError), whole_file(os.path.join(state_dir, LOG_DIRS_FILE_NAME), mode=0o640) as file:
        file.write(json.dumps(document).encode())


def forget_other_log_dirs(state_dir: str, named: Collection[str]) -> list[str]:
    """Forget the log dirs that are not `named`, at an operator's restart, and return them; none of them if not a single
    one is named: that is no configuration of this broker."""
    seen = read_log_dirs_seen(state_dir, None, None)
    gone = sorted(seen.dirs.keys() - set(named))
    if not gone or len(gone) == len(seen.dirs):
        return []
    path = os.path.join(state_dir, LOG_DIRS_FILE_NAME)
    try:
        document = parse_json(read_regular(path, _LOG_DIRS_LIMIT), integers=bounded)
        kept = {name: id_ for name, id_ in seen.dirs.items() if name not in gone}
        with whole_file(path, mode=0o640) as file:
            file.write(json.dumps(document | {"log_dirs": kept}).encode())
    except (OSError, UnreadableError):
        return []
    return gone


FILE_NAME = "version-seen.json"
_LIMIT = FileLimit(FILE_NAME, 1 << 16)


def read_version_seen(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> LastRun:
    """What this broker last ran as. While its cluster or node is unknown, the memory counts all the same: it can only
    forbid."""
    if state_dir is None:
        return LastRun()
    path = os.path.join(state_dir, FILE_NAME)
    try:
        document = parse_json(read_regular(path, _LIMIT), integers=bounded)
        remembered, node = str(document["cluster_id"]), int(document["node_id"])
        version = tuple(map(int, document["version"]))
    except (FileNotFoundError, NotADirectoryError):
        return LastRun(file=path)
    except OSError as e:
        return LastRun(unread=f"{path}, which says what ran last, cannot be read: {e.strerror or e}", file=path)
    except (UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return LastRun(unread=f"{path}, which says what ran last, is damaged", file=path)
    # Before 2.4 there was no cluster id to remember; what ran then counts until a newer version has served.
    if (remembered and cluster_id not in (None, remembered)) or node_id not in (None, node):
        return LastRun(file=path)
    if len(version) != 3 or min(version) < 0:
        return LastRun(unread=f"{path}, which says what ran last, is damaged", file=path)
    return LastRun(version, file=path)


def write_version_seen(state_dir: str, cluster_id: str, node_id: int, version: Version) -> None:
    """Replace the whole file, durably. Where there is no room for another one (a full disk), it is overwritten: torn it
    is an unknown version."""
    path = os.path.join(state_dir, FILE_NAME)
    content = json.dumps({"cluster_id": cluster_id, "node_id": node_id, "version": version}).encode()
    try:
        with whole_file(path, mode=0o640) as file:
            file.write(content)
    except OSError:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        # If this fails too, what was seen before stays, or is torn and counts as unknown.
        with suppress(OSError), open(os.open(path, flags), "wb") as file:
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
