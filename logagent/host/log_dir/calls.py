"""Calls to disks that may never answer: who waits for them, for how long, and what becomes of one that is given up.

A call to a hung disk cannot be ended. So the daemon makes each in a thread of its own and waits until it is done, or
the log dir is offline (the prober found out), or, for a short look, the limit is over. Then the call is **given up**:
its waiter gets `KafkaStorageError`, and the thread is left behind. Three things keep it from doing harm when the disk
comes back after all:

- its `stop()` is true from then on, and whatever asks before each change (`StoppableInterlock`)
  permits none;
- no descriptor of its log dir is closed before it has returned (`close`): the number would go to another directory,
  and the sleeper would act on that;
- as long as it sits there no other call on that log dir is begun.

That is `logagent.host.log_dir.bounded_calls`. Commands (`DirectCalls`) just call: whoever waits for them can press
Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from logagent.broker.process.lock import HolderWatch, Interlock, LockLook
from logagent.errors import KafkaStorageError, LogAgentError

T = TypeVar("T")
Stop = Callable[[], bool]


class DiskCalls(Protocol):
    """Whatever may wait for a disk goes through one of these. `path` is the configured one of the log dir."""

    # Whether log dirs are worked on at the same time.
    parallel: bool

    def look(self, path: str, fn: Callable[[], T]) -> T:
        """`fn()`, a short one."""
        ...

    def looks(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        """Short looks at several log dirs, by path: each one's result or our error, in the order of `jobs`.

        `undo(result)` is called if one comes back when nobody waits for it any more. Other errors pass through, when
        all have ended.
        """
        ...

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        """As `looks`, for work that takes as long as it takes while its log dir is online: `fn(stop)` asks `stop`
        before each change, and ends when it is true."""
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
        """`fn()`, which may touch all of the log dirs `of`, but none of their open descriptors. No log dir is blamed
        when it takes longer than `limit` seconds. Raises KafkaStorageError then, when one of them goes offline, and
        where several earlier ones of the same name hang."""
        ...

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        """Run `close` as soon as no call on one of `paths` is under way: now, or when the last one returns."""
        ...

    def hanging(self, path: str) -> bool:
        """Whether a call on `path` that was given up has not returned yet."""
        ...


class DirectCalls:
    """Calls in the thread that asks, one after the other; waits as long as the disk does."""

    parallel = False

    def look(self, path: str, fn: Callable[[], T]) -> T:
        return fn()

    def looks(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        return {path: caught(job) for path, job in jobs.items()}

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        return {path: caught(partial(job, never)) for path, job in jobs.items()}

    def ask(
        self,
        what: str,
        fn: Callable[[], T],
        *,
        of: Iterable[str],
        limit: float,
        undo: Callable[[T], None] | None = None,
    ) -> T:
        return fn()

    def close(self, paths: Sequence[str], close: Callable[[], None]) -> None:
        close()

    def hanging(self, path: str) -> bool:
        return False


class NotedCalls(DirectCalls):
    """The same; `note` is told which log dir comes next."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def look(self, path: str, fn: Callable[[], T]) -> T:
        self._note(path)
        return fn()

    def looks(
        self, jobs: Mapping[str, Callable[[], T]], *, undo: Callable[[T], None] | None = None
    ) -> dict[str, T | LogAgentError]:
        return {path: caught(partial(self.look, path, job)) for path, job in jobs.items()}

    def work(self, jobs: Mapping[str, Callable[[Stop], T]]) -> dict[str, T | LogAgentError]:
        return self.looks({path: partial(job, never) for path, job in jobs.items()})


def caught(fn: Callable[[], T]) -> T | LogAgentError:
    try:
        return fn()
    except LogAgentError as error:
        return error


def never() -> bool:
    return False


class StoppableInterlock(Interlock):
    """An interlock that permits nothing any more once `stop()` is true: a call that was given up wakes up to this.

    It is asked at each look, and a look is good for 2 ms, so the removal of a file costs nothing for it.
    """

    __slots__ = ("_stop",)

    def __init__(self, dir_fd: int, log_dir: str, stop: Stop) -> None:
        super().__init__(dir_fd, log_dir)
        self._stop = stop

    def _judge(self, seen: LockLook) -> None:
        refuse_if(self._stop, self._log_dir)
        super()._judge(seen)


class StoppableHolderWatch(HolderWatch):
    """The same for the strays of a serving broker."""

    __slots__ = ("_stop",)

    def __init__(self, dir_fd: int, log_dir: str, pid: int | None, stop: Stop) -> None:
        super().__init__(dir_fd, log_dir, pid)
        self._stop = stop

    def _judge(self, seen: LockLook) -> None:
        refuse_if(self._stop, self._log_dir)
        super()._judge(seen)


def refuse_if(stop: Stop, log_dir: str) -> None:
    if stop():
        raise KafkaStorageError(f"the work on {log_dir} was given up: it did not answer", log_dir=log_dir)
