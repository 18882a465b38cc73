"""Where the brokers of this cluster listened when it was last known to be this host's own: a file in the state dir.

While this host's broker is down, only these may answer for it. A file that is missing, damaged or of another cluster
says that none was seen.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from logagent.errors import UnreadableError
from logagent.files.limits import FileLimit
from logagent.files.safe_open import read_regular
from logagent.model.assignments.identity import BrokerPlace

FILE_NAME = "brokers-seen.json"
_LIMIT = FileLimit(FILE_NAME, 1 << 20)


def read_brokers_seen(state_dir: str, cluster_id: str | None) -> frozenset[BrokerPlace]:
    """The brokers of `cluster_id`; empty where the file says nothing of it."""
    try:
        found = json.loads(read_regular(os.path.join(state_dir, FILE_NAME), _LIMIT))
        if cluster_id is None or found["cluster_id"] != cluster_id:
            return frozenset()
        places = [(int(node_id), str(host), int(port)) for node_id, host, port in found["brokers"]]
    except (OSError, UnreadableError, ValueError, TypeError, KeyError):
        return frozenset()
    return frozenset(BrokerPlace(*place) for place in places)


def write_brokers_seen(state_dir: str, cluster_id: str, places: frozenset[BrokerPlace]) -> None:
    """Replace the file whole. What cannot be written is missing later, which only proves less."""
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
