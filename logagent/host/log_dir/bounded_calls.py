"""Calls to disks in threads of their own, given up when the log dir goes offline: see `logagent.host.log_dir.calls`."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from logagent.errors import ItemFailed, KafkaStorageError, LogAgentError
from logagent.host.log_dir.calls import Stop, T, caught
from logagent.host.log_dir.failures import LogDirFailures
from logagent.host.log_dir.task import Task

# How often a waiter looks whether the log dir went offline meanwhile, and says that it is still there itself.
_WAKE_SECONDS = 0.2
# A call whose log dir has just gone offline mostly returns by itself, with that error or because of `stop`.
_GRACE_SECONDS = 1.0
# Work that has not asked for so long whether to stop may hang where no prober looks (the journal's disk): whoever waits
# for it says no more that all is well.
_QUIET_SECONDS = 60.0
# A question that hangs (on a disk that nobody had known to hang) is asked again, of the other disks; but not for ever.
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
        """Why one of its log dirs is offline, or was since the call began."""
        for path, since in self._since.items():
            reason = self._failures.reason(path, since)
            if reason is not None:
                return f"log dir {path} is offline: {reason}"
        return None

    def stop(self) -> bool:
        """For the work itself to ask: a sign of life."""
        self.asked = self._owner.monotonic()
        return self.is_over()

    def is_over(self) -> bool:
        return self.given_up is not None or self.offline() is not None

    def ended(self) -> None:
        self._owner.returned(self)
        if self.given_up is not None and self.error is None and self._undo is not None:
            # Nobody is left to hear of an error.
            with suppress(Exception):
                self._undo(super().outcome())

    def outcome(self) -> T:
        if self.given_up is not None:
            raise KafkaStorageError(self.given_up, log_dir=self.path)
        return super().outcome()


class BoundedCalls:
    """Calls in threads of their own, given up when their log dir goes offline. Safe for threads, and may be nested.

    limit_seconds: what a short look may take before its log dir is marked offline. `beat` is called several times a
    second by whoever waits, as long as the work that is waited for shows signs of life itself.
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

    def look(self, path: str, fn: Callable[[], T]) -> T:
        """As `DiskCalls.look`. Raises KafkaStorageError, with the log dir offline, when the limit is over."""
        (result,) = self.looks({path: fn}).values()
        if isinstance(result, LogAgentError):
            raise result
        return result

    def looks(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        """As `DiskCalls.looks`; for one that takes longer than the limit the log dir is marked offline."""
        begun = {path: self._begin(path, lambda stop, fn=fn: fn(), undo) for path, fn in jobs.items()}  # type: ignore[misc]
        late = self._wait([call for call in begun.values() if isinstance(call, _Call)], self.limit_seconds)
        for call in late:
            reason = f"it did not answer within {self.limit_seconds:g} s"
            self._give_up(call, f"log dir {call.path} is offline: {reason}")
            self.failures.mark_offline(call.path, reason)
        return _outcomes(begun)

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        """As `DiskCalls.work`; a log dir that hangs is found by the prober, not here."""
        begun = {path: self._begin(path, fn, None) for path, fn in jobs.items()}
        self._wait([call for call in begun.values() if isinstance(call, _Call)], None)
        return _outcomes(begun)

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
            self._give_up(late, f"{what} did not come to an end within {limit:g} s")
        return call.outcome()

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        """As `DiskCalls.close`; waits for `close` itself no longer than the limit (the last descriptor of a file system
        that was unmounted lazily ends it, and that can hang too), and not at all where a log dir is offline."""
        users = frozenset(paths)
        with self._mutex:
            if not users.isdisjoint(self._active):
                self._closing.append((users, close))
                return
        closer = threading.Thread(target=close, name=f"logagent-close {paths[0]}", daemon=True)
        closer.start()
        if all(self.failures.reason(path) is None for path in paths):
            closer.join(self.limit_seconds)

    def hanging(self, path: str) -> bool:
        with self._mutex:
            return any(call.is_over() for call in self._active.get(path, ()))

    # Behind the scenes

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
                offline = "an earlier call still hangs"
            if offline is not None:
                what = f"log dir {path} is offline" if of is None else path
                return KafkaStorageError(f"{what}: {offline}", log_dir=path)
            self._active.setdefault(path, []).append(call)
        try:
            call.start()
        except RuntimeError as e:
            # The limit of threads (systemd's TasksMax). An error of this call alone: those beside it are waited for,
            # and what they open is closed.
            self.returned(call)
            return ItemFailed(f"cannot start a thread for {path}: {e}", path=path, errno=errno.EAGAIN)
        return call

    def _wait(self, calls: Sequence[_Call[T]], limit: float | None) -> list[_Call[T]]:
        """Until each is done or given up because its log dir is offline; those that the limit finds still at it."""
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
        """The thread of `call` is about to end: what waited for that to be closed is closed now."""
        with self._mutex:
            self._active[call.path].remove(call)
            if not self._active[call.path]:
                del self._active[call.path]
            closing = [close for users, close in self._closing if users.isdisjoint(self._active)]
            self._closing = [pair for pair in self._closing if not pair[0].isdisjoint(self._active)]
        for close in closing:
            with suppress(OSError):
                close()


def _outcomes(begun: Mapping[str, _Call[T] | LogAgentError]) -> dict[str, T | LogAgentError]:
    """Results and our errors; the first error that is not ours is raised."""
    return {path: caught(call.outcome) if isinstance(call, _Call) else call for path, call in begun.items()}
