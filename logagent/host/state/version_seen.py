"""The version of Kafka that this host's broker had when it was last seen running: a file in the state dir.

A stopped broker shows no version, and `kafka.version` may be left over from an upgrade that was rolled back. No file
means that nothing was seen. A file of another cluster or node (a state dir of another host, a broker set up from
scratch) counts as none. One that cannot be read, or is damaged, counts as an unknown version: never as a newer one.

The addresses of this cluster's brokers when it was last confirmed to be this host's cluster: a file in the state
dir.

While this host's broker is down, only these may answer for it. A file that is missing, damaged or of another cluster
counts as none seen.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from logagent.errors import UnreadableError
from logagent.files.safe_open import FileLimit, bounded, parse_json, read_regular
from logagent.model.assignments.identity import BrokerPlace
from logagent.model.kafka_version import LastRun, Version

BROKERS_FILE_NAME = "brokers-seen.json"
_BROKERS_LIMIT = FileLimit(BROKERS_FILE_NAME, 1 << 20)


def read_brokers_seen(state_dir: str, cluster_id: str | None) -> frozenset[BrokerPlace]:
    """The brokers of `cluster_id`; empty if the file has none for it."""
    try:
        found = parse_json(read_regular(os.path.join(state_dir, BROKERS_FILE_NAME), _BROKERS_LIMIT))
        if cluster_id is None or found["cluster_id"] != cluster_id:
            return frozenset()
        places = [(int(node_id), str(host), int(port)) for node_id, host, port in found["brokers"]]
    except (OSError, UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return frozenset()
    return frozenset(BrokerPlace(*place) for place in places)


def write_brokers_seen(state_dir: str, cluster_id: str, places: frozenset[BrokerPlace]) -> None:
    """Replace the whole file. If it cannot be written, less can be proved later; nothing else follows."""
    path = os.path.join(state_dir, BROKERS_FILE_NAME)
    temporary = f"{path}.{os.getpid()}.tmp"
    with suppress(OSError):
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
            with os.fdopen(fd, "w") as file:
                json.dump({"cluster_id": cluster_id, "brokers": sorted(places)}, file)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


FILE_NAME = "version-seen.json"
_LIMIT = FileLimit(FILE_NAME, 1 << 16)


def read_version_seen(state_dir: str | None, cluster_id: str | None, node_id: int | None) -> LastRun:
    """What this broker last ran as. While its cluster or node is unknown, the memory counts all the same: it can only
    forbid."""
    if state_dir is None:
        return LastRun()
    path = os.path.join(state_dir, FILE_NAME)
    try:
        found = parse_json(read_regular(path, _LIMIT), integers=bounded)
        theirs, node = str(found["cluster_id"]), int(found["node_id"])
        version = tuple(map(int, found["version"]))
    except (FileNotFoundError, NotADirectoryError):
        return LastRun(file=path)
    except OSError as e:
        return LastRun(unread=f"{path}, which says what ran last, cannot be read: {e.strerror or e}", file=path)
    except (UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return LastRun(unread=f"{path}, which says what ran last, is damaged", file=path)
    if cluster_id not in (None, theirs) or node_id not in (None, node):
        return LastRun(file=path)
    if len(version) != 3 or min(version) < 0:
        return LastRun(unread=f"{path}, which says what ran last, is damaged", file=path)
    return LastRun(version, file=path)


def write_version_seen(state_dir: str, cluster_id: str, node_id: int, version: Version) -> None:
    """Replace the whole file, durably. Where there is no room for another one (a full disk), it is overwritten: torn it
    is an unknown version."""
    path = os.path.join(state_dir, FILE_NAME)
    temporary = f"{path}.{os.getpid()}.tmp"
    said = json.dumps({"cluster_id": cluster_id, "node_id": node_id, "version": version}).encode()
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        _write(os.open(temporary, flags | os.O_CREAT | os.O_EXCL, 0o640), said)
        os.replace(temporary, path)
        directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError:
        with suppress(OSError):
            _write(os.open(path, flags), said)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _write(fd: int, said: bytes) -> None:
    try:
        while said:
            said = said[os.write(fd, said) :]
        os.ftruncate(fd, os.lseek(fd, 0, os.SEEK_CUR))
        os.fsync(fd)
    finally:
        os.close(fd)
