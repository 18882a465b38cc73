"""Reloads of the configuration, one at a time, in a separate thread because they look at paths, which may hang."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from logagent.agent.daemon.events import Events


class Reloader:
    """Calls `reload_now`. `announce` tells systemd that a reload starts."""

    def __init__(self, reload_now: Callable[[], None], announce: Callable[[], None], events: Events) -> None:
        self._reload_now = reload_now
        self._announce = announce
        self._events = events
        self._thread: threading.Thread | None = None
        self._again = False
        self._mutex = threading.Lock()

    def reload(self) -> None:
        """Start a reload. If one is under way (and may have read its file already), another one follows it. Raises
        RuntimeError if there is no thread for it."""
        with self._mutex:
            if self._thread is not None:
                if not self._again:
                    self._events.say("reload-queued", reason="an earlier reload is still running")
                self._again = True
                return
            self._thread = threading.Thread(target=self._run, name="logagent-reload", daemon=True)
        self._announce()
        try:
            self._thread.start()
        except RuntimeError:
            with self._mutex:
                self._thread = None
            raise

    @property
    def running(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        while True:
            try:
                self._reload_now()
            except Exception as e:
                self._events.say(
                    "internal-error", "error", job="reload", error=repr(e), traceback=traceback.format_exc()
                )
            with self._mutex:
                if not self._again:
                    self._thread = None
                    return
                self._again = False
            self._announce()
