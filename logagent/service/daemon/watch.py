"""inotify on the log dirs, as a hint that something was marked for deletion. The scan is the truth.

Events get lost in bursts, and a log dir that is renamed away or unmounted sends none; so a hint only makes the next
look come earlier, and nothing depends on it. Not recursive (a watch per partition would drown in appends), directory
events only.

Adding a watch follows a path, which can hang on a dead disk: a separate thread does it, and until it is done the log
dirs count as not watched.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

_LIMITS = {
    errno.ENOSPC: "the limit of inotify watches is reached (sysctl fs.inotify.max_user_watches)",
    errno.EMFILE: "the limit of inotify instances is reached (sysctl fs.inotify.max_user_instances)",
}


class DirWatch:
    """Calls `hint(log_dir, name)` when a directory appears in a log dir or gets a name there.

    Called in watchdog's thread, so it must return at once. `on_events()` is called when the result of `problems` has
    changed.
    """

    def __init__(self, hint: Callable[[str, str], None], on_events: Callable[[], None] = lambda: None) -> None:
        self._hint = hint
        self._on_events = on_events
        self._mutex = threading.Lock()
        self._wanted: dict[str, Hashable] = {}
        self._watched: dict[str, tuple[Hashable, ObservedWatch]] = {}
        self._stale: set[str] = set()
        self._problems: dict[str, str] = {}
        self._observer: BaseObserver | None = None
        self._changing: threading.Thread | None = None
        self._ended = False

    def follow(self, log_dirs: Mapping[str, Hashable]) -> None:
        """Watch exactly these directories. The value identifies the directory now at that path (device, inode, mount).
        If it has changed, a new watch is added, because a watch stays with the directory and not with its path."""
        with self._mutex:
            if self._ended or (log_dirs == self._wanted and not self._problems and not self._stale):
                return
            self._wanted = dict(log_dirs)
            if self._changing is not None:
                return
            changing = threading.Thread(target=self._change, name="logagent-watch", daemon=True)
            try:
                changing.start()
            except RuntimeError as e:  # the next inventory tries again; until then the queue is polled
                self._problems = dict.fromkeys(log_dirs, str(e))
            else:
                self._changing = changing
                return
        self._on_events()

    def renew(self, paths: Iterable[str]) -> None:
        """Discard any watches on these: the next `follow` adds new ones."""
        with self._mutex:
            self._stale.update(paths)

    def problems(self) -> dict[str, str]:
        """Log dirs that are not watched at present, with the reason; empty if all are watched."""
        with self._mutex:
            behind = {path: "it is not watched yet" for path in self._wanted if path not in self._watched}
            return behind | self._problems

    def settle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the last `follow` to finish; whether it has."""
        changing = self._changing
        if changing is not None:
            changing.join(timeout)
        return self._changing is None

    def close(self) -> None:
        with self._mutex:
            self._ended = True
            observer, self._observer = self._observer, None
        # A watch that hangs holds the observer's lock; then it is left behind, like everything on a dead disk.
        if observer is not None and self.settle(0.2):
            observer.stop()
            observer.join(0.5)

    def _change(self) -> None:
        while True:
            with self._mutex:
                wanted, stale = dict(self._wanted), self._stale
                self._stale = set()
            try:
                self._update_watches(wanted, stale)
            except Exception as e:  # or no change would ever follow this one
                with self._mutex:
                    self._problems = dict.fromkeys(wanted, repr(e))
            with self._mutex:
                if (wanted == self._wanted and not self._stale) or self._ended:
                    self._changing = None
                    break
        self._on_events()

    def _update_watches(self, wanted: Mapping[str, Hashable], stale: Collection[str]) -> None:
        for path, (identity, watch) in list(self._watched.items()):
            if wanted.get(path) != identity or path in stale:
                self._drop(path, watch)
        problems: dict[str, str] = {}
        for path, identity in wanted.items():
            if path not in self._watched and (problem := self._add(path, identity)) is not None:
                problems[path] = problem
        with self._mutex:
            self._problems = problems

    def _drop(self, path: str, watch: ObservedWatch) -> None:
        with self._mutex:
            del self._watched[path]
        try:
            if self._observer is not None:
                self._observer.unschedule(watch)
        except (KeyError, OSError):
            pass

    def _add(self, path: str, identity: Hashable) -> str | None:
        try:
            observer = self._started()
            watch = observer.schedule(_handler(path, self._hint), path, event_filter=_events())
        except OSError as e:
            return _LIMITS.get(e.errno or 0) or e.strerror or str(e)
        except RuntimeError as e:  # no thread
            return str(e)
        with self._mutex:
            self._watched[path] = (identity, watch)
        return None

    def _started(self) -> BaseObserver:
        from watchdog.observers import Observer

        if self._observer is None:
            observer = Observer()
            observer.start()
            self._observer = observer
        return self._observer


def _events() -> list[type[FileSystemEvent]]:
    from watchdog.events import DirCreatedEvent, DirMovedEvent

    return [DirCreatedEvent, DirMovedEvent]


def _handler(path: str, hint: Callable[[str, str], None]) -> Any:
    from watchdog.events import FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            name = os.path.basename(os.fsdecode(event.dest_path or event.src_path))
            hint(path, name)

    return Handler()
