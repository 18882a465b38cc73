"""Which log dirs are offline and why: Kafka's `LogDirFailureChannel`, for this process."""

from __future__ import annotations

import errno
import threading
from types import MappingProxyType

from logagent.errors import KafkaStorageError

# Errors of a failing disk (or of one that went away); the table is in `logagent.host.disk`.
OFFLINE_ERRNOS = frozenset(
    {
        errno.EIO,
        errno.EREMOTEIO,
        errno.EROFS,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOMEDIUM,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ECONNABORTED,
        errno.ESHUTDOWN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EUCLEAN,
        errno.EBADMSG,
    }
)


class LogDirFailures:
    """Which log dirs are offline and why: the first failure wins and is recorded once. Safe for threads.

    Deviation from `LogDirFailureChannel`: `recovered` takes a log dir back after enough good probes; Kafka waits for a
    restart.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._mutex = threading.Lock()

    def mark_offline(self, path: str, reason: str) -> bool:
        """Record the failure; True if it is the first of this log dir."""
        with self._mutex:
            if path in self._reasons:
                return False
            self._reasons[path] = reason
            return True

    def recovered(self, path: str) -> None:
        with self._mutex:
            self._reasons.pop(path, None)

    def reason(self, path: str) -> str | None:
        """Why `path` is offline; None if it is not."""
        return self._reasons.get(path)

    def offline(self) -> MappingProxyType[str, str]:
        """All offline log dirs with their reasons, as of now."""
        with self._mutex:
            return MappingProxyType(dict(self._reasons))

    def check(self, path: str) -> None:
        """Raise `KafkaStorageError` if `path` is offline."""
        reason = self._reasons.get(path)
        if reason is not None:
            raise KafkaStorageError(f"log dir {path} is offline: {reason}", log_dir=path)
