"""Calls to disks that may never answer: who waits for them, for how long, and what happens to a call that is given up.
And which log dirs are offline, and why: Kafka's `LogDirFailureChannel`, for this process.

A call to a hung disk cannot be ended. So the daemon makes each one in a separate thread and waits until it is done,
until the prober marks the log dir offline, or, for a short call, until the limit is over. Then the call is **given
up**: its waiter gets `KafkaStorageError`, and the thread is left behind. Three things keep the thread from doing harm
when the disk comes back after all:

- its `stop()` is true from then on, and the interlock that is checked before each change (`StoppableInterlock`) permits
  none;
- no descriptor of its log dir is closed before the call has returned (`close`): otherwise the number could be reused
  for another directory, and the thread would act on that;
- until it returns, no other call on that log dir is started.

`logagent.disk.bounded_calls` implements that. Commands (`DirectCalls`) call directly: their user can press
Ctrl-C.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeVar

from logagent.base.errors import KafkaStorageError, LogAgentError
from logagent.kafka.processes.lock import HolderWatch, Interlock, LockState

T = TypeVar("T")
Stop = Callable[[], bool]


class DiskCalls(Protocol):
    """Everything that may wait for a disk goes through one of these. `path` is the configured path of the log dir."""

    # Whether log dirs are worked on in parallel.
    parallel: bool

    def call(self, path: str, fn: Callable[[], T]) -> T:
        """`fn()`, which must be short."""
        ...

    def call_each(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        """Short calls on several log dirs, by path: each one's result or LogAgentError, in the order of `jobs`.

        `undo(result)` is called for a call that returns after its waiter has given up. Other errors are raised once all
        have ended.
        """
        ...

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        """As `call_each`, for work without a time limit while its log dir is online: `fn(stop)` calls `stop` before
        each change, and ends when it is true."""
        ...

    def ask(
        self,
        what: str,
        fn: Callable[[], T],
        *,
        of: Iterable[str],
        limit: float,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        """`fn()`, which may touch all of the log dirs `of`, but none of their open descriptors. Raises
        KafkaStorageError if it takes longer than `limit` seconds (no log dir is marked offline for that), if one of
        them goes offline, and if several earlier calls of the same name still hang."""
        ...

    def at(self, path: str) -> AbstractContextManager[None]:
        """A context manager: what is done in it may wait for `path`, in this thread and without a limit."""
        ...

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        """Run `close` as soon as no call on any of `paths` is under way: now, or when the last one returns."""
        ...

    def hanging(self, path: str) -> bool:
        """Whether a call on `path` that was given up has not returned yet."""
        ...


class DirectCalls:
    """Calls in the caller's thread, one after the other, without a time limit.

    `note` is called with what the (innermost) current call may wait for, and with None between calls.
    """

    parallel = False

    def __init__(self, note: Callable[[str | None], None] = lambda _: None) -> None:
        self._note = note
        self._under_way: list[str] = []

    @contextmanager
    def at(self, path: str) -> Iterator[None]:
        self._under_way.append(path)
        self._note(path)
        try:
            yield
        finally:
            self._under_way.pop()
            self._note(self._under_way[-1] if self._under_way else None)

    def call(self, path: str, fn: Callable[[], T]) -> T:
        with self.at(path):
            return fn()

    def call_each(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        return {path: caught(partial(self.call, path, job)) for path, job in jobs.items()}

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        return self.call_each({path: partial(job, never) for path, job in jobs.items()})

    def ask(
        self,
        what: str,
        fn: Callable[[], T],
        *,
        of: Iterable[str],
        limit: float,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        return self.call(what, fn)

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        close()

    def hanging(self, path: str) -> bool:
        return False


def caught(fn: Callable[[], T]) -> T | LogAgentError:
    try:
        return fn()
    except LogAgentError as error:
        return error


def never() -> bool:
    return False


class StoppableInterlock(Interlock):
    """An interlock that permits nothing once `stop()` is true, for a call that was given up and then wakes up.

    `stop` is called at each check of the lock, and a check is valid for 2 ms, so it adds no cost to the removal of a
    file.
    """

    __slots__ = ("_stop",)

    def __init__(self, dir_fd: int, log_dir: str, stop: Stop) -> None:
        super().__init__(dir_fd, log_dir)
        self._stop = stop

    def _judge(self, seen: LockState) -> None:
        refuse_if(self._stop, self._log_dir)
        super()._judge(seen)


class StoppableHolderWatch(HolderWatch):
    """The same for the strays of a serving broker."""

    __slots__ = ("_stop",)

    def __init__(self, dir_fd: int, log_dir: str, pid: int | None, stop: Stop) -> None:
        super().__init__(dir_fd, log_dir, pid)
        self._stop = stop

    def _judge(self, seen: LockState) -> None:
        refuse_if(self._stop, self._log_dir)
        super()._judge(seen)


def refuse_if(stop: Stop, log_dir: str) -> None:
    if stop():
        raise KafkaStorageError(f"the work on {log_dir} was given up: it did not answer", log_dir=log_dir)


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
