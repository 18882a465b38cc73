"""The addresses of this cluster's brokers when it was last confirmed to be this host's cluster: a file in the state
dir.

While this host's broker is down, only these may answer for it. A file that is missing, damaged or of another cluster
counts as none seen.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from logagent.errors import UnreadableError
from logagent.files.safe_open import FileLimit, parse_json, read_regular
from logagent.model.assignments.identity import BrokerPlace

FILE_NAME = "brokers-seen.json"
_LIMIT = FileLimit(FILE_NAME, 1 << 20)


def read_brokers_seen(state_dir: str, cluster_id: str | None) -> frozenset[BrokerPlace]:
    """The brokers of `cluster_id`; empty if the file has none for it."""
    try:
        found = parse_json(read_regular(os.path.join(state_dir, FILE_NAME), _LIMIT))
        if cluster_id is None or found["cluster_id"] != cluster_id:
            return frozenset()
        places = [(int(node_id), str(host), int(port)) for node_id, host, port in found["brokers"]]
    except (OSError, UnreadableError, ValueError, TypeError, KeyError, OverflowError):
        return frozenset()
    return frozenset(BrokerPlace(*place) for place in places)


def write_brokers_seen(state_dir: str, cluster_id: str, places: frozenset[BrokerPlace]) -> None:
    """Replace the whole file. If it cannot be written, less can be proved later; nothing else follows."""
    path = os.path.join(state_dir, FILE_NAME)
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
