"""Free ports on 127.0.0.1, reserved for as long as they are held.

They lie below the range from which the kernel serves outgoing connections, so nobody takes one by chance between two
starts of a broker; other test runs on the machine are kept away by a lock file per port.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

LOWEST, HIGHEST = 20000, 31999


class Ports:
    """Reserved ports; `close()` gives all of them back."""

    def __init__(self) -> None:
        self._locks: list[int] = []
        self._dir = Path(tempfile.gettempdir()) / f"logagent-test-ports-{os.getuid()}"
        self._dir.mkdir(exist_ok=True)

    def take(self) -> int:
        """One more port that nobody listens on and no other test run has reserved."""
        for _ in range(1000):
            port = random.randint(LOWEST, HIGHEST)
            lock = os.open(self._dir / str(port), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                os.close(lock)
                continue
            self._locks.append(lock)
            return port
        raise RuntimeError(f"no free port between {LOWEST} and {HIGHEST}")

    def close(self) -> None:
        while self._locks:
            os.close(self._locks.pop())
