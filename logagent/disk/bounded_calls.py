"""Calls to disks in separate threads, abandoned when the log dir goes offline: see `logagent.disk.calls`."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Generic, TypeVar, cast

from logagent.base.errors import ItemFailed, KafkaStorageError, LogAgentError
from logagent.disk.calls import LogDirFailures, Stop, caught

T = TypeVar("T")


class Task(Generic[T]):
    """One piece of work in a separate thread, which may be stuck in a call to a hung disk (or server) forever: the only
    kind of such threads. It cannot be ended: a waiter stops waiting, and leaves it behind as a daemon thread.

    Runs `fn` once `start` is called. `done` is set when it has ended, in whatever way; only then ask for `outcome`.
    """

    def __init__(self, name: str, fn: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._result: T | None = None
        self._fn = fn
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Raises RuntimeError if the system cannot start another thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for it; whether it has ended."""
        return self.done.wait(timeout)

    def outcome(self) -> T:
        """What `fn` returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return cast(T, self._result)

    def _run(self) -> None:
        try:
            self._result = self._fn()
        except BaseException as error:
            self.error = error
        try:
            self.ended()
        finally:
            self.done.set()

    def ended(self) -> None:
        """For subclasses: what else is done in its thread before `done`."""


# How often a waiter checks whether the log dir has gone offline, and reports that it is itself alive.
_WAKE_SECONDS = 0.2
# A call whose log dir has just gone offline usually returns by itself, with that error or because of `stop`.
_GRACE_SECONDS = 1.0
# Work that has not called `stop` for this long may hang where nothing is probed (the journal's disk): its waiter
# no longer reports that all is well.
_QUIET_SECONDS = 60.0
# A call of `ask` that hangs (on a disk not known to hang) is repeated for the other disks, but not forever.
_MOST_QUESTIONS = 3


class _Call(Task[T]):
    """One call. `given_up` is set under the mutex of `BoundedCalls`, and never after the call has returned."""

    def __init__(
        self,
        owner: BoundedCalls,
        path: str,
        fn: Callable[[Stop], T],
        undo: Callable[[T], None] | None,
        of: frozenset[str],
    ) -> None:
        super().__init__(f"logagent-call {path}", lambda: fn(self.stop))
        self.path = path
        self.given_up: str | None = None
        self._failures = owner.failures
        self._since = {p: owner.failures.count(p) for p in of}
        self._owner = owner
        self.asked = owner.monotonic()
        self._undo = undo

    def offline(self) -> str | None:
        """Why one of its log dirs is offline, or was since the call started."""
        for path, since in self._since.items():
            reason = self._failures.reason(path, since)
            if reason is not None:
                return f"log dir {path} is offline: {reason}"
        return None

    def stop(self) -> bool:
        """Called by the work itself, which shows that it is alive."""
        self.asked = self._owner.monotonic()
        return self.is_over()

    def is_over(self) -> bool:
        return self.given_up is not None or self.offline() is not None

    def ended(self) -> None:
        self._owner.returned(self)
        if self.given_up is not None and self.error is None and self._undo is not None:
            # Nobody is left to report an error to.
            with suppress(Exception):
                self._undo(super().outcome())

    def outcome(self) -> T:
        if self.given_up is not None:
            raise KafkaStorageError(self.given_up, log_dir=self.path)
        return super().outcome()


class BoundedCalls:
    """Calls in separate threads, abandoned when their log dir goes offline. Thread-safe; calls may be nested.

    limit_seconds: how long a short call may take before its log dir is marked offline. The waiter calls `beat` several
    times a second as long as the work shows signs of life.
    """

    parallel = True

    def __init__(
        self,
        failures: LogDirFailures,
        limit_seconds: float,
        *,
        beat: Callable[[], None] = lambda: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = failures
        self.limit_seconds = limit_seconds
        self.beat = beat
        self.monotonic = monotonic
        self._mutex = threading.Lock()
        self._active: dict[str, list[_Call[Any]]] = {}
        self._closing: list[tuple[frozenset[str], Callable[[], None]]] = []

    def call(self, path: str, fn: Callable[[], T]) -> T:
        """As `DiskCalls.call`. When the limit is over it marks the log dir offline and raises KafkaStorageError."""
        (result,) = self.call_each({path: fn}).values()
        if isinstance(result, LogAgentError):
            raise result
        return result

    def call_each(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        """As `DiskCalls.call_each`; marks a log dir offline if its call takes longer than the limit."""
        started = {path: self._begin(path, lambda stop, fn=fn: fn(), undo) for path, fn in jobs.items()}  # type: ignore[misc]
        late = self._wait([call for call in started.values() if isinstance(call, _Call)], self.limit_seconds)
        for call in late:
            reason = f"it did not answer within {self.limit_seconds:g} s"
            self._give_up(call, f"log dir {call.path} is offline: {reason}")
            self.failures.mark_offline(call.path, reason)
        return _outcomes(started)

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        """As `DiskCalls.work`; the prober, not this, finds a log dir that hangs."""
        started = {path: self._begin(path, fn, None) for path, fn in jobs.items()}
        self._wait([call for call in started.values() if isinstance(call, _Call)], None)
        return _outcomes(started)

    def ask(
        self,
        what: str,
        fn: Callable[[], T],
        *,
        of: Iterable[str],
        limit: float,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        call = self._begin(what, lambda stop: fn(), undo, frozenset(of))
        if isinstance(call, LogAgentError):
            raise call
        for late in self._wait([call], limit):
            self._give_up(late, f"{what} did not finish within {limit:g} s")
        return call.outcome()

    def at(self, path: str) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        """As `DiskCalls.close`. Waits for `close` itself no longer than the limit (closing the last descriptor of a
        lazily unmounted file system detaches it, which can hang too), and not at all if a log dir is offline."""
        users = frozenset(paths)
        with self._mutex:
            if not users.isdisjoint(self._active):
                self._closing.append((users, close))
                return
        closer = Task(f"logagent-close {paths[0]}", close)
        try:
            closer.start()
        except RuntimeError:
            # The thread limit. Left open, the log dir would stay locked by us (`hold_log_dirs`) as long as we run.
            with suppress(OSError):  # of a dead disk; the descriptor is gone all the same
                close()
            return
        if all(self.failures.reason(path) is None for path in paths):
            closer.join(self.limit_seconds)

    def hanging(self, path: str) -> bool:
        with self._mutex:
            return any(call.is_over() for call in self._active.get(path, ()))

    def _begin(
        self,
        path: str,
        fn: Callable[[Stop], T],
        undo: Callable[[T], None] | None,
        of: frozenset[str] | None = None,
    ) -> _Call[T] | LogAgentError:
        call = _Call(self, path, fn, undo, frozenset({path}) if of is None else of)
        with self._mutex:
            offline = self.failures.reason(path) if of is None else None
            hanging = sum(earlier.is_over() for earlier in self._active.get(path, ()))
            if offline is None and hanging > (0 if of is None else _MOST_QUESTIONS):
                offline = "an earlier call is still hanging"
            if offline is not None:
                what = f"log dir {path} is offline" if of is None else path
                return KafkaStorageError(f"{what}: {offline}", log_dir=path)
            self._active.setdefault(path, []).append(call)
        try:
            call.start()
        except RuntimeError as e:
            # The thread limit (systemd's TasksMax). Only this call fails: the others are still waited for, and what
            # they open is closed.
            self.returned(call)
            return ItemFailed(f"cannot start a thread for {path}: {e}", path=path, errno=errno.EAGAIN)
        return call

    def _wait(self, calls: Sequence[_Call[T]], limit: float | None) -> list[_Call[T]]:
        """Wait until each is done or abandoned because its log dir is offline; returns those still running when the
        limit is over."""
        deadline = None if limit is None else self.monotonic() + limit
        found_offline: dict[_Call[T], float] = {}
        pending = list(calls)
        while pending:
            pending[0].done.wait(_WAKE_SECONDS)
            pending = [call for call in pending if not call.done.is_set()]
            if not pending:
                break
            now = self.monotonic()
            if limit is not None or any(now - call.asked < _QUIET_SECONDS for call in pending):
                self.beat()
            for call in pending:
                why = call.offline()
                if why is not None and now - found_offline.setdefault(call, now) >= _GRACE_SECONDS:
                    self._give_up(call, why)
            pending = [call for call in pending if call.given_up is None]
            if deadline is not None and now >= deadline:
                return pending
        return []

    def _give_up(self, call: _Call[Any], why: str) -> None:
        with self._mutex:
            if call in self._active.get(call.path, ()):
                call.given_up = why

    def returned(self, call: _Call[Any]) -> None:
        """The thread of `call` is about to end: close what waited for it."""
        with self._mutex:
            self._active[call.path].remove(call)
            if not self._active[call.path]:
                del self._active[call.path]
            closing = [close for users, close in self._closing if users.isdisjoint(self._active)]
            self._closing = [pair for pair in self._closing if not pair[0].isdisjoint(self._active)]
        for close in closing:
            with suppress(OSError):  # of a dead disk; the descriptor is gone all the same
                close()


def _outcomes(started: Mapping[str, _Call[T] | LogAgentError]) -> dict[str, T | LogAgentError]:
    """Results and LogAgentErrors; raises the first error that is none."""
    return {path: caught(call.outcome) if isinstance(call, _Call) else call for path, call in started.items()}
