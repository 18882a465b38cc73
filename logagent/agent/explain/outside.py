"""Searches what is outside the log dirs on their file systems, each in a thread of its own, which is not waited for
longer than its time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from logagent.agent.session.session import Session
from logagent.host.inventory.outside import LeftOut, mount_points_of, search_outside
from logagent.host.linux.mounts import mounts
from logagent.host.log_dir.bounded_calls import Task
from logagent.model.outside import Outside

SECONDS: Final = 10.0
"""For how long one file system is searched."""
# A call to its disk may take longer than the time that is left.
_GRACE_SECONDS = 2.0


class OutsideSearch:
    """Begins at once, on every file system with a log dir that can be read."""

    def __init__(self, session: Session, log_dirs: Iterable[str], seconds: float = SECONDS) -> None:
        self._monotonic = session.clock.monotonic
        self._ends = self._monotonic() + seconds + _GRACE_SECONDS
        opened = session.log_dirs.opened()
        try:
            table = mounts()
        except OSError:  # then mount points cannot be told from directories
            table = []
        # Log dirs that are offline are not entered either.
        paths = {os.path.normpath(path) for path in log_dirs} | {m.point for m in table}
        canonical = {path: os.readlink(f"/proc/self/fd/{log_dir.fd}") for path, log_dir in opened.items()}
        self._tasks: dict[int, Task[Outside | None]] = {}
        for path, log_dir in opened.items():
            device = log_dir.identity.device
            if device in self._tasks or path not in session.inventories or not table:
                continue
            inodes = frozenset(o.identity.inode for o in opened.values() if o.identity.device == device)
            search = partial(
                search_outside,
                mount_points_of(canonical[path], device, table),
                device,
                LeftOut(paths | set(canonical.values()), inodes),
                session.inventories[path].used,
                seconds,
                self._monotonic,
            )
            self._tasks[device] = Task(f"logagent-outside {path}", search)
            self._tasks[device].start()

    def results(self) -> Mapping[int, Outside]:
        """By device; of one that does not answer, that it does not."""
        found: dict[int, Outside] = {}
        for device, task in self._tasks.items():
            if not task.join(max(self._ends - self._monotonic(), 0)):
                found[device] = Outside("", unfinished="the file system does not answer")
                continue
            try:
                outside = task.outcome()
            except OSError as error:
                outside = Outside("", unfinished=error.strerror or str(error))
            found[device] = outside or Outside("", unfinished="its mount point cannot be opened")
        return found
