"""Which log dirs are offline and why: Kafka's `LogDirFailureChannel`, for this process."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from types import MappingProxyType

from logagent.base.errors import KafkaStorageError

# Errors of a failing (or removed) disk; the table is in `logagent.disk.log_dir`.
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

Listener = Callable[[str, str], None]


class LogDirFailures:
    """Which log dirs are offline and why: the first failure wins and is recorded once. Thread-safe.

    Deviation from `LogDirFailureChannel`: `recovered` brings a log dir back online after enough good probes; Kafka
    needs a restart. An `OpenLogDir` from before the failure stays unusable: `count`, the number of failures, shows
    that.
    """

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._real_paths: dict[str, str] = {}
        self._listeners: list[Listener] = []
        self._mutex = threading.Lock()

    def mark_offline(self, path: str, reason: str) -> bool:
        """Record the failure; True if it is the first for this log dir. Only that one is passed to the listeners."""
        with self._mutex:
            if path in self._reasons:
                return False
            self._reasons[path] = reason
            self._counts[path] = self._counts.get(path, 0) + 1
            listeners = list(self._listeners)
        for listener in listeners:
            listener(path, reason)
        return True

    def recovered(self, path: str, reason: str | None = None) -> None:
        """Mark it online, for those who open it from now on. `reason`: only if this is why it is offline."""
        with self._mutex:
            if reason is None or self._reasons.get(path) == reason:
                self._reasons.pop(path, None)

    def reason(self, path: str, since: int | None = None) -> str | None:
        """Why `path` is offline; None if it is not. `since`: a `count`; being offline at any time after that also
        counts."""
        reason = self._reasons.get(path)
        if reason is None and since is not None and self._counts.get(path, 0) != since:
            return "it went offline for a while after it was opened"
        return reason

    def count(self, path: str) -> int:
        """How often `path` has gone offline so far."""
        return self._counts.get(path, 0)

    def offline(self) -> MappingProxyType[str, str]:
        """All offline log dirs with their reasons, as of now."""
        with self._mutex:
            return MappingProxyType(dict(self._reasons))

    def check(self, path: str, since: int | None = None) -> None:
        """Raise `KafkaStorageError` if `path` is offline (or has been since the given `count`)."""
        reason = self.reason(path, since)
        if reason is not None:
            raise KafkaStorageError(f"log dir {path} is offline: {reason}", log_dir=path)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(path, reason)` for every first failure, in the thread that found it. Returns a function that
        unregisters it.

        The listener must not block.
        """
        with self._mutex:
            self._listeners.append(listener)

        def stop() -> None:
            with self._mutex:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def note_real_path(self, path: str, real: str) -> None:
        """Remember where `path` leads, because that cannot be found out any more once the log dir hangs."""
        self._real_paths[path] = real

    def real_path(self, path: str) -> str:
        """Where `path` led when it was last opened; `path` itself if it never was."""
        return self._real_paths.get(path, path)
